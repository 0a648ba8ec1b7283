"""Short lists: nearest classes ranked by real-valued scores, consistently in all methods."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.codes import pack, unpack
from bitclass.hash_function import HashFunction, RbfAnchors


def random_model(seed, n_classes, n_bits=12, d=4, rescore=0, precision="int8", kernel=False):
    """Small integers, for many ties of distances and scores; classes may be equal."""
    rng = np.random.default_rng(seed)
    anchors = None
    if kernel:
        centre, scale = np.zeros(3, np.float32), np.ones(3, np.float32)
        anchors = RbfAnchors(rng.integers(-2, 3, (d, 3)).astype(np.float32), centre, scale, 0.3)
    hash_function = HashFunction(
        rng.integers(-2, 3, (d, n_bits)).astype(np.float32),
        rng.integers(-1, 2, n_bits).astype(np.float64),
        precision=precision,
        anchors=anchors,
    )
    weights = rng.choice([-1, 1], size=(n_classes, n_bits))
    if n_classes > 3:
        weights[1] = weights[3]
    given = {"rescore": rescore, "steepness": 0.7, "temperature": float(rng.uniform(0.1, 20))}
    X = rng.integers(-2, 3, (60, hash_function.n_features)).astype(np.float32)
    return PackedModel(np.arange(n_classes), pack(weights), hash_function, **given), X


def real_scores(model, X):
    """w_c.tanh(steepness (P'x + t)) of all classes, (n, C), without the steps of 1/127."""
    h = model.hash_function
    features = X.astype(float) if h.anchors is None else h.anchors.similarities(X).astype(float)
    F = features @ h.projection.astype(float) + h.intercept
    return np.tanh(model.steepness * F) @ model.unpacked_weights().T.astype(float)


def nearest_first(model, X):
    """All classes by Hamming distance, then by index, (n, C), and these distances."""
    codes = unpack(model.encode(X), model.n_bits).astype(int)
    distances = (model.n_bits - codes @ model.unpacked_weights().T.astype(int)) // 2
    order = np.argsort(distances, axis=1, kind="stable")
    return order, np.take_along_axis(distances, order, axis=1)


MODELS = {
    "seed": st.integers(0, 10_000),
    "n_classes": st.integers(2, 9),
    "n_bits": st.sampled_from([1, 7, 12, 40]),
    "rescore": st.sampled_from([0, 1, 2, 4, 9, 16, 1 << 35]),
    "precision": st.sampled_from(["int8", "float32"]),
    "kernel": st.booleans(),
}


@given(st.fixed_dictionaries(MODELS))
@settings(max_examples=120)
def test_all_prediction_methods_agree(given):
    model, X = random_model(**given)
    predicted, scores, shares = model.predict(X), model.scores(X), model.predict_proba(X)
    np.testing.assert_array_equal(scores.argmax(axis=1), predicted)
    np.testing.assert_array_equal(shares.argmax(axis=1), predicted)
    n_classes = given["n_classes"]
    labels, distances, of_labels = model.top_classes(X, n_classes, probabilities=True)
    np.testing.assert_array_equal(np.argsort(-scores, axis=1, kind="stable"), labels)
    np.testing.assert_allclose(
        of_labels, np.take_along_axis(shares, labels, axis=1), rtol=1e-9, atol=1e-300
    )
    assert np.all(np.diff(of_labels, axis=1) <= 0)
    np.testing.assert_allclose(of_labels.sum(axis=1), 1.0)
    codes = unpack(model.encode(X), model.n_bits).astype(int)
    apart = (model.n_bits - codes @ model.unpacked_weights().T.astype(int)) // 2
    np.testing.assert_array_equal(distances, np.take_along_axis(apart, labels, axis=1))
    for k in range(1, n_classes):
        fewer = model.top_classes(X, k, probabilities=True)
        np.testing.assert_array_equal(fewer[0], labels[:, :k])
        np.testing.assert_array_equal(fewer[1], distances[:, :k])
        np.testing.assert_allclose(fewer[2], of_labels[:, :k], rtol=1e-12)
        assert len(model.top_classes(X, k)) == 2


@given(st.fixed_dictionaries(MODELS))
def test_the_short_list_is_ranked_by_real_scores_and_the_rest_by_distance(given):
    model, X = random_model(**given)
    m = min(given["rescore"], given["n_classes"])
    assert model.n_rescored == m
    order, apart = nearest_first(model, X)
    labels, distances = model.top_classes(X, given["n_classes"])
    np.testing.assert_array_equal(labels[:, m:], order[:, m:])
    np.testing.assert_array_equal(distances[:, m:], apart[:, m:])
    np.testing.assert_array_equal(np.sort(labels[:, :m], axis=1), np.sort(order[:, :m], axis=1))
    if given["precision"] == "float32":
        ranked = np.take_along_axis(real_scores(model, X), labels[:, :m], axis=1)
        # Each bit is rounded to steps of 1 / 127.
        assert np.all(np.diff(ranked, axis=1) <= model.n_bits / 127 + 1e-5)


# -------------------------------------------------------------------------------------------------
# The estimator
# -------------------------------------------------------------------------------------------------


def problem(n_classes=12, n=900, noise=2.5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return 2 * rng.standard_normal((n_classes, 10))[y] + noise * rng.standard_normal((n, 10)), y


@pytest.mark.parametrize("n_classes", [2, 12])
@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_the_estimator_predicts_like_its_model(n_classes, kernel):
    X, y = problem(n_classes, 520)
    classifier = BinaryCodeClassifier(8, kernel=kernel, n_anchors=40, random_state=0).fit(X, y)
    X = X + np.random.default_rng(0).standard_normal(X.shape)
    model, predicted = classifier.packed(), classifier.predict(X)
    scores = classifier.decision_function(X)
    best = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(classifier.classes_[best], predicted)
    np.testing.assert_array_equal(model.predict(X), predicted)
    np.testing.assert_array_equal(classifier.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("refine", [False, True])
def test_a_short_list_improves_accuracy_and_has_the_requested_length(refine):
    X, y = problem(40, 3000)
    X_test, y_test = problem(40, 6000)
    X_test, y_test = X_test[3000:], y_test[3000:]
    found = {}
    for rescore in (False, 3, 64, "auto"):
        given = {"rescore": rescore, "refine": refine, "random_state": 0}
        classifier = BinaryCodeClassifier(32, **given).fit(X, y)
        length = classifier.packed().rescore
        assert length in (0, 16, 64) if rescore == "auto" else length == rescore
        found[rescore] = classifier.score(X_test, y_test)
    assert refine or length == 16, "without rows held out to choose it"
    assert found[64] > found[False] + 0.01, found
    assert found["auto"] > found[False], found


def test_no_digits_are_lost_if_the_mean_is_far_from_zero():
    X, y = problem(5, 600, noise=0.5)
    for shift in (0.0, 3e6):
        for codes in ("discriminant", "means"):
            chosen = {"initial_codes": codes, "refine": False, "random_state": 0}
            classifier = BinaryCodeClassifier(32, rescore=5, **chosen)
            assert classifier.fit(X + shift, y).score(X + shift, y) > 0.9


# -------------------------------------------------------------------------------------------------
# The paper
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["exponential", "hinge"])
def test_the_paper_is_one_call_away(loss):
    X, y = problem()
    published = {"initial_codes": "random", "alpha": 0.01, "refine": False, "rescore": False}
    paper = BinaryCodeClassifier.paper(24, loss=loss, random_state=0)
    explicit = BinaryCodeClassifier(24, loss=loss, random_state=0, **published)
    assert paper.get_params() == explicit.get_params()
    assert paper.fit(X, y).refinement_ is None
    np.testing.assert_array_equal(paper.predict(X), nearest_first(paper.packed(), X)[0][:, 0])
    given = BinaryCodeClassifier.paper(initial_codes="cca_itq", alpha=0.5, scale=0.1)
    assert (given.initial_codes, given.alpha, given.scale) == ("cca_itq", 0.5, 0.1)
    assert (given.n_bits, given.loss) == (128, "exponential")
