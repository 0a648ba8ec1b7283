"""Products of sparse rows and a projection, and gradient steps of that projection."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads


class SparseRows:
    """Sparse rows in compressed form (CSR).

    Parameters
    ----------
    indptr : (n + 1,) int64, offset of the first entry of each row
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
        """Convert a SciPy CSR matrix or a dense array (n, d)."""
        with np.errstate(over="ignore"):  # infinite values are rejected by the caller
            if isinstance(X, SparseRows):
                return X
            if hasattr(X, "indptr"):
                # Aligned: arrays that came through a network or a pickle may not be.
                return cls(
                    np.require(X.indptr, np.int64, ["C", "A"]),
                    np.require(X.indices, np.int32, ["C", "A"]),
                    np.require(X.data, np.float32, ["C", "A"]),
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

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice) -> SparseRows:
        """Consecutive rows."""
        begin, end, _ = rows.indices(len(self))
        indptr = self.indptr[begin : max(begin, end) + 1]
        part = slice(indptr[0], indptr[-1])
        return SparseRows(indptr - indptr[0], self.indices[part], self.data[part], self.n_columns)


def sparse_scores(X: SparseRows, projection: NDArray[np.float32]) -> NDArray[np.float32]:
    """Product (n, r) of sparse rows (n, d) and a projection (d, r)."""
    return _kernels.sparse_scores(X.indptr, X.indices, X.data, projection, effective_threads())


def sparse_step(
    X: SparseRows,
    gradients: NDArray[np.float32],
    size: float,
    projection: NDArray[np.float32],
    squares: NDArray[np.float32],
    counts: NDArray[np.int32],
) -> None:
    """Gradient step, in place, of the rows of a projection for the columns of a mini-batch.

    Each row moves by `size` times its gradient, divided by the root of the running mean of its mean
    squares. That mean is updated only in steps in which the column occurs, so that a rare column
    moves as far in one step as a frequent one.

    Parameters
    ----------
    X : SparseRows, (m, d)
    gradients : (m, r) float32, of the loss with respect to the scores
    size : float
    projection : (d, r) float32
    squares : (d,) float32, running means
    counts : (d,) int32, number of steps in which each column occurred
    """
    threads = effective_threads()
    _kernels.sparse_step(
        X.indptr, X.indices, X.data, gradients, size, projection, squares, counts, threads
    )
