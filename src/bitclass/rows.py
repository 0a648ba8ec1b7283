"""Blocks of rows: the one place that knows which kinds of feature matrices there are.

A feature matrix X of shape (n, d) is a NumPy array of any real dtype or a SciPy CSR matrix. Work on
it goes block by block, each block a dense array of float32 (or float64 where float32 would lose
digits), so that no second copy of X is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Features", "compute_dtype", "dense_rows", "row_blocks", "sample_rows"]

Features = Any  # NDArray or scipy.sparse CSR; SciPy itself must stay out of prediction.

_BLOCK_BYTES = 8 << 20
_EXACT_IN_FLOAT32 = frozenset("?bBhHef")


def compute_dtype(X: Features) -> np.dtype[Any]:
    """The float type to compute in: float32 where it holds every value of X, else float64.

    Examples
    --------
    >>> compute_dtype(np.zeros((2, 2), dtype=np.uint8)).name
    'float32'
    """
    return np.dtype(np.float32 if X.dtype.char in _EXACT_IN_FLOAT32 else np.float64)


def dense_rows(X: Features, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
    """Chosen rows of X as a dense float array; a view where X is already one."""
    chosen = X[rows]
    dense = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
    block: NDArray[Any] = dense.astype(compute_dtype(X), copy=False)
    return block


def row_blocks(X: Features) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, dense float block) over all rows of X, in order."""
    n_rows, n_features = X.shape
    row_bytes = compute_dtype(X).itemsize * max(1, n_features)
    rows_a_block = min(max(_BLOCK_BYTES // row_bytes, 256), 8192)
    for start in range(0, n_rows, rows_a_block):
        rows = slice(start, min(start + rows_a_block, n_rows))
        yield rows, dense_rows(X, rows)


def sample_rows(n_rows: int, n_most: int) -> NDArray[np.intp]:
    """Indices of all rows or, of more than `n_most`, a random choice that is always the same.

    Examples
    --------
    >>> sample_rows(4, 10)
    array([0, 1, 2, 3])
    >>> len(sample_rows(1000, 10))
    10
    """
    if n_rows <= n_most:
        return np.arange(n_rows, dtype=np.intp)
    return np.sort(np.random.default_rng(0).choice(n_rows, n_most, replace=False))
