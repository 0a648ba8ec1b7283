"""Files of sums: training continues from one as if it had never stopped; damage is refused."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bitclass import BinaryCodeClassifier, ModelFileError
from bitclass.hash_function import RbfAnchors
from bitclass.storage import save
from bitclass.training.sums import Collected, Sums
from bitclass.training.sums_file import load_sums, save_sums, sums_path

from ..altered_files import with_arrays, with_data, with_header
from ..packed_models import made
from ..problems import clusters, make

D = 3


def some_anchors():
    centre, scale = np.zeros(D, np.float32), np.ones(D, np.float32)
    return RbfAnchors(np.eye(D, dtype=np.float32), centre, scale, 0.3)


def collected(kind="dense", n=60, pool_rows=10, labels=("ant", "bee", "日本")):
    """Sums of two batches with a pool and a sample."""
    rng = np.random.default_rng(0)
    y = np.array(labels)[rng.integers(0, len(labels), n)]
    X = np.round(rng.standard_normal((n, D)), 3)
    sums = Sums(
        np.full(D, 0.1), np.full(D, 1.5), anchors=some_anchors() if kind == "anchors" else None
    )
    if kind == "wide":
        sums, X = Sums.of_wide(D), sp.csr_array(X * (rng.random(X.shape) < 0.5))
    found = Collected(sums, 12345678901, pool_rows)
    half = n // 2
    found.add(X[:half], y[:half], rng.uniform(0.5, 2.0, half), np.array([labels[0]]))
    found.add(X[half:], y[half:], np.ones(n - half))
    found.sources = ["first.parquet", "über.csv"]
    return found


def dense(matrix):
    return (
        None if matrix is None else np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)
    )


def assert_equal(a, b):
    assert (a.n_rows, a.seed, a.sources) == (b.n_rows, b.seed, b.sources)
    np.testing.assert_array_equal(a.classes, b.classes)
    assert a.classes.dtype.kind == b.classes.dtype.kind
    for name in (
        "shift",
        "scale",
        "mass",
        "mass_squares",
        "gram",
        "squares",
        "counts",
        "feature_sums",
    ):
        np.testing.assert_array_equal(
            dense(getattr(a.sums, name)), dense(getattr(b.sums, name)), err_msg=name
        )
    assert a.sums.n_rows == b.sums.n_rows
    for name in ("pool", "sample"):
        one, other = getattr(a, name), getattr(b, name)
        np.testing.assert_array_equal(dense(one.features()), dense(other.features()))
        for each in ("labels", "weights", "keys"):
            np.testing.assert_array_equal(getattr(one, each), getattr(other, each))


@pytest.mark.parametrize("kind", ["dense", "wide", "anchors"])
@pytest.mark.parametrize("labels", [("ant", "bee", "日本"), (-5, 7, 2**40), (False, True)])
def test_rows_added_after_loading_give_the_same_sums(tmp_path, kind, labels):
    """The sources that were added survive, too."""
    path = sums_path(tmp_path / "model.safetensors")
    assert path == str(tmp_path / "model.sums.safetensors")
    before = collected(kind, labels=labels)
    save_sums(path, before)
    after = load_sums(path)
    assert_equal(after, before)
    if kind == "anchors":
        assert after.sums.anchors.fingerprint() == before.sums.anchors.fingerprint()
    more = collected(kind, n=40, pool_rows=40, labels=labels).pool
    after._pool_rows = before._pool_rows
    for each in (before, after):
        each.add(more.X, more.labels, more.weights)
    assert_equal(after, before)
    save_sums(path, after)  # over the existing file
    assert_equal(load_sums(path), before)
    assert os.listdir(tmp_path) == ["model.sums.safetensors"]


def test_sums_of_rows_that_all_wait_in_the_pool(tmp_path):
    waiting = collected(pool_rows=100)
    assert waiting.sums.n_rows == 0
    save_sums(tmp_path / "sums", waiting)
    read = load_sums(tmp_path / "sums")
    assert read.sample is None
    assert (read.n_rows, len(read.pool)) == (60, 60)
    np.testing.assert_array_equal(read.masses(), waiting.masses())


@pytest.fixture(scope="module", params=["dense", "wide"])
def content(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("sums") / "sums"
    save_sums(path, collected(request.param, n=20, pool_rows=5))
    return path.read_bytes()


def test_damaged_files_are_refused(tmp_path, content):
    """Some damages: the container is that of models, for which all are tried."""
    path = tmp_path / "sums"
    for at in np.random.default_rng(0).permutation(len(content))[:100]:
        flipped = content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        for damaged in (content[:at], flipped):
            path.write_bytes(damaged)
            with pytest.raises(ModelFileError):
                load_sums(path)


def with_array(name, change):
    return lambda content: with_arrays(
        content, lambda arrays: arrays.update({name: change(arrays)})
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: with_header(c, n_rows=21), "number of rows does not match"),
        (lambda c: with_header(c, n_rows=-1), "n_rows|number of rows"),
        (lambda c: with_header(c, seed="x"), "seed"),
        (lambda c: with_header(c, wide=1), "wide"),
        (lambda c: with_data(c, "mass_squares", "<f8", [-1.0]), "mass_squares"),
        (lambda c: with_header(c, sources=5), "sources"),
        (lambda c: with_data(c, "mass", "<f8", [-1.0]), "mass"),
        (lambda c: with_data(c, "scale", "<f8", [0.0]), "scale"),
        (lambda c: with_data(c, "shift", "<f8", [np.nan]), "shift"),
        (lambda c: with_data(c, "pool_labels", "<i8", [3]), "pool_labels.* must hold 0 to 2"),
        (lambda c: with_data(c, "pool_labels", "<i8", [-1]), "pool_labels"),
        (lambda c: with_data(c, "pool_weights", "<f8", [-1.0]), "pool_weights"),
        (with_array("pool_keys", lambda a: a["pool_keys"][:-1]), "pool_keys|does not match"),
        (with_array("mass", lambda a: a["mass"][:-1]), "as many as weights|does not match"),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(tmp_path, content, change, message):
    path = tmp_path / "sums"
    path.write_bytes(change(content))
    with pytest.raises(ModelFileError, match=message) as caught:
        load_sums(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("feature_sums_indices", [D]),
        ("feature_sums_indices", [-1]),
        ("feature_sums_indptr", [1]),
        ("pool_indptr", [0, 10**6]),
        ("pool_indices", [2**40]),
    ],
)
def test_sparse_matrices_with_entries_outside_are_refused(tmp_path, name, values):
    path = tmp_path / "sums"
    save_sums(path, collected("wide", n=20, pool_rows=5))
    path.write_bytes(with_data(path.read_bytes(), name, "<i8", values))
    with pytest.raises(ModelFileError, match="not a sparse matrix|must contain"):
        load_sums(path)


def test_a_model_is_not_a_file_of_sums(tmp_path):
    save(tmp_path / "model", made(np.arange(4)))
    with pytest.raises(ModelFileError, match="expected a sums file, found kind 'model'"):
        load_sums(tmp_path / "model")


@pytest.mark.parametrize("kind", ["dense", "wide", "anchors"])
def test_golden_files_load_forever(kind):
    path = Path(__file__).parents[1] / "golden" / f"sums_{kind}.safetensors"
    assert_equal(load_sums(path), collected(kind, n=20, pool_rows=5))


def test_a_model_saved_without_sums_does_not_go_on_from_those_of_an_earlier_one(tmp_path):
    X, y = clusters(n=120)
    path = tmp_path / "m.safetensors"
    first = make(keep_sums=True).fit(X[y < 2], y[y < 2])
    first.save(path, sums=True)
    later = BinaryCodeClassifier.load(path).partial_fit(X[y >= 2], y[y >= 2])
    later.save(path)
    found = BinaryCodeClassifier.load(path)
    np.testing.assert_array_equal(found.classes_, np.unique(y))
    np.testing.assert_array_equal(found.predict(X), later.predict(X))
