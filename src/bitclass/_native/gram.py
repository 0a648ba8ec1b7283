"""The Gram matrix, by a symmetric BLAS call on blocks of rows.

NumPy answers ``Z.T @ Z`` with one: half the multiplications, and no copy of Z. It must be NumPy's
BLAS and not SciPy's, for each has threads of its own that go on spinning for a while after each
call: encoding with the one and summing with the other, in turn, took more than twice as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_gram"]

# Rows of one float32 product: the more, the fewer digits; the fewer, the more often the product,
# (d, d), has to be added to the total.
_ROWS_A_BLOCK = 4096


def add_gram(Z: NDArray[Any], gram: NDArray[np.float64]) -> None:
    """Add ``Z' Z`` to `gram`.

    A block's product has Z's own precision; blocks are short enough that float32 keeps its digits,
    and they are added up in float64.

    Parameters
    ----------
    Z : (n, d) float32 or float64
    gram : (d, d) float64, changed in place
    """
    if Z.ndim != 2 or Z.dtype not in (np.float32, np.float64):
        raise TypeError(f"Z: expected a matrix of float32 or float64, found {Z.ndim}-d {Z.dtype}")
    if gram.dtype != np.float64:
        raise TypeError(f"gram: expected float64, found {gram.dtype}")
    if gram.shape != (Z.shape[1], Z.shape[1]):
        raise ValueError(f"gram: expected shape ({Z.shape[1]}, {Z.shape[1]}), found {gram.shape}")
    for begin in range(0, Z.shape[0], _ROWS_A_BLOCK):
        block = np.ascontiguousarray(Z[begin : begin + _ROWS_A_BLOCK])
        gram += block.T @ block
