"""Every format gives the same rows, however they are split into files and batches."""

import gzip
import re
import subprocess
import sys
import threading
import typing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_files

from bitclass.cli import predict
from bitclass.io import DataFileError, open_rows
from bitclass.io.rows import FORMATS, prefetch

from .feature_files import MAKERS, column_table, label_kinds, labels_of, list_table, make

N_ROWS = 23
CASES = [(name, kind) for name in MAKERS for kind in label_kinds(name)]


def features(n_rows=N_ROWS):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0  # so that sparse files are sparse
    X[4] = 0
    X[:, 4] = 1  # so that no last column is empty
    return X


def dense(X):
    return X if isinstance(X, np.ndarray) else X.toarray()


def expected_labels(name, labels):
    if name.startswith(("csv", "tsv")) and labels.dtype.kind == "f":
        return labels.astype(str)  # text files: integers, or text as written
    return labels.astype(int) if labels.dtype.kind == "f" else labels


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("cuts", [(), (10, 11)], ids=["one file", "three files"])
def test_every_format_gives_the_same_rows(tmp_path, monkeypatch, name, kind, cuts):
    # Several blocks of text and pieces of tables also in these small files.
    for size in ("tables._BLOCK_BYTES", "svmlight._BLOCK_BYTES", "tables._PIECE_BYTES"):
        monkeypatch.setattr(f"bitclass.io.{size}", 256)
    X, labels = features(), labels_of(kind, N_ROWS)
    paths, options = make(name, tmp_path, X, labels, cuts)
    rows = open_rows(paths, **options)
    labels = expected_labels(name, labels)
    assert (rows.n_rows, rows.n_features, rows.has_labels) == (N_ROWS, 5, True)
    assert rows.is_sparse == ("sparse" in name or "svm" in name)
    for size in (1, 7, 100):
        rows, at = open_rows(paths, rows_per_batch=size, **options), 0
        for batch in rows.batches():
            stop = min(N_ROWS, at + size)
            assert batch.first_row == at
            assert batch.X.shape == (stop - at, 5)
            assert batch.X.dtype == rows.dtype
            assert sp.issparse(batch.X) == rows.is_sparse
            np.testing.assert_array_equal(dense(batch.X), X[at:stop])
            np.testing.assert_array_equal(batch.labels, labels[at:stop])
            assert batch.labels.dtype.kind == labels.dtype.kind
            at = stop
        assert at == N_ROWS
    np.testing.assert_array_equal(dense(rows.load().X), X)
    # Two passes may run at the same time.
    for one, other in zip(rows.batches(), rows.batches(), strict=True):
        np.testing.assert_array_equal(dense(one.X), dense(other.X))


@pytest.mark.parametrize("name", ["npy", "npz", "parquet_fixed", "arrow"])
def test_features_keep_the_type_of_the_file(tmp_path, name):
    for dtype in ("f2", "f4", "f8", "u1", "i8", "?"):
        X = (features() * 3).astype(dtype)
        paths, options = make(name, tmp_path, X, labels_of("integer", N_ROWS))
        rows = open_rows(paths, **options)
        assert rows.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(next(rows.batches()).X, X)


def test_a_folder_is_read_as_its_files_in_order_and_one_type(tmp_path):
    for part, dtype in enumerate((np.float32, np.int64, np.float32)):
        np.save(tmp_path / f"{part}.npy", np.full((3, 2), part, dtype))
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / ".hidden.npy").write_text("not data either")
    batches = list(open_rows(tmp_path, rows_per_batch=3).batches())
    assert [batch.X.dtype for batch in batches] == [np.float64] * 3
    assert [batch.X[0, 0] for batch in batches] == [0, 1, 2]


@pytest.mark.parametrize("name", ["a.csv.gz", "standard-input"])
def test_gzip_is_recognised_by_content(tmp_path, name):
    path = tmp_path / name
    content = gzip.compress(b"a;b;label\n1.5;2;x\n") + gzip.compress(b"2.5;3;y\n")
    path.write_bytes(content)
    batch = next(open_rows(path, format="csv").batches())
    assert (batch.X.tolist(), batch.labels.tolist()) == ([[1.5, 2], [2.5, 3]], ["x", "y"])


def test_unusual_but_valid_csv(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        '\ufeff\n"x", label ,z\r\n1e3,"a, ""b""",2\r\n\r\n'
        '"-.5", cat , 7 \n0.1,"two\nlines",1e-320\n',
        encoding="utf-8",
    )
    batch = next(open_rows(path).batches())
    assert batch.X.tolist() == [[1000, 2], [-0.5, 7], [0.1, 1e-320]]
    assert batch.labels.tolist() == ['a, "b"', " cat ", "two\nlines"]


def test_svmlight_comments_and_a_required_width(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("# comment\n1 qid:7 1:1.5 # note\n\n+2 2:2\n3\n")
    rows = open_rows(path)
    assert (rows.n_features, next(rows.batches()).labels.tolist()) == (2, [1, 2, 3])
    assert "indices from 1" in rows.description
    assert open_rows(path, n_features=10).n_features == 10


@pytest.mark.parametrize(
    "files",
    [
        ["1 0:1.5 2:2\n2 1:1e-3\n"],
        ["1 1:1 3:2\n"],
        ["1 1:1\n", "2 0:3 2:1\n"],
        ["1\n2 1:1\n"],
        ["1\n", "2 1:1\n"],
    ],
)
def test_svmlight_indices_start_as_in_scikit_learn(tmp_path, files):
    paths = [tmp_path / f"{i}.svm" for i in range(len(files))]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text)
    expected = sp.vstack(load_svmlight_files(list(map(str, paths)))[::2]).toarray()
    found = [dense(batch.X) for batch in open_rows(paths).batches()]
    np.testing.assert_array_equal(np.vstack(found), expected)


def test_batches_are_bounded_in_bytes(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3000, 10_000), np.float32))
    batches = [batch.X.nbytes for batch in open_rows(tmp_path / "a.npy").batches()]
    assert len(batches) == 2
    assert max(batches) <= 64 << 20
    sparse = sp.csr_array(sp.eye_array(100_000, 1_000_000))
    sp.save_npz(tmp_path / "a.npz", sparse)
    assert [b.X.shape[0] for b in open_rows(tmp_path / "a.npz").batches()] == [65_536, 34_464]


# Blocks of text and pieces of tables are smaller than usual, and so the files can be.
READ = """
import sys
import bitclass.io.tables
from bitclass.io import open_rows

bitclass.io.tables._BLOCK_BYTES = bitclass.io.tables._PIECE_BYTES = 1 << 16

def peak():  # not getrusage, which counts the process that started this one
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024

for path in sys.argv[1:]:
    before = peak()
    rows = open_rows(path, labels=False, rows_per_batch=1000)
    n_read = sum(batch.X.shape[0] for batch in rows.batches())
print(n_read, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["npy", "parquet", "csv"])
def test_reading_takes_memory_for_batches_not_for_files(tmp_path, kind):
    # What pyarrow's allocator keeps varies by some 15 MB.
    n_rows = {"csv": 60_000, "parquet": 400_000}.get(kind, 150_000)
    X = np.random.default_rng(0).standard_normal((n_rows, 64), np.float32)
    paths = []
    for n in (4000, n_rows):  # what the first takes is that of the libraries
        folder = tmp_path / str(n)
        folder.mkdir()
        if kind == "parquet":
            paths.append(folder / "a.parquet")
            pa.parquet.write_table(list_table(X[:n], X[:n, 0]), paths[-1], row_group_size=10_000)
        elif kind == "csv":
            paths.append(folder / "a.csv")
            pa.csv.write_csv(column_table(X[:n], np.arange(n)), paths[-1])
        else:
            paths += make(kind, folder, X[:n], X[:n, 0])[0]
    command = [sys.executable, "-c", READ, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    n_read, n_bytes = map(int, done.stdout.split())
    assert n_read == n_rows
    assert n_bytes < 0.6 * paths[-1].stat().st_size


def test_reading_ahead_raises_errors_after_the_preceding_items_and_ends_its_thread():
    def items():
        yield 1
        raise OSError("disk")

    ahead = prefetch(items())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="disk"):
        next(ahead)
    ahead = prefetch(iter_ := (i for i in range(9)))
    assert next(ahead) == 0
    ahead.close()
    assert next(iter_, None) is None
    assert not [thread for thread in threading.enumerate() if "prefetch" in thread.name]


@pytest.mark.parametrize("extension", [".csv", ".csv.gz"])
def test_no_reader_is_left_running(tmp_path, monkeypatch, extension):
    """A thread of pyarrow that reads a Python file when the interpreter exits aborts it."""
    monkeypatch.setattr("bitclass.io.tables._BLOCK_BYTES", 100)
    opened, open_csv = [], pa.csv.open_csv
    monkeypatch.setattr(
        pa.csv, "open_csv", lambda file, *args: opened.append(file) or open_csv(file, *args)
    )
    text = "a,b,label\n" + "1,2,x\n" * 99
    path = tmp_path / f"a{extension}"
    path.write_bytes(gzip.compress(text.encode()) if extension == ".csv.gz" else text.encode())
    rows = open_rows(path, rows_per_batch=10)
    batches = rows.batches()
    next(batches)
    batches.close()
    path.write_bytes(b"a,b,label\n" + b"1,2,x\n" * 99 + b"1,?,x\n")
    with pytest.raises(DataFileError, match=r"invalid value '\?'|not numeric"):
        open_rows(path).load()
    assert len(opened) > 3
    for file in opened:
        assert isinstance(file, pa.NativeFile)
        assert not isinstance(file, pa.PythonFile)
        assert file.closed


def test_every_format_is_documented():
    hints = typing.get_type_hints(predict.command, include_extras=True)
    help = hints["format"].__metadata__[0].help
    for name in FORMATS:
        assert f'"{name}"' in open_rows.__doc__
        assert name in re.split(r"[ ,;]+", help)
