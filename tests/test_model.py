"""Packed models: all methods agree on short lists, scores, probabilities and unknown classes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass import PackedModel
from bitclass._native.ngrams import NgramFeatures
from bitclass.codes import pack, unpack
from bitclass.hash_function import HashFunction, RbfAnchors


def random_model(
    seed, n_classes, n_bits=12, d=4, rescore=0, precision="int8", kernel=False, bias=0.0
):
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
    given = {"rescore": rescore}
    if bias:
        given["bias"] = np.rint(2 * bias * rng.standard_normal(n_classes)).astype(np.float32) / 2
    given["temperature"] = float(rng.uniform(0.1, 20))
    X = rng.integers(-2, 3, (60, hash_function.n_features)).astype(np.float32)
    return PackedModel(np.arange(n_classes), pack(weights), hash_function, **given), X


def real_scores(model, X):
    """w_c.tanh(P'x + t) + bias_c of all classes, (n, C), without the steps of 1/127."""
    h = model.hash_function
    features = X.astype(float) if h.anchors is None else h.anchors.similarities(X).astype(float)
    F = features @ h.projection.astype(float) + h.intercept
    bias = 0.0 if model.bias is None else model.bias
    return np.tanh(F) @ model.unpacked_weights().T.astype(float) + bias


def nearest_first(model, X):
    """All classes by w_c.b + e_c, then by index, (n, C), and their distances."""
    codes = unpack(model.encode(X), model.n_bits).astype(int)
    distances = (model.n_bits - codes @ model.unpacked_weights().T.astype(int)) // 2
    even = 0 if model.bias is None else 2 * np.rint(model.bias / 2).astype(int)
    order = np.argsort(2 * distances - even, axis=1, kind="stable")
    return order, np.take_along_axis(distances, order, axis=1)


MODELS = {
    "seed": st.integers(0, 10_000),
    "n_classes": st.integers(2, 9),
    "n_bits": st.sampled_from([1, 7, 12, 40]),
    "rescore": st.sampled_from([0, 1, 2, 4, 9, 16, 1 << 35]),
    "precision": st.sampled_from(["int8", "float32"]),
    "kernel": st.booleans(),
    "bias": st.sampled_from([0.0, 0.0, 1.0, 6.0, 500.0]),
}


@given(st.fixed_dictionaries(MODELS))
@settings(max_examples=120)
def test_all_prediction_methods_agree(given):
    model, X = random_model(**given)
    predicted, scores, shares = model.predict(X), model.scores(X), model.predict_proba(X)
    np.testing.assert_array_equal(scores.argmax(axis=1), predicted)
    np.testing.assert_array_equal(shares.argmax(axis=1), predicted)
    n_classes = given["n_classes"]
    labels, distances, of_labels, _ = model.top_classes(X, n_classes, probabilities=True)
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
        assert model.top_classes(X, k)[2:] == (None, None)


@given(st.fixed_dictionaries(MODELS))
def test_the_short_list_is_ranked_by_real_scores_and_the_rest_by_distance(given):
    model, X = random_model(**given)
    m = min(given["rescore"], given["n_classes"])
    assert model.n_rescored == m
    order, apart = nearest_first(model, X)
    labels, distances, *_ = model.top_classes(X, given["n_classes"])
    np.testing.assert_array_equal(labels[:, m:], order[:, m:])
    np.testing.assert_array_equal(distances[:, m:], apart[:, m:])
    np.testing.assert_array_equal(np.sort(labels[:, :m], axis=1), np.sort(order[:, :m], axis=1))
    if given["precision"] == "float32":
        ranked = np.take_along_axis(real_scores(model, X), labels[:, :m], axis=1)
        # Each bit is rounded to steps of 1 / 127.
        assert np.all(np.diff(ranked, axis=1) <= (model.n_bits + 1) / 127 + 1e-5)


@given(st.fixed_dictionaries(MODELS))
def test_the_best_score_is_that_of_the_predicted_class(given):
    model, X = random_model(**given)
    best = model.best_scores(X)
    assert best.dtype == np.float32
    np.testing.assert_allclose(best, model.scores(X).max(axis=1), rtol=1e-6, atol=1e-6)
    table = np.sort(best[::3])
    known = PackedModel(
        model.classes,
        model.weights,
        model.hash_function,
        bias=model.bias,
        rescore=model.rescore,
        typicality=table,
    )
    typical = known.typicality(X)
    below, at_most = (
        compare(table[None], best[:, None]).mean(axis=1) for compare in (np.less, np.less_equal)
    )
    half = 0.5 / len(table)
    assert np.all((typical >= below - half - 1e-12) & (typical <= at_most + half + 1e-12))
    np.testing.assert_array_equal(typical == 0, best < table[0])
    np.testing.assert_array_equal(typical == 1, best > table[-1])
    assert np.all(np.diff(typical[np.argsort(best, kind="stable")]) >= 0)
    for k in (1, given["n_classes"]):
        np.testing.assert_array_equal(known.top_classes(X, k, typicality=True).typicality, typical)
    for reject in (1e-6, 0.1, 0.5, 0.9, 1.0):
        predicted = known.predict(X, reject=reject, unknown_label=-1)
        np.testing.assert_array_equal(predicted, np.where(typical < reject, -1, model.predict(X)))
    assert known.score(X, model.predict(X)) == 1.0


# -- Unknown classes


def known_model(labels, **given):
    projection = np.eye(2, dtype=np.float32)
    weights = np.array([[0], [1], [3]], np.uint8)
    hash_function = HashFunction(projection, np.zeros(2), precision="float32")
    table = np.linspace(0, 2, 5, dtype=np.float32)
    return PackedModel(
        np.array(labels), weights, hash_function, rescore=3, typicality=table, **given
    )


@pytest.mark.parametrize(
    ("labels", "unknown", "dtype"),
    [
        (["a", "b", "c"], "unknown", "<U7"),
        ([b"a", b"b", b"c"], b"??", "|S2"),
        (np.array([1, 2, 3], np.int64), -1, "<i8"),
        (np.array([1, 2, 3], np.uint8), -1, "<i2"),
        (np.array([1, 2, 3], np.uint8), 300, "<u2"),
        ([1.0, 2.0, 3.0], np.nan, "<f8"),
        (["a", "b", "c"], None, "|O"),
        ([1, 2, 3], None, "|O"),
        (np.array(["a", "b", "c"], object), "unknown", "|O"),
        ([True, False, True], None, "|O"),
    ],
)
def test_the_labels_of_rejected_rows(labels, unknown, dtype):
    model = known_model(labels)
    X = np.array([[5.0, 5.0], [0.1, 0.1], [-5.0, -5.0]])
    found = model.predict(X, reject=0.5, unknown_label=unknown)
    assert found.dtype == np.dtype(dtype)
    assert repr(found[1]) == repr(np.array([unknown], dtype)[0])
    assert found[[0, 2]].tolist() == model.predict(X)[[0, 2]].tolist()
    unchanged = model.predict(X, unknown_label=unknown)
    assert unchanged.dtype == model.classes.dtype
    assert unchanged.tolist() == np.array(labels)[[2, 2, 0]].tolist()


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [
        (["a", "b", "c"], 1),
        (["a", "b", "c"], b"x"),
        ([1, 2, 3], "x"),
        ([1, 2, 3], 0.5),
        ([1, 2, 3], True),
        (np.array([1, 2, 3], np.uint64), -1),
        ([True, False, True], True),
        ([1, 2, 3], [1, 2]),
    ],
)
def test_an_unknown_label_of_another_type_is_rejected(labels, unknown):
    with pytest.raises(ValueError, match="unknown_label must be None or of the type of the labels"):
        known_model(labels).predict(np.zeros((1, 2)), reject=0.1, unknown_label=unknown)


def test_what_typicality_needs():
    model, X = random_model(0, 5)
    for ask in (
        model.typicality,
        lambda X: model.predict(X, reject=0.1),
        lambda X: model.top_classes(X, 1, typicality=True),
    ):
        with pytest.raises(ValueError, match="no table of their scores"):
            ask(X)
    for reject in (-0.1, 1.5, np.nan, "0.1"):
        with pytest.raises(ValueError, match="reject must be a number from 0 to 1"):
            model.predict(X, reject=reject)
    for table in ([], [[1.0]], [2.0, 1.0], [0.0, np.nan], [np.inf]):
        with pytest.raises(ValueError, match="typicality: expected"):
            PackedModel(model.classes, model.weights, model.hash_function, typicality=table)
    with pytest.raises(ValueError, match="y must have shape"):
        model.score(X, [1, 2])


def test_a_packed_model_says_how_to_add_rows():
    model, _ = random_model(0, 5)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match=r"BinaryCodeClassifier\.load.*TextClassifier\.load"):
        model.partial_fit([[1.0]], [0])


def test_texts_are_predicted_with_biases_as_their_rows_are():
    rng = np.random.default_rng(0)
    text = NgramFeatures(256, (2, 3), (1, 1))
    columns = np.arange(256, dtype=np.int32)
    projection = rng.standard_normal((256, 40)).astype(np.float32)
    hash_function = HashFunction(
        projection, rng.standard_normal(40), columns=columns, n_features=256
    )
    texts = [f"text {i} of {i % 7}" for i in range(300)]
    weights = pack(rng.standard_normal((30, 40)) > 0)
    bias = (5 * rng.standard_normal(30)).astype(np.float32)
    for rescore in (0, 8):
        model = PackedModel(
            np.arange(30), weights, hash_function, bias=bias, rescore=rescore, text=text
        )
        np.testing.assert_array_equal(model.predict(texts), model.scores(texts).argmax(axis=1))
        np.testing.assert_allclose(model.best_scores(texts), model.scores(texts).max(axis=1))
