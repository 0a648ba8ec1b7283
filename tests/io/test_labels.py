"""Labels keep what is written, and their type does not change with the file."""

import gzip

import numpy as np
import pandas as pd
import pytest
import scipy.io

from bitclass.io import DataFileError, open_rows


def csv(folder, labels, name="a"):
    path = folder / f"{name}.csv"
    path.write_text("x,label\n" + "".join(f"{i}.5,{label}\n" for i, label in enumerate(labels)))
    return path


def svmlight(folder, labels, name="a"):
    path = folder / f"{name}.svm"
    path.write_text("".join(f"{label} 1:{i}.5\n" for i, label in enumerate(labels)))
    return path


def lines(folder, labels, name="a"):
    np.save(folder / f"{name}.npy", np.zeros((len(labels), 1)))
    (folder / f"{name}.txt").write_text("".join(f"{label}\n" for label in labels))
    return folder / f"{name}.npy"


def npz(folder, labels, name="a"):
    np.savez(folder / f"{name}.npz", X=np.zeros((len(labels), 1)), y=np.array(labels))
    return folder / f"{name}.npz"


def parquet(folder, labels, name="a"):
    frame = pd.DataFrame({"x": np.arange(len(labels)) + 0.5, "label": labels})
    frame.to_parquet(folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


def read(path, **options):
    if not isinstance(path, list) and path.suffix == ".npy":
        options["labels_file"] = path.with_suffix(".txt")
    return np.concatenate([b.labels for b in open_rows(path, **options).batches(0, 2)])


written_text = pytest.mark.parametrize("write", [csv, lines])


@written_text
@pytest.mark.parametrize(
    ("labels", "is_integer"),
    [
        (["1", "-2", "0"], True),
        ([str(2**63 - 1), str(-(2**63))], True),
        ([" 1", "1 "], True),
        ([str(2**63), "1"], False),
        (["007", "07", "7"], False),
        (["1.0", "2"], False),
        (["1", "2", "3A"], False),
        (["1e3", "-0"], False),
        ([" a", "a", "a "], False),
    ],
)
def test_integers_only_if_all_are_written_so(tmp_path, write, labels, is_integer):
    found = read(write(tmp_path, labels))
    assert found.tolist() == ([int(label) for label in labels] if is_integer else labels)


def test_svmlight_labels_are_numbers(tmp_path):
    found = read(svmlight(tmp_path, ["+1", "-1", "3.0"]))
    assert (found.tolist(), found.dtype) == ([1, -1, 3], np.int64)
    assert read(svmlight(tmp_path, ["1", "2.5"])).tolist() == [1, 2.5]
    for label in ("cat", str(2**60), "1,2", ""):
        with pytest.raises(DataFileError, match=r"a\.svm"):
            read(svmlight(tmp_path, ["1", label]))


@pytest.mark.parametrize("write", [csv, svmlight, npz, parquet])
def test_the_type_is_decided_over_all_files(tmp_path, write):
    paths = [write(tmp_path, [1, 2], "one"), write(tmp_path, [2.5, 3], "two")]
    expected = ["1", "2", "2.5", "3"] if write is csv else [1.0, 2.0, 2.5, 3.0]
    assert read(paths).tolist() == expected
    assert read(paths[0]).tolist() == [1, 2]
    if write is not svmlight:
        paths[1] = write(tmp_path, ["2", "3A"], "two")
        assert read(paths).tolist() == ["1", "2", "2", "3A"]


def test_one_late_label_makes_all_text(tmp_path, monkeypatch):
    monkeypatch.setattr("bitclass.io.text_tables._BLOCK_BYTES", 1000)
    labels = [str(i % 7) for i in range(1000)]
    rows = open_rows(csv(tmp_path, [*labels, "none"]))
    assert next(rows.batches(0, 10)).labels.tolist() == labels[:10]
    assert list(rows.batches(1000, 10))[-1].labels.tolist() == ["none"]


@pytest.mark.parametrize("write", [csv, svmlight, lines, npz, parquet])
def test_the_classes_of_a_model_decide(tmp_path, write):
    path = write(tmp_path, [1, 2])
    assert read(path, classes=np.array(["1", "2", "3A"])).tolist() == ["1", "2"]
    assert read(path, classes=np.array([1, 2, 3], dtype=np.int8)).tolist() == [1, 2]
    found = read(path, classes=np.array([1.0, 2.5]))
    assert (found.tolist(), found.dtype) == ([1.0, 2.0], np.float64)
    assert read(path, classes=np.array([1], np.uint64)).dtype == np.uint64
    with pytest.raises(DataFileError, match=r"row 1 has the label '2\.5', but .* are integers"):
        read(write(tmp_path, [1, 2.5]), classes=[1, 2, 3])


@written_text
def test_text_that_no_class_of_a_model_is(tmp_path, write):
    for label in ("3A", "01", str(2**63)):
        with pytest.raises(DataFileError, match=f"row 1 has the label '{label}', but .* integers"):
            read(write(tmp_path, ["1", label]), classes=[1, 2, 3])
    assert read(write(tmp_path, ["true", "False"]), classes=[True, False]).tolist() == [True, False]
    with pytest.raises(DataFileError, match="'yes', but .* are True and False"):
        read(write(tmp_path, ["yes"]), classes=[True, False])
    with pytest.raises(DataFileError, match="'x', but .* are numbers"):
        read(write(tmp_path, ["1.5", "x"]), classes=[0.5])
    with pytest.raises(DataFileError, match="row 0 has the label 'x', but .* of type datetime64"):
        read(write(tmp_path, ["x", "1"]), classes=np.array(["2026-11-16"], "datetime64[D]"))


def test_floats_become_text_one_by_one(tmp_path):
    path = npz(tmp_path, [3.0, 4.0, 2.5, -0.0, 1e20])
    found = read(path, classes=["3", "x"])  # in batches of two
    assert found.tolist() == ["3", "4", "2.5", "0", "1" + 20 * "0"]
    rows = open_rows(path, classes=["3", "x"])
    assert next(rows.batches(0, 5)).labels.tolist() == found.tolist()


def test_large_integers_of_two_types(tmp_path):
    paths = [npz(tmp_path, [2**62 + 1], "one"), npz(tmp_path, np.array([5], np.uint64), "two")]
    assert read(paths).tolist() == [2**62 + 1, 5]
    paths[1] = npz(tmp_path, np.array([2**64 - 1], np.uint64), "two")
    with pytest.raises(DataFileError, match="has the label '18446744073709551615'"):
        read(paths)


@pytest.mark.parametrize(
    ("write", "labels"),
    [
        (csv, ["a", "", "b"]),
        (lines, ["a", " ", "b"]),
        (npz, [1.0, np.nan]),
        (parquet, ["a", None, "b"]),
        (parquet, [1.0, np.nan]),
    ],
)
def test_a_missing_label_names_the_row(tmp_path, write, labels):
    with pytest.raises(DataFileError, match=r"a\.\w+: row 1 has no label"):
        read(write(tmp_path, labels))


@pytest.mark.parametrize("extension", [".txt", ".txt.gz", ".csv"])
@pytest.mark.parametrize("labels", [["cat", "dog", "cat"], ["3", "1", "2"]])
@pytest.mark.parametrize("header", [None, "species", "label"])
def test_a_label_file_keeps_its_first_line(tmp_path, extension, labels, header):
    np.save(tmp_path / "X.npy", np.zeros((3, 1)))
    text = "".join(f"{line}\n" for line in ([header] if header else []) + labels)
    path = tmp_path / f"labels{extension}"
    path.write_bytes(gzip.compress(text.encode()) if extension.endswith(".gz") else text.encode())
    rows = open_rows(tmp_path / "X.npy", labels_file=path)
    found = next(rows.batches()).labels
    assert found.astype(str).tolist() == labels
    assert found.dtype.kind == ("i" if labels[0] == "3" else "U")
    assert ("a header" if header else "no header") + ", by the number of rows" in rows.description


@pytest.mark.parametrize("extension", [".csv", ".npz", ".mat", ".parquet"])
def test_labels_in_a_file_of_their_own(tmp_path, extension):
    labels = ["kočka", "dog", "horse, white", "dog"]
    path = tmp_path / f"labels{extension}"
    np.save(tmp_path / "X.npy", np.zeros((4, 1)))
    frame = pd.DataFrame({"id": range(4), "species": labels})
    if extension == ".csv":
        frame.to_csv(path, index=False)
    elif extension == ".npz":
        np.savez(path, id=np.arange(4), species=labels)
    elif extension == ".mat":
        scipy.io.savemat(path, {"id": 1, "species": np.array(labels, dtype=object)})
    else:
        frame.to_parquet(path)
    rows = open_rows(tmp_path / "X.npy", labels_file=path, labels="species")
    assert rows.label_paths == [path]
    assert [list(b.labels) for b in rows.batches(1, 2)] == [labels[1:2], labels[2:]]
    np.save(tmp_path / "X.npy", np.zeros((7, 1)))
    with pytest.raises(DataFileError, match="holds 4 labels, but there are 7 rows in .*X.npy"):
        open_rows(tmp_path / "X.npy", labels_file=path, labels="species")
    with pytest.raises(DataFileError, match="labels"):  # which of the columns or arrays
        open_rows(tmp_path / "X.npy", labels_file=path)
