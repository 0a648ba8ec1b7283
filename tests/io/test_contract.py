"""Every format gives the same rows, however they are cut into files and batches."""

import numpy as np
import pytest
import scipy.sparse as sp
from feature_files import BY_NAME, MAKERS, labels_of, make

from bitclass.io import open_rows, prefetch

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
    if name.startswith(("svmlight", "csv", "tsv")) and labels.dtype.kind == "f":
        return labels.astype(str)  # text files: integers, or text as written
    if name.startswith("matlab") and labels.dtype.kind == "b":
        return labels.astype(np.uint8)
    return labels


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("cuts", [(), (10, 11)], ids=["one file", "three files"])
def test_every_format_gives_the_same_rows(tmp_path, name, kind, cuts):
    X, labels = features(), labels_of(kind, N_ROWS)
    paths, options = make(BY_NAME[name], tmp_path, X, labels, cuts)
    rows = open_rows(paths, **options)
    labels = expected_labels(name, labels)
    assert (rows.n_rows, rows.n_features, rows.has_labels) == (N_ROWS, 5, True)
    assert rows.is_sparse == ("sparse" in name or "svm" in name)
    for size, start_row in [(1, 0), (7, 0), (7, 14), (7, 21), (100, 0), (5, 23), (7, 9)]:
        at = start_row
        for batch in rows.batches(start_row, size):
            stop = min(N_ROWS, at - at % size + size)
            assert batch.first_row == at
            assert batch.X.shape == (stop - at, 5)
            assert batch.X.dtype == rows.dtype
            assert sp.issparse(batch.X) == rows.is_sparse
            np.testing.assert_array_equal(dense(batch.X), X[at:stop])
            np.testing.assert_array_equal(batch.labels, labels[at:stop])
            assert batch.labels.dtype.kind == labels.dtype.kind
            at = stop
        assert at == N_ROWS
    sampled, sampled_labels = rows.sample(6)
    chosen = np.linspace(0, N_ROWS - 1, 6).astype(int)
    np.testing.assert_array_equal(dense(sampled), X[chosen])
    np.testing.assert_array_equal(sampled_labels, labels[chosen])
    assert rows.sample(1000)[0].shape == (N_ROWS, 5)
