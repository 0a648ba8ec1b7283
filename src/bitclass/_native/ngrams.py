"""Conversion of texts to sparse rows of hashed character and word n-grams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.prediction import threads_for
from bitclass._native.sparse import SparseRows

#: Shortest and longest length of the n-grams of a kind, or None to disable it.
Lengths = tuple[int, int] | None

_MIN_COLUMNS, _MAX_COLUMNS = 1 << 8, 1 << 20
# The largest number in float16, in which model files store them.
_MAX_IDF = 65504.0

#: Texts that a kernel thread takes at a time.
TEXTS_PER_CHUNK = _kernels.TEXTS_PER_CHUNK

_MASK = (1 << 64) - 1
_SEEDS = {"chars": 0x9E3779B97F4A7C15, "words": 0xD1B54A32D192ED03}
_STEP = 0x9FB21C651E98DF25
_LAST = 0xD6E8FEB86659FD93


class Ngram(NamedTuple):
    """An n-gram of a text."""

    text: str  # in lower case; n-grams of characters have a space at word boundaries
    column: int
    sign: int  # -1 or 1


class NgramFeatures:
    """Hashed n-grams of texts, weighted by inverse document frequencies.

    Each n-gram of a text adds its sign to the sum of its column. The value of a column is
    ``sign(sum) * (1 + log(abs(sum))) * idf``, and rows are scaled to unit length.

    Parameters
    ----------
    n_columns : int
        A power of two from 256 to 2**20.
    char_ngrams, word_ngrams : (int, int) or None
        Shortest and longest n-grams of characters within words, and of words.
    columns : (k,) uint32, ascending, optional
        The columns to keep; by default all, with an idf of 1.
    idf : (k,) float32, positive, optional
        Inverse document frequencies of the columns; they are rounded to float16.

    Examples
    --------
    >>> features = NgramFeatures(256, None, (1, 1))
    >>> indptr, indices, values = features.rows(["to be or not to be"])
    >>> indices
    array([ 23,  79, 142, 238], dtype=int32)
    >>> values.round(2)
    array([ 0.61, -0.36, -0.36,  0.61], dtype=float32)
    """

    def __init__(
        self,
        n_columns: int,
        char_ngrams: Lengths,
        word_ngrams: Lengths,
        columns: NDArray[np.uint32] | None = None,
        idf: NDArray[np.float32] | None = None,
    ) -> None:
        is_integer = isinstance(n_columns, (int, np.integer)) and not isinstance(n_columns, bool)
        if not is_integer or not (
            _MIN_COLUMNS <= n_columns <= _MAX_COLUMNS and n_columns & (n_columns - 1) == 0
        ):
            raise ValueError(
                f"n_columns must be a power of two from {_MIN_COLUMNS} to {_MAX_COLUMNS}, "
                f"found {n_columns!r}"
            )
        self.n_columns = int(n_columns)
        self.char_ngrams = as_lengths("char_ngrams", char_ngrams, _kernels.MAX_CHARS)
        self.word_ngrams = as_lengths("word_ngrams", word_ngrams, _kernels.MAX_WORDS)
        if self.char_ngrams is None and self.word_ngrams is None:
            raise ValueError("char_ngrams and word_ngrams must not both be None")
        if (columns is None) != (idf is None):
            raise ValueError("columns and idf must both be given, or neither")
        self.columns = columns
        self.idf = None if idf is None else self._rounded(idf)
        #: The compiled extractor.
        self.kernel = _kernels.NgramExtractor(
            self.n_columns.bit_length() - 1,
            *(self.char_ngrams or (0, 0)),
            *(self.word_ngrams or (0, 0)),
            self._weights(),
        )

    @cached_property
    def space_column(self) -> int:
        """Column of the single space, an n-gram of every word; -1 if such n-grams are disabled."""
        if self.char_ngrams is None or self.char_ngrams[0] > 1:
            return -1
        return next(ngrams("a", self.n_columns, (1, 1), None)).column

    @property
    def nbytes(self) -> int:
        """Size in bytes of the columns and their inverse document frequencies."""
        return (
            0 if self.columns is None or self.idf is None else self.columns.nbytes + self.idf.nbytes
        )

    def rows(
        self, texts: Sequence[str | bytes]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
        """Sparse rows of n texts: indptr (n + 1,), indices, ascending in each row, and values.

        Bytes are decoded as UTF-8; invalid bytes and lone surrogates separate words. A text longer
        than 2**30 bytes is a ValueError.
        """
        return self.kernel.rows(texts, threads_for(len(texts), TEXTS_PER_CHUNK))

    def ngrams(self, text: str | bytes) -> list[Ngram]:
        """All n-grams of a text, including repeated ones."""
        return list(ngrams(text, self.n_columns, self.char_ngrams, self.word_ngrams))

    def shares(self, text: str | bytes, by_column: Mapping[int, float]) -> dict[str, float]:
        """Distribute one number per nonzero column among the n-grams of a text hashed to it.

        Shares are summed over both kinds of n-grams with the same characters.
        """
        present = [ngram for ngram in self.ngrams(text) if ngram.column in by_column]
        sums: Counter[int] = Counter()
        for ngram in present:
            sums[ngram.column] += ngram.sign
        shares: dict[str, float] = {}
        for ngram in present:
            part = by_column[ngram.column] * ngram.sign / sums[ngram.column]
            shares[ngram.text] = shares.get(ngram.text, 0.0) + part
        return shares

    def only(self, columns: NDArray[Any]) -> NgramFeatures:
        """The same features with these columns (k,) only, ascending; the idf of new ones is 1."""
        weights = self._weights()
        idf = np.zeros(len(columns), np.float32) if weights is None else weights[columns]
        return NgramFeatures(
            self.n_columns,
            self.char_ngrams,
            self.word_ngrams,
            columns.astype(np.uint32),
            np.where(idf > 0, idf, np.float32(1)),
        )

    @staticmethod
    def _rounded(idf: NDArray[np.float32]) -> NDArray[np.float32]:
        if idf.dtype != np.float32:
            raise TypeError(f"idf must be a vector of float32, found {idf.dtype}")
        with np.errstate(over="ignore"):
            rounded = idf.astype(np.float16).astype(np.float32)
        if not ((rounded > 0) & (rounded <= _MAX_IDF)).all():
            raise ValueError(f"idf must contain positive numbers up to {_MAX_IDF:g}")
        return rounded

    def _weights(self) -> NDArray[np.float32] | None:
        """Inverse document frequencies of all columns, 0 for those that are not kept."""
        if self.columns is None or self.idf is None:
            return None
        columns, idf = self.columns, self.idf
        if columns.dtype != np.uint32 or columns.ndim != 1:
            raise TypeError("columns must be a vector of uint32")
        if idf.shape != columns.shape:
            raise ValueError(f"idf must have shape {columns.shape}, found {idf.shape}")
        if len(columns) and (columns[-1] >= self.n_columns or (columns[1:] <= columns[:-1]).any()):
            raise ValueError(f"columns must be ascending and below {self.n_columns}")
        weights = np.zeros(self.n_columns, dtype=np.float32)
        weights[columns] = idf
        return weights

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.n_columns, self.char_ngrams, self.word_ngrams, self.columns, self.idf)
        return NgramFeatures, arguments

    def __repr__(self) -> str:
        n_kept = self.n_columns if self.columns is None else len(self.columns)
        return (
            f"NgramFeatures({self.n_columns}, {self.char_ngrams}, {self.word_ngrams}; "
            f"{n_kept} columns kept)"
        )


class HashedTexts:
    """Rows of texts, which are hashed when they are taken: ``rows[a:b]`` are `SparseRows`."""

    def __init__(self, features: NgramFeatures, texts: list[str | bytes]) -> None:
        self.features = features
        self.texts = texts

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of texts and of columns."""
        return len(self.texts), self.features.n_columns

    def __getitem__(self, rows: slice) -> SparseRows:
        indptr, indices, values = self.features.rows(self.texts[rows])
        return SparseRows(indptr.astype(np.int64), indices, values, self.features.n_columns)


def as_texts(X: Any) -> list[str | bytes]:
    """Convert any iterable of texts to a list."""
    if isinstance(X, (str, bytes)):
        raise ValueError("X must be a list of texts, found a single text: put it into a list")
    shape = getattr(X, "shape", None)
    if isinstance(X, Mapping) or (shape is not None and len(shape) != 1):
        # Iterating over a data frame would yield its column names.
        found = type(X).__name__ if shape is None else f"{type(X).__name__} of shape {shape}"
        raise ValueError(f"X must be a list or column of texts, such as X['text'], found {found}")
    try:
        return X.tolist() if isinstance(X, np.ndarray) else list(X)
    except TypeError:
        raise ValueError(f"X must be a list of texts, found {type(X).__name__}") from None


def as_lengths(name: str, lengths: Any, longest: int) -> Lengths:
    """Check the shortest and longest length of n-grams, a pair of int up to `longest`, or None."""
    if lengths is None:
        return None
    pair = tuple(lengths) if isinstance(lengths, (tuple, list)) else ()
    integers = all(
        isinstance(n, (int, np.integer)) and not isinstance(n, (bool, np.bool_)) for n in pair
    )
    if len(pair) != 2 or not integers or not 1 <= pair[0] <= pair[1] <= longest:
        raise ValueError(
            f"{name} must be None or the shortest and longest length, 1 <= shortest <= longest <= "
            f"{longest}, found {lengths!r}"
        )
    return int(pair[0]), int(pair[1])


# -- Python version of native/ngrams.cpp, for explanations


def ngrams(
    text: str | bytes, n_columns: int, char_ngrams: Lengths, word_ngrams: Lengths
) -> Iterator[Ngram]:
    """N-grams of a text and the columns they are hashed to.

    Examples
    --------
    >>> [ngram.text for ngram in ngrams("No way!", 256, (4, 4), (1, 2))]
    [' no ', ' way', 'way ', 'no', 'way', 'no way']
    """
    words = _words(text)
    pairs: list[tuple[str, str]] = []
    if char_ngrams is not None:
        shortest, longest = char_ngrams
        for word in words:
            padded = f" {word} "
            if len(padded) < shortest:
                pairs.append((padded, "chars"))
            for n in range(shortest, min(longest, len(padded)) + 1):
                pairs += [(padded[i : i + n], "chars") for i in range(len(padded) - n + 1)]
    if word_ngrams is not None:
        for n in range(word_ngrams[0], word_ngrams[1] + 1):
            pairs += [(" ".join(words[i : i + n]), "words") for i in range(len(words) - n + 1)]
    for characters, kind in pairs:
        hashed = _hash(characters, _SEEDS[kind])
        column = hashed >> (64 - (n_columns.bit_length() - 1))
        yield Ngram(characters, column, 1 if hashed & 1 else -1)


def _hash(characters: str, state: int) -> int:
    for character in characters:
        state = ((state ^ ord(character)) * _STEP) & _MASK
    state ^= state >> 32
    state = (state * _LAST) & _MASK
    return state ^ (state >> 32)


def _words(text: str | bytes) -> list[str]:
    """Words of a text in lower case."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    characters = (" " if _separates(ord(c)) else _lower(c) for c in text)
    return [word for word in "".join(characters).split(" ") if word]


def _lower(character: str) -> str:
    code = ord(character)
    if not (code < 0x590 or 0x1E00 <= code <= 0x1EFF or 0xFF00 <= code <= 0xFFEF):
        return character
    lower = character.lower()
    return lower if len(lower) == 1 else character


# Code points that separate words, besides ASCII characters other than letters and digits.
_SEPARATORS = (
    (0x80, 0xBF),
    (0xD7, 0xD7),
    (0xF7, 0xF7),
    (0x60C, 0x60C),
    (0x61B, 0x61B),
    (0x61F, 0x61F),
    (0x6D4, 0x6D4),
    (0x964, 0x965),
    (0x2000, 0x206F),
    (0x3000, 0x3004),
    (0x3008, 0x303F),
    (0xD800, 0xDFFF),
    (0xFE10, 0xFE1F),
    (0xFE30, 0xFE6F),
    (0xFF00, 0xFF0F),
    (0xFF1A, 0xFF20),
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFF65),
    (0xFFF0, 0xFFFF),
)


def _separates(code: int) -> bool:
    if code < 0x80:
        return not chr(code).isalnum()
    return any(first <= code <= last for first, last in _SEPARATORS)
