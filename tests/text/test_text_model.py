"""Text models: predictions and explanations."""

import pickle
import random

import numpy as np
import pytest

from bitclass.codes import unpack

from ..text_models import fitted
from .ngram_rows import malformed


@pytest.fixture(scope="module")
def problem():
    texts, labels, hasher, classifier = fitted()
    return texts, labels, hasher, classifier, classifier.packed().with_text(hasher.features_)


def test_texts_are_predicted_as_their_rows_are(problem):
    texts, labels, hasher, classifier, model = problem
    rows = hasher.transform(texts)
    assert (model.predict(texts) == labels).mean() > 0.95
    np.testing.assert_array_equal(model.predict(texts), classifier.predict(rows))
    np.testing.assert_array_equal(model.encode(texts), model.encode(rows))
    np.testing.assert_array_equal(model.scores(texts), model.scores(rows))
    np.testing.assert_array_equal(model.predict_proba(texts[:3]), model.predict_proba(rows[:3]))
    for found, expected in zip(
        model.top_classes(texts, 2), model.top_classes(rows, 2), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_a_model_given_texts_visits_as_many_clusters_and_leaves_the_other_alone(problem):
    _, _, hasher, classifier, _ = problem
    model = classifier.packed()
    model.n_probe = 1
    found = model.with_text(hasher.features_)
    assert found.n_probe == 1
    found.summary["text_column"] = "title"
    assert model.text is None
    assert "text_column" not in model.summary


@pytest.mark.parametrize(
    "as_kind",
    [
        tuple,
        np.array,
        lambda t: pytest.importorskip("pandas").Series(t),
        lambda t: np.array(t, dtype=object),
        lambda t: [text.encode() for text in t],
    ],
)
def test_texts_come_in_any_sequence(problem, as_kind):
    texts, _, _, _, model = problem
    np.testing.assert_array_equal(model.predict(as_kind(texts)), model.predict(texts))


def test_no_texts_give_no_labels_and_rows_of_numbers_are_still_taken(problem):
    *_, hasher, _, model = problem
    assert model.predict([]).shape == (0,)
    assert model.predict(["", "?!", "\udcff", b"\xff\xfe"]).shape == (4,)
    dense = hasher.transform(["fly me to rome"]).toarray()
    assert model.predict(dense).tolist() == model.predict(["fly me to rome"]).tolist()


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("a single text", ValueError, "put it into a list"),
        (b"a single text", ValueError, "put it into a list"),
        (["fine", 3], TypeError, "expected str or bytes, found int in text 1"),
        (["fine", None], TypeError, "found NoneType in text 1"),
        ([["nested"]], ValueError, "X must"),
        ([1.0, 2.0], ValueError, "X must be a list of texts, or rows of .* found .2,."),
        ([[1.0, 2.0]], ValueError, "X must be a list of texts, or rows of .* found .1, 2."),
    ],
)
def test_non_texts_are_refused(problem, X, error, message):
    with pytest.raises(error, match=message):
        problem[-1].predict(X)


def test_a_model_of_features_refuses_texts_and_other_columns(problem):
    hasher, classifier = problem[2:4]
    model = classifier.packed()
    for X in (["book a table"], np.array(["book a table"], dtype=object), "book a table"):
        with pytest.raises(ValueError, match="rows of 1024 numbers, found texts; the model was"):
            model.predict(X)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 1024\), found \(0,\)"):
        model.predict([])
    with pytest.raises(ValueError, match="explain needs a model of texts"):
        model.explain("book a table")
    with pytest.raises(ValueError, match="text must have 1024 columns"):
        model.with_text(type(hasher)(2048).fit(["a", "a"]).features_)


@pytest.mark.parametrize("n_columns", [1024, 2**18])
def test_a_text_without_a_known_n_gram_has_equal_probabilities(n_columns):
    *_, hasher, classifier = fitted(n_columns)
    model = classifier.packed().with_text(hasher.features_)
    # Every word has the n-gram of a lone space; with few columns others share known ones.
    texts = ["", "?!", "一二三" if n_columns > 1024 else "\t", "fly me to rome"]
    X = hasher.transform(texts)
    for rows in (texts, X):
        shares = model.predict_proba(rows)
        np.testing.assert_allclose(shares[:3], 1 / 4, rtol=1e-6)
        assert shares[3].max() > 0.5
        np.testing.assert_allclose(np.exp(model.predict_log_proba(rows)), shares)
        labels, _, best, _ = model.top_classes(rows, 2, probabilities=True)
        np.testing.assert_allclose(best[:3], 1 / 4, rtol=1e-6)
        # Classes are still ordered by score.
        np.testing.assert_array_equal(model.classes[shares.argmax(axis=1)], model.predict(rows))
        np.testing.assert_array_equal(labels[:, 0], model.predict(rows))
    # Without texts, narrow rows of zeros are ordinary rows.
    plain = classifier.predict_proba(X)[:2]
    assert np.ptp(plain) < 1e-6 if n_columns > 1024 else np.ptp(plain) > 1e-3


def test_the_decisive_word_contributes_most(problem):
    model = problem[-1]
    told = dict(model.explain("will it rain in oslo", n_ngrams=1000))
    assert sum(map(abs, told.values())) == pytest.approx(1)
    of_rain = sum(share for ngram, share in told.items() if ngram.strip() in "rain")
    of_oslo = sum(share for ngram, share in told.items() if ngram.strip() in "oslo")
    assert of_rain > abs(of_oslo)
    assert list(told.values()) == sorted(told.values(), reverse=True)


def test_contributions_add_up_to_the_score(problem):
    *_, hasher, classifier, model = problem
    text = "Play play play, two songs!"
    x = hasher.transform([text]).toarray()[0]
    for c, label in enumerate(model.classes):
        w = unpack(model.weights, model.n_bits)[c].astype(np.float64)
        score = float(x @ classifier.projection_.astype(np.float64) @ w)
        told = model.explain(text, label, n_ngrams=10_000)
        # Contributions are relative to an unknown total: only signs and proportions can be checked.
        assert np.sign(sum(share for _, share in told)) == np.sign(score)


def test_the_default_label_is_the_predicted_one(problem):
    model = problem[-1]
    text = "i need a plane ticket to lima"
    assert model.explain(text) == model.explain(text, model.predict([text])[0])
    assert len(model.explain(text, n_ngrams=3)) == 3
    assert model.explain("?!") == []  # where there are no words


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("text", "unheard of"), ValueError, "label must be one of the classes, found 'unheard"),
        (("text", None, 0), ValueError, "n_ngrams must be a positive integer, found 0"),
        (("text", None, 2.5), ValueError, "n_ngrams must be"),
        ((["fly me to rome"],), TypeError, "text must be str or bytes, found"),
        ((None,), TypeError, "text must be str or bytes, found"),
    ],
)
def test_explain_checks_its_arguments(problem, arguments, error, message):
    with pytest.raises(error, match=message):
        problem[-1].explain(*arguments)


@pytest.fixture(scope="module")
def wide():
    """Wide models convert bytes to classes in one pass."""
    texts, labels, hasher, classifier = fitted(2**18)
    assert classifier.packed().hash_function.columns is not None
    return texts, labels, hasher, classifier.packed().with_text(hasher.features_)


@pytest.mark.parametrize("rescore", [0, 1, 3])
def test_one_pass_gives_what_the_rows_give_and_refuses_what_is_no_text(wide, rescore):
    texts, labels, hasher, model = wide
    model = pickle.loads(pickle.dumps(model))
    model.rescore = rescore
    rng = random.Random(rescore)
    odd = ["", "?!", "\udcff", "x" * 10_000, *(malformed(rng) for _ in range(300))]
    for given in (texts, odd, texts * 10 + odd, texts[:1], []):
        rows = hasher.transform(given)
        np.testing.assert_array_equal(model.predict(given), model.predict(rows))
    assert all(np.isfinite(share) for text in odd[:50] for _, share in model.explain(text))
    assert (model.predict(texts) == labels).mean() > 0.95
    with pytest.raises(TypeError, match="found int in text 1"):
        model.predict(["fine", 3])
    with pytest.raises(ValueError, match="put it into a list"):
        model.predict("fine")


def test_dropped_columns_contribute_nothing(wide):
    texts, _, _, model = wide
    unseen = np.setdiff1d(np.arange(2**18), model.hash_function.columns)[:5]
    assert not model.hash_function.rows_of(unseen).any()
    kept = model.hash_function.columns[[0, -1]]
    np.testing.assert_array_equal(
        model.hash_function.rows_of(kept), model.hash_function.projection[[0, -1]]
    )
    told = model.explain(texts[0], n_ngrams=3)
    assert len(told) == 3
    assert told[0][1] > 0
