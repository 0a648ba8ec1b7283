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

from bitclass.array_api import is_foreign, namespace, take, to_host

__all__ = [
    "Features",
    "as_features",
    "check_finite",
    "compute_dtype",
    "dense_rows",
    "row_blocks",
    "sample_rows",
]

# NDArray, scipy.sparse CSR or `_native.SparseRows`; SciPy itself must stay out of prediction.
Features = Any

_BLOCK_BYTES, _DEVICE_BLOCK_BYTES = 8 << 20, 1 << 30
_EXACT_IN_FLOAT32 = frozenset("?bBhHef")


def as_features(X: Any, n_features: int, feature_names: tuple[str, ...] | None = None) -> Features:
    """Rows as a NumPy array of a real type or CSR, from any array-like.

    Parameters
    ----------
    X : array-like, SciPy sparse matrix or data frame of shape (n, d)
        Of a frame the columns are selected by name where the names are known.
    n_features : int, the number of features d
    feature_names : (d,) names of the features, or None
    """
    if feature_names is not None and hasattr(X, "columns"):
        missing = [name for name in feature_names if name not in X.columns]
        if missing:
            raise ValueError(
                f"X must have a column {missing[0]!r}, which the model was fitted with"
            )
        X = X[list(feature_names)]
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    elif not isinstance(X, np.ndarray) and not hasattr(X, "indptr"):
        X = np.asarray(X)
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X must hold numbers: {error}") from None
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X must hold real numbers, found values of type {X.dtype}")
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X must have shape (n, {n_features}), found {X.shape}")
    return X


def check_finite(block: NDArray[Any], first_row: int) -> None:
    """Refuse NaN and infinity in a block of dense rows (m, d), naming the first.

    Parameters
    ----------
    block : (m, d)
    first_row : int, number of the first row, for the message
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum is cheaper than a test of every value; only where it fails each is looked at.
        if block.dtype.kind != "f" or np.isfinite(block.sum(dtype=np.float64)):
            return
    wrong = np.argwhere(~np.isfinite(block))
    if len(wrong):
        row, column = wrong[0]
        found = block[row, column]
        value = "NaN" if np.isnan(found) else f"infinity ({found})"
        raise ValueError(f"X must be finite: row {first_row + row}, feature {column} is {value}")


def compute_dtype(X: Features) -> np.dtype[Any]:
    """The float type to compute in: float32 where it holds every value of X, else float64.

    Examples
    --------
    >>> compute_dtype(np.zeros((2, 2), dtype=np.uint8)).name
    'float32'
    """
    char = to_host(X[:0, ...]).dtype.char if is_foreign(X) else X.dtype.char
    return np.dtype(np.float32 if char in _EXACT_IN_FLOAT32 else np.float64)


def dense_rows(X: Features, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
    """Chosen rows of X as a dense float array; a view where X is already one."""
    if is_foreign(X):
        xp, chosen = namespace(X), X[rows, :] if isinstance(rows, slice) else take(X, rows)
        return xp.astype(chosen, getattr(xp, compute_dtype(X).name), copy=False)
    chosen = X[rows]
    dense = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
    block: NDArray[Any] = dense.astype(compute_dtype(X), copy=False)
    return block


def row_blocks(X: Features) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, dense float block) over all rows of X, in order."""
    n_rows, n_features = X.shape
    row_bytes = compute_dtype(X).itemsize * max(1, n_features)
    rows_per_block = min(max(_BLOCK_BYTES // row_bytes, 256), 8192)
    if is_foreign(X):
        rows_per_block = max(_DEVICE_BLOCK_BYTES // row_bytes, 1)
    for start in range(0, n_rows, rows_per_block):
        rows = slice(start, min(start + rows_per_block, n_rows))
        yield rows, dense_rows(X, rows)


def sample_rows(n_rows: int, max_rows: int) -> NDArray[np.intp]:
    """Indices of all rows or, of more than `max_rows`, a random choice that is always the same.

    Examples
    --------
    >>> sample_rows(4, 10)
    array([0, 1, 2, 3])
    >>> len(sample_rows(1000, 10))
    10
    """
    if n_rows <= max_rows:
        return np.arange(n_rows, dtype=np.intp)
    return np.sort(np.random.default_rng(0).choice(n_rows, max_rows, replace=False))
