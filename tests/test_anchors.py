"""Kernel anchors: similarities, and models that are hashed by them, from fit to file and back."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import rbf_kernel

from bitclass import BinaryCodeClassifier, load
from bitclass.codes import unpack
from bitclass.hash_function import RbfAnchors
from bitclass.training.anchors import anchor_count, choose_anchors
from bitclass.training.sums import Sums

from .format_reader import Reader


def rings(n=600, seed=0, dtype=np.float32):
    """Three concentric classes, which no linear hash function separates."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = 1.0 + 1.5 * y + 0.2 * rng.standard_normal(n)
    X = np.column_stack([radius * np.cos(angle), 10 * radius * np.sin(angle) + 50])
    return X.astype(dtype), y


def make(**parameters):
    given = {"n_bits": 32, "kernel": "rbf", "n_anchors": 60, "random_state": 0}
    return BinaryCodeClassifier(**(given | parameters))


def some_anchors(rng, m=7, d=5, gamma=0.3):
    return RbfAnchors(
        rng.standard_normal((m, d)).astype(np.float32),
        rng.standard_normal(d).astype(np.float32),
        rng.uniform(0.5, 2, d).astype(np.float32),
        gamma,
    )


@pytest.mark.parametrize("gamma", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_similarities_equal_those_of_scikit_learn(gamma, dtype):
    rng = np.random.default_rng(0)
    anchors = some_anchors(rng, gamma=gamma)
    X = (2 * rng.standard_normal((50, 5))).astype(dtype)
    Z = (X.astype(float) - anchors.centre) / anchors.scale
    found = anchors.similarities(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, rbf_kernel(Z, anchors.anchors.astype(float), gamma=gamma), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("far", [1e10, 1e20, 3e38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_very_distant_row_has_similarity_0_to_every_anchor(far, dtype):
    rng = np.random.default_rng(0)
    X = far * rng.choice([-1.0, 1.0], size=(20, 5))
    np.testing.assert_array_equal(some_anchors(rng).similarities(X.astype(dtype)), 0.0)


def chosen(X, n_anchors, gamma="scale", seed=0):
    """Anchors, and the rows standardised."""
    centre, scale = X.mean(axis=0).astype(float), np.maximum(X.std(axis=0).astype(float), 1e-9)
    found = choose_anchors(X, n_anchors, gamma, centre, scale, np.random.RandomState(seed))
    return found, ((X - centre) / scale).astype(np.float32)


def test_gamma_by_name():
    X, _ = rings()
    assert chosen(X, 50, "scale")[0].gamma == 0.5
    assert chosen(X, 5, 0.7)[0].gamma == 0.7
    by_median, Z = chosen(X, 50, "median")
    apart = ((Z[:, None, :] - by_median.anchors[None]) ** 2).sum(axis=2)
    assert by_median.gamma == pytest.approx(1 / np.median(apart), rel=1e-3)
    equal = np.ones((20, 3))
    assert np.isfinite(chosen(equal, 4, "median")[0].similarities(equal)).all()


def test_anchors_are_the_means_of_their_nearest_rows():
    """Equal to scikit-learn's k-means from the same initial centres."""
    found, Z = chosen(rings(300)[0], 20, seed=3)
    drawn = np.sort(np.random.RandomState(3).choice(300, 20, replace=False))
    expected = KMeans(20, init=Z[drawn], n_init=1, max_iter=4, tol=0, algorithm="lloyd").fit(Z)
    np.testing.assert_allclose(found.anchors, expected.cluster_centers_, atol=1e-5)
    found, Z = chosen(rings(200)[0], 200)
    np.testing.assert_allclose(found.anchors, Z, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "n_anchors"), [((90, 3), 90), ((2500, 128), 2000), ((1200, 129), 1000)]
)
def test_default_number_of_anchors(shape, n_anchors):
    assert anchor_count("auto", *shape) == n_anchors


@pytest.mark.parametrize("refine", [False, True])
def test_classes_that_are_not_linearly_separable_are_separated(refine):
    X, y = rings(1000)
    kernel = make(refine=refine).fit(X[:600], y[:600])
    assert kernel.n_features_in_ == 2
    assert kernel.projection_.shape == (60, 32)
    assert kernel.packed().hash_function.precision == "float32"
    assert kernel.score(X[600:], y[600:]) > 0.85
    linear = make(kernel=None, refine=refine)
    assert linear.fit(X[:600], y[:600]).score(X[600:], y[600:]) < 0.7


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_prediction_in_blocks_equals_prediction_at_once(dtype):
    X, y = rings(600)
    classifier = make(refine=False).fit(X.astype(dtype), y)
    X = np.tile(X, (20, 1)).astype(dtype)  # more than a block
    codes, probabilities = classifier.encode(X), classifier.predict_proba(X)
    for step in (97, 4096):
        starts = range(0, len(X), step)
        parts = [classifier.encode(X[i : i + step]) for i in starts]
        np.testing.assert_array_equal(np.concatenate(parts), codes)
        parts = [classifier.predict_proba(X[i : i + step]) for i in starts]
        np.testing.assert_array_equal(np.concatenate(parts), probabilities)


def test_sparse_rows_give_the_same_result_as_dense_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 20)) * (rng.random((600, 20)) < 0.3)
    y = (np.abs(X).sum(axis=1) > np.median(np.abs(X).sum(axis=1))).astype(int)
    for gamma in ("scale", "median"):
        dense = make(gamma=gamma, refine=False).fit(X, y)
        sparse = make(gamma=gamma, refine=False).fit(csr_array(X), y)
        np.testing.assert_array_equal(dense.projection_, sparse.projection_)
        np.testing.assert_array_equal(dense.predict(X), sparse.predict(csr_array(X)))


# -- Files


@pytest.mark.parametrize("projection", ["float32", "int8"])
def test_a_model_with_anchors_is_saved_and_loaded(tmp_path, projection):
    X, y = rings()
    classifier = make(refine=False).fit(X, y)
    classifier.save(tmp_path / "model", projection=projection)
    anchors = classifier.packed().hash_function.anchors
    model, estimator = load(tmp_path / "model"), BinaryCodeClassifier.load(tmp_path / "model")
    assert model.n_features == estimator.n_features_in_ == 2
    assert (estimator.kernel, estimator.n_anchors, estimator.gamma) == ("rbf", 60, "scale")
    assert model.hash_function.anchors.fingerprint() == anchors.fingerprint()
    assert model.nbytes > anchors.anchors.nbytes
    np.testing.assert_array_equal(estimator.predict(X), model.predict(X))
    if projection == "float32":
        np.testing.assert_array_equal(model.encode(X), classifier.encode(X))
        np.testing.assert_array_equal(model.predict_proba(X), classifier.predict_proba(X))
    else:
        assert np.mean(model.predict(X) == classifier.predict(X)) > 0.9
    # A reader written from the specification gives the same codes, up to rounding of sums.
    values = Reader(tmp_path / "model").values(X)
    clear = np.abs(values) > 1e-4
    assert clear.mean() > 0.5
    bits = unpack(model.encode(X), model.n_bits) > 0
    np.testing.assert_array_equal(bits[clear], values[clear] >= 0)


def test_sums_over_different_anchors_cannot_be_merged():
    anchors, _ = chosen(rings(300)[0], 40)
    moved = RbfAnchors(anchors.anchors + 1, anchors.centre, anchors.scale, anchors.gamma)
    some, none, other = (
        Sums(np.zeros(40), np.ones(40), anchors=given) for given in (anchors, None, moved)
    )
    with pytest.raises(ValueError, match="40 features cannot be merged"):
        some.merge(none)
    with pytest.raises(ValueError, match="different kernel"):
        some.merge(other)


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("value", [0.0, 123456789.0])
def test_a_feature_that_was_constant_in_training_has_no_say(value, in_batches, tmp_path):
    X, y = rings(dtype=np.float64)
    before, after = np.c_[X, np.full(len(X), value)], np.c_[X, value + 300.0 + X[:, 0]]
    classifier = make()
    if in_batches:
        classifier.fit_batches(lambda: zip(np.split(before, 3), np.split(y, 3), strict=True))
    else:
        classifier.fit(before, y)
    expected = classifier.predict(before)
    assert np.mean(expected == y) > 0.9
    np.testing.assert_array_equal(classifier.predict(after), expected)
    classifier.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "m.safetensors").predict(after), expected)


def test_a_feature_that_is_constant_only_in_the_first_batch_has_one():
    X, y = rings(dtype=np.float64)
    X = np.c_[X, 3.0 * y]
    X[:300, 2] = 0.0
    classifier = make().partial_fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
    anchors = classifier.packed().hash_function.anchors
    assert anchors.scale[2] == 1.0
