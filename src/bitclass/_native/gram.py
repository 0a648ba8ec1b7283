"""The Gram matrix, by a symmetric BLAS call on blocks of rows.

NumPy answers ``Z.T @ Z`` with one: half the multiplications, and no copy of Z.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native.threads import effective_threads

__all__ = ["add_gram"]

# Rows of one float32 product: the more, the fewer digits; the fewer, the more often the product,
# (d, d), has to be added to the total.
_BLOCK_ROWS = 4096


def add_gram(blocks: Iterable[NDArray[Any]], gram: NDArray[np.float64]) -> None:
    """Add ``Z' Z`` of all blocks of rows to `gram`.

    A block's product has Z's own precision; blocks are short enough that float32 keeps its digits,
    and they are added up in float64, in their order. Each product runs on one thread, several at a
    time, so that BLAS threads, which spin while they wait, are not needed, and the result does not
    depend on the number of threads.

    Parameters
    ----------
    blocks : (n, d) float32 or float64 each
    gram : (d, d) float64, changed in place
    """
    if gram.dtype != np.float64:
        raise TypeError(f"gram: expected float64, found {gram.dtype}")
    threads = effective_threads()
    pending: deque[Future[NDArray[Any]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for Z in blocks:
            _check(Z, gram)
            for begin in range(0, Z.shape[0], _BLOCK_ROWS):
                pending.append(pool.submit(_product, Z[begin : begin + _BLOCK_ROWS]))
                while len(pending) > threads:
                    gram += pending.popleft().result()
        while pending:
            gram += pending.popleft().result()


def _product(Z: NDArray[Any]) -> NDArray[Any]:
    block = np.ascontiguousarray(Z)
    with np.errstate(over="ignore", invalid="ignore"):  # the sums are checked by the caller
        return np.asarray(block.T @ block)


def _check(Z: NDArray[Any], gram: NDArray[np.float64]) -> None:
    if Z.ndim != 2 or Z.dtype not in (np.float32, np.float64):
        raise TypeError(f"Z: expected a matrix of float32 or float64, found {Z.ndim}-d {Z.dtype}")
    if gram.shape != (Z.shape[1], Z.shape[1]):
        raise ValueError(f"gram: expected shape ({Z.shape[1]}, {Z.shape[1]}), found {gram.shape}")
