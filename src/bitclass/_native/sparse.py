"""Sparse rows times a projection of some of their columns, and steps of that projection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.encoding import (
    Encoder,
    Precision,
    QuantisedProjection,
    quantise_projection,
)
from bitclass._native.threads import effective_threads

__all__ = ["SparseProjection", "SparseRows", "sparse_scores", "sparse_step"]

_ROWS_PER_BLOCK = 4096


class SparseRows:
    """Rows of which only the entries are kept, in compressed form (CSR).

    Parameters
    ----------
    indptr : (n + 1,) int64, where the entries of each row begin
    indices : (m,) int32, columns
    data : (m,) float32, values
    n_columns : int

    Examples
    --------
    >>> import numpy as np
    >>> rows = SparseRows.of(np.array([[0.0, 2.0], [0.0, 0.0]]))
    >>> rows.indices, len(rows)
    (array([1], dtype=int32), 2)
    """

    __slots__ = ("data", "indices", "indptr", "n_columns")

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        data: NDArray[np.float32],
        n_columns: int,
    ) -> None:
        self.indptr, self.indices, self.data = indptr, indices, data
        self.n_columns = n_columns

    @classmethod
    def of(cls, X: Any) -> SparseRows:
        """Rows (n, d) of a SciPy CSR matrix, or of a dense array."""
        with np.errstate(over="ignore"):  # infinite values are refused by who uses them
            if isinstance(X, SparseRows):
                return X
            if hasattr(X, "indptr"):
                return cls(
                    X.indptr.astype(np.int64, copy=False),
                    X.indices.astype(np.int32, copy=False),
                    X.data.astype(np.float32, copy=False),
                    X.shape[1],
                )
            present = X != 0
            indptr = np.zeros(len(X) + 1, dtype=np.int64)
            np.cumsum(np.count_nonzero(present, axis=1), out=indptr[1:])
            indices = np.nonzero(present)[1].astype(np.int32)
            return cls(indptr, indices, X[present].astype(np.float32), X.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self), self.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.data.dtype

    @property
    def ndim(self) -> int:
        """2, as of any matrix."""
        return 2

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def toarray(self) -> NDArray[np.float32]:
        """The rows as a dense array."""
        dense = np.zeros(self.shape, dtype=np.float32)
        row_of_entry = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        np.add.at(dense, (row_of_entry, self.indices), self.data)
        return dense

    @overload
    def __getitem__(self, rows: slice) -> SparseRows: ...
    @overload
    def __getitem__(self, rows: int) -> NDArray[np.float32]: ...
    def __getitem__(self, rows: slice | int) -> SparseRows | NDArray[np.float32]:
        """Adjacent rows, or one dense row."""
        if isinstance(rows, slice):
            begin, end, _ = rows.indices(len(self))
            indptr = self.indptr[begin : max(begin, end) + 1]
            part = slice(indptr[0], indptr[-1])
            return SparseRows(
                indptr - indptr[0], self.indices[part], self.data[part], self.n_columns
            )
        row: NDArray[np.float32] = self[rows : rows + 1].toarray()[0]
        return row


def sparse_scores(
    X: SparseRows,
    projection: NDArray[np.float32],
    *,
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """Rows times a projection of all their columns.

    Parameters
    ----------
    X : SparseRows, (n, d)
    projection : (d, r) float32
    rows : (m,) int64, which rows to take, all by default

    Returns
    -------
    (m, r) float32
    """
    n = len(X) if rows is None else len(rows)
    scores = np.empty((n, projection.shape[1]), dtype=np.float32)
    _kernels.sparse_scores_float32(
        X.indptr,
        X.indices,
        X.data,
        rows,
        None,
        None,
        projection,
        None,
        scores,
        effective_threads(),
    )
    return scores


def sparse_step(
    X: SparseRows,
    gradients: NDArray[np.float32],
    size: float,
    projection: NDArray[np.float32],
    squares: NDArray[np.float32],
    counts: NDArray[np.int32],
) -> None:
    """Move the rows of a projection that belong to the columns of a mini-batch, in place.

    Each moves by `size` times its gradient over the root of the running mean of its mean squares.
    That mean counts the steps in which the column occurred: a rare column moves as far in one step
    as a frequent one.

    Parameters
    ----------
    X : SparseRows, (m, d)
    gradients : (m, r) float32, of the loss by the scores
    size : float
    projection : (d, r) float32
    squares : (d,) float32, running means
    counts : (d,) int32, steps in which each column occurred
    """
    threads = effective_threads()
    _kernels.sparse_step(
        X.indptr, X.indices, X.data, None, gradients, size, projection, squares, counts, threads
    )


class SparseProjection(Encoder):
    """A hash function of sparse rows, whose projection has some of their columns only.

    Parameters
    ----------
    projection : (k, r) float32
    intercept : (r,) float64
    columns : (k,) int32, ascending, which columns of the rows these are; others count nothing
    n_features : int, number d of all columns
    precision : {"int8", "float32"}
        What the projection is held in. Values of rows are never rounded.
    scale : (k,) float32, optional
        Size of the values of each column, so that columns of very different sizes keep their
        precision in int8.
    quantised : QuantisedProjection, optional
        The projection in eight-bit integers, where it is known already.

    Examples
    --------
    >>> import numpy as np
    >>> columns = np.array([1], dtype=np.int32)
    >>> kernel = SparseProjection(np.ones((1, 1), dtype=np.float32), np.zeros(1), columns, 3)
    >>> kernel.encode(SparseRows.of(np.array([[5.0, -1.0, 0.0], [-5.0, 1.0, 0.0]])))
    array([[0],
           [1]], dtype=uint8)
    """

    def __init__(
        self,
        projection: NDArray[np.float32],
        intercept: NDArray[np.float64],
        columns: NDArray[np.int32],
        n_features: int,
        precision: Precision = "int8",
        scale: NDArray[np.float32] | None = None,
        quantised: QuantisedProjection | None = None,
    ) -> None:
        if projection.ndim != 2 or projection.shape[0] != len(columns) or 0 in projection.shape:
            raise ValueError(
                f"projection: expected shape ({len(columns)}, n_bits), found {projection.shape}"
            )
        if not 0 <= columns[0] <= columns[-1] < n_features or (np.diff(columns) <= 0).any():
            raise ValueError(f"columns: expected ascending numbers from 0 to {n_features - 1}")
        self.n_features, self.n_bits = n_features, projection.shape[1]
        self.precision = precision
        self._arguments = (projection, intercept, columns, n_features, precision, scale, quantised)
        self._places = np.full(n_features, -1, dtype=np.int32)
        self._places[columns] = np.arange(len(columns), dtype=np.int32)
        self._factors, self._steps = None, None
        self._table: NDArray[Any] = np.ascontiguousarray(projection, dtype=np.float32)
        self._intercept = intercept.astype(np.float32)
        if precision == "int8":
            table = self.in_integers()
            self._table, self._steps = table.weights, table.steps.astype(np.float32)
            self._intercept = (table.thresholds * table.steps).astype(np.float32)
            self._factors = table.inverse_scale

    def in_integers(self) -> QuantisedProjection:
        """The hash function in eight-bit integers: that which was given, or else made anew."""
        projection, intercept, _, _, _, scale, given = self._arguments
        if given is not None:
            return QuantisedProjection(*given)
        centre = None if scale is None else np.zeros_like(scale)
        return quantise_projection(projection, intercept, centre, scale)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What the kernels read: places and factors of columns, projection, steps, intercept."""
        return self._places, self._factors, self._table, self._steps, self._intercept

    def check(self, X: Any) -> None:
        """Raise unless `X` are rows with as many columns as these."""
        if not isinstance(X, SparseRows):
            raise TypeError(f"X: expected SparseRows, found {type(X).__name__}")
        if X.n_columns != self.n_features:
            raise ValueError(f"X: expected shape (n, {self.n_features}), found {X.shape}")

    def score_blocks(
        self, X: SparseRows, threads: int
    ) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        """Rows times the projection, block by block, and the intercept to add."""
        kernel: Any = _kernels.sparse_scores_float32
        if self.precision == "int8":
            kernel = _kernels.sparse_scores_int8
        for start in range(0, len(X), _ROWS_PER_BLOCK):
            rows = slice(start, min(start + _ROWS_PER_BLOCK, len(X)))
            block = X[rows]
            scores = np.empty((len(block), self.n_bits), dtype=np.float32)
            kernel(
                block.indptr,
                block.indices,
                block.data,
                None,
                self._places,
                self._factors,
                self._table,
                self._steps,
                scores,
                threads,
            )
            yield rows, scores, self._intercept
