"""PackedModel: what predicting needs and nothing more.

encode -> search -> labels, with NumPy and the kernels alone, so that a deployed predictor stays
light.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex, Precision, Projection, QuantisedProjection, predict
from bitclass.anchors import RbfAnchors
from bitclass.codes import hamming, unpack
from bitclass.rows import Features, row_blocks

__all__ = ["PackedModel"]

_BLOCK_SCORES = 1 << 22
_ROWS_AT_ONCE = 1 << 16
# Rescoring chooses k classes among so many times k.
_CANDIDATES_A_CLASS = 4
# The scores themselves are linear in x and would undo what the signs have won; this steep, on
# held-out rows, the nearest class and the nearest five are found more often than by signs alone.
_STEEPNESS = 2.0
# Types that the kernels read themselves; all others are converted block by block.
_AS_THEY_ARE = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.float16))


class PackedModel:
    """A trained classifier: a hash function, packed class weights, labels.

    Parameters
    ----------
    classes : (C,) labels
    weights : (C, ceil(r / 8)) uint8, packed class weights
    projection : (d, r) float32
    intercept : (r,) float64
    centre, scale : (d,) float32, optional
        Mean and standard deviation of the features, which make int8 encoding precise for features
        of any size.
    temperature : float
        Probabilities are the softmax of ``w_c.h(x) / temperature``.
    precision : {"int8", "float32"}
        What codes are computed in: see `BinaryCodeClassifier`.
    quantised : QuantisedProjection, optional
        The hash function in eight-bit integers, where it was saved as that.
    anchors : RbfAnchors, optional
        Rows are hashed by their similarities to these, and d is their number.
    summary : mapping, optional
        How the model came about, in values that JSON can hold; kept in model files.

    Examples
    --------
    >>> import numpy as np
    >>> model = PackedModel(
    ...     classes=np.array(["left", "right"]),
    ...     weights=np.array([[0], [1]], dtype=np.uint8),
    ...     projection=np.array([[1.0]], dtype=np.float32),
    ...     intercept=np.zeros(1),
    ... )
    >>> model.predict(np.array([[-3.0], [2.0]]))
    array(['left', 'right'], dtype='<U5')
    """

    def __init__(
        self,
        classes: NDArray[Any],
        weights: NDArray[np.uint8],
        projection: NDArray[np.float32],
        intercept: NDArray[np.float64],
        *,
        centre: NDArray[np.float32] | None = None,
        scale: NDArray[np.float32] | None = None,
        temperature: float = 1.0,
        precision: Precision = "int8",
        quantised: QuantisedProjection | None = None,
        anchors: RbfAnchors | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        self.classes = classes
        self.projection = projection
        self.intercept = intercept
        self.centre = centre
        self.scale = scale
        self.temperature = temperature
        self.anchors = anchors
        self.summary = dict(summary or {})
        self._hash_function = Projection(
            projection,
            intercept,
            precision=precision,
            centre=centre,
            scale=scale,
            quantised=quantised,
        )
        self._index = HammingIndex(weights)

    @property
    def weights(self) -> NDArray[np.uint8]:
        """Packed class weights, (C, ceil(r / 8))."""
        return self._index.weights

    @property
    def precision(self) -> Precision:
        """What codes are computed in."""
        return self._hash_function.precision

    @property
    def quantised(self) -> QuantisedProjection:
        """The hash function in eight-bit integers."""
        return self._hash_function.in_integers()

    @property
    def n_bits(self) -> int:
        """Number of bits r of a code."""
        return self._hash_function.n_bits

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return self._hash_function.n_features if self.anchors is None else self.anchors.n_features

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that predicting needs, labels aside."""
        arrays: list[NDArray[Any] | None]
        arrays = [self.weights, self.projection, self.intercept, self.centre, self.scale]
        if self.anchors is not None:
            arrays += [self.anchors.anchors, self.anchors.centre, self.anchors.scale]
        return sum(array.nbytes for array in arrays if array is not None)

    def encode(self, X: Features) -> NDArray[np.uint8]:
        """Packed codes h(x) of rows X (n, d), shape (n, ceil(r / 8))."""
        codes = np.empty((X.shape[0], self.weights.shape[1]), dtype=np.uint8)
        for rows, block in self._coded_blocks(X):
            codes[rows] = block
        return codes

    def predict(self, X: Features) -> NDArray[Any]:
        """Label at the smallest Hamming distance for each row of X (n, d), shape (n,)."""
        if X.shape[0] <= _ROWS_AT_ONCE and self._takes_as_it_is(X):
            return self.classes[predict(self._hash_function, self._index, X)[0]]
        indices = np.empty(X.shape[0], dtype=np.int64)
        # In parts, so that an interrupt is heard between them.
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            part = X[start : start + _ROWS_AT_ONCE]
            at = indices[start : start + _ROWS_AT_ONCE]
            if self._takes_as_it_is(part):
                at[:] = predict(self._hash_function, self._index, part)[0]
                continue
            for rows, block in self._feature_blocks(part):
                at[rows], _ = predict(self._hash_function, self._index, block)
        return self.classes[indices]

    def top_classes(
        self, X: Features, k: int, *, rescore: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The k nearest labels of each row of X (n, d) and their distances, shape (n, k) each.

        With `rescore` some more than k are found, and ordered by the inner products of their
        weights with ``tanh(2 (P'x + t))``: a bit counts by how sure it is.
        """
        indices = np.empty((X.shape[0], k), dtype=np.int64)
        distances = np.empty((X.shape[0], k), dtype=np.int32)
        n_found = min(len(self.classes), _CANDIDATES_A_CLASS * k) if rescore else k
        for rows, block in self._feature_blocks(X):
            found, apart = self._index.top_k(self._hash_function.encode(block), n_found)
            if rescore:
                order = self._order_by_scores(block, found)[:, :k]
                found = np.take_along_axis(found, order, axis=1)
                apart = np.take_along_axis(apart, order, axis=1)
            indices[rows], distances[rows] = found, apart
        return self.classes[indices], distances

    def _order_by_scores(self, block: NDArray[Any], found: NDArray[np.int64]) -> NDArray[np.int64]:
        """Order of candidates (n, m), best first, by ``w_c.tanh(2 (P'x + t))``; equals stay."""
        offset = self.intercept
        if self.centre is not None:  # a mean far from zero would take the digits of float32
            block = block - self.centre
            offset = offset + self.centre.astype(np.float64) @ self.projection.astype(np.float64)
        scores = np.asarray(block, dtype=np.float32) @ self.projection
        scores += offset.astype(np.float32)
        scores *= np.float32(_STEEPNESS)
        np.tanh(scores, out=scores)
        order = np.empty_like(found)
        step = max(1, _BLOCK_SCORES // (found.shape[1] * self.n_bits))
        for start in range(0, len(found), step):
            part = slice(start, start + step)
            weights = unpack(self.weights[found[part]], self.n_bits).astype(np.float32)
            agreement = np.einsum("nmr,nr->nm", weights, scores[part])
            order[part] = np.argsort(-agreement, axis=1, kind="stable")
        return order

    def scores(self, X: Features) -> NDArray[np.int32]:
        """Inner products ``w_c.h(x)`` for rows X (n, d), shape (n, C)."""
        scores = np.empty((X.shape[0], len(self.weights)), dtype=np.int32)
        step = max(1, _BLOCK_SCORES // self.weights.size)
        for rows, codes in self._coded_blocks(X):
            for start in range(0, len(codes), step):
                part = codes[start : start + step]
                at = rows.start + start
                distances = hamming(part[:, None, :], self.weights[None, :, :])
                scores[at : at + len(part)] = self.n_bits - 2 * distances
        return scores

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Class probabilities for rows X (n, d), shape (n, C)."""
        logits = self.scores(X) / self.temperature
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        return logits

    def unpacked_weights(self) -> NDArray[np.int8]:
        """Class weights of shape (C, r) in {-1, +1}."""
        return unpack(self.weights, self.n_bits)

    def _takes_as_it_is(self, X: Features) -> bool:
        """Whether the kernels read the rows themselves."""
        return self.anchors is None and isinstance(X, np.ndarray) and X.dtype in _AS_THEY_ARE

    def _feature_blocks(self, X: Features) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Blocks of the features that are hashed."""
        for rows, block in row_blocks(X):
            yield rows, block if self.anchors is None else self.anchors.similarities(block)

    def _coded_blocks(self, X: Features) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        for rows, block in self._feature_blocks(X):
            yield rows, self._hash_function.encode(block)
