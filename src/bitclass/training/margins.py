"""The margins of all rows against all classes, kept or computed anew, whichever fits in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bitclass._native import half_margins, pair_sums, pair_sums_from_codes, shift_margins
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
    weights : (C, r) int8 in {-1, +1}; `set_bit` changes it in place
    max_bytes : int
        Above this size the int16 table is not kept, and its blocks are computed from the packed
        codes whenever they are needed.
    """

    def __init__(self, groups: Groups, weights: NDArray[np.int8], max_bytes: int) -> None:
        self.groups = groups
        self.weights = weights
        row_bytes = 2 * max(1, len(weights))
        self._rows_a_block = max(1, min(max_bytes, _BLOCK_BYTES) // row_bytes)
        self._table: NDArray[np.int16] | None = None
        if row_bytes * len(groups.labels) <= max_bytes:
            self._table = half_margins(groups.codes, pack(weights), groups.labels)

    def bits(self, k: int) -> NDArray[np.int8]:
        """Bit k of the code of each group, shape (g,), in {-1, +1}."""
        return (((self.groups.codes[:, k // 8] >> (k % 8)) & 1) * 2).astype(np.int8) - np.int8(1)

    def blocks(self) -> Iterator[_Block]:
        """Yield the rows and their half margins, block by block, in row order."""
        packed = pack(self.weights)
        for start in range(0, len(self.groups.labels), self._rows_a_block):
            rows = slice(start, start + self._rows_a_block)
            if self._table is not None:
                yield rows, self._table[rows]
            else:
                yield rows, half_margins(self.groups.codes[rows], packed, self.groups.labels[rows])

    def pair_sums(self, k: int, tables: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of table values at the margins without bit k, shape (2, K, C, C)."""
        n_classes = len(self.weights)
        sums = np.zeros((2, len(tables), n_classes, n_classes))
        labels, row_weights = self.groups.labels, self.groups.weights
        if self._table is None:
            packed = pack(self.weights)
            pair_sums_from_codes(self.groups.codes, packed, k, labels, row_weights, tables, sums)
        else:
            column = np.ascontiguousarray(self.weights[:, k])
            pair_sums(self._table, self.bits(k), column, labels, row_weights, tables, sums)
        return sums

    def set_bit(self, k: int, column: NDArray[np.int8]) -> None:
        """Give bit k of the class weights the values of `column`, shape (C,)."""
        if self._table is not None:
            old = np.ascontiguousarray(self.weights[:, k])
            shift_margins(self._table, self.bits(k), old, column, self.groups.labels)
        self.weights[:, k] = column

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
