"""The W-step: class weights for given codes, one bit of all classes at a time.

In one bit the objective is a binary quadratic program for any loss (see `LossTable`):

    f(w) = sum_{q != c} J[q, c] w_q w_c + h.w

with ``J[q, c] = sum_{i in q} delta`` and
``h_c = sum_{i not in c} b_i beta[i, c] - sum_{i in c} b_i sum_{c'} beta[i, c']``.
For the exponential loss these are the paper's H and g.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bitclass._native import RELATIVE_TOLERANCE, flip_bits
from bitclass.codes import sign
from bitclass.losses import LossTable
from bitclass.training.margins import Margins
from bitclass.training.mincut import cut_bits

__all__ = ["SOLVERS", "Solver", "hinge_weights", "quadratic_program", "w_step"]

Solver = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]],
    tuple[NDArray[np.int8], float],
]

#: Solvers of the binary quadratic program in one bit, by name.
SOLVERS: dict[str, Solver] = {"flip": flip_bits, "mincut": cut_bits}


def hinge_weights(code_sums: NDArray[np.float64]) -> NDArray[np.int8]:
    """Closed form of the hinge loss: ``w_c = sign(C sum_{i in c} b_i - sum_i b_i)``.

    Parameters
    ----------
    code_sums : (C, r), the weighted sum of the codes of each class

    Returns
    -------
    (C, r) int8 in {-1, +1}
    """
    lead = len(code_sums) * code_sums - code_sums.sum(axis=0)
    return sign(lead)


def quadratic_program(
    margins: Margins, k: int, tables: NDArray[np.float64], mixing: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients of the program in bit k, as ``f(w) = w' coupling w / 2 + field . w``.

    Parameters
    ----------
    margins : Margins of (g, C)
    k : int
    tables, mixing : see `LossTable.quadratic_tables`

    Returns
    -------
    coupling : (C, C), ``J + J'`` with diagonal 0
    field : (C,), the paper's g
    """
    positive, negative = margins.pair_sums(k, tables)
    delta = sum(a * p for a, p in zip(mixing[0], positive + negative, strict=True))
    beta = sum(a * p for a, p in zip(mixing[1], positive - negative, strict=True))
    field = beta.sum(axis=0) - beta.sum(axis=1)
    # What is left where the two sums cancel is rounding, and must not decide a tie.
    size = sum(a * p for a, p in zip(mixing[1], positive + negative, strict=True))
    field[np.abs(field) <= RELATIVE_TOLERANCE * (size.sum(axis=0) + size.sum(axis=1))] = 0.0
    return delta + delta.T, field


def w_step(margins: Margins, table: LossTable, solver: Solver) -> NDArray[np.float64]:
    """Update the weights bit by bit; `margins.weights` (C, r) is changed in place.

    Returns
    -------
    (r,) logarithm of what the update of each bit took off the objective (-inf for nothing)
    """
    n_bits = margins.weights.shape[1]
    log_decreases = np.full(n_bits, -np.inf)
    # One bit moves a half margin by at most 2, so a unit chosen now serves for a while.
    patience = max(1, int(100 / table.log_step)) if table.log_step else n_bits
    for k in range(n_bits):
        if k % patience == 0:
            top = margins.top() if table.log_step else 0
            tables, mixing = table.quadratic_tables(top)
        coupling, field = quadratic_program(margins, k, tables, mixing)
        column, decrease = solver(coupling, field, np.ascontiguousarray(margins.weights[:, k]))
        if decrease > 0:
            margins.set_bit(k, column)
            log_decreases[k] = np.log(decrease) + table.log_step * top
    return log_decreases
