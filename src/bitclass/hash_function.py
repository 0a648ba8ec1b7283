"""The hash function h(x) = sign(P'x + t), of the features or of similarities to kernel anchors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import (
    Precision,
    Projection,
    QuantisedProjection,
    SparseProjection,
    SparseRows,
)
from bitclass.arrays import Features, check_finite, row_blocks
from bitclass.codes import packed_width

__all__ = [
    "MAX_COLUMNS",
    "MAX_DISTANCE",
    "MAX_GAMMA",
    "MIN_GAMMA",
    "HashFunction",
    "RbfAnchors",
    "squared_distances",
]

#: Limits of the width of the kernel.
MIN_GAMMA, MAX_GAMMA = 1e-30, 1e30
#: Largest standardised value of an anchor, and of a row: larger ones are clipped, and their
#: similarity to every anchor is 0.
MAX_DISTANCE = 1e9
#: The most features that rows may have where P has some of them only: 4 bytes each in memory.
MAX_COLUMNS = 1 << 24
# Types that the kernels read themselves; all others are converted block by block.
_KERNEL_TYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.float16))


def squared_distances(X: NDArray[Any], anchors: NDArray[Any]) -> NDArray[Any]:
    """Squared distances of rows (n, d) to anchors (m, d), shape (n, m)."""
    of_rows = np.einsum("nd,nd->n", X, X)
    of_anchors = np.einsum("md,md->m", anchors, anchors)
    return np.asarray(np.maximum(of_rows[:, None] - 2 * (X @ anchors.T) + of_anchors, 0))


class RbfAnchors:
    """The feature map ``exp(-gamma |z - a|^2)`` to m anchors, for standardised rows z.

    Parameters
    ----------
    anchors : (m, d) float32, standardised
    centre, scale : (d,) float32, what standardises the rows
    gamma : float

    Examples
    --------
    >>> import numpy as np
    >>> anchors = np.array([[0.0], [1.0]], dtype=np.float32)
    >>> anchors = RbfAnchors(anchors, np.zeros(1, np.float32), np.ones(1, np.float32), gamma=1.0)
    >>> anchors.similarities(np.array([[1.0]], dtype=np.float32)).round(3)
    array([[0.368, 1.   ]], dtype=float32)
    """

    def __init__(
        self,
        anchors: NDArray[np.float32],
        centre: NDArray[np.float32],
        scale: NDArray[np.float32],
        gamma: float,
    ) -> None:
        self.anchors = anchors
        self.centre = centre
        self.scale = scale
        self.gamma = gamma
        # The distance as sums: -gamma |z - a|^2 = 2 gamma z.a - gamma |z|^2 - gamma |a|^2.
        self._factors = np.ascontiguousarray((2.0 * gamma * anchors).T, dtype=np.float32)
        self._lengths = (gamma * np.einsum("md,md->m", anchors, anchors)).astype(np.float32)

    @property
    def n_features(self) -> int:
        """Features d of a row."""
        return int(self.anchors.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.anchors.nbytes + self.centre.nbytes + self.scale.nbytes

    def fingerprint(self) -> str:
        """Equal for two maps that give every row the same similarities."""
        parts = (self.anchors, self.centre, self.scale, np.float64(self.gamma))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def similarities(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Similarities of a block of dense rows (n, d) to the anchors, shape (n, m)."""
        with np.errstate(over="ignore"):
            far: NDArray[Any] = (X - self.centre) / self.scale
        # Squares of larger numbers would be infinite. NaN stays, and is refused later on.
        Z = np.clip(far, -MAX_DISTANCE, MAX_DISTANCE, out=far).astype(np.float32, copy=False)
        found: NDArray[np.float32] = Z @ self._factors
        found -= self._lengths
        found -= np.float32(self.gamma) * np.einsum("nd,nd->n", Z, Z)[:, None]
        np.minimum(found, 0.0, out=found)  # rounding must not make a row nearer than near
        np.exp(found, out=found)
        return found


class HashFunction:
    """A learned hash function ``h(x) = sign(P'f(x) + t)``, f the features or similarities.

    Parameters
    ----------
    projection : (d, r) float32, the matrix P
    intercept : (r,) float64, the offset t
    centre, scale : (d,) float32, optional
        Mean and standard deviation of the features, by which int8 encoding quantises rows, so that
        features of any size keep their precision.
    precision : {"int8", "float32"}
        What codes are computed in.
    anchors : RbfAnchors, optional
        Rows are hashed by their similarities to these, and d is their number.
    quantised : QuantisedProjection, optional
        P and t in eight-bit integers, where they were saved as that.
    columns : (k,) int32, ascending, optional
        For wide rows: the features that P has a row for, of which there are k; all others count
        nothing. Rows are then hashed by their nonzero entries.
    n_features : int, optional
        Number of all features; to be given with `columns`.

    Examples
    --------
    >>> import numpy as np
    >>> hash_function = HashFunction(np.eye(2, dtype=np.float32), np.array([0.0, -2.0]))
    >>> hash_function.encode(np.array([[1.0, 1.0], [1.0, 3.0]]))
    array([[1],
           [3]], dtype=uint8)
    """

    def __init__(
        self,
        projection: NDArray[np.float32],
        intercept: NDArray[np.float64],
        *,
        centre: NDArray[np.float32] | None = None,
        scale: NDArray[np.float32] | None = None,
        precision: Precision = "int8",
        anchors: RbfAnchors | None = None,
        quantised: QuantisedProjection | None = None,
        columns: NDArray[np.int32] | None = None,
        n_features: int | None = None,
    ) -> None:
        self.projection = projection
        self.intercept = intercept
        self.centre = centre
        self.scale = scale
        self.anchors = anchors
        self.columns = columns
        #: P and t as the kernels take them, for features f(x).
        self.encoder: Projection | SparseProjection
        if columns is not None:
            if n_features is None or centre is not None or anchors is not None:
                raise ValueError("columns must come with n_features, without centre or anchors")
            self.encoder = SparseProjection(
                projection,
                intercept,
                columns,
                n_features,
                precision=precision,
                scale=scale,
                quantised=quantised,
            )
            return
        self.encoder = Projection(
            projection,
            intercept,
            precision=precision,
            centre=centre,
            scale=scale,
            quantised=quantised,
        )

    @property
    def precision(self) -> Precision:
        """What codes are computed in."""
        return self.encoder.precision

    @property
    def quantised(self) -> QuantisedProjection:
        """P and t in eight-bit integers."""
        return self.encoder.in_integers()

    @property
    def n_bits(self) -> int:
        """Number of bits r of a code."""
        return self.encoder.n_bits

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return self.encoder.n_features if self.anchors is None else self.anchors.n_features

    @property
    def is_linear(self) -> bool:
        """Whether P is applied to all features as they are."""
        return self.anchors is None and self.columns is None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that encoding needs."""
        arrays = (
            self.projection,
            self.intercept,
            self.centre,
            self.scale,
            self.anchors,
            self.columns,
        )
        return sum(array.nbytes for array in arrays if array is not None)

    def feature_blocks(self, X: Features) -> Iterator[tuple[slice, Any]]:
        """Blocks (m, d) of what is projected, with the rows that each stands for."""
        if self.takes(X):
            yield slice(0, X.shape[0]), X
            return
        if self.columns is not None and not isinstance(X, np.ndarray):
            yield slice(0, X.shape[0]), SparseRows.of(X)
            return
        for rows, block in row_blocks(X):
            if self.anchors is not None:
                check_finite(block, rows.start)  # a row far away is like no anchor, however far
                block = self.anchors.similarities(block)
            yield rows, block if self.columns is None else SparseRows.of(block)

    def takes(self, X: Features) -> bool:
        """Whether the kernel reads these rows as they are."""
        if self.columns is not None:
            return isinstance(X, SparseRows)
        return self.anchors is None and isinstance(X, np.ndarray) and X.dtype in _KERNEL_TYPES

    def rows_of(self, columns: NDArray[Any]) -> NDArray[np.float32]:
        """Rows of the projection for some features, shape (k, r); 0 for those it does not have."""
        if self.anchors is not None:
            raise ValueError("features have no rows of the projection where there are anchors")
        if self.columns is None:
            rows: NDArray[np.float32] = self.projection[columns]
            return rows
        places = np.searchsorted(self.columns, columns).clip(max=len(self.columns) - 1)
        is_kept = self.columns[places] == columns
        return np.where(is_kept[:, None], self.projection[places], np.float32(0))

    def encode(self, X: Features) -> NDArray[np.uint8]:
        """Packed codes h(x) of rows X (n, d), shape (n, ceil(r / 8))."""
        codes = np.empty((X.shape[0], packed_width(self.n_bits)), dtype=np.uint8)
        for rows, block in self.feature_blocks(X):
            codes[rows] = self.encoder.encode(block, first_row=rows.start)
        return codes
