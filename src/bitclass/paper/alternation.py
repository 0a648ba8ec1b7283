"""The alternation of sections 3.1 and 3.2: W-steps with B fixed, B-steps with W fixed.

For any loss (see `LossTable`), the W-step in one bit of all classes is a binary quadratic program:

    f(w) = sum_{q != c} J[q, c] w_q w_c + g.w

with ``J[q, c] = sum_{i in q} delta`` and
``g_c = sum_{i not in c} b_i beta[i, c] - sum_{i in c} b_i sum_{c'} beta[i, c']``.
That is ``w' H w / 2 + g.w`` with ``H = J + J'`` (`quadratic_program`): problem (9). For the
exponential loss, H and g are those of equation (10).

The B-step needs no program: bit k of sample i takes the sign with the smaller loss, equation (15)
(`b_step`). Only classes whose weight bit differs from that of the true class matter, and a tie
keeps the current bit.

Samples of the same class with the same code have the same margins, so they are merged into one row
with summed weights (`Groups`): after one round nearly all samples of a class share a code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass._native.paper import RELATIVE_TOLERANCE, pair_sums, update_codes
from bitclass.codes import pack, sign, unpack
from bitclass.paper.bqp import Solver
from bitclass.paper.losses import LossTable

_LOOKUPS_PER_CALL = 1 << 31
# Size of a block of margins; temporaries take four times as much.
_BLOCK_BYTES = 4 << 20

#: One entry per bit update: the logarithm of the objective after bit `bit` was updated in the
#: W-step (step "W") or B-step (step "B") of round `round`. The closed forms of the hinge loss
#: update all bits at once and have one entry per step.
HISTORY_DTYPE = np.dtype(
    [("round", np.int32), ("step", "U1"), ("bit", np.int32), ("log_objective", np.float64)]
)


@dataclass(frozen=True)
class Learned:
    """The result of the alternation."""

    weights: NDArray[np.int8]  # (C, r) in {-1, +1}
    groups: Groups  # the samples with their codes
    history: NDArray[np.void]  # (m,) of `HISTORY_DTYPE`
    n_rounds: int
    converged: bool  # whether the last round changed nothing


def alternate(
    groups: Groups,
    weights: NDArray[np.int8],
    table: LossTable,
    solver: Solver,
    max_rounds: int,
    print_line: Callable[[str], None],
) -> Learned:
    """Minimise (3) over weights and codes alternately, starting from the given ones.

    `print_line` is called with a line of progress after each round.
    """
    history: list[NDArray[np.void]] = []
    converged, n_rounds = False, 0
    while n_rounds < max_rounds and not converged:
        n_rounds += 1
        before = weights
        weights, decreases = w_step(groups, weights, table, solver)
        after_w = log_objective(groups, weights, table)
        history.append(_entries(n_rounds, "W", decreases, after_w))

        codes, decreases = b_step(groups, weights, table)
        converged = np.array_equal(before, weights) and np.array_equal(codes, groups.codes)
        groups = groups.with_codes(codes)
        after_b = log_objective(groups, weights, table)
        history.append(_entries(n_rounds, "B", decreases, after_b))
        print_line(
            f"round {n_rounds}: log objective {after_w:.6g} after the W-step, {after_b:.6g} after "
            f"the B-step, {len(groups.labels)} distinct codes"
        )
    return Learned(weights, groups, np.concatenate(history), n_rounds, converged)


def w_step(
    groups: Groups, weights: NDArray[np.int8], table: LossTable, solver: Solver
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Update the weights bit by bit, by the binary quadratic program (9) in bit k of all classes.

    Returns the weights (C, r), and the logarithm of the decrease of the objective at each bit (r,).
    """
    weights, n_bits = weights.copy(), weights.shape[1]
    log_decreases = np.full(n_bits, -np.inf)
    # One bit moves a half margin by at most 2, so a unit stays usable for many bits.
    n_bits_per_unit = max(1, int(100 / table.log_step)) if table.log_step else n_bits
    for k in range(n_bits):
        if k % n_bits_per_unit == 0:
            top = _largest_half_margin(groups, weights) if table.log_step else 0
            tables = table.quadratic_tables(top)
        H, g = quadratic_program(groups, weights, k, tables)
        column, decrease = solver(H, g, np.ascontiguousarray(weights[:, k]))
        if decrease > 0:
            weights[:, k] = column
            log_decreases[k] = np.log(decrease) + table.log_step * top
    return weights, log_decreases


def quadratic_program(
    groups: Groups, weights: NDArray[np.int8], k: int, tables: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """H and g of equation (10), for any loss: the program in bit k is ``w' H w / 2 + g.w``.

    The paper's H is not symmetric, and its diagonal adds a constant to the program; but read
    literally, the gain (11) of a flip counts the diagonal, which is wrong.

    Delta and beta are in `tables`: see `LossTable.quadratic_tables`. Returns H (C, C), which is
    ``J + J'`` and has the diagonal 0, and g (C,).
    """
    n_classes = len(weights)
    # pairs[s, :, q, c]: sums of delta and beta at the margins without bit k, over the rows of class
    # q whose bit is +1 (s = 0) or -1 (s = 1).
    pairs = np.zeros((2, 2, n_classes, n_classes))
    pair_sums(groups.codes, pack(weights), k, groups.labels, groups.sample_weight, tables, pairs)
    delta, beta = pairs.sum(axis=0)[0], pairs[:, 1]
    outside, inside = beta.sum(axis=1), beta.sum(axis=2)  # over i not in c, and over i in c
    g = (outside[0] - outside[1]) - (inside[0] - inside[1])
    # If the two sums cancel, the remainder is rounding error and must not decide a tie.
    g[np.abs(g) <= RELATIVE_TOLERANCE * (outside + inside).sum(axis=0)] = 0.0
    return delta + delta.T, g


def b_step(
    groups: Groups, weights: NDArray[np.int8], table: LossTable
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Update each bit of each code once: it takes the sign with the smaller loss, equation (15).

    Returns the packed codes of the groups (g, bytes), and the logarithm of the decrease of the
    objective at each bit (r,).
    """
    n_bits = weights.shape[1]
    packed = pack(weights)
    codes = np.empty_like(groups.codes)
    log_decreases = np.full(n_bits, -np.inf)
    # In parts, so that Ctrl-C is handled between them.
    step = max(1, _LOOKUPS_PER_CALL // (n_bits * len(weights)))
    for start in range(0, len(codes), step):
        rows = slice(start, start + step)
        codes[rows], decreases = update_codes(
            groups.codes[rows],
            packed,
            groups.labels[rows],
            groups.sample_weight[rows],
            n_bits,
            table.values,
            table.log_step,
        )
        log_decreases = np.logaddexp(log_decreases, decreases)
    return codes, log_decreases


def solve_hinge(groups: Groups, code_sums: NDArray[np.float64]) -> Learned:
    """Closed forms of the paper's hinge loss, which is linear: equations (19) and (20).

    The codes of (20) are ``b_i = w_{y_i}``. One round is all there is: with classes of equal size
    a second one changes nothing, and with others it makes the weights of small classes equal.
    """
    n_classes, n_bits = code_sums.shape
    weights = hinge_weights(code_sums)
    class_mass = np.bincount(groups.labels, groups.sample_weight, n_classes).astype(np.float64)
    history = np.empty(2, dtype=HISTORY_DTYPE)
    history["round"], history["step"], history["bit"] = 1, ["W", "B"], n_bits - 1
    history["log_objective"] = [
        _log_hinge_objective(code_sums, weights, class_mass.sum()),
        _log_hinge_objective(class_mass[:, None] * weights, weights, class_mass.sum()),
    ]
    groups = groups.with_codes(pack(weights)[groups.labels])
    return Learned(weights, groups, history, n_rounds=1, converged=True)


def hinge_weights(code_sums: NDArray[np.float64]) -> NDArray[np.int8]:
    """Equation (19): ``w_c = sign(C sum_{i in c} b_i - sum_i b_i)``, from the code sums (C, r)."""
    return sign(len(code_sums) * code_sums - code_sums.sum(axis=0))


def _log_hinge_objective(
    code_sums: NDArray[np.float64], weights: NDArray[np.int8], total: float
) -> float:
    """Logarithm of the objective (18), relative to the lowest value that it can take.

    That is the same offset as in the table of the loss, which must not be negative.
    """
    n_classes, n_bits = weights.shape
    objective = float(np.sum(weights * (code_sums.sum(axis=0) - n_classes * code_sums)))
    lowest = -2.0 * n_bits * (n_classes - 1) * total
    with np.errstate(divide="ignore"):
        return float(np.log(max(objective - lowest, 0.0)))


@dataclass(frozen=True)
class Groups:
    """Samples merged so that each (class, code) pair occurs once, ordered by class."""

    labels: NDArray[np.intp]  # (g,) class index of each group, ascending
    codes: NDArray[np.uint8]  # (g, bytes) packed
    sample_weight: NDArray[np.float64]  # (g,) summed weights of the samples
    inverse: NDArray[np.intp]  # (n,) the group of each sample

    @classmethod
    def of_samples(
        cls,
        labels: NDArray[np.intp],
        codes: NDArray[np.uint8],
        sample_weight: NDArray[np.float64],
    ) -> Groups:
        """Group samples: labels (n,), packed codes (n, bytes), weights (n,)."""
        # Rows of bytes, ordered by label: the most significant byte comes first.
        keys = np.column_stack([labels.astype(">u8")[:, None].view(np.uint8), codes])
        rows = np.ascontiguousarray(keys).view(f"V{keys.shape[1]}").ravel()
        _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        summed = np.bincount(inverse, weights=sample_weight, minlength=len(first))
        return cls(labels[first], codes[first], summed.astype(np.float64), inverse)

    def with_codes(self, codes: NDArray[np.uint8]) -> Groups:
        """The same samples with new codes (g, bytes) for the groups, grouped again."""
        merged = Groups.of_samples(self.labels, codes, self.sample_weight)
        inverse = merged.inverse[self.inverse]
        return Groups(merged.labels, merged.codes, merged.sample_weight, inverse)

    def code_sums(self, n_classes: int, n_bits: int) -> NDArray[np.float64]:
        """Weighted sum of the codes of each class, (C, r)."""
        sums = np.zeros((n_classes, n_bits))
        rows_per_block = max(1, _BLOCK_BYTES // (8 * n_bits))
        for start in range(0, len(self.labels), rows_per_block):
            rows = slice(start, start + rows_per_block)
            weighted = unpack(self.codes[rows], n_bits) * self.sample_weight[rows, None]
            starts = np.flatnonzero(np.diff(self.labels[rows], prepend=-1))
            sums[self.labels[rows][starts]] += np.add.reduceat(weighted, starts, axis=0)
        return sums


def log_objective(groups: Groups, weights: NDArray[np.int8], table: LossTable) -> float:
    """Logarithm of the objective (3), computed from scratch.

    A margin takes only 2r + 1 values, so the objective follows from a weighted histogram of the
    margins, and no exponential can overflow.
    """
    n_bits = weights.shape[1]
    histogram = np.zeros(2 * n_bits + 1)
    for rows, half in _half_margins(groups, weights):
        sample_weight = groups.sample_weight[rows]
        histogram += np.bincount(
            half.ravel().astype(np.intp) + n_bits,
            weights=np.repeat(sample_weight, half.shape[1]),
            minlength=2 * n_bits + 1,
        )
        # The true class, at half margin 0, is not part of the objective.
        histogram[n_bits] -= sample_weight.sum()
    # If only true classes were counted at 0, the remainder is rounding error.
    if histogram[n_bits] < 1e-9 * histogram.sum():
        histogram[n_bits] = 0.0
    return table.log_sum(histogram)


def _largest_half_margin(groups: Groups, weights: NDArray[np.int8]) -> int:
    """Largest half margin of any group against a class other than the true one."""
    largest: int = -weights.shape[1]
    for rows, half in _half_margins(groups, weights):
        labels = groups.labels[rows]
        half[np.arange(len(labels)), labels] = -weights.shape[1]
        largest = max(largest, int(half.max()))
    return largest


def _half_margins(
    groups: Groups, weights: NDArray[np.int8]
) -> Iterator[tuple[slice, NDArray[np.int32]]]:
    """Yield blocks of groups and their half margins (m, C) against all classes."""
    index, n_bits = HammingIndex(pack(weights)), weights.shape[1]
    rows_per_block = max(1, _BLOCK_BYTES // (4 * len(weights)))
    for start in range(0, len(groups.labels), rows_per_block):
        rows = slice(start, start + rows_per_block)
        scores = index.scores(groups.codes[rows], n_bits)
        own = np.take_along_axis(scores, groups.labels[rows, None], axis=1)
        yield rows, (scores - own) // 2


def _entries(
    n_round: int, step: str, log_decreases: NDArray[np.float64], log_final: float
) -> NDArray[np.void]:
    """History of one step, from its final objective and the decrease at each bit update.

    Going backwards only adds positive amounts, so no digits are lost when the objective falls by
    many orders of magnitude.
    """
    n_bits = len(log_decreases)
    entries = np.empty(n_bits, dtype=HISTORY_DTYPE)
    entries["round"], entries["step"], entries["bit"] = n_round, step, np.arange(n_bits)
    backwards = np.logaddexp.accumulate(np.concatenate([[log_final], log_decreases[:0:-1]]))
    entries["log_objective"] = backwards[::-1]
    return entries
