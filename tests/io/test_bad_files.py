"""Errors in a file are a single line that names it; damage never raises another error."""

import gzip
import itertools
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from bitclass.io import DataFileError, open_rows

from .feature_files import MAKERS, labels_of, make

X = np.arange(12.0, dtype=np.float32).reshape(6, 2)
Y = np.array(list("abcabc"))


def assert_refused(path, *words, **options):
    with pytest.raises(DataFileError) as raised:
        for _ in open_rows(path, rows_per_batch=2, **options).batches():
            pass
    message = str(raised.value)
    assert "\n" not in message
    assert str(path) in message
    for word in words:
        assert word in message, message


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("extension", ["npy", "npz", "parquet", "arrow", "svm", "csv", "jsonl"])
def test_empty_missing_and_misnamed_files(tmp_path, extension):
    path = tmp_path / f"a.{extension}"
    assert_refused(path, "no such file")
    assert_refused(write(path, ""), "is empty")
    assert_refused(write(path, "hello: this is no data, at all\n" * 40))


def test_unknown_extensions_and_formats(tmp_path):
    path = write(tmp_path / "a.xlsx", "1 1:1")
    assert_refused(path, "unknown extension", "parquet (.parquet .pq)", "svmlight (.svm")
    assert_refused(path, "unknown format='excel'", "csv (.csv", format="excel")
    assert open_rows(path, format="svmlight").n_rows == 1
    assert_refused(write(tmp_path / "a.txt", "a\n"), "'line'; name a column of texts with --text")
    (tmp_path / "folder").mkdir()
    assert_refused(tmp_path / "folder", "no file in this folder has a known extension")
    os.mkfifo(tmp_path / "a.npy")
    assert_refused(tmp_path / "a.npy", "is not a file")


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("name", ["npy", "npz_sparse", "parquet_columns", "csv", "svmlight"])
def test_values_that_are_not_finite_name_row_and_feature(tmp_path, name, value):
    spoiled = np.tile(np.array([[1, 2, 3.5, 4, 5]], np.float32), (9, 1))
    spoiled[5, 3] = value
    paths, options = make(name, tmp_path, spoiled, labels_of("integer", 9), cuts=(3,))
    missing = name == "csv" and np.isnan(value)  # pandas writes NaN as an empty field
    where = "row 2 has no value in column" if missing else f"row 2 has {value} in feature"
    with pytest.raises(DataFileError, match=str(paths[1].name)) as raised:
        list(open_rows(paths, **options).batches())
    assert where in str(raised.value)
    assert ("'f3'" if name in ("parquet_columns", "csv") else "3") in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,label\n1,2,x\n1,2\n", "Expected 3 columns, got 2"),
        ("a,b,label\n1,2,x\n1,2,3,x\n", "Expected 3 columns, got 4"),
        (
            "a,b,label\n" + "1,2,x\n" * 200 + "1,two,x\n",
            "column 'b' is not numeric (its type is text, as 'two')",
        ),
        ("a,b,label\n1,2,x\n1,,x\n", "row 1 has no value in column 'b'"),
        ('a,"b\n2",label\n1,two,x\n', "exclude it with --features '!b?2'"),
        (
            "a,b,label\n1,2,x\n1,2,\udcff\n",
            "invalid UTF8 data; convert it to UTF-8",
        ),
        (
            "a,\udcff,label\n1,2,x\n",
            "can't decode byte 0xff in position 0",
        ),
        ("a,b,label\n", "has no rows"),
    ],
)
def test_bad_lines_of_csv(tmp_path, text, words):
    path = tmp_path / "a.csv"
    path.write_text(text, errors="surrogateescape")
    assert_refused(path, words)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.svm.gz"])
def test_a_truncated_gzip_file_is_not_read_in_part(tmp_path, name):
    lines = {"a.csv.gz": "a,label\n" + "1,2\n" * 9999, "a.svm.gz": "1 1:1\n" * 9999}
    content = lines.get(name, '{"a": 1, "label": 2}\n' * 9999).encode()
    (tmp_path / name).write_bytes(gzip.compress(content)[:-20])
    assert_refused(tmp_path / name, "ended before the end-of-stream marker")


@pytest.mark.parametrize("text", ['{\n"a": 1,\n"label": 2\n}\n', '[{"a": 1, "label": 2}]', '{"a"'])
def test_json_lines_have_one_object_per_line(tmp_path, text):
    assert_refused(write(tmp_path / "a.jsonl", text), "JSON")
    (tmp_path / "b.jsonl").write_bytes(b'{"a": 1, "label": "\xff"}\n')
    assert_refused(tmp_path / "b.jsonl", "convert it to UTF-8")


def test_errors_in_svmlight_name_the_rows(tmp_path, monkeypatch):
    path = tmp_path / "a.svm"
    for line in ("1 2:1 1:1", "1 1:1 1:2", "1 1:one", "1 -3:1", "1,2 1:1", "1:1 2:2"):
        write(path, f"# two rows\n\n1 1:1 5:2 # one\n{line}\n")
        assert_refused(path, "one of rows 0 to 1 is not 'number index:value")
    monkeypatch.setattr("bitclass.io.svmlight._BLOCK_BYTES", 1000)
    rows = "".join(f"{i} 1:{i}.5 2:1.5 3:1.25 4:1.125\n" for i in range(200))
    write(path, rows + "1 1:one\n")
    with pytest.raises(DataFileError, match=r"one of rows 1\d\d to 200 is not"):
        open_rows(path)


ARRAYS = [
    (np.zeros((0, 3)), "has shape (0, 3)"),
    (np.zeros(3), "has shape (3,); features must have shape (rows, features)"),
    (np.zeros((2, 2), complex), "no column contains numbers"),
    ({"X": X, "y": Y[:5]}, "contains 5 labels 'y', but 6 rows"),
    ({"X": X, "y": np.eye(6)}, "labels 'y' have shape (6, 6)"),
    ({"X": X, "y": np.arange(6) * 1j}, "labels 'y' have type complex128"),
    ({"X": X, "y": np.array([b"a", b"\xff"] * 3)}, "'utf-8' codec can't decode byte 0xff"),
    ({"x": Y, "y": Y}, "no column contains numbers"),
]
TABLES = [
    ({"a": pa.array([], pa.float64())}, "has no rows"),
    ({"X": [[1.0], [1.0, 2.0]]}, "row 1 has 2 values in column 'X', but the first row has 1"),
    ({"X": [[1.0, 2.0], [None, 1.0]]}, "row 1 has no value in column 'X'"),
    ({"X": pa.array([[]], pa.list_(pa.float64()))}, "column 'X' contains empty lists"),
    ({"X": [[1.0]], "label": pa.array([0], pa.timestamp("s"))}, "'label' have type timestamp"),
    ({"a": [1.0], "X": [[1.0]]}, "one column of lists, or columns of numbers"),
]


def test_invalid_arrays_and_tables(tmp_path):
    for content, words in ARRAYS:
        if isinstance(content, dict):
            np.savez(tmp_path / "a.npz", **content)
            assert_refused(tmp_path / "a.npz", words)
        else:
            np.save(tmp_path / "a.npy", content)
            assert_refused(tmp_path / "a.npy", words)
    for columns, words in TABLES:
        pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
        options = {"features": "*"} if "a" in columns and "X" in columns else {}
        assert_refused(tmp_path / "a.parquet", words, **options)


def test_wrong_widths(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :1])
    with pytest.raises(DataFileError, match=r"b.npy: has 1 features per row .*a.npy has 2"):
        open_rows([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert_refused(tmp_path / "a.npy", "has 2 features per row (dense), expected 3", n_features=3)
    path = write(tmp_path / "a.svm", "1 1:1\n1 9:1\n")
    assert_refused(path, "has index 9, but 5 features have indices 1 to 5", n_features=5)
    assert_refused(write(path, "# nothing\n\n"), "has no rows")


def test_pickles_are_not_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    objects = np.empty((2, 2), dtype=object)
    objects[:] = Trap()
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", X=objects)
    np.savez(tmp_path / "b.npz", X=X[:2], y=objects[0])
    for name, words in (("a.npy", "objects"), ("a.npz", "Object"), ("b.npz", "Object")):
        assert_refused(tmp_path / name, words)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "parts",
    [
        {"indices": [0, 9], "indptr": [0, 1, 2], "format": b"csr"},
        {"indices": [0, -1], "indptr": [0, 1, 2], "format": b"csr"},
        {"indices": [0, 1], "indptr": [0, 2, 1], "format": b"csr"},
        {"row": [0, 9], "col": [0, 1], "format": b"coo"},
        {"row": [0, -1], "col": [0, 1], "format": b"coo"},
    ],
)
def test_sparse_indices_are_checked(tmp_path, parts):
    np.savez(tmp_path / "a.npz", data=np.ones(2), shape=[2, 2], **parts)
    assert_refused(tmp_path / "a.npz")


@pytest.mark.parametrize("is_last", [False, True])
def test_offsets_of_lists_are_checked(tmp_path, is_last):
    """In the first batch, which determines the number of features, and in the last one.

    All offsets are shifted out of range by the same amount, so that the list lengths are valid.
    """
    paths, _ = make("arrow", tmp_path, np.tile(X, (4, 1)), np.tile(Y, 4))
    offsets = np.arange(7, dtype=np.int32) * 2
    good = offsets.tobytes()  # of each batch, which has six rows
    content = paths[0].read_bytes()
    at = content.rindex(good) if is_last else content.index(good)
    offsets += 1 << 30
    paths[0].write_bytes(content[:at] + offsets.tobytes() + content[at + len(good) :])
    assert_refused(paths[0], "cannot be read as Arrow")


def test_a_file_that_gets_shorter_while_it_is_read(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.ones((10_000, 8)))
    batches = open_rows(path, rows_per_batch=1000).batches()
    next(batches)
    os.truncate(path, 100_000)
    with pytest.raises(DataFileError, match="cannot be read as NumPy npy"):
        list(batches)


@pytest.mark.parametrize("name", ["parquet_fixed", "csv"])
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, name):
    paths, _ = make(name, tmp_path, X, Y)
    monkeypatch.delitem(sys.modules, "bitclass.io.tables", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert_refused(
        paths[0], 'requires pyarrow; install it in the checkout with: pip install ".[parquet]"'
    )


def test_wrong_arguments(tmp_path):
    np.save(tmp_path / "a.npy", X)
    for options, words in [
        ({"rows_per_batch": 0}, "rows_per_batch must be positive"),
        ({"features": "a", "text": "b"}, "text= or features=, not both"),
        ({"paths": []}, "paths must name at least one file"),
    ]:
        with pytest.raises(ValueError, match=words):
            open_rows(**{"paths": tmp_path / "a.npy"} | options)


def assert_some_refused(contents, paths, options):
    """Each content is read as far as possible or refused in one line; at least one is refused."""
    messages = []
    for content in contents:
        paths[0].write_bytes(content)
        try:
            rows = open_rows(paths, rows_per_batch=2, **options)
            for batch in itertools.islice(rows.batches(), 100):  # a header may claim many rows
                assert batch.X.shape == (len(batch), rows.n_features)
                assert batch.labels is None or len(batch.labels) == len(batch)
        except DataFileError as error:
            messages.append(str(error))
    assert messages
    for message in messages:
        assert message.startswith(str(paths[0].parent))
        assert "\n" not in message


@pytest.mark.parametrize("name", MAKERS)
def test_a_truncated_file_is_refused_or_partly_read(tmp_path, name):
    paths, options = make(name, tmp_path, np.eye(9, 4, dtype="f4"), labels_of("integer", 9))
    content = paths[0].read_bytes()
    lengths = np.linspace(1, len(content) - 1, 25).astype(int)
    assert_some_refused((content[:length] for length in lengths), paths, options)


@pytest.mark.parametrize("name", ["arrow", "feather", "parquet_lists", "parquet_columns"])
def test_flipped_bytes_are_refused_or_read(tmp_path, name):
    """Two near the ends of the file, where lengths and offsets are, and one anywhere."""
    rng = np.random.default_rng(0)
    paths, options = make(name, tmp_path, np.eye(9, 4, dtype="f4"), labels_of("text", 9))
    content = np.frombuffer(paths[0].read_bytes(), np.uint8)

    def damaged():
        for _ in range(100):
            bytes_ = content.copy()
            places = [*rng.integers(-256, 256, size=2), rng.integers(len(content))]
            bytes_[places] ^= rng.integers(1, 256, size=3, dtype=np.uint8)
            yield bytes_.tobytes()

    assert_some_refused(damaged(), paths, options)
