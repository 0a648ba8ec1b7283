"""Labels keep what is written, and their type does not change with the file."""

import gzip

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io

from bitclass.io import DataFileError, open_rows


def csv(folder, labels, name="a.csv"):
    path = folder / name
    path.write_text("x,label\n" + "".join(f"{i}.5,{label}\n" for i, label in enumerate(labels)))
    return path


def svmlight(folder, labels, name="a.svm"):
    path = folder / name
    path.write_text("".join(f"{label} 1:{i}.5\n" for i, label in enumerate(labels)))
    return path


def lines(folder, labels, name="a"):
    np.save(folder / f"{name}.npy", np.zeros((len(labels), 1)))
    (folder / f"{name}.txt").write_text("".join(f"{label}\n" for label in labels))
    return folder / f"{name}.npy"


def read(path, **options):
    if not isinstance(path, list) and path.suffix == ".npy":
        options["labels_file"] = path.with_suffix(".txt")
    return np.concatenate([b.labels for b in open_rows(path, **options).batches(0, 2)])


every_text = pytest.mark.parametrize("write", [csv, svmlight, lines])


@every_text
@pytest.mark.parametrize(
    ("written", "dtype"),
    [
        (["1", "-2", "0"], np.int64),
        ([str(2**63 - 1), str(-(2**63))], np.int64),
        ([str(2**64 - 1), str(2**64 - 2), str(2**63)], np.uint64),
        ([str(2**64 - 1), "-1"], None),
        ([str(2**64), "1"], None),
        (["007", "07", "7"], None),
        (["1.0", "2"], None),
        (["1", "2", "3A"], None),
        (["1e3", "-0"], None),
    ],
)
def test_integers_only_if_all_are_written_so(tmp_path, write, written, dtype):
    labels = read(write(tmp_path, written))
    if dtype is None:
        assert labels.tolist() == written
    else:
        assert labels.dtype == dtype
        assert labels.tolist() == [int(label) for label in written]


@pytest.mark.parametrize("write", [csv, lines])
def test_spaces_are_part_of_text_but_not_of_integers(tmp_path, write):
    assert read(write(tmp_path, [" a", "a", "a "])).tolist() == [" a", "a", "a "]
    assert read(write(tmp_path, [" 1", "1 "])).tolist() == [1, 1]
    assert read(write(tmp_path, [" 1"]), classes=[1, 2]).tolist() == [1]
    with pytest.raises(DataFileError, match="row 1 has no label"):
        read(write(tmp_path, ["a", " "]))


def test_a_sign_is_no_part_of_an_svmlight_label(tmp_path):
    assert read(svmlight(tmp_path, ["+1", "-1"])).tolist() == [1, -1]


@pytest.mark.parametrize("write", [csv, svmlight])
def test_the_type_is_decided_over_all_files(tmp_path, write):
    paths = [
        write(tmp_path, ["1", "2"], "one" + write(tmp_path, ["1"]).suffix),
        write(tmp_path, ["2", "3A"], "two" + write(tmp_path, ["1"]).suffix),
    ]
    assert read(paths).tolist() == ["1", "2", "2", "3A"]
    assert read(paths[0]).tolist() == [1, 2]


def test_one_late_label_makes_all_text(tmp_path):
    labels = [str(i % 7) for i in range(300_000)]
    path = csv(tmp_path, [*labels, "none"])
    rows = open_rows(path)
    assert next(rows.batches(0, 10)).labels.tolist() == labels[:10]
    assert list(rows.batches(300_000, 10))[-1].labels.tolist() == ["none"]


@every_text
def test_the_classes_of_a_model_decide(tmp_path, write):
    path = write(tmp_path, ["1", "2"])
    assert read(path, classes=np.array(["1", "2", "3A"])).tolist() == ["1", "2"]
    assert read(path, classes=np.array([1, 2, 3], dtype=np.int8)).tolist() == [1, 2]
    assert read(path, classes=np.array([1.0, 2.5])).tolist() == [1.0, 2.0]
    with pytest.raises(DataFileError, match="row 1 has the label '3A', but .* are integers"):
        read(write(tmp_path, ["1", "3A"]), classes=[1, 2, 3])
    with pytest.raises(DataFileError, match="row 0 has the label '01'"):
        read(write(tmp_path, ["01", "3"]), classes=[1, 2, 3])


@pytest.mark.parametrize("values", [[1, 2], [1.0, 2.0], ["1", "2"]])
def test_the_classes_of_a_model_decide_for_typed_files(tmp_path, values):
    frame = pd.DataFrame({"x": [0.5, 1.5], "label": values})
    frame.to_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 1)), y=np.array(values))
    for name in ("a.parquet", "a.npz"):
        path = tmp_path / name
        assert read(path).tolist() == values
        assert read(path, classes=["1", "2", "3A"]).tolist() == ["1", "2"]
        assert read(path, classes=[1, 2, 3]).tolist() == [1, 2]
        assert read(path, classes=[1, 2, 3]).dtype.kind == "i"


def test_floats_become_text_one_by_one(tmp_path):
    values = [3.0, 4.0, 2.5, -0.0, 1e20]
    np.savez(tmp_path / "a.npz", X=np.zeros((5, 1)), y=np.array(values))
    found = read(tmp_path / "a.npz", classes=["3", "x"])  # in batches of two
    assert found.tolist() == ["3", "4", "2.5", "0", "1" + 20 * "0"]
    rows = open_rows(tmp_path / "a.npz", classes=["3", "x"])
    assert next(rows.batches(0, 5)).labels.tolist() == found.tolist()


def test_typed_files_of_several_types(tmp_path):
    def save(name, labels):
        np.savez(tmp_path / name, X=np.zeros((len(labels), 1)), y=labels)
        return tmp_path / name

    paths = [save("1.npz", np.array([2**62 + 1])), save("2.npz", np.array([5], np.uint64))]
    assert read(paths).tolist() == [2**62 + 1, 5]
    paths[1] = save("2.npz", np.array([2**64 - 1], np.uint64))
    with pytest.raises(DataFileError, match="has the label '18446744073709551615'"):
        read(paths)
    paths[1] = save("2.npz", np.array(["a"]))
    with pytest.raises(DataFileError, match="text in some files and numbers in others"):
        read(paths)


@pytest.mark.parametrize("write", [csv, lines])
def test_a_missing_label_names_the_row(tmp_path, write):
    with pytest.raises(DataFileError, match=r"a\.\w+: row 1 has no label"):
        read(write(tmp_path, ["a", "", "b"]))


def test_missing_labels_of_typed_files(tmp_path):
    pd.DataFrame({"x": [1, 2], "label": ["a", None]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match="row 1 has no label"):
        read(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 1)), y=np.array([np.nan, 1]))
    with pytest.raises(DataFileError, match="row 0 has no label"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("extension", [".txt", ".txt.gz", ".csv"])
@pytest.mark.parametrize("labels", [["cat", "dog", "cat"], ["3", "1", "2"], ["y", "n", "y"]])
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


@pytest.mark.parametrize("extension", [".csv", ".npz", ".h5", ".mat", ".parquet"])
def test_labels_in_a_file_of_their_own(tmp_path, extension):
    labels = ["kočka", "dog", "horse, white", "dog"]
    path = tmp_path / f"labels{extension}"
    np.save(tmp_path / "X.npy", np.zeros((4, 1)))
    frame = pd.DataFrame({"id": range(4), "species": labels})
    if extension == ".csv":
        frame.to_csv(path, index=False)
    elif extension == ".npz":
        np.savez(path, id=np.arange(4), species=labels)
    elif extension == ".h5":
        with h5py.File(path, "w") as file:
            file["id"], file["species"] = range(4), labels
    elif extension == ".mat":
        scipy.io.savemat(path, {"id": 1, "species": np.array(labels, dtype=object)})
    else:
        frame.to_parquet(path)
    rows = open_rows(tmp_path / "X.npy", labels_file=path, labels="species")
    assert [list(b.labels) for b in rows.batches(1, 2)] == [labels[1:2], labels[2:]]
    np.save(tmp_path / "X.npy", np.zeros((7, 1)))
    with pytest.raises(DataFileError, match="holds 4 labels, but there are 7 rows in .*X.npy"):
        open_rows(tmp_path / "X.npy", labels_file=path, labels="species")
