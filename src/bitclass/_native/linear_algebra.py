"""Large products and factorisations of training, in tiles on the threads of the kernels.

Every entry is summed in one order, so results do not depend on the number of threads; and no thread
of BLAS spins while it waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads

# Rows per float32 product of a Gram matrix: more would lose digits.
_BLOCK_ROWS = 4096


def _operand(matrix: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """A C-contiguous matrix, and whether it is to be transposed; a copy only if it must be."""
    if matrix.flags.f_contiguous and not matrix.flags.c_contiguous:
        return matrix.T, True
    return np.ascontiguousarray(matrix), False


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Matrix product of a (m, k) and b (k, n), both float32 or both float64."""
    return _kernels.product(*_operand(a), *_operand(b), effective_threads())


def add_gram(X: NDArray[Any], gram: NDArray[np.float64]) -> None:
    """Add ``X'X`` to `gram`, which is modified in place.

    A product has the precision of its rows; blocks of rows are short enough for float32, and are
    added in float64, in order.

    Parameters
    ----------
    X : (n, d) float32 or float64
    gram : (d, d) float64, symmetric
    """
    for begin in range(0, len(X), _BLOCK_ROWS):
        rows = np.require(X[begin : begin + _BLOCK_ROWS], None, ["C", "A"])
        _kernels.add_gram(rows, gram, effective_threads())


def cholesky(matrix: NDArray[Any], *, overwrite: bool = False) -> NDArray[Any]:
    """Lower Cholesky factor (d, d) of a symmetric matrix, float32 or float64.

    Raises LinAlgError if the matrix is not positive definite. A large matrix that is not needed
    any more may be overwritten.
    """
    factor = matrix if overwrite else np.array(matrix, order="C")
    if not _kernels.cholesky(factor, effective_threads()):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return factor


def solve_triangular(
    lower: NDArray[Any], b: NDArray[Any], *, transposed: bool = False
) -> NDArray[Any]:
    """Solve ``L x = b``, or ``L' x = b``, for a lower triangular L (d, d) and b (d, k).

    The solution has the precision of L, float32 or float64.
    """
    solution = np.array(b.T, dtype=lower.dtype, order="C")
    _kernels.solve_triangular(lower, solution, transposed, effective_threads())
    return solution.T
