"""`NgramHasher`, a scikit-learn transformer from texts to sparse rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from bitclass._native.ngrams import Lengths, NgramFeatures, as_texts

__all__ = ["NgramHasher", "csr_rows"]

MAX_IDF_POWER = 2


class NgramHasher(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Convert texts to sparse rows of hashed character and word n-grams with IDF weights.

    Texts are lower-cased and split into words at all characters except letters and digits. A hash
    of its characters gives each n-gram a column and a sign, so there is no vocabulary. The value of
    a column is ``sign(sum) * (1 + log(abs(sum))) * idf``, where ``sum`` is the sum of the signs of
    its n-grams. Rows are scaled to unit length.

    Parameters
    ----------
    n_columns : int, default=2**18
        Number of columns, a power of two from 256 to 2**20.
    char_ngrams : (int, int) or None, default=(1, 3)
        Minimum and maximum length of character n-grams, within words and their boundaries.
    word_ngrams : (int, int) or None, default=(1, 2)
        Minimum and maximum length of word n-grams.
    min_df : int, default=2
        Columns that occur in fewer documents are ignored.
    idf_power : float, default=0.5
        The weight of a column is ``(1 + log((1 + n) / (1 + df))) ** idf_power``: 1 for the usual
        inverse document frequencies, 0 for no weighting.

    Attributes
    ----------
    n_documents_ : int
        Number of documents seen.
    document_frequencies_ : ndarray of shape (n_columns,), int64
        Number of documents in which each column is nonzero.
    features_ : NgramFeatures
        The fitted transformation, as a model file stores it.

    Examples
    --------
    >>> texts = ["book a table for two", "what is the weather", "book a flight"]
    >>> hasher = NgramHasher(n_columns=1024, char_ngrams=None).fit(texts)
    >>> hasher.transform(["book a taxi"]).shape
    (1, 1024)
    """

    def __init__(
        self,
        n_columns: int = 2**18,
        *,
        char_ngrams: Lengths = (1, 3),
        word_ngrams: Lengths = (1, 2),
        min_df: int = 2,
        idf_power: float = 0.5,
    ) -> None:
        self.n_columns = n_columns
        self.char_ngrams = char_ngrams
        self.word_ngrams = word_ngrams
        self.min_df = min_df
        self.idf_power = idf_power

    def fit(self, X: Iterable[str | bytes], y: Any = None) -> Self:
        """Count the documents in which each column occurs.

        Parameters
        ----------
        X : iterable of str or bytes
        y : ignored

        Returns
        -------
        NgramHasher
        """
        counts, n_documents = self._count(X)
        self._check_columns(counts, n_documents)
        return self._set(counts, n_documents)

    def partial_fit(self, X: Iterable[str | bytes], y: Any = None) -> Self:
        """Add the counts of another batch of documents.

        Parameters
        ----------
        X : iterable of str or bytes
        y : ignored

        Returns
        -------
        NgramHasher
        """
        counts, n_documents = self._count(X)
        if not hasattr(self, "features_"):
            return self._set(counts, n_documents)
        if len(counts) != len(self.document_frequencies_):
            raise ValueError(
                f"n_columns must remain {len(self.document_frequencies_)} after the first batch, "
                f"found {len(counts)}"
            )
        return self._set(self.document_frequencies_ + counts, self.n_documents_ + n_documents)

    def transform(self, X: Iterable[str | bytes]) -> sp.csr_matrix:
        """Convert texts to rows.

        Parameters
        ----------
        X : iterable of n str or bytes

        Returns
        -------
        CSR matrix of shape (n, n_columns), float32
        """
        self.check_columns()
        return csr_rows(self.features_, as_texts(X))

    def check_columns(self) -> None:
        """Raise ValueError if no n-gram occurs in at least `min_df` of the texts so far."""
        if not hasattr(self, "features_"):
            raise NotFittedError(
                "this NgramHasher is not fitted yet: call fit or partial_fit first"
            )
        self._check_columns(self.document_frequencies_, self.n_documents_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "features_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def _count(self, X: Iterable[str | bytes]) -> tuple[NDArray[np.int64], int]:
        """Document frequency of each column, and number of documents."""
        min_df = self.min_df
        is_integer = isinstance(min_df, (int, np.integer)) and not isinstance(min_df, bool)
        if not is_integer or min_df < 1:
            raise ValueError(f"min_df must be an integer of at least 1, found {min_df!r}")
        power = self.idf_power
        if not isinstance(power, (int, float, np.number)) or not 0 <= power <= MAX_IDF_POWER:
            raise ValueError(
                f"idf_power must be a number from 0 to {MAX_IDF_POWER}, found {power!r}"
            )
        features = NgramFeatures(self.n_columns, self.char_ngrams, self.word_ngrams)
        texts = as_texts(X)
        columns = features.rows(texts)[1]
        counts = np.bincount(columns, minlength=features.n_columns).astype(np.int64, copy=False)
        return counts, len(texts)

    def _set(self, counts: NDArray[np.int64], n_documents: int) -> Self:
        """Replace the fitted state."""
        columns = np.flatnonzero(counts >= self.min_df).astype(np.uint32)
        idf = (1.0 + np.log((1.0 + n_documents) / (1.0 + counts[columns]))) ** self.idf_power
        self.features_ = NgramFeatures(
            self.n_columns, self.char_ngrams, self.word_ngrams, columns, idf.astype(np.float32)
        )
        self.document_frequencies_ = counts
        self.n_documents_ = n_documents
        return self

    def _check_columns(self, counts: NDArray[np.int64], n_documents: int) -> None:
        if not (counts >= self.min_df).any():
            raise ValueError(
                f"X must contain texts with n-grams that occur in at least min_df={self.min_df} of "
                f"them, found none in {n_documents} texts, which may be empty or all different"
            )


def csr_rows(features: NgramFeatures, texts: list[str | bytes]) -> sp.csr_matrix:
    """Convert n texts to CSR rows (n, n_columns)."""
    indptr, indices, values = features.rows(texts)
    shape = (len(texts), features.n_columns)
    matrix = sp.csr_matrix((values, indices, indptr), shape=shape, copy=False)
    matrix.has_canonical_format = True
    return matrix
