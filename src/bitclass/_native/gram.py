"""The Gram matrix, by a symmetric BLAS call on blocks of rows.

NumPy hands ``Z.T @ Z`` to BLAS's symmetric product (syrk), which is half the multiplications of a
general one. SciPy offers the call by name, but from a BLAS library of its own, whose first call
after one of NumPy's was measured to take tens of milliseconds longer.

A block's product has Z's own precision; blocks are short enough that float32 keeps its digits, and
they are added up in float64. No copy of Z is made beyond a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_gram", "mirror_gram"]

# Rows of one float32 product: the more, the fewer digits; the fewer, the more often the product,
# (d, d), has to be added to the total.
_ROWS_A_BLOCK = 4096

# Rows of the triangle that are added or copied at a time.
_TRIANGLE_ROWS = 256


def add_gram(Z: NDArray[Any], gram: NDArray[np.float64]) -> None:
    """Add ``Z' Z`` to the lower triangle of `gram`.

    Entries above the diagonal are left undefined: call :func:`mirror_gram` after the last block.

    Parameters
    ----------
    Z : (n, d) float32 or float64
    gram : (d, d) float64, changed in place
    """
    if Z.ndim != 2 or Z.dtype not in (np.float32, np.float64):
        raise TypeError(f"Z: expected a matrix of float32 or float64, found {Z.ndim}-d {Z.dtype}")
    _require_gram(gram)
    n_features = Z.shape[1]
    if gram.shape[0] != n_features:
        raise ValueError(f"gram: expected shape ({n_features}, {n_features}), found {gram.shape}")
    product = np.empty((n_features, n_features), dtype=Z.dtype)
    for begin in range(0, Z.shape[0], _ROWS_A_BLOCK):
        block = np.ascontiguousarray(Z[begin : begin + _ROWS_A_BLOCK])
        np.matmul(block.T, block, out=product)
        for top in range(0, n_features, _TRIANGLE_ROWS):
            bottom = top + _TRIANGLE_ROWS
            gram[top:bottom, :bottom] += product[top:bottom, :bottom]


def mirror_gram(gram: NDArray[np.float64]) -> None:
    """Copy the lower triangle of `gram` to the upper one, in place.

    Parameters
    ----------
    gram : (d, d) float64, changed in place
    """
    _require_gram(gram)
    for top in range(0, gram.shape[0], _TRIANGLE_ROWS):
        bottom = top + _TRIANGLE_ROWS
        gram[:top, top:bottom] = gram[top:bottom, :top].T
        square = gram[top:bottom, top:bottom]
        upper = np.triu_indices(len(square), 1)
        square[upper] = square.T[upper]


def _require_gram(gram: NDArray[np.float64]) -> None:
    if gram.dtype != np.float64:
        raise TypeError(f"gram: expected float64, found {gram.dtype}")
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"gram: expected a square matrix, found shape {gram.shape}")
    if not gram.flags.writeable:
        raise ValueError("gram: expected a writable array, found a read-only one")
