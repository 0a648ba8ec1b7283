"""The Gram matrix, by a symmetric BLAS call on blocks of rows.

Half the multiplications of ``Z.T @ Z``, and no copy of Z. A block's product has Z's own precision;
blocks are short enough that float32 keeps its digits, and they are added up in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_gram", "mirror_gram"]

# Rows of one float32 product: the more, the fewer digits; the fewer, the more often the product,
# (d, d), has to be added to the total.
_ROWS_A_BLOCK = 4096

# Rows of the triangle that are added at a time.
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
    n_features = Z.shape[1]
    _require_gram(gram)
    if gram.shape[0] != n_features:
        raise ValueError(f"gram: expected shape ({n_features}, {n_features}), found {gram.shape}")
    # Imported here, because prediction, which needs no SciPy, imports this package too.
    from scipy.linalg import blas

    symmetric_product = blas.ssyrk if Z.dtype == np.float32 else blas.dsyrk
    for begin in range(0, Z.shape[0], _ROWS_A_BLOCK):
        block = np.ascontiguousarray(Z[begin : begin + _ROWS_A_BLOCK])
        # BLAS sees a C-ordered block as its transpose, and its upper triangle is our lower one.
        product = symmetric_product(1.0, block.T, lower=0).T
        for top in range(0, n_features, _TRIANGLE_ROWS):
            bottom = min(top + _TRIANGLE_ROWS, n_features)
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
