"""N-grams of texts: document frequencies, and sparse rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass._native.ngrams import Lengths, NgramFeatures, as_texts

# Of the inverse document frequencies: 1 gives rare n-grams too much weight (docs/text.md).
_IDF_POWER = 0.5
# Numbers of columns by default, and how many there are for each n-gram that is kept, so that few
# share one: see docs/decisions/0036-text.md.
_MIN_COLUMNS, _MAX_COLUMNS, _COLUMNS_PER_NGRAM = 2**18, 2**20, 16


def fit_ngrams(
    batches: Iterable[Iterable[str | bytes]],
    *,
    n_columns: int | None = None,
    char_ngrams: Lengths = (1, 3),
    word_ngrams: Lengths = (1, 2),
    min_df: int = 2,
) -> NgramFeatures:
    """Count the texts in which n-grams occur, and weight the n-grams by that.

    A hash of its characters gives each n-gram a column and a sign, so there is no vocabulary. A
    column that occurs in df of n texts has the weight ``sqrt(1 + log((1 + n) / (1 + df)))``.

    Parameters
    ----------
    batches : iterable of iterables of str or bytes
    n_columns : int, optional
        Number of columns, a power of two from 256 to 2**20. By default 2**18, or up to 2**20 if
        there are so many n-grams that they would often share columns.
    char_ngrams : (int, int) or None, default=(1, 3)
        Minimum and maximum length of character n-grams, within words and their boundaries.
    word_ngrams : (int, int) or None, default=(1, 2)
        Minimum and maximum length of word n-grams.
    min_df : int, default=2
        Columns that occur in fewer texts are ignored.

    Returns
    -------
    NgramFeatures
        From which `csr_rows` makes rows.

    Examples
    --------
    >>> texts = ["book a table for two", "what is the weather", "book a flight"]
    >>> features = fit_ngrams([texts], n_columns=1024, char_ngrams=None)
    >>> csr_rows(features, ["book a taxi"]).shape
    (1, 1024)
    """
    is_integer = isinstance(min_df, (int, np.integer)) and not isinstance(min_df, bool)
    if not is_integer or min_df < 1:
        raise ValueError(f"min_df must be an integer of at least 1, found {min_df!r}")
    n_counted = _MAX_COLUMNS if n_columns is None else n_columns
    unweighted = NgramFeatures(n_counted, char_ngrams, word_ngrams)
    counts, n_texts = np.zeros(unweighted.n_columns, dtype=np.int64), 0
    for batch in batches:
        texts = as_texts(batch)
        counts += np.bincount(unweighted.rows(texts)[1], minlength=len(counts))
        n_texts += len(texts)
    if n_columns is None:
        counts = np.minimum(_in_fewer_columns(counts, min_df), n_texts)
    columns = np.flatnonzero(counts >= min_df).astype(np.uint32)
    if len(columns) == 0:
        raise ValueError(
            f"X must contain texts with n-grams that occur in at least min_df={min_df} of them, "
            f"found none in {n_texts} texts, which may be empty or all different"
        )
    idf = (1.0 + np.log((1.0 + n_texts) / (1.0 + counts[columns]))) ** _IDF_POWER
    return NgramFeatures(len(counts), char_ngrams, word_ngrams, columns, idf.astype(np.float32))


def _in_fewer_columns(counts: NDArray[np.int64], min_df: int) -> NDArray[np.int64]:
    """Counts of texts in as few columns as there is room in for the n-grams that are kept.

    The column of an n-gram is given by the leading bits of its hash, so half as many columns are
    pairs of neighbours. A text with n-grams in both of a pair is counted twice.
    """
    while len(counts) > _MIN_COLUMNS:
        fewer = counts.reshape(-1, 2).sum(axis=1)
        if _COLUMNS_PER_NGRAM * np.count_nonzero(counts >= min_df) > len(fewer):
            break
        counts = fewer
    return counts


def csr_rows(features: NgramFeatures, texts: Iterable[str | bytes]) -> sp.csr_matrix:
    """Sparse rows of texts, by their n-grams.

    Parameters
    ----------
    features : NgramFeatures
    texts : iterable of n str or bytes

    Returns
    -------
    CSR matrix of shape (n, n_columns), float32
        Rows have unit length, or no entries.
    """
    texts = as_texts(texts)
    indptr, indices, values = features.rows(texts)
    shape = (len(texts), features.n_columns)
    matrix = sp.csr_matrix((values, indices, indptr), shape=shape, copy=False)
    matrix.has_canonical_format = True
    return matrix
