"""The compiled training kernels.

Results are defined, to the last bit, by the functions of the same name in
tests/native/reference.py. Inputs may have any memory layout; arrays that are modified in place must
be C-contiguous. A wrong type raises TypeError, a wrong shape or content ValueError, with the name
of the argument. After an error about contents, an array that is modified in place is undefined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads

__all__ = [
    "RELATIVE_TOLERANCE",
    "add_gram",
    "class_sums",
    "flip_bits",
    "group_rows",
    "half_margins",
    "pair_sums",
    "update_codes",
]

#: A difference of two sums that is smaller than this fraction of them is rounding error: the
#: current bit is kept.
RELATIVE_TOLERANCE = _kernels.RELATIVE_TOLERANCE

_T = TypeVar("_T")

# Rows per float32 product: more would lose digits; with fewer, products (d, d) would have to be
# added to the total more often.
_BLOCK_ROWS = 4096


def _run(kernel: Callable[..., _T], *arguments: Any, changed: NDArray[Any] | None = None) -> _T:
    """Call a kernel with contiguous arrays; `changed`, which it modifies, is never copied."""
    ready = [np.ascontiguousarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    return kernel(*ready, *(() if changed is None else (changed,)), effective_threads())


def half_margins(
    codes: NDArray[np.uint8],
    weights: NDArray[np.uint8],
    y: NDArray[np.intp],
) -> NDArray[np.int16]:
    """Half the margins of every row against every class.

    Parameters
    ----------
    codes : (n, bytes) packed
    weights : (C, bytes) packed
    y : (n,) index of each row's class

    Returns
    -------
    (n, C) int16, ``Hamming(w_y, b) - Hamming(w_c, b)``; 0 in column y.
    """
    return _run(_kernels.half_margins, codes, weights, y)


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
    tables : (K, 2r + 1); column j holds the value at half margin j - r
    sums : (2, K, C, C), modified in place
        ``row_weight * tables[k]`` is added to entry [0, k, q, c] for each row of class q whose bit
        is +1, and to [1, k, q, c] for rows whose bit is -1, in row order. Entries with c = q are
        not changed.
    """
    _run(_kernels.pair_sums, codes, weights, bit, y, row_weights, tables, changed=sums)


def flip_bits(
    H: NDArray[np.float64],
    g: NDArray[np.float64],
    w: NDArray[np.int8],
) -> tuple[NDArray[np.int8], float]:
    """Bit flipping, the paper's Algorithm 1: flip the bit of steepest descent until none improves.

    Minimises ``f(w) = w' H w / 2 + g . w`` over -1/+1 vectors, starting from `w`.

    Parameters
    ----------
    H : (C, C) symmetric, diagonal 0
    g : (C,)
    w : (C,) the starting point, -1/+1

    Returns
    -------
    w : (C,) a point that no single flip improves
    decrease : float, decrease of f (>= 0)

    Raises
    ------
    ValueError
        If the diagonal is not 0, or if flips do not end because H is not symmetric.
    """
    w = np.array(w, order="C")
    return w, _run(_kernels.flip_bits, H, g, changed=w)


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
    y : (n,) index of each row's class; fastest if rows of a class are contiguous
    row_weights : (n,)
    n_bits : int
    values : (4r + 1,) loss at half margins -2r .. 2r
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
    return _run(_kernels.update_codes, codes, weights, y, row_weights, n_bits, values, log_step)


def group_rows(
    labels: NDArray[np.intp],
    codes: NDArray[np.uint8],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Group rows with equal label and code.

    Parameters
    ----------
    labels : (n,)
    codes : (n, bytes) packed

    Returns
    -------
    first : (g,) the first row of each group; groups are ordered by label, then by first appearance
    inverse : (n,) index of each row's group
    """
    first, inverse, n_groups = _run(_kernels.group_rows, labels, codes)
    return first[:n_groups].copy(), inverse


def class_sums(
    X: NDArray[Any],
    labels: NDArray[np.intp],
    row_weights: NDArray[np.float64] | None,
    sums: NDArray[np.float64],
) -> None:
    """Add each row to the sum of its class, in row order.

    Parameters
    ----------
    X : (n, d) float32 or float64
    labels : (n,) index of each row's class
    row_weights : (n,), or None for ones
    sums : (C, d), modified in place
    """
    if row_weights is None:
        row_weights = np.ones(X.shape[0])
    _run(_kernels.class_sums, X, labels, row_weights, changed=sums)


def add_gram(blocks: Iterable[NDArray[Any]], gram: NDArray[np.float64]) -> None:
    """Add ``Z' Z`` over blocks of rows to `gram`, by symmetric BLAS calls.

    A product has the precision of its block; blocks are short enough for float32, and products are
    summed in float64, in order. Products run in parallel on one thread each, so that BLAS threads,
    which spin while they wait, are not needed, and the result does not depend on the number of
    threads.

    Parameters
    ----------
    blocks : iterable of (n, d) float32 or float64
    gram : (d, d) float64, modified in place
    """
    threads = effective_threads()
    pending: deque[Future[NDArray[Any]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for rows in blocks:
            for begin in range(0, len(rows), _BLOCK_ROWS):
                Z = rows[begin : begin + _BLOCK_ROWS]
                if threads == 1:
                    gram += _product(Z)
                    continue
                pending.append(pool.submit(_product, Z))
                while len(pending) > threads:
                    gram += pending.popleft().result()
        while pending:
            gram += pending.popleft().result()


def _product(Z: NDArray[Any]) -> NDArray[Any]:
    block = np.ascontiguousarray(Z)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the sums
        # NumPy computes this as a symmetric product, with half the multiplications.
        return np.asarray(block.T @ block)
