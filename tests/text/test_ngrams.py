"""The kernel from UTF-8 to sparse rows, compared with its Python reference."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitclass._native import thread_limit
from bitclass._native.ngrams import NgramFeatures, ngrams

from .ngram_rows import malformed, reference_row

LENGTHS = st.none() | st.tuples(st.integers(1, 4), st.integers(4, 6)).map(tuple)
WORD_LENGTHS = st.none() | st.tuples(st.integers(1, 2), st.integers(2, 4)).map(tuple)
# Few characters, so that n-grams repeat and collide in columns.
TEXTS = st.text() | st.text("aAbB é.Σ'\n", max_size=60)


def row_of(features, text):
    indptr, indices, values = features.rows([text])
    assert indptr.tolist() == [0, len(indices)]
    return dict(zip(indices.tolist(), values.tolist(), strict=True))


def expected_row(features, text):
    return {column: float(np.float32(v)) for column, v in reference_row(features, text).items()}


def assert_rows(features, texts):
    """Assert that the rows of texts equal those of the reference."""
    indptr, indices, values = features.rows(texts)
    for i, text in enumerate(texts):
        row = slice(indptr[i], indptr[i + 1])
        found = dict(zip(indices[row].tolist(), values[row].tolist(), strict=True))
        assert found == expected_row(features, text), text


@given(TEXTS, LENGTHS, WORD_LENGTHS.filter(bool), st.sampled_from([256, 4096, 2**18]))
def test_the_kernel_agrees_with_its_reference(text, chars, words, n_columns):
    features = NgramFeatures(n_columns, chars, words)
    assert row_of(features, text) == expected_row(features, text)


@given(st.text(st.characters(), max_size=20), st.integers(0xD800, 0xDFFF))
def test_a_lone_surrogate_separates_words(text, code):
    features = NgramFeatures(4096, (1, 3), (1, 2))
    assert row_of(features, text + chr(code) + "b") == row_of(features, text + " b")


def test_every_code_point_is_separated_and_lower_cased_as_in_python():
    features = NgramFeatures(2**18, (3, 3), (1, 1))
    codes = [
        code
        for code in range(0x110000)
        if code < 0x3100 or code % 251 == 0 or 0xFE00 <= code < 0x10100
    ]
    for start in range(0, len(codes), 1000):
        text = "".join(f"q{chr(code)}q " for code in codes[start : start + 1000])
        assert row_of(features, text) == expected_row(features, text)


@given(st.lists(TEXTS, max_size=5), st.randoms())
def test_columns_without_weights_are_dropped(texts, rng):
    columns = np.flatnonzero(np.random.default_rng(rng.getrandbits(32)).random(1024) < 0.7)
    idf = np.linspace(0.5, 3.0, len(columns), dtype=np.float32)
    features = NgramFeatures(1024, (1, 3), (1, 2), columns.astype(np.uint32), idf)
    assert_rows(features, texts)
    assert set(features.rows(texts)[1].tolist()) <= set(columns.tolist())


def test_ten_thousand_malformed_texts_are_read_as_python_decodes_them():
    rng = random.Random(0)
    assert_rows(NgramFeatures(4096, (1, 3), (1, 2)), [malformed(rng) for _ in range(10_000)])


def test_n_grams_are_those_of_the_definition():
    found = [n.text for n in ngrams("A b-CD", 256, (3, 4), (1, 2))]
    assert found == [" a ", " b ", " cd", "cd ", " cd ", "a", "b", "cd", "a b", "b cd"]
    assert [n.text for n in ngrams("a", 256, (4, 5), None)] == [" a "]


def test_columns_and_signs_are_stable():
    # Model files rely on them.
    found = {n.text: n.column * n.sign for n in ngrams("Straße 7", 2**18, (4, 4), (2, 2))}
    assert found == {
        " str": -134_575,
        "stra": 7_311,
        "traß": -223_454,
        "raße": -6_336,
        "aße ": -39_662,
        " 7 ": -146_489,
        "straße 7": -124_699,
    }


def test_columns_are_used_evenly():
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyz0123"]
    features = NgramFeatures(256, None, (1, 1))
    found = [features.ngrams(word)[0] for word in words]
    per_column = np.bincount([ngram.column for ngram in found], minlength=256)
    # 1,000 of them in 256 columns: the sum of squares over the mean is chi-squared.
    chi_squared = ((per_column - 1000 / 256) ** 2).sum() / (1000 / 256)
    assert 170 < chi_squared < 350
    assert 400 < sum(ngram.sign == 1 for ngram in found) < 600


def test_a_long_text_gives_the_same_as_a_short_one_of_its_counts():
    # About 160,000 n-grams, more than the kernel buffers: it sums them by column instead.
    rng = random.Random(0)
    text = " ".join("".join(rng.choices("abcdef", k=rng.randint(1, 9))) for _ in range(9000))
    features = NgramFeatures(2**16, (2, 5), (1, 2))
    assert row_of(features, text) == expected_row(features, text)
    assert row_of(features, "ab") == expected_row(features, "ab")  # nothing is left of it


def test_lines_and_words_of_many_megabytes_are_texts_too():
    features = NgramFeatures(2**18, (1, 4), (1, 2))
    line = b"what is the weather in Paris today? " * 1_000_000
    indptr, indices, values = features.rows([line, "x" * 3_000_000, b"\xff" * 3_000_000, b"\0"])
    assert indptr[2:].tolist() == [len(indices)] * 3
    assert indptr[1] <= len({ngram.column for ngram in features.ngrams(line[:100])})
    for row in (values[: indptr[1]], values[indptr[1] :]):
        assert np.linalg.norm(row) == pytest.approx(1, abs=1e-6)


def test_rows_are_the_same_for_every_number_of_threads():
    texts = [f"place {i} of {i * i}" for i in range(1000)]
    features = NgramFeatures(2**18, (2, 5), (1, 2))
    one = thread_limit(1)(features.rows)(texts)
    for n_threads in (2, 5):
        for a, b in zip(one, thread_limit(n_threads)(features.rows)(texts), strict=True):
            np.testing.assert_array_equal(a, b)


def test_no_text_gives_no_row():
    features = NgramFeatures(256, (2, 3), None)
    indptr, indices, values = features.rows(["", " . ", b""])
    assert (indptr.tolist(), indices.tolist(), values.tolist()) == ([0, 0, 0, 0], [], [])
    assert features.rows([])[0].tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((255, (2, 3), None), "n_columns must be a power of two from 256 to 1048576, found 255"),
        ((2**21, (2, 3), None), "n_columns"),
        ((True, (2, 3), None), "n_columns"),
        ((256.0, (2, 3), None), "n_columns"),
        ((256, None, None), "must not both be None"),
        ((256, (0, 3), None), "char_ngrams must be None or .* found \\(0, 3\\)"),
        ((256, (3, 2), None), "char_ngrams"),
        ((256, (2, 11), None), "char_ngrams"),
        ((256, (2,), None), "char_ngrams"),
        ((256, (2, True), None), "char_ngrams"),
        ((256, "23", None), "char_ngrams"),
        ((256, None, (1, 6)), "word_ngrams"),
        ((256, None, (1, 2), np.array([1], np.uint32)), "columns and idf must both"),
        ((256, None, (1, 2), np.array([2, 1], np.uint32), np.ones(2, np.float32)), "ascend"),
        ((256, None, (1, 2), np.array([256], np.uint32), np.ones(1, np.float32)), "below 256"),
        ((256, None, (1, 2), np.array([1], np.uint32), np.ones(2, np.float32)), "shape"),
        ((256, None, (1, 2), np.array([1], np.uint32), np.zeros(1, np.float32)), "positive"),
        ((256, None, (1, 2), np.array([1], np.uint32), np.full(1, np.nan, "f")), "positive"),
    ],
)
def test_parameters_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        NgramFeatures(*arguments)
