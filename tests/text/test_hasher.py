"""NgramHasher as a scikit-learn transformer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from bitclass.text import NgramHasher

TEXTS = ["book a table for two", "what is the weather", "book a flight", "weather for two", ""]
LISTS = st.lists(st.text("ab c", max_size=12), min_size=1, max_size=6)


def small(**parameters):
    return NgramHasher(n_columns=256, **{"min_df": 1, **parameters})


def of_words(**parameters):
    return NgramHasher(char_ngrams=None, word_ngrams=(1, 1), **{"min_df": 1, **parameters})


def dense(hasher, texts):
    return hasher.transform(texts).toarray()


def as_bytes(texts):
    return np.array([text.encode() for text in texts], dtype=object)


def test_rows_have_length_one_and_rare_columns_weigh_more():
    hasher = of_words().fit(TEXTS)
    rows = dense(hasher, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 1, 1, 1, 0], atol=1e-6)
    row = hasher.transform(["two flight"]).data
    assert len(row) == 2  # "flight" is in one text, "two" in two of five
    rare, other = np.sqrt(1 + np.log([6 / 2, 6 / 3])).astype(np.float16).astype(float)
    assert max(abs(row)) / min(abs(row)) == pytest.approx(rare / other, rel=1e-6)


@pytest.mark.parametrize("power", [0, 0.5, 1, 2.0])
def test_idf_power(power):
    hasher = of_words(idf_power=power).fit(TEXTS)
    counts = hasher.document_frequencies_[hasher.features_.columns]
    expected = ((1 + np.log(6 / (1 + counts))) ** power).astype(np.float16)
    np.testing.assert_array_equal(hasher.features_.idf, expected.astype(np.float32))


def test_document_frequencies_count_texts_not_n_grams():
    hasher = small(char_ngrams=None, word_ngrams=(1, 1)).fit(["a a a b", "a", "c"])
    assert hasher.n_documents_ == 3
    assert sorted(hasher.document_frequencies_[hasher.document_frequencies_ > 0]) == [1, 1, 2]


def test_rare_columns_are_ignored():
    hasher = of_words(min_df=2).fit(TEXTS)
    assert hasher.transform(["flight weather", "unheard of"]).getnnz(axis=1).tolist() == [1, 0]
    assert len(hasher.features_.columns) == 5  # book, a, for, two, weather


@given(LISTS, LISTS)
@settings(max_examples=30)
def test_batches_equal_one_fit_which_starts_anew(first, second):
    whole = small().fit(TEXTS).fit([*first, "a", *second])
    batches = small().partial_fit(first).partial_fit(["a", *second])
    assert batches.n_documents_ == whole.n_documents_ == len(first) + 1 + len(second)
    np.testing.assert_array_equal(batches.document_frequencies_, whole.document_frequencies_)
    np.testing.assert_array_equal(dense(batches, first), dense(whole, first))


@pytest.mark.parametrize("as_kind", [tuple, np.array, iter, as_bytes])
def test_any_iterable_of_texts_is_accepted(as_kind):
    hasher = small().fit(TEXTS)
    np.testing.assert_array_equal(dense(hasher, as_kind(TEXTS)), dense(hasher, TEXTS))


@pytest.mark.parametrize(
    "texts", [["", "", " ?!"], ["one", "two words"], [], ["\udcff", b"\xff"] * 3]
)
def test_texts_without_a_column_to_keep_are_refused_by_fit(texts):
    hasher = NgramHasher(char_ngrams=None)
    with pytest.raises(ValueError, match=f"at least min_df=2 of them, found none in {len(texts)}"):
        hasher.fit(texts)
    assert not hasattr(hasher, "features_")
    hasher.partial_fit(texts)  # others may follow
    with pytest.raises(ValueError, match="found none"):
        hasher.transform(texts)
    assert hasher.partial_fit(["a b", "b c"]).transform(["b"]).nnz == 1


def test_a_table_is_not_a_list_of_texts():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "n": range(5)})
    hasher = small().fit(frame["text"])
    for X in (frame, frame[["text"]], frame.to_numpy(), {"text": TEXTS}, hasher.transform(TEXTS)):
        for method in (hasher.transform, small().fit, small().partial_fit):
            with pytest.raises(ValueError, match=r"a list or column of texts, such as X\['text'\]"):
                method(X)


def test_pipelines_and_clones():
    labels = ["table", "weather", "flight", "weather", "none"]
    hasher = NgramHasher(min_df=1)
    pipeline = make_pipeline(hasher, RidgeClassifier()).fit(TEXTS, labels)
    assert pipeline.predict(["the weather", "a flight"]).tolist() == ["weather", "flight"]
    check_is_fitted(hasher)
    copied = clone(hasher)
    assert copied.get_params() == hasher.get_params()
    for ask in (check_is_fitted, lambda copied: copied.transform(TEXTS)):
        with pytest.raises(NotFittedError):
            ask(copied)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: small().fit("text"), "a single text"),
        (lambda: small().fit(3), "found int"),
        (lambda: small().fit(np.array([["a", "b"]])), "shape \\(1, 2\\)"),
        (lambda: small(min_df=0).fit(TEXTS), "min_df must be"),
        (lambda: small(min_df=1.5).fit(TEXTS), "min_df must be"),
        (lambda: small(idf_power=-1).fit(TEXTS), "idf_power must be"),
        (lambda: small(idf_power=float("nan")).fit(TEXTS), "idf_power must be"),
        (lambda: small(char_ngrams=(5, 2)).fit(TEXTS), "char_ngrams"),
        (lambda: NgramHasher(n_columns=1000).fit(TEXTS), "n_columns"),
    ],
)
def test_wrong_parameters_and_texts_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_refused_batch_changes_nothing():
    hasher = small().fit(TEXTS)
    with pytest.raises(TypeError, match="found int in text 1"):
        hasher.partial_fit(["fine", 7])
    with pytest.raises(ValueError, match="n_columns must remain 256"):
        hasher.set_params(n_columns=512).partial_fit(["fine"])
    assert hasher.n_documents_ == len(TEXTS)
