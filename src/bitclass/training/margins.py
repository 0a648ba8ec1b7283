"""The margins of all rows against all classes, counted from packed codes when needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bitclass._native import half_margins, pair_sums
from bitclass.codes import pack
from bitclass.losses import LossTable
from bitclass.training.groups import Groups

__all__ = ["Margins"]

_Block = tuple[slice, NDArray[np.int16]]

# Blocks are looked at with temporaries of eight times their size.
_BLOCK_BYTES = 4 << 20


class Margins:
    """Half margins of the groups against the classes, shape (g, C), while the weights change.

    Parameters
    ----------
    groups : Groups
    weights : (C, r) int8 in {-1, +1}, which the W-step changes in place
    """

    def __init__(self, groups: Groups, weights: NDArray[np.int8]) -> None:
        self.groups = groups
        self.weights = weights

    def blocks(self) -> Iterator[_Block]:
        """Yield the rows and their half margins, block by block, in row order."""
        packed = pack(self.weights)
        rows_per_block = max(1, _BLOCK_BYTES // (2 * max(1, len(self.weights))))
        for start in range(0, len(self.groups.labels), rows_per_block):
            rows = slice(start, start + rows_per_block)
            yield rows, half_margins(self.groups.codes[rows], packed, self.groups.labels[rows])

    def pair_sums(self, k: int, tables: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of table values at the margins without bit k, shape (2, K, C, C)."""
        n_classes = len(self.weights)
        sums = np.zeros((2, len(tables), n_classes, n_classes))
        packed = pack(self.weights)
        groups = self.groups
        pair_sums(groups.codes, packed, k, groups.labels, groups.weights, tables, sums)
        return sums

    def top(self) -> int:
        """Largest half margin of any row to a class that is not its own."""
        n_bits = self.weights.shape[1]
        top = int(-n_bits)
        for rows, half in self.blocks():
            labels = self.groups.labels[rows]
            if len(labels) == 0:
                continue
            starts = np.flatnonzero(np.diff(labels, prepend=-1))
            of_classes = np.maximum.reduceat(half, starts, axis=0)
            of_classes[np.arange(len(starts)), labels[starts]] = -n_bits
            top = max(top, int(of_classes.max()))
        return top

    def log_objective(self, table: LossTable) -> float:
        """Logarithm of the objective, summed from scratch.

        The loss depends on a margin that takes 2r + 1 values, so a weighted histogram of the
        margins holds all of it, and no exponential can overflow.
        """
        n_bits = self.weights.shape[1]
        histogram = np.zeros(2 * n_bits + 1)
        for rows, half in self.blocks():
            weights = np.repeat(self.groups.weights[rows], half.shape[1])
            histogram += np.bincount(
                half.ravel().astype(np.intp) + n_bits, weights=weights, minlength=2 * n_bits + 1
            )
            # The own class stands in each row at half margin 0, and is no part of the objective.
            histogram[n_bits] -= self.groups.weights[rows].sum()
        # Where only own classes stood, what the subtraction leaves is rounding.
        if histogram[n_bits] < 1e-9 * histogram.sum():
            histogram[n_bits] = 0.0
        return table.log_sum(histogram)
