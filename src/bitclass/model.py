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
from bitclass.codes import hamming, unpack
from bitclass.rows import Features, row_blocks

__all__ = ["PackedModel"]

_BLOCK_SCORES = 1 << 22
_ROWS_AT_ONCE = 1 << 16
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
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        self.classes = classes
        self.projection = projection
        self.intercept = intercept
        self.centre = centre
        self.scale = scale
        self.temperature = temperature
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
        """Number of features d of a row."""
        return self._hash_function.n_features

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that predicting needs, labels aside."""
        arrays = (self.weights, self.projection, self.intercept, self.centre, self.scale)
        return sum(array.nbytes for array in arrays if array is not None)

    def encode(self, X: Features) -> NDArray[np.uint8]:
        """Packed codes h(x) of rows X (n, d), shape (n, ceil(r / 8))."""
        codes = np.empty((X.shape[0], self.weights.shape[1]), dtype=np.uint8)
        for rows, block in self._coded_blocks(X):
            codes[rows] = block
        return codes

    def predict(self, X: Features) -> NDArray[Any]:
        """Label at the smallest Hamming distance for each row of X (n, d), shape (n,)."""
        if isinstance(X, np.ndarray) and X.shape[0] <= _ROWS_AT_ONCE and X.dtype in _AS_THEY_ARE:
            return self.classes[predict(self._hash_function, self._index, X)[0]]
        indices = np.empty(X.shape[0], dtype=np.int64)
        # In parts, so that an interrupt is heard between them.
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            part = X[start : start + _ROWS_AT_ONCE]
            at = indices[start : start + _ROWS_AT_ONCE]
            if isinstance(part, np.ndarray) and part.dtype in _AS_THEY_ARE:
                at[:] = predict(self._hash_function, self._index, part)[0]
                continue
            for rows, block in row_blocks(part):
                at[rows], _ = predict(self._hash_function, self._index, block)
        return self.classes[indices]

    def top_classes(self, X: Features, k: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The k nearest labels of each row of X (n, d) and their distances, shape (n, k) each."""
        indices = np.empty((X.shape[0], k), dtype=np.int64)
        distances = np.empty((X.shape[0], k), dtype=np.int32)
        for rows, codes in self._coded_blocks(X):
            indices[rows], distances[rows] = self._index.top_k(codes, k)
        return self.classes[indices], distances

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

    def _coded_blocks(self, X: Features) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        for rows, block in row_blocks(X):
            yield rows, self._hash_function.encode(block)
