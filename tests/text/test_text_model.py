"""Text models: predictions and explanations."""

import pickle
import random

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier
from bitclass.codes import unpack
from bitclass.text import csr_rows, fit_ngrams

from ..text_models import fitted
from .ngram_rows import malformed


@pytest.fixture(scope="module")
def problem():
    texts, labels, classifier = fitted()
    return texts, labels, classifier, classifier.packed()


def test_scores_of_texts_are_those_of_their_rows(problem):
    texts, _, _, model = problem
    rows = csr_rows(model.text, texts)
    for name in ("encode", "scores", "predict_proba", "typicality"):
        np.testing.assert_array_equal(getattr(model, name)(texts), getattr(model, name)(rows))
    for found, expected in zip(
        model.top_classes(texts, 2), model.top_classes(rows, 2), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_a_model_given_texts_visits_as_many_clusters_and_leaves_the_other_alone(problem):
    features = fit_ngrams([problem[0]], n_columns=4096)
    plain = BinaryCodeClassifier(16).fit(csr_rows(features, problem[0]), problem[1]).packed()
    plain.n_probe = 1
    found = plain.replaced(text=features)
    assert found.n_probe == 1
    found.summary["text_column"] = "title"
    assert plain.text is None
    assert "text_column" not in plain.summary


def test_no_texts_give_no_labels_and_rows_of_numbers_are_still_taken(problem):
    model = problem[-1]
    assert model.predict([]).shape == (0,)
    assert model.predict(["", "?!", "\udcff", b"\xff\xfe"]).shape == (4,)
    dense = csr_rows(model.text, ["fly me to rome"]).toarray()
    assert model.predict(dense).tolist() == model.predict(["fly me to rome"]).tolist()


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("a single text", ValueError, "put it into a list"),
        (b"a single text", ValueError, "put it into a list"),
        (["fine", 3], TypeError, "expected str or bytes, found int in text 1"),
        (["fine", None], TypeError, "found NoneType in text 1"),
        ([["nested"]], ValueError, "X must"),
        ([1.0, 2.0], TypeError, "found float in text 0"),
        ([[1.0, 2.0]], ValueError, "X must be a list of texts, or rows of .* found .1, 2."),
    ],
)
def test_non_texts_are_refused(problem, X, error, message):
    with pytest.raises(error, match=message):
        problem[-1].predict(X)


def test_a_model_of_features_refuses_texts_and_other_columns(problem):
    classifier = BinaryCodeClassifier(16).fit(np.eye(8), np.arange(8) % 4)
    model = classifier.packed()
    for X in (["book a table"], np.array(["book a table"], dtype=object), "book a table"):
        with pytest.raises(ValueError, match="rows of 8 numbers, found texts; the model was"):
            model.predict(X)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 8\), found \(0,\)"):
        model.predict([])
    with pytest.raises(ValueError, match="explain needs a model of texts"):
        model.explain("book a table")
    features = fit_ngrams([["a", "a"]], n_columns=4096)
    for other in (model, problem[-1]):
        with pytest.raises(ValueError, match="text must have the .* columns of a hash function"):
            other.replaced(text=features)


def test_a_text_without_a_known_n_gram_has_equal_probabilities(problem):
    model = problem[-1]
    # Every word has the n-gram of a lone space.
    texts = ["", "?!", "一二三", "fly me to rome"]
    for rows in (texts, csr_rows(model.text, texts)):
        shares = model.predict_proba(rows)
        np.testing.assert_allclose(shares[:3], 1 / 4, rtol=1e-6)
        assert shares[3].max() > 0.5
        np.testing.assert_allclose(np.exp(model.predict_log_proba(rows)), shares)
        labels, _, best, _ = model.top_classes(rows, 2, probabilities=True)
        np.testing.assert_allclose(best[:3], 1 / 4, rtol=1e-6)
        # Classes are still ordered by score.
        np.testing.assert_array_equal(model.classes[shares.argmax(axis=1)], model.predict(rows))
        np.testing.assert_array_equal(labels[:, 0], model.predict(rows))


def test_the_decisive_word_contributes_most(problem):
    model = problem[-1]
    told = dict(model.explain("will it rain in oslo", n_ngrams=1000))
    assert sum(map(abs, told.values())) == pytest.approx(1)
    of_rain = sum(share for ngram, share in told.items() if ngram.strip() in "rain")
    of_oslo = sum(share for ngram, share in told.items() if ngram.strip() in "oslo")
    assert of_rain > abs(of_oslo)
    assert list(told.values()) == sorted(told.values(), reverse=True)


def test_contributions_add_up_to_the_score(problem):
    model = problem[-1]
    text = "Play play play, two songs!"
    x = csr_rows(model.text, [text]).toarray()[0, model.hash_function.columns]
    for c, label in enumerate(model.classes):
        w = unpack(model.weights, model.n_bits)[c].astype(np.float64)
        score = float(x @ model.hash_function.projection.astype(np.float64) @ w)
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


@pytest.mark.parametrize("rescore", [0, 1, 3])
def test_one_pass_gives_what_the_rows_give_and_refuses_what_is_no_text(problem, rescore):
    texts, labels, _, model = problem
    model = pickle.loads(pickle.dumps(model))
    model.rescore = rescore
    rng = random.Random(rescore)
    odd = ["", "?!", "\udcff", "x" * 10_000, *(malformed(rng) for _ in range(300))]
    for given in (texts, odd, texts * 10 + odd, texts[:1], []):
        rows = csr_rows(model.text, given)
        np.testing.assert_array_equal(model.predict(given), model.predict(rows))
    assert all(np.isfinite(share) for text in odd[:50] for _, share in model.explain(text))
    assert (model.predict(texts) == labels).mean() > 0.95
    with pytest.raises(TypeError, match="found int in text 1"):
        model.predict(["fine", 3])
    with pytest.raises(ValueError, match="put it into a list"):
        model.predict("fine")


def test_dropped_columns_contribute_nothing(problem):
    texts, _, _, model = problem
    unseen = np.setdiff1d(np.arange(2**18), model.hash_function.columns)[:5]
    assert not model.hash_function.rows_of(unseen).any()
    kept = model.hash_function.columns[[0, -1]]
    np.testing.assert_array_equal(
        model.hash_function.rows_of(kept), model.hash_function.projection[[0, -1]]
    )
    told = model.explain(texts[0], n_ngrams=3)
    assert len(told) == 3
    assert told[0][1] > 0
