"""Every format gives the same rows, however they are cut into files and batches."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from feature_files import BY_NAME, MAKERS, labels_of, make

from bitclass import BinaryCodeClassifier
from bitclass.data import DataFileError, open_rows, prefetched

N_ROWS = 23
CASES = [(name, kind) for name, maker in BY_NAME.items() for kind in MAKERS[maker][1]]


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
    if name.startswith("svmlight") and labels.dtype.kind == "U":
        return np.char.replace(labels, ", ", "-")
    return labels


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("cuts", [(), (10, 11)], ids=["one file", "three files"])
def test_every_format_gives_the_same_rows(tmp_path, name, kind, cuts):
    X, labels = features(), labels_of(kind, N_ROWS)
    paths, options = make(BY_NAME[name], tmp_path, X, labels, cuts)
    rows = open_rows(paths, **options)
    labels = expected_labels(name, labels)
    assert (rows.n_rows, rows.n_features, rows.has_labels) == (N_ROWS, 5, True)
    for batch_rows, start_row in [(1, 0), (7, 0), (7, 14), (7, 21), (100, 0), (5, 23), (7, 9)]:
        at = start_row
        for batch in rows.batches(batch_rows, start_row):
            stop = min(N_ROWS, at - at % batch_rows + batch_rows)
            assert batch.first_row == at
            assert batch.X.shape == (stop - at, 5)
            assert batch.X.dtype == rows.dtype
            assert sp.issparse(batch.X) == rows.is_sparse == ("sparse" in name or "svm" in name)
            np.testing.assert_array_equal(dense(batch.X), X[at:stop])
            np.testing.assert_array_equal(batch.labels, labels[at:stop])
            assert batch.labels.dtype.kind == labels.dtype.kind
            at = stop
        assert at == N_ROWS


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i2", "i4", "i8", "?"])
@pytest.mark.parametrize("name", ["npy", "npz_deflated", "parquet_fixed", "arrow_file", "hdf5"])
def test_features_keep_the_type_of_the_file(tmp_path, name, dtype):
    X = (features() * 3).astype(dtype)
    paths, options = make(BY_NAME[name], tmp_path, X, labels_of("integer", N_ROWS))
    rows = open_rows(paths, **options)
    assert rows.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(next(rows.batches(100)).X, X)


def test_files_of_different_types_give_one_type(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2), np.float32))
    np.save(tmp_path / "b.npy", np.ones((3, 2), np.int64))
    rows = open_rows([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert [batch.X.dtype for batch in rows.batches(2)] == [rows.dtype] * 3


def test_a_folder_stands_for_its_files_in_order(tmp_path):
    X, labels = features(), labels_of("text", N_ROWS)
    make(BY_NAME["parquet_fixed"], tmp_path, X, labels, cuts=(3, 20))
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / ".hidden.parquet").write_text("not data either")
    rows = open_rows(tmp_path)
    np.testing.assert_array_equal(next(rows.batches(N_ROWS)).X, X)


def test_a_mapped_batch_is_not_a_copy(tmp_path):
    np.save(tmp_path / "a.npy", features())
    batch = next(open_rows(tmp_path / "a.npy").batches(10))
    assert not batch.X.flags.owndata
    assert not batch.X.flags.writeable


def test_two_passes_may_go_on_at_once(tmp_path):
    paths, options = make(BY_NAME["npz_deflated"], tmp_path, features(), labels_of("text", N_ROWS))
    rows = open_rows(paths, **options)
    for one, other in zip(rows.batches(4), rows.batches(4), strict=True):
        np.testing.assert_array_equal(one.X, other.X)


def test_reading_ahead_gives_the_same_batches(tmp_path):
    paths, options = make(BY_NAME["csv"], tmp_path, features(), labels_of("text", N_ROWS), (9,))
    rows = open_rows(paths, **options)
    for one, other in zip(rows.batches(4), prefetched(rows.batches(4)), strict=True):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize("kind", ["text", "integer", "float"])
@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".csv", ".npz", ".h5", ".mat", ".parquet"])
def test_labels_in_a_file_of_their_own(tmp_path, kind, ending):
    import gzip

    import h5py

    X, labels = features(), labels_of(kind, N_ROWS)
    path = tmp_path / f"labels{ending}"
    np.save(tmp_path / "X.npy", X)
    text = "".join(f"{label}\n" for label in labels)
    frame = pd.DataFrame({"id": range(N_ROWS), "species": labels})
    if ending == ".txt":
        path.write_text(text, encoding="utf-8")
    elif ending == ".txt.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif ending == ".csv":
        frame.to_csv(path, index=False)
    elif ending == ".npz":
        np.savez(path, id=np.arange(N_ROWS), species=labels)
    elif ending == ".h5":
        with h5py.File(path, "w") as file:
            file["id"] = range(N_ROWS)
            file["species"] = [str(label) for label in labels] if kind == "text" else labels
    elif ending == ".mat":
        cells = labels.astype(object) if kind == "text" else labels
        scipy.io.savemat(path, {"id": 1, "species": cells})
    else:
        frame.to_parquet(path)
    name = None if ending.startswith(".txt") else "species"
    rows = open_rows(tmp_path / "X.npy", labels_file=path, labels=name)
    found = np.concatenate([batch.labels for batch in rows.batches(4, start_row=8)])
    np.testing.assert_array_equal(found, labels[8:])
    assert found.dtype.kind == labels.dtype.kind


def test_an_array_and_its_labels_are_chosen_by_name_and_said(tmp_path):
    X, labels = features(), labels_of("integer", N_ROWS)
    path = tmp_path / "a.npz"
    np.savez(path, X_train=X, y_train=labels, X_test=X[:4], y_test=labels[:4], noise=X)
    assert "features 'X_train' (23 x 5, float32), labels 'y_train'" in open_rows(path).description
    rows = open_rows(path, features="X_test")
    assert rows.n_rows == 4
    assert "labels 'y_test'" in rows.description
    assert not open_rows(path, features="noise").has_labels
    assert not open_rows(path, labels=False).has_labels


def test_columns_are_chosen_by_name_place_and_pattern(tmp_path):
    X = features()
    path = tmp_path / "a.csv"
    BY_NAME["csv"](path, X, labels_of("text", N_ROWS))
    for wanted, columns in [("f*", range(5)), (["f3", "f0"], [3, 0]), ([0, "f4"], [0, 4])]:
        rows = open_rows(path, features=wanted, labels="label")
        np.testing.assert_array_equal(next(rows.batches(99)).X, X[:, list(columns)])


def test_svmlight_indices_from_zero_are_noticed_or_stated(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 0:1.5 2:2\n2 1:1e-3\n")
    assert dense(next(open_rows(path).batches(9)).X).tolist() == [[1.5, 0, 2], [0, 1e-3, 0]]
    path.write_text("1 qid:7 1:1.5\n+2 2:2\n")
    rows = open_rows(path)
    assert (rows.n_features, next(rows.batches(9)).labels.tolist()) == (2, [1, 2])
    assert open_rows(path, first_index=0).n_features == 3
    assert open_rows(path, n_features=10).n_features == 10


def test_integers_that_become_text_late_in_a_text_file_are_all_text(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{i % 7},{i}" for i in range(300_000)]
    path.write_text("label,x\n" + "\n".join([*lines, "none,1"]) + "\n")
    rows = open_rows(path)
    assert next(rows.batches(10)).labels.tolist() == [str(i % 7) for i in range(10)]
    start = 299_990
    last = list(rows.batches(10, start_row=start))[-1]
    assert (last.first_row, last.labels.tolist()) == (300_000, ["none"])
    np.testing.assert_array_equal(
        np.concatenate([batch.X[:, 0] for batch in rows.batches(4096)])[:-1], np.arange(300_000)
    )


@pytest.mark.parametrize("fast", [True, False], ids=["pyarrow", "plain"])
def test_csv_means_the_same_with_and_without_pyarrow(tmp_path, monkeypatch, fast):
    if not fast:
        monkeypatch.setattr("bitclass.data.text.arrow_csv", lambda: None)
    path = tmp_path / "a.csv"
    path.write_text(
        '\ufeffx, label ,z\r\n1e3,"a, ""b""",+2\r\n\r\n"-.5", cat ,0x\n'.replace("0x", " 7 ")
        + '0.1,"two\nlines",1e-320\n',
        encoding="utf-8",
    )
    batch = next(open_rows(path).batches(9))
    assert batch.X.tolist() == [[1000, 2], [-0.5, 7], [0.1, 1e-320]]
    assert batch.labels.tolist() == ['a, "b"', "cat", "two\nlines"]


@pytest.mark.parametrize("fast", [True, False], ids=["pyarrow", "plain"])
def test_svmlight_means_the_same_with_and_without_pyarrow(tmp_path, monkeypatch, fast):
    if not fast:
        monkeypatch.setattr("bitclass.data.text.arrow_csv", lambda: None)
    path = tmp_path / "a.svm"
    path.write_text("a 1:1e-3\t2:.5   3:7\n\nb\nc 2:1e-320 #\n")
    expected = [[1e-3, 0.5, 7], [0, 0, 0], [0, 1e-320, 0]]
    assert dense(next(open_rows(path).batches(9)).X).tolist() == expected
    path.write_text("a 1:+1 3:0x\n".replace("0x", "-2E1"))
    assert dense(next(open_rows(path).batches(9)).X).tolist() == [[1, 0, -20]]
    path.write_text("a 1:1\nb 1:1,5\n")
    with pytest.raises(DataFileError, match="row 1 of this file is not"):
        list(open_rows(path).batches(9))


def test_columns_in_another_order_are_put_in_order(tmp_path):
    one, other = tmp_path / "1.csv", tmp_path / "2.csv"
    one.write_text("a,b,label\n1,2,x\n")
    other.write_text("label,b,a\ny,4,3\n")
    batch = next(open_rows([one, other]).batches(9))
    assert (batch.X.tolist(), batch.labels.tolist()) == ([[1, 2], [3, 4]], ["x", "y"])
    other.write_text("label,b,c\ny,4,3\n")
    with pytest.raises(DataFileError, match=r"2.csv: there is no column 'a'"):
        open_rows([one, other])
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "label": ["x", "y"]})
    frame.to_parquet(tmp_path / "1.parquet")
    frame[["label", "b", "a"]].to_parquet(tmp_path / "2.parquet")
    batch = next(open_rows([tmp_path / "1.parquet", tmp_path / "2.parquet"]).batches(9))
    assert batch.X.tolist() == [[1, 3], [2, 4]] * 2


@pytest.mark.parametrize("name", ["npy", "npz_sparse", "parquet_fixed", "csv", "hdf5"])
def test_batches_are_what_training_takes(tmp_path, name):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    X = (np.eye(3)[labels] * 5 + rng.standard_normal((300, 3))).astype(np.float32)
    paths, options = make(BY_NAME[name], tmp_path, X, labels)
    rows = open_rows(paths, **options)
    classifier = BinaryCodeClassifier(32, random_state=0)
    for batch in prefetched(rows.batches(64)):
        classifier.partial_fit(batch.X, batch.labels, classes=np.arange(3))
    assert classifier.score(X, labels) > 0.9


def test_a_wide_label_beside_short_ones_is_not_cut(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,label\n1,a\n2,bbbbbbbb\n")
    for batch in open_rows([path, path]).batches(3):
        assert set(batch.labels) <= {"a", "bbbbbbbb"}


MATLAB_FILES = Path(scipy.io.matlab.__file__).parent / "tests" / "data"


@pytest.mark.skipif(not MATLAB_FILES.exists(), reason="this SciPy came without its test files")
def test_files_that_matlab_wrote_are_read_as_scipy_reads_them(tmp_path):
    compared = 0
    paths = sorted(MATLAB_FILES.glob("test*_[67].*.mat"))
    for path in paths:
        if "complex" in path.name or "hdf5" in path.name:
            continue
        for name, value in scipy.io.loadmat(path).items():
            is_number = not name.startswith("__") and value.dtype.kind in "iuf"
            if is_number and value.ndim == 2 and value.size:
                batch = next(open_rows(path, features=name, labels=False).batches(100))
                np.testing.assert_array_equal(dense(batch.X), dense(value))
                compared += 1
    assert compared > 20
    newest = MATLAB_FILES / "testhdf5_7.4_GLNX86.mat"
    angles = next(open_rows(newest, features="testdouble").batches(9)).X
    np.testing.assert_allclose(angles, [np.arange(9) * np.pi / 4])
    labels = MATLAB_FILES / "teststringarray_6.1_SOL2.mat"  # a char matrix, big-endian
    np.save(tmp_path / "X.npy", np.zeros((3, 1)))
    rows = open_rows(tmp_path / "X.npy", labels_file=labels)
    assert next(rows.batches(9)).labels.tolist() == ["one", "two", "three"]


def test_a_damaged_checksum_is_noticed(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"X": np.arange(12.0).reshape(3, 4)}, do_compression=True)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataFileError, match="cannot be read as MATLAB version 5"):
        next(open_rows(path).batches(9))
