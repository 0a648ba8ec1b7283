"""Labels keep their values, and have the same type in all files."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest

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
    return np.concatenate(
        [b.labels for b in open_rows(path, rows_per_batch=2, **options).batches()]
    )


EVERY, TEXT_FILES, ARRAYS = (csv, svmlight, lines, npz, parquet), (csv, lines), (npz, parquet)
LARGEST = 2**63 - 1
# Formats, labels as they are written, and what is read.
READ = [
    # Integers only if all are written so.
    (TEXT_FILES, ["1", "-2", "0"], [1, -2, 0]),
    (TEXT_FILES, [str(LARGEST), str(-LARGEST - 1)], [LARGEST, -LARGEST - 1]),
    (TEXT_FILES, [" 1", "1 "], [1, 1]),
    (TEXT_FILES, [str(2**63), "1"], [str(2**63), "1"]),
    (TEXT_FILES, ["007", "07", "7"], ["007", "07", "7"]),
    (TEXT_FILES, ["1.0", "2"], ["1.0", "2"]),
    (TEXT_FILES, ["1", "2", "3A"], ["1", "2", "3A"]),
    (TEXT_FILES, ["1e3", "-0"], ["1e3", "-0"]),
    (TEXT_FILES, [" a", "a", "a "], [" a", "a", "a "]),
    ([svmlight], ["+1", "-1", "3.0"], [1, -1, 3]),
    (ARRAYS, [1.0, 2.0], [1, 2]),
]
INTEGERS = "but the other labels or the model's classes are of type int64"
# Labels in a file, the classes of a model, and labels of the type of these or the error.
DECIDED = [
    (EVERY, [1, 2], ["1", "2", "3A"], ["1", "2"]),
    (EVERY, [1, 2], np.array([1, 2, 3], dtype=np.int8), np.array([1, 2])),
    (EVERY, [1, 2], [1.0, 2.0], np.array([1, 2])),
    (EVERY, [1, 2], np.array([1], np.uint64), np.array([1, 2], np.uint64)),
    (TEXT_FILES, ["1", "2.5"], [1, 2, 3], f"row 1 has the label '2.5', {INTEGERS}"),
    ((svmlight, npz, parquet), [1, 2.5], [1, 2, 3], "row 1 has the label 2.5; labels must be"),
    (ARRAYS, [1, 2.0**53], None, "row 1 has the label 9007199254740992.0; labels must be"),
    (TEXT_FILES, ["1", "3A"], [1, 2], f"row 1 has the label '3A', {INTEGERS}"),
    (TEXT_FILES, ["1", "01"], [1, 2], f"row 1 has the label '01', {INTEGERS}"),
    (TEXT_FILES, ["1", str(2**63)], [1, 2], f"row 1 has the label '{2**63}', {INTEGERS}"),
    (TEXT_FILES, ["true", "False"], [True, False], [True, False]),
    (
        TEXT_FILES,
        ["yes"],
        [True, False],
        "'yes', but the other labels or the model's classes are T",
    ),
    (ARRAYS, [1, 0], [True, False], [True, False]),
    (ARRAYS, [2, 0], [True, False], "row 0 has the label '2'"),
    ([npz], [3.0, -0.0], ["3"], ["3", "0"]),
]


@pytest.mark.parametrize(
    ("writers", "labels", "classes", "expected"),
    [(writers, labels, None, found) for writers, labels, found in READ] + DECIDED,
)
def test_the_type_of_labels(tmp_path, writers, labels, classes, expected):
    for write in writers:
        path = write(tmp_path, labels)
        if isinstance(expected, str):
            with pytest.raises(DataFileError, match=re.escape(expected)):
                read(path, classes=classes)
            continue
        found, expected = read(path, classes=classes), np.asarray(expected)
        assert found.tolist() == expected.tolist()
        assert found.dtype.kind == expected.dtype.kind
        assert found.dtype.kind == "U" or found.dtype == expected.dtype


@pytest.mark.parametrize("label", ["cat", str(2**60), "1,2", ""])
def test_svmlight_labels_are_numbers(tmp_path, label):
    with pytest.raises(DataFileError, match=r"a\.svm"):
        read(svmlight(tmp_path, ["1", label]))


@pytest.mark.parametrize("write", [csv, svmlight, npz, parquet])
def test_the_type_is_inferred_from_all_files(tmp_path, write):
    paths = [write(tmp_path, [1, 2], "one"), write(tmp_path, [2.0, 3.0], "two")]
    assert read(paths).tolist() == (["1", "2", "2.0", "3.0"] if write is csv else [1, 2, 2, 3])
    if write is not svmlight:
        paths[1] = write(tmp_path, ["2", "3A"], "two")
        assert read(paths).tolist() == ["1", "2", "2", "3A"]


def test_large_integers_of_two_types(tmp_path):
    paths = [npz(tmp_path, [2**62 + 1], "one"), npz(tmp_path, np.array([5], np.uint64), "two")]
    assert read(paths).tolist() == [2**62 + 1, 5]
    paths[1] = npz(tmp_path, np.array([2**64 - 1], np.uint64), "two")
    with pytest.raises(DataFileError, match="has the label '18446744073709551615'"):
        read(paths)


def test_one_late_label_makes_all_text(tmp_path, monkeypatch):
    monkeypatch.setattr("bitclass.io.tables._BLOCK_BYTES", 1000)
    labels = [str(i % 7) for i in range(1000)]
    batches = list(open_rows(csv(tmp_path, [*labels, "none"]), rows_per_batch=10).batches())
    assert batches[0].labels.tolist() == labels[:10]
    assert batches[-1].labels.tolist() == ["none"]


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
    with pytest.raises(DataFileError, match=r"a\.\w+: row 1 has no label .*from 0"):
        read(write(tmp_path, labels))


def test_labels_in_a_separate_file(tmp_path):
    labels = ["kočka", "dog", "horse, white", "dog"]
    frame = pd.DataFrame({"id": range(4), "species": labels})
    np.save(tmp_path / "X.npy", np.zeros((4, 1)))
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame["species"].to_csv(tmp_path / "column.csv", index=False)
    frame["species"].to_csv(tmp_path / "bare.csv", index=False, header=False)
    frame.to_parquet(tmp_path / "table.parquet")
    np.savez(tmp_path / "table.npz", id=np.arange(4), species=labels)
    (tmp_path / "lines.txt.gz").write_bytes(gzip.compress("\n".join(labels).encode()))
    for name, options in {
        "table.csv": {"labels": "species"},
        "column.csv": {},
        "bare.csv": {"header": False},
        "table.parquet": {"labels": "species"},
        "table.npz": {"labels": "species"},
        "lines.txt.gz": {},
    }.items():
        given = {"labels_file": tmp_path / name, **options}
        rows = open_rows(tmp_path / "X.npy", rows_per_batch=3, **given)
        assert rows.paths == [tmp_path / "X.npy", tmp_path / name]
        assert [list(b.labels) for b in rows.batches()] == [labels[:3], labels[3:]]
        if options.get("labels"):
            with pytest.raises(DataFileError, match="name the label column with --labels"):
                open_rows(tmp_path / "X.npy", labels_file=tmp_path / name)
    for name, options, n in (("bare.csv", {}, 3), ("column.csv", {"header": False}, 5)):
        with pytest.raises(DataFileError, match=f"contains {n} labels.* 4 rows in .*--no-header"):
            open_rows(tmp_path / "X.npy", labels_file=tmp_path / name, **options)
