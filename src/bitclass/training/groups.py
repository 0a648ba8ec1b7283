"""Equal codes are one row.

After one round nearly all samples of a class share a code. Samples of one class with one code have
the same margins, so they count as a single row with their weights summed: the same result at a
fraction of the n * C * r work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitclass._native import group_rows

__all__ = ["Groups"]


@dataclass(frozen=True)
class Groups:
    """Rows in which each (class, code) pair stands once, ordered by class.

    Attributes
    ----------
    labels : (g,) class index of each group, ascending
    codes : (g, bytes) packed codes
    weights : (g,) summed sample weights
    inverse : (n,) the group of each sample
    """

    labels: NDArray[np.intp]
    codes: NDArray[np.uint8]
    weights: NDArray[np.float64]
    inverse: NDArray[np.intp]

    @classmethod
    def of_samples(
        cls,
        labels: NDArray[np.intp],
        codes: NDArray[np.uint8],
        weights: NDArray[np.float64],
    ) -> Groups:
        """Group samples: labels (n,), packed codes (n, bytes), weights (n,)."""
        first, inverse = group_rows(labels, codes)
        summed = np.bincount(inverse, weights=weights, minlength=len(first)).astype(np.float64)
        return cls(labels[first], codes[first], summed, inverse)

    def with_codes(self, codes: NDArray[np.uint8]) -> Groups:
        """The same samples with new codes (g, bytes) for the groups, grouped again."""
        merged = Groups.of_samples(self.labels, codes, self.weights)
        return Groups(merged.labels, merged.codes, merged.weights, merged.inverse[self.inverse])

    def most_frequent_codes(self) -> NDArray[np.uint8]:
        """The code of largest weight of each class, shape (C, bytes); every class has a group."""
        by_weight = np.lexsort((self.weights, self.labels))
        last = np.flatnonzero(np.diff(self.labels, append=self.labels[-1] + 1))
        return self.codes[by_weight[last]]
