"""Lines and labels that are not as they must be: the row is named, memory is not wasted."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from refusing import refused, write

X = np.arange(12.0, dtype=np.float32).reshape(6, 2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 2:1 1:1", "row 1 of this file has index 1; indices rise from 1 to"),
        ("1 1:1 1:2", "row 1 of this file has index 1"),
        ("1 1:1:1", "row 1 of this file is not 'label index:value ...'"),
        ("1 1:one", "row 1 of this file is not"),
        ("1 1:1 7", "row 1 of this file is not"),
        ("1 -3:1", "row 1 of this file is not"),
        ("1 :1", "row 1 of this file is not"),
        ("1,2 1:1", "there is one label a row"),
        ("1 1:1x 2:2", "row 1 of this file is not"),
    ],
)
def test_malformed_svmlight_names_the_row(tmp_path, line, words):
    refused(write(tmp_path / "a.svm", f"1 1:1 5:2\n{line}\n"), words)


def test_an_index_beyond_the_stated_features_names_the_row(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:1\n1 9:1\n")
    refused(path, "row 1 of this file has index 9; indices rise from 1 to 5", n_features=5)
    refused(write(path, "1 1:1\n1 0:1\n"), "row 1 of this file has index 0", first_index=1)


def test_an_endless_line_takes_no_endless_memory(tmp_path):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(b"1" * (1 << 20))
    refused(path, "has a line of more than 33554432 bytes")


def test_an_endless_label_is_refused(tmp_path):
    label = "a" * 10_000
    refused(write(tmp_path / "a.csv", f"x,label\n1,a\n2,{label}\n"), "row 1", "10000 characters")
    pa.parquet.write_table(
        pa.table({"X": [[1.0]] * 2, "label": ["a", label]}), tmp_path / "a.parquet"
    )
    refused(tmp_path / "a.parquet", "10000 bytes")
    np.savez(tmp_path / "a.npz", X=X[:2], y=np.array(["a", label]))
    refused(tmp_path / "a.npz", "texts of 10000 characters")


def test_labels_that_are_no_text(tmp_path):
    np.savez(tmp_path / "a.npz", X=X[:2], y=np.array([b"a", b"\xff"]))
    refused(tmp_path / "a.npz", "the label of row 1 of this file is not UTF-8 text")
    np.savez(tmp_path / "a.npz", X=X[:2], y=np.array([1j, 2]))
    refused(tmp_path / "a.npz", "labels 'y' are of type complex128")
    table = pa.table({"X": [[1.0]], "label": pa.array([0], pa.timestamp("s"))})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "labels 'label' are of type timestamp[ms]")
