"""Kernel anchors: similarities, and models that are hashed by them, from fit to file and back."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import rbf_kernel

from bitclass import BinaryCodeClassifier, load
from bitclass.anchors import RbfAnchors
from bitclass.data import open_rows
from bitclass.streaming import Checkpoint, fit_reader
from bitclass.training import Statistics, choose_anchors, load_statistics, save_statistics
from bitclass.training.starting_codes import MeanCodes


def rings(n=600, seed=0, dtype=np.float32):
    """Three classes around each other, which no linear hash function tells apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = 1.0 + 1.5 * y + 0.2 * rng.standard_normal(n)
    X = np.column_stack([radius * np.cos(angle), 10 * radius * np.sin(angle) + 50])
    return X.astype(dtype), y


def make(**parameters):
    given = {"n_bits": 32, "kernel": "rbf", "n_anchors": 60, "random_state": 0, "loss": "hinge"}
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
def test_similarities_are_those_of_scikit_learn(gamma, dtype):
    rng = np.random.default_rng(0)
    anchors = some_anchors(rng, gamma=gamma)
    X = (2 * rng.standard_normal((50, 5))).astype(dtype)
    Z = (X.astype(float) - anchors.centre) / anchors.scale
    found = anchors.similarities(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, rbf_kernel(Z, anchors.anchors.astype(float), gamma=gamma), rtol=1e-3, atol=1e-6
    )


def test_an_anchor_is_nearest_to_itself():
    rng = np.random.default_rng(0)
    anchors = some_anchors(rng)
    found = anchors.similarities(anchors.anchors * anchors.scale + anchors.centre)
    np.testing.assert_allclose(np.diag(found), 1.0, rtol=1e-4)
    assert found.max() <= 1.0


@pytest.mark.parametrize("far", [1e10, 1e20, 3e38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_however_far_away_is_like_no_anchor(far, dtype):
    rng = np.random.default_rng(0)
    X = far * rng.choice([-1.0, 1.0], size=(20, 5))
    np.testing.assert_array_equal(some_anchors(rng).similarities(X.astype(dtype)), 0.0)


def test_similarities_do_not_depend_on_the_block():
    rng = np.random.default_rng(0)
    anchors = some_anchors(rng, m=300, d=40, gamma=0.02)
    X = rng.standard_normal((500, 40)).astype(np.float32)
    whole = anchors.similarities(X)
    for step in (1, 7, 256):
        parts = [anchors.similarities(X[i : i + step]) for i in range(0, 500, step)]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-5)


def test_gamma_by_name():
    X, _ = rings()
    centre, scale = X.mean(axis=0).astype(float), X.std(axis=0).astype(float)
    by_scale = choose_anchors(X, 50, "scale", centre, scale, np.random.RandomState(0))
    assert by_scale.gamma == 0.5
    by_median = choose_anchors(X, 50, "median", centre, scale, np.random.RandomState(0))
    Z = (X - centre) / scale
    apart = ((Z[:, None, :] - by_median.anchors[None]) ** 2).sum(axis=2)
    assert by_median.gamma == pytest.approx(1 / np.median(apart), rel=1e-3)
    assert choose_anchors(X, 5, 0.7, centre, scale, np.random.RandomState(0)).gamma == 0.7


def test_anchors_are_distinct_rows():
    X, _ = rings(200)
    centre, scale = X.mean(axis=0).astype(float), X.std(axis=0).astype(float)
    chosen = choose_anchors(X, 200, "scale", centre, scale, np.random.RandomState(0))
    np.testing.assert_allclose(chosen.anchors, (X - centre) / scale, atol=1e-5)


def test_anchors_lie_in_the_middle_of_the_rows_around_them():
    """As scikit-learn's k-means has it from the same rows on."""
    X, _ = rings(300)
    centre, scale = X.mean(axis=0).astype(float), X.std(axis=0).astype(float)
    Z = ((X - centre) / scale).astype(np.float32)
    drawn = np.sort(np.random.RandomState(3).choice(300, 20, replace=False))
    found = choose_anchors(X, 20, "scale", centre, scale, np.random.RandomState(3)).anchors
    expected = KMeans(20, init=Z[drawn], n_init=1, max_iter=4, tol=0, algorithm="lloyd").fit(Z)
    np.testing.assert_allclose(found, expected.cluster_centers_, atol=1e-5)

    def error(anchors):
        return ((Z[:, None] - anchors) ** 2).sum(axis=2).min(axis=1).mean()

    assert error(found) < 0.8 * error(Z[drawn])


@pytest.mark.parametrize(
    ("shape", "n_anchors"), [((90, 3), 90), ((2500, 128), 2000), ((1200, 129), 1000)]
)
def test_anchors_by_default(shape, n_anchors):
    X = np.random.default_rng(0).standard_normal(shape)
    y = np.arange(shape[0]) % 3
    classifier = BinaryCodeClassifier(8, kernel="rbf", refine=False, loss="hinge", random_state=0)
    classifier.partial_fit(X, y)
    assert len(classifier.projection_) == n_anchors
    classifier.partial_fit(X[:10], y[:10])  # goes on with what it has
    with pytest.raises(ValueError, match=r"0 anchors differs from the"):
        classifier.set_params(kernel=None).partial_fit(X, y)


def test_rows_that_are_all_equal_have_a_width():
    X = np.ones((20, 3))
    found = choose_anchors(X, 4, "median", np.ones(3), np.ones(3), np.random.RandomState(0))
    assert np.isfinite(found.similarities(X)).all()


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.parametrize("codes", ["means", "projection"])
def test_it_tells_apart_what_no_linear_function_can(refine, loss, codes):
    X, y = rings(1000)
    kernel = make(refine=refine, loss=loss, initial_codes=codes).fit(X[:600], y[:600])
    assert kernel.n_features_in_ == 2
    assert kernel.projection_.shape == (60, 32)
    assert kernel.packed().precision == "float32"
    assert kernel.score(X[600:], y[600:]) > 0.85
    linear = make(kernel=None, refine=refine, loss=loss, initial_codes=codes)
    assert linear.fit(X[:600], y[:600]).score(X[600:], y[600:]) < 0.7


@pytest.mark.parametrize("precision", ["auto", "int8"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_prediction_in_blocks_is_prediction_at_once(precision, dtype):
    X, y = rings(600)
    classifier = make(precision=precision).fit(X.astype(dtype), y)
    X = np.tile(X, (20, 1)).astype(dtype)  # more than a block
    whole = classifier.predict(X)
    assert np.isin(whole, [0, 1, 2]).all()
    codes = classifier.encode(X)
    for step in (1, 97, 4096):
        rows = slice(0, 200) if step == 1 else slice(None)
        parts = [classifier.encode(X[rows][i : i + step]) for i in range(0, len(X[rows]), step)]
        wrong = np.unpackbits(np.concatenate(parts) ^ codes[rows], axis=1).mean()
        # A score within the rounding of BLAS may fall to the other side.
        assert wrong < 1e-4
    parts = [classifier.predict(X[i : i + 4096]) for i in range(0, len(X), 4096)]
    assert np.mean(np.concatenate(parts) == whole) > 0.999


def test_sparse_rows_are_dense_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 20)) * (rng.random((600, 20)) < 0.3)
    y = (np.abs(X).sum(axis=1) > np.median(np.abs(X).sum(axis=1))).astype(int)
    for gamma in ("scale", "median"):
        dense = make(gamma=gamma).fit(X, y)
        sparse = make(gamma=gamma).fit(csr_array(X), y)
        np.testing.assert_array_equal(dense.projection_, sparse.projection_)
        np.testing.assert_array_equal(dense.predict(X), sparse.predict(csr_array(X)))


def test_more_anchors_than_rows_are_refused():
    X, y = rings(50)
    message = "n_anchors=60 anchors cannot be drawn from 50 rows"
    with pytest.raises(ValueError, match=message):
        make().fit(X, y)
    with pytest.raises(ValueError, match=message):
        make().partial_fit(X, y)
    weights = np.where(np.arange(50) < 30, 1.0, 0.0)
    with pytest.raises(ValueError, match="from 30 rows"):
        make().fit(X, y, sample_weight=weights)
    make(n_anchors=50).fit(X, y)


def test_batches_are_as_good_as_all_at_once():
    X, y = rings(900)
    whole = make(refine=False).partial_fit(X[:300], y[:300])
    whole.partial_fit(X[300:], y[300:])
    many = make(refine=False).partial_fit(X[:300], y[:300])
    for begin in range(300, 900, 100):
        many.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    np.testing.assert_array_equal(whole.weights_, many.weights_)
    # Rounding moves the projection, for similarities in a plane are nearly dependent.
    assert np.mean(whole.predict(X) == many.predict(X)) > 0.99


# -------------------------------------------------------------------------------------------------
# Files
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("projection", ["float32", "float16", "int8"])
@pytest.mark.parametrize("precision", ["auto", "int8"])
def test_a_model_with_anchors_is_saved_and_read(tmp_path, projection, precision):
    X, y = rings()
    classifier = make(precision=precision).fit(X, y)
    classifier.save(tmp_path / "model", projection=projection)
    model, estimator = load(tmp_path / "model"), BinaryCodeClassifier.load(tmp_path / "model")
    assert model.n_features == estimator.n_features_in_ == 2
    assert (estimator.kernel, estimator.n_anchors, estimator.gamma) == ("rbf", 60, "scale")
    assert model.anchors.fingerprint() == classifier.packed().anchors.fingerprint()
    assert model.nbytes > classifier.packed().anchors.anchors.nbytes
    np.testing.assert_array_equal(estimator.predict(X), model.predict(X))
    exact = projection == "float32" or (projection, precision) == ("int8", "int8")
    if exact:
        np.testing.assert_array_equal(model.encode(X), classifier.encode(X))
        np.testing.assert_array_equal(model.predict_proba(X), classifier.predict_proba(X))
    else:
        assert np.mean(model.predict(X) == classifier.predict(X)) > 0.9


def statistics_with_anchors():
    rng = np.random.default_rng(0)
    X, y = rings(300)
    centre, scale = X.mean(axis=0).astype(float), X.std(axis=0).astype(float)
    anchors = choose_anchors(X, 40, "scale", centre, scale, np.random.RandomState(0))
    return Statistics(MeanCodes(16, seed=3), np.full(40, 0.3), np.full(40, 0.2), False, anchors), (
        rng, X, y,
    )  # fmt: skip


def test_statistics_with_anchors_go_on_from_a_file(tmp_path):
    whole, (_, X, y) = statistics_with_anchors()
    part, _ = statistics_with_anchors()
    part.add(X[:100], y[:100], None)
    save_statistics(tmp_path / "statistics", part)
    read, _ = load_statistics(tmp_path / "statistics")
    assert read.n_features == 2
    assert read.anchors.fingerprint() == whole.anchors.fingerprint()
    for statistics in (whole, read):
        if statistics is whole:
            statistics.add(X[:100], y[:100], None)
        statistics.add(X[100:], y[100:], None)
    assert whole.gram.tobytes() == read.gram.tobytes()
    assert whole.feature_sums.tobytes() == read.feature_sums.tobytes()
    np.testing.assert_array_equal(whole.starting_sums(), read.starting_sums())


def test_statistics_of_other_anchors_are_not_merged():
    one, (_, X, y) = statistics_with_anchors()
    other = Statistics(MeanCodes(16, seed=3), one.shift, one.scale, False, None)
    with pytest.raises(ValueError, match="cannot be merged"):
        one.merge(other)
    moved = RbfAnchors(one.anchors.anchors + 1, one.anchors.centre, one.anchors.scale, 0.5)
    with pytest.raises(ValueError, match="different kernel anchors"):
        one.merge(Statistics(MeanCodes(16, seed=3), one.shift, one.scale, False, moved))
    whole, _ = statistics_with_anchors()
    whole.add(X, y, None)
    one.add(X[:80], y[:80], None)
    rest, _ = statistics_with_anchors()
    rest.add(X[80:], y[80:], None)
    one.merge(rest)
    np.testing.assert_allclose(one.gram, whole.gram, rtol=1e-5, atol=1e-3)


def test_other_anchors_than_before_are_refused():
    X, y = rings()
    for other in ({"kernel": None}, {"n_anchors": 61}):
        classifier = make(refine=False).partial_fit(X, y)
        with pytest.raises(ValueError, match="anchors of the batches before"):
            classifier.set_params(**other).partial_fit(X, y)


@pytest.mark.parametrize("initial_codes", ["means", "projection"])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_a_checkpoint_with_a_kernel_ends_with_the_same_model(tmp_path, initial_codes, loss):
    X, y = rings(900)
    np.savez(tmp_path / "train.npz", X=X, y=y)

    def run(checkpoint=None, stop_after=None):
        reader = open_rows(tmp_path / "train.npz")

        def progress(name, rows):
            if stop_after is not None and rows >= stop_after:
                raise KeyboardInterrupt

        classifier = make(initial_codes=initial_codes, loss=loss)
        return fit_reader(
            classifier, reader, batch_rows=100, checkpoint=checkpoint, progress=progress
        )

    whole = run()
    assert whole.refinement_ is not None
    folder = tmp_path / "progress"
    with pytest.raises(KeyboardInterrupt):
        run(Checkpoint(folder, {}, seconds=0.0), stop_after=500)
    assert 0 < load_statistics(folder / "statistics.safetensors")[0].n_rows < 900
    resumed = run(Checkpoint(folder, {}, seconds=0.0))
    np.testing.assert_array_equal(whole.weights_, resumed.weights_)
    np.testing.assert_array_equal(whole.projection_, resumed.projection_)


# -------------------------------------------------------------------------------------------------
# Rescoring
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rescoring_counts_bits_by_how_sure_they_are(kernel, dtype):
    rng = np.random.default_rng(0)
    n_classes = 9
    y = rng.integers(0, n_classes, 500)
    X = (rng.standard_normal((n_classes, 6))[y] * 2 + rng.standard_normal((500, 6))).astype(dtype)
    classifier = make(kernel=kernel, n_bits=24).fit(X, y)
    model = classifier.packed()
    features = X.astype(np.float64)
    if kernel:
        features = model.anchors.similarities(X.astype(np.float32)).astype(np.float64)
    scores = features @ model.projection + model.intercept
    agreement = np.tanh(2.0 * scores) @ classifier.weights_.T
    nearest, apart = classifier.top_classes(X, n_classes)
    n_changed = 0
    for k in range(1, n_classes + 1):
        labels, distances = classifier.top_classes(X, k, rescore=True)
        assert labels.shape == distances.shape == (500, k)
        for i in range(500):
            candidates = nearest[i, : min(4 * k, n_classes)]
            expected = sorted(candidates, key=lambda c: -agreement[i, c])[:k]
            if list(labels[i]) != expected:  # rounding of float32 only
                np.testing.assert_allclose(
                    agreement[i, labels[i]], agreement[i, expected], rtol=1e-3, atol=1e-3
                )
        by_label = np.take_along_axis(apart, nearest.argsort(axis=1), axis=1)
        np.testing.assert_array_equal(distances, np.take_along_axis(by_label, labels, axis=1))
        n_changed += np.sum(labels[:, 0] != nearest[:, 0])
    assert n_changed > 0


def test_rescoring_keeps_its_digits_where_the_mean_is_far_from_zero():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 600)
    X = 3 * rng.standard_normal((5, 8))[y] + rng.standard_normal((600, 8))
    for shift in (0.0, 1e7):
        classifier = make(kernel=None, refine=False).fit(X + shift, y)
        labels, _ = classifier.top_classes(X + shift, 1, rescore=True)
        assert np.mean(labels[:, 0] == y) > 0.9


@pytest.mark.parametrize("rescore", [False, True])
def test_k_is_still_checked_with_rescoring(rescore):
    X, y = rings()
    with pytest.raises(ValueError, match="k must be an integer from 1 to .* 3, found 4"):
        make().fit(X, y).top_classes(X, 4, rescore=rescore)
