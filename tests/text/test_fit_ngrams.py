"""Document frequencies of n-grams, and rows weighted by them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.text import csr_rows, fit_ngrams

TEXTS = ["book a table for two", "what is the weather", "book a flight", "weather for two", ""]
LISTS = st.lists(st.text("ab c", max_size=12), min_size=1, max_size=6)
OF_WORDS = {"char_ngrams": None, "word_ngrams": (1, 1)}


def test_rows_have_length_one_and_rare_columns_weigh_more():
    features = fit_ngrams([TEXTS], **OF_WORDS, min_df=1)
    rows = csr_rows(features, TEXTS).toarray()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 1, 1, 1, 0], atol=1e-6)
    row = csr_rows(features, ["two flight"]).data
    assert len(row) == 2  # "flight" is in one text, "two" in two of five
    rare, other = np.sqrt(1 + np.log([6 / 2, 6 / 3])).astype(np.float16).astype(float)
    assert max(abs(row)) / min(abs(row)) == pytest.approx(rare / other, rel=1e-6)


def test_idf_counts_texts_not_n_grams():
    features = fit_ngrams([["a a a b", "a", "c"]], **OF_WORDS, min_df=1)
    expected = np.sqrt(1 + np.log(4 / (1 + np.array([1, 1, 2]))))
    np.testing.assert_allclose(np.sort(features.idf)[::-1], expected, rtol=1e-3)


def test_rare_columns_are_ignored():
    features = fit_ngrams([TEXTS], **OF_WORDS)
    rows = csr_rows(features, ["flight weather", "unheard of"])
    assert rows.getnnz(axis=1).tolist() == [1, 0]
    assert len(features.columns) == 5  # book, a, for, two, weather


@given(LISTS, LISTS)
@settings(max_examples=30)
def test_batches_equal_all_texts_at_once(first, second):
    whole = fit_ngrams([[*first, "a", *second]], n_columns=256, min_df=1)
    batches = fit_ngrams(iter([first, ["a", *second]]), n_columns=256, min_df=1)
    np.testing.assert_array_equal(batches.columns, whole.columns)
    np.testing.assert_array_equal(batches.idf, whole.idf)


@pytest.mark.parametrize(
    ("n_words", "n_columns"), [(1000, 2**18), (20_000, 2**19), (100_000, 2**20)]
)
def test_there_are_more_columns_where_n_grams_would_share_them(n_words, n_columns):
    words = [f"word{number}" for number in range(n_words)]
    features = fit_ngrams([words, words], **OF_WORDS)
    assert features.n_columns == n_columns
    same = fit_ngrams([words, words], **OF_WORDS, n_columns=n_columns)
    np.testing.assert_array_equal(features.columns, same.columns)
    np.testing.assert_array_equal(features.idf, same.idf)


@pytest.mark.parametrize(
    "texts", [["", "", " ?!"], ["one", "two words"], [], ["\udcff", b"\xff"] * 3]
)
def test_texts_without_a_column_to_keep_are_refused(texts):
    with pytest.raises(ValueError, match=f"at least min_df=2 of them, found none in {len(texts)}"):
        fit_ngrams([texts], char_ngrams=None)


def test_any_iterable_of_texts_is_taken_but_no_table():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "n": range(5)})
    features = fit_ngrams([frame["text"]])
    rows = csr_rows(features, TEXTS)
    for given_texts in (tuple(TEXTS), iter(TEXTS), np.array([t.encode() for t in TEXTS], object)):
        assert (csr_rows(features, given_texts) != rows).nnz == 0
    for X in (frame, frame[["text"]], frame.to_numpy(), {"text": TEXTS}, rows):
        for call in (lambda X: csr_rows(features, X), lambda X: fit_ngrams([X])):
            with pytest.raises(ValueError, match=r"a list or column of texts, such as X\['text'\]"):
                call(X)


@pytest.mark.parametrize(
    ("batch", "parameters", "message"),
    [
        ("text", {}, "a single text"),
        (3, {}, "found int"),
        (TEXTS, {"min_df": 0}, "min_df must be"),
        (TEXTS, {"min_df": 1.5}, "min_df must be"),
        (TEXTS, {"char_ngrams": (5, 2)}, "char_ngrams"),
        (TEXTS, {"n_columns": 1000}, "n_columns"),
    ],
)
def test_wrong_parameters_and_texts_are_refused(batch, parameters, message):
    with pytest.raises(ValueError, match=message):
        fit_ngrams([batch], **parameters)
