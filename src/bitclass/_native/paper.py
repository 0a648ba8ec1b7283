"""The compiled kernels of the paper's method.

Results are defined, to the last bit, by the functions of the same name in
tests/native/reference.py. Inputs may have any memory layout; arrays that are modified in place must
be C-contiguous. A wrong type raises TypeError, a wrong shape or content ValueError, with the name
of the argument. After an error about contents, an array that is modified in place is undefined.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.training import run_kernel

#: A difference of two sums that is smaller than this fraction of them is rounding error: the
#: current bit is kept.
RELATIVE_TOLERANCE = _kernels.RELATIVE_TOLERANCE


def pair_sums(
    codes: NDArray[np.uint8],
    weights: NDArray[np.uint8],
    bit: int,
    y: NDArray[np.intp],
    row_weights: NDArray[np.float64],
    tables: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    """Add table values at the half margins without one bit to sums over pairs of classes.

    This is the expensive part of the W-step in one bit: n * C table lookups. Rows may be split over
    several calls: sums accumulate.

    Parameters
    ----------
    codes : (n, bytes) packed
    weights : (C, bytes) packed
    bit : int, index of the bit
    y : (n,) index of each row's class, in ascending order
    row_weights : (n,)
    tables : (2, 2r + 1); column j holds the value at half margin j - r
    sums : (2, 2, C, C), modified in place
        ``row_weight * tables[k]`` is added to entry [0, k, q, c] for each row of class q whose bit
        is +1, and to [1, k, q, c] for rows whose bit is -1, in row order. Entries with c = q are
        not changed.
    """
    run_kernel(_kernels.pair_sums, codes, weights, bit, y, row_weights, tables, changed=sums)


def update_codes(
    codes: NDArray[np.uint8],
    weights: NDArray[np.uint8],
    y: NDArray[np.intp],
    row_weights: NDArray[np.float64],
    n_bits: int,
    values: NDArray[np.float64],
    log_step: float,
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """B-step: each bit of each code in turn takes the sign with the smaller loss.

    Parameters
    ----------
    codes : (n, bytes) packed
    weights : (C, bytes) packed
    y : (n,) index of each row's class
    row_weights : (n,)
    n_bits : int
    values : (4r + 1,) loss at half margins -2r .. 2r, which must not decrease
    log_step : float
        For a loss that grows by the factor ``exp(log_step)`` per unit of half margin, that
        logarithm; 0 for others. Such a loss is looked up relative to the largest half margin of
        the row, so that it neither overflows nor vanishes.

    Returns
    -------
    codes : (n, bytes) packed, after one pass over the bits; ties keep the bit
    log_decreases : (r,) logarithm of the decrease of the weighted loss at each bit, -inf if
        nothing changed; the same for every thread count, but not bit-identical to the reference
    """
    return run_kernel(
        _kernels.update_codes, codes, weights, y, row_weights, n_bits, values, log_step
    )
