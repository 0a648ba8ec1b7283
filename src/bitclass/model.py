"""PackedModel: what predicting needs and nothing more.

encode -> nearest -> labels, with NumPy and the kernels alone, so that a deployed predictor stays
light.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass._native import HammingIndex, predict
from bitclass.codes import unpack
from bitclass.hash_function import HashFunction
from bitclass.rows import Features, as_features

__all__ = ["PackedModel"]

# Entries of scores, or of unpacked candidates, that are held at once.
_SCORES_PER_BLOCK = 1 << 22
# Rows of one call into the kernels, between which an interrupt is heard.
_ROWS_PER_CALL = 1 << 16
# Rescoring chooses k classes among so many times k.
_CANDIDATES_PER_CLASS = 4
# The scores themselves are linear in x and would undo what the signs have won; this steep, on
# held-out rows, the nearest class and the nearest five are found more often than by signs alone.
_STEEPNESS = 2.0


class PackedModel:
    """A trained classifier: a hash function, packed class weights, labels.

    Parameters
    ----------
    classes : (C,) labels
    weights : (C, ceil(r / 8)) uint8, packed class weights
    hash_function : HashFunction
    temperature : float
        Probabilities are the softmax of ``w_c.h(x) / temperature``.
    summary : mapping, optional
        How the model came about, in values that JSON can hold; kept in model files.

    Examples
    --------
    >>> import numpy as np
    >>> from bitclass.hash_function import HashFunction
    >>> model = PackedModel(
    ...     classes=np.array(["left", "right"]),
    ...     weights=np.array([[0], [1]], dtype=np.uint8),
    ...     hash_function=HashFunction(np.ones((1, 1), dtype=np.float32), np.zeros(1)),
    ... )
    >>> model.predict([[-3.0], [2.0]])
    array(['left', 'right'], dtype='<U5')
    """

    def __init__(
        self,
        classes: NDArray[Any],
        weights: NDArray[np.uint8],
        hash_function: HashFunction,
        *,
        temperature: float = 1.0,
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        self.classes = classes
        self.hash_function = hash_function
        self.temperature = temperature
        self.summary = dict(summary or {})
        self._index = HammingIndex(weights)

    @property
    def weights(self) -> NDArray[np.uint8]:
        """Packed class weights, (C, ceil(r / 8))."""
        return self._index.weights

    @property
    def n_bits(self) -> int:
        """Number of bits r of a code."""
        return self.hash_function.n_bits

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return self.hash_function.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, where the model was fitted on rows that had names."""
        names = self.summary.get("feature_names")
        return None if names is None else tuple(names)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that predicting needs, labels aside."""
        return self.weights.nbytes + self.hash_function.nbytes

    def unpacked_weights(self) -> NDArray[np.int8]:
        """Class weights of shape (C, r) in {-1, +1}."""
        return unpack(self.weights, self.n_bits)

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes h(x).

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, ceil(r / 8)), uint8
        """
        return self.hash_function.encode(self._rows(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Label at the smallest Hamming distance, that of the lowest class index among equals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        features = self._rows(X)
        indices = np.empty(features.shape[0], dtype=np.int64)
        for rows, block in self._blocks(features):
            indices[rows], _ = predict(
                self.hash_function.kernel, self._index, block, first_row=rows.start
            )
        return self.classes[indices]

    def top_classes(
        self, X: ArrayLike, k: int, *, rescore: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The k nearest labels of each row and their distances.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)
        k : int in [1, C]
        rescore : bool, default=False
            Whether to choose the k among the 4 k nearest by the inner products of their weights
            with ``tanh(2 (P'x + t))``, in which a bit counts by how sure it is.

        Returns
        -------
        labels : ndarray of shape (n, k)
        distances : ndarray of shape (n, k), int32
        """
        k = self._check_k(k)
        features = self._rows(X)
        indices = np.empty((features.shape[0], k), dtype=np.int64)
        distances = np.empty((features.shape[0], k), dtype=np.int32)
        n_found = min(len(self.classes), _CANDIDATES_PER_CLASS * k) if rescore else k
        for rows, block in self._blocks(features):
            codes = self.hash_function.kernel.encode(block, first_row=rows.start)
            found, apart = self._index.top_k(codes, n_found)
            if rescore:
                order = self._order_by_scores(block, found)[:, :k]
                found = np.take_along_axis(found, order, axis=1)
                apart = np.take_along_axis(apart, order, axis=1)
            indices[rows], distances[rows] = found, apart
        return self.classes[indices], distances

    def scores(self, X: ArrayLike) -> NDArray[np.int32]:
        """Inner products ``w_c.h(x)``.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, C), int32
        """
        return self._index.scores(self.encode(X), self.n_bits)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, C)
        """
        logits = self.scores(X) / self.temperature
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        return logits

    def __repr__(self) -> str:
        return (
            f"<PackedModel: {len(self.classes):,} classes, {self.n_features:,} features, "
            f"{self.n_bits} bits, {self.hash_function.precision}>"
        )

    def _rows(self, X: Any) -> Features:
        return as_features(X, self.n_features, self.feature_names)

    def _blocks(self, X: Features) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Blocks of what is projected, between which an interrupt is heard."""
        for start in range(0, X.shape[0], _ROWS_PER_CALL):
            part = X[start : start + _ROWS_PER_CALL]
            yield from self.hash_function.feature_blocks(part, start)

    def _check_k(self, k: Any) -> int:
        n_classes = len(self.classes)
        try:
            number = operator.index(k)
        except TypeError:
            number = 0
        if isinstance(k, bool) or not 1 <= number <= n_classes:
            raise ValueError(
                f"k must be an integer from 1 to the number of classes, {n_classes}, found {k!r}"
            )
        return number

    def _order_by_scores(self, block: NDArray[Any], found: NDArray[np.int64]) -> NDArray[np.int64]:
        """Order of candidates (n, m), best first, by ``w_c.tanh(2 (P'x + t))``; equals stay."""
        scores = self.hash_function.values(block)
        scores *= np.float32(_STEEPNESS)
        np.tanh(scores, out=scores)
        order = np.empty_like(found)
        step = max(1, _SCORES_PER_BLOCK // (found.shape[1] * self.n_bits))
        for start in range(0, len(found), step):
            part = slice(start, start + step)
            weights = unpack(self.weights[found[part]], self.n_bits).astype(np.float32)
            agreement = np.einsum("nmr,nr->nm", weights, scores[part])
            order[part] = np.argsort(-agreement, axis=1, kind="stable")
        return order
