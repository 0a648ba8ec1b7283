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
from bitclass.codes import sign, unpack
from bitclass.losses import LossTable
from bitclass.training.margins import Margins
from bitclass.training.mincut import cut_bits

__all__ = ["SOLVERS", "Solver", "hinge_weights", "is_at_rest", "quadratic_program", "w_step"]

Solver = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]],
    tuple[NDArray[np.int8], float],
]

# Sums that differ by less than this of their terms may do so by rounding.
_CLEARLY = 1e-9

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
    pairs = margins.pair_sums(k, tables)
    # Sums over i not in c, and over i in c; of rows whose bit is +1, and -1.
    others, own = (np.tensordot(mixing[1], pairs.sum(axis=axis), (0, 1)) for axis in (2, 3))
    positive, negative = others + own
    field = (others[0] - others[1]) - (own[0] - own[1])
    # What is left where the two sums cancel is rounding, and must not decide a tie.
    field[np.abs(field) <= RELATIVE_TOLERANCE * (positive + negative)] = 0.0
    delta = np.tensordot(mixing[0], pairs.sum(axis=0), (0, 0))
    return delta + delta.T, field


def is_at_rest(margins: Margins, table: LossTable) -> bool:
    """Whether every flip of a single weight would clearly raise the objective.

    A flip of w_c(k) moves the half margins of other rows against c by one, down where their bit k
    agrees with it and up where not, and those of its own rows against all classes the other way.
    All bits of all classes take two matrix products; the programs of all bits take a hundred
    times as long where there are thousands of classes.

    Parameters
    ----------
    margins : Margins of (g, C)
    table : LossTable
    """
    groups, weights = margins.groups, margins.weights.astype(np.float64)
    n_bits = weights.shape[1]
    falls, rises = table.neighbour_tables(margins.top() if table.log_step else 0)
    change, size = np.zeros(weights.shape), np.zeros(len(weights))
    for rows, half in margins.blocks():
        labels = groups.labels[rows]
        bits = unpack(groups.codes[rows], n_bits).astype(np.float64)
        places = half.astype(np.intp) + n_bits
        fall, rise = (values[places] * groups.weights[rows, None] for values in (falls, rises))
        fall[np.arange(len(labels)), labels] = rise[np.arange(len(labels)), labels] = 0.0
        change += weights * ((fall - rise).T @ bits) + (fall + rise).sum(axis=0)[:, None]
        size += (rise - fall).sum(axis=0)

        own_fall, own_rise = fall.sum(axis=1), rise.sum(axis=1)
        agreement = weights[labels] * bits
        of_own = agreement * (own_rise - own_fall)[:, None] + (own_rise + own_fall)[:, None]
        np.add.at(change, labels, of_own)
        np.add.at(size, labels, own_rise - own_fall)
    # A class that has lost nothing and can gain nothing has no size: its margins are far away.
    return bool(np.all((change > _CLEARLY * size[:, None]) | (size[:, None] == 0.0)))


def w_step(margins: Margins, table: LossTable, solver: Solver) -> NDArray[np.float64]:
    """Update the weights bit by bit; `margins.weights` (C, r) is changed in place.

    Returns
    -------
    (r,) logarithm of what the update of each bit took off the objective (-inf for nothing)
    """
    n_bits = margins.weights.shape[1]
    log_decreases = np.full(n_bits, -np.inf)
    # Where each class has one code, its weights often are that code, and flips have nothing to do.
    one_code_a_class = len(margins.groups.labels) == len(margins.weights)
    if solver is flip_bits and one_code_a_class and is_at_rest(margins, table):
        return log_decreases
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
