"""The alternation of the paper: a W-step with B fixed, a B-step with W fixed, until both rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitclass.losses import LossTable
from bitclass.training.b_step import b_step
from bitclass.training.groups import Groups
from bitclass.training.margins import Margins
from bitclass.training.w_step import Solver, w_step

__all__ = ["HISTORY_DTYPE", "Alternation", "alternate"]

#: One entry a bit update: the logarithm of the objective after bit `bit` was updated in the
#: W-step (step "W") or B-step (step "B") of round `round`.
HISTORY_DTYPE = np.dtype(
    [("round", np.int32), ("step", "U1"), ("bit", np.int32), ("log_objective", np.float64)]
)


@dataclass(frozen=True)
class Alternation:
    """What the alternation found.

    Attributes
    ----------
    weights : (C, r) int8 in {-1, +1}
    groups : Groups, the samples with their codes
    history : (m,) of `HISTORY_DTYPE`
    n_rounds : int
    converged : bool, whether the last round changed nothing
    """

    weights: NDArray[np.int8]
    groups: Groups
    history: NDArray[np.void]
    n_rounds: int
    converged: bool


def alternate(
    groups: Groups,
    weights: NDArray[np.int8],
    table: LossTable,
    solver: Solver,
    max_rounds: int,
    max_bytes: int,
    report: Callable[[str], None],
) -> Alternation:
    """Minimise the objective over weights and codes in turn, from the given ones on.

    Parameters
    ----------
    groups : Groups, the samples with their starting codes
    weights : (C, r) int8 in {-1, +1}, the starting weights
    table : LossTable
    solver : solves the binary quadratic program of one bit
    max_rounds : int
    max_bytes : int, the memory that the table of margins may take
    report : called with a line of progress after each step
    """
    weights = weights.copy()
    history: list[NDArray[np.void]] = []
    converged = False
    n_rounds = 0
    while n_rounds < max_rounds and not converged:
        n_rounds += 1

        before = weights.copy()
        margins = Margins(groups, weights, max_bytes)
        decreases = w_step(margins, table, solver)
        history.append(_entries(n_rounds, "W", decreases, margins.log_objective(table)))

        del margins  # the table may be large, and the B-step needs none

        codes, decreases = b_step(groups, weights, table)
        converged = np.array_equal(before, weights) and np.array_equal(codes, groups.codes)
        groups = groups.with_codes(codes)
        objective = Margins(groups, weights, max_bytes).log_objective(table)
        history.append(_entries(n_rounds, "B", decreases, objective))

        report(
            f"round {n_rounds}: log objective {history[-2]['log_objective'][-1]:.6g} after the "
            f"W-step, {objective:.6g} after the B-step, {len(groups.labels)} distinct codes"
        )
    return Alternation(weights, groups, np.concatenate(history), n_rounds, converged)


def _entries(
    n_round: int, step: str, log_decreases: NDArray[np.float64], log_final: float
) -> NDArray[np.void]:
    """History of one step, from its last objective and what each bit update took off.

    Going backwards only adds positive amounts, so no digits are lost where the objective falls by
    many orders of magnitude.
    """
    n_bits = len(log_decreases)
    entries = np.empty(n_bits, dtype=HISTORY_DTYPE)
    entries["round"], entries["step"], entries["bit"] = n_round, step, np.arange(n_bits)
    backwards = np.logaddexp.accumulate(np.concatenate([[log_final], log_decreases[:0:-1]]))
    entries["log_objective"] = backwards[::-1]
    return entries
