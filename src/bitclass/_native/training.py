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

__all__ = ["add_gram", "class_sums", "run_kernel"]

_T = TypeVar("_T")

# Rows per float32 product: more would lose digits; with fewer, products (d, d) would have to be
# added to the total more often.
_BLOCK_ROWS = 4096


def run_kernel(
    kernel: Callable[..., _T], *arguments: Any, changed: NDArray[Any] | None = None
) -> _T:
    """Call a kernel with contiguous arrays; `changed`, which it modifies, is never copied."""
    ready = [np.ascontiguousarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    return kernel(*ready, *(() if changed is None else (changed,)), effective_threads())


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
    run_kernel(_kernels.class_sums, X, labels, row_weights, changed=sums)


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
