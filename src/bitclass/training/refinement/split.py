"""Which rows refinement learns from, and which are held out from it.

Rows are chosen by their numbers alone, so that batches and order of reading do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.arrays import Features, dense_rows, is_foreign, namespace, take, to_host
from bitclass.training.statistics import Statistics

__all__ = ["Batch", "Rows", "Sample", "Split", "uniform"]

#: X (m, d), labels (m,), weights (m,) or None; no row has weight 0.
Batch = tuple[Features, NDArray[Any], NDArray[np.float64] | None]
#: Each call passes over all rows, in the same order.
Rows = Callable[[], Iterator[Batch]]

_HELD_OUT_SHARE, _MAX_HELD_OUT_SHARE = 0.05, 0.2
_MIN_HELD_OUT, _MAX_HELD_OUT = 200, 4096
_ROWS_PER_BLOCK = 4096
# Rows of less weight than this share of the mean are summed, and no more: they would make steps
# many that learn from few rows, and would be held out to no end.
_LEAST_WEIGHT = 0.01


@dataclass(frozen=True)
class Sample:
    """Some rows.

    Attributes
    ----------
    X : (m, d), as they are or whitened
    own : (m,) index of each row's class
    weights : (m,), or None for ones
    rows : (m,) numbers of the rows, ascending
    """

    X: NDArray[Any]
    own: NDArray[np.intp]
    weights: NDArray[np.float64] | None
    rows: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.own)

    def mean(self, values: NDArray[Any]) -> float:
        """Mean of one value per row, by the rows' weights."""
        return float(np.average(values, weights=self.weights))

    @property
    def effective_size(self) -> float:
        """How many rows of equal weight would leave as much uncertainty."""
        if self.weights is None:
            return len(self.own)
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))


class Split:
    """Held-out rows, and samples of the rows that remain for training.

    Parameters
    ----------
    statistics : Statistics, the sums over all rows
    rows : passes over the rows that were summed, or over a sample of them
    n_rows : int, how many rows pass
    seed : int
    max_bytes : int, memory that a sample may take
    groups : (n_rows,) index of each row's group, optional
        Rows of one group are all held out or none.
    """

    def __init__(
        self,
        statistics: Statistics,
        rows: Rows,
        n_rows: int,
        seed: int,
        max_bytes: int,
        groups: NDArray[np.intp] | None = None,
    ) -> None:
        self._statistics = statistics
        self._classes = statistics.sums().classes
        self._rows = rows
        self._seed = seed
        self._n_samples = 0
        max_rows = max(1024, max_bytes // (4 * len(statistics.shift)))
        if n_rows > max_rows:  # rows of a sample are held twice for a moment
            max_rows = max(1024, max_rows // 2)
        n_rows = max(n_rows, 1)
        self._least_weight = _LEAST_WEIGHT * statistics.total_weight / max(statistics.n_rows, 1)
        self._n_counting = n_rows
        # Of rows of uneven weights more are held out, so that they say enough.
        n_effective = n_rows * statistics.effective_rows / max(statistics.n_rows, 1)
        share = min(max(_HELD_OUT_SHARE, _MIN_HELD_OUT / n_effective), _MAX_HELD_OUT_SHARE)
        share = min(share, _MAX_HELD_OUT / n_rows)
        self.held_out = (
            self._held_out(share)
            if groups is None
            else self._held_out_groups(groups, share * n_rows)
        )
        #: Rows that are not held out, and how many of them a sample has.
        self.n_training = max(self._n_counting - len(self.held_out), 0)
        self.n_per_sample = min(self.n_training, max_rows)

    @property
    def holds_all(self) -> bool:
        """Whether a sample has all training rows."""
        return self.n_per_sample == self.n_training

    def _held_out(self, share: float) -> Sample:
        """The held-out rows; no class loses more than half of its weight to them."""
        found = self._drawn(lambda rows: uniform(rows, self._seed, 0) < share)
        weights = np.ones(len(found)) if found.weights is None else found.weights
        lost = np.bincount(found.own, weights=weights, minlength=len(self._classes))
        available = self._statistics.sums().class_weights
        # The slack is for the order in which weights were added up.
        stay = np.flatnonzero(2.0 * lost[found.own] <= (1.0 + 1e-9) * available[found.own])
        kept = None if found.weights is None else found.weights[stay]
        return Sample(take(found.X, stay), found.own[stay], kept, found.rows[stay])

    def _held_out_groups(self, groups: NDArray[np.intp], n_wanted: float) -> Sample:
        """Whole groups, in random order; no class loses more than half of its weight to them.

        The first group may have any number of rows, and others join it up to `n_wanted` rows.
        """
        everything = [
            (to_host(labels), np.ones(X.shape[0]) if weights is None else weights)
            for X, labels, weights in self._rows()
        ]
        labels, sample_weight = (np.concatenate(parts) for parts in zip(*everything, strict=True))
        own = np.searchsorted(self._classes, labels)
        available = np.bincount(own, weights=sample_weight, minlength=len(self._classes))
        by_group = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
        lost, n_held_out = np.zeros(len(self._classes)), 0
        is_held_out = np.zeros(len(groups), dtype=bool)
        for group in np.random.default_rng([self._seed, 2]).permutation(len(by_group)):
            rows = by_group[group]
            if n_held_out and n_held_out + len(rows) > n_wanted:
                continue
            classes, inverse = np.unique(own[rows], return_inverse=True)
            weights = lost[classes] + np.bincount(inverse, weights=sample_weight[rows])
            if (2.0 * weights <= (1.0 + 1e-9) * available[classes]).all():
                lost[classes] = weights
                n_held_out += len(rows)
                is_held_out[rows] = True
        return self._drawn(lambda rows: is_held_out[rows])

    def training_sample(self, transform: Callable[[NDArray[Any]], NDArray[Any]]) -> Sample:
        """Rows that are not held out: all, or others each time where memory holds only some.

        Parameters
        ----------
        transform : takes blocks of rows (m, d), and gives what is held of them
        """
        self._n_samples += 1
        salt, share = self._n_samples, self.n_per_sample / max(self.n_training, 1)

        def chosen(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            free = ~np.isin(rows, self.held_out.rows, assume_unique=True)
            return free if share == 1.0 else free & (uniform(rows, self._seed, salt) < share)

        return self._drawn(chosen, transform)

    def _drawn(
        self,
        choose: Callable[[NDArray[np.intp]], NDArray[np.bool_]],
        transform: Callable[[NDArray[Any]], NDArray[Any]] = lambda X: X,
    ) -> Sample:
        """Rows that `choose` picks by their numbers."""
        blocks = _Blocks(transform)
        own, weights, numbers = [], [], []
        weighted, first_row, n_counting = False, 0, 0
        for X, labels, of_rows in self._rows():
            rows, labels = np.arange(first_row, first_row + X.shape[0]), to_host(labels)
            first_row += X.shape[0]
            place = np.minimum(np.searchsorted(self._classes, labels), len(self._classes) - 1)
            # A class without rows in the sums is not in the model.
            counts = self._classes[place] == labels
            if of_rows is not None:
                counts &= of_rows >= self._least_weight
            n_counting += int(counts.sum())
            chosen = np.flatnonzero(choose(rows) & counts)
            step = max(len(chosen), 1) if is_foreign(X) else _ROWS_PER_BLOCK
            for start in range(0, len(chosen), step):
                blocks.add(dense_rows(X, chosen[start : start + step]))
            own.append(place[chosen])
            numbers.append(rows[chosen])
            weighted = weighted or of_rows is not None
            weights.append(np.ones(len(chosen)) if of_rows is None else of_rows[chosen])
        if first_row == 0:
            raise ValueError("batches must give the rows each time it is called, found none")
        self._n_counting = n_counting
        return Sample(
            blocks.joined(self._statistics.n_features),
            np.concatenate(own),
            np.concatenate(weights) if weighted else None,
            np.concatenate(numbers),
        )


class _Blocks:
    """Transformed rows, in blocks of one size: so they round alike in batches of any size.

    Parameters
    ----------
    transform : takes rows (m, d)
    """

    def __init__(self, transform: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        self._transform = transform
        self._done: list[NDArray[Any]] = []
        self._waiting: list[NDArray[Any]] = []

    def add(self, X: NDArray[Any]) -> None:
        """Add rows (m, d), at most as many as a block has."""
        if is_foreign(X):  # for which blocks of one size would be small ones
            self._done.append(self._transform(X))
            return
        room = _ROWS_PER_BLOCK - sum(map(len, self._waiting))
        self._waiting.append(X[:room])
        if len(X) >= room:
            self._finish_block()
            self._waiting = [X[room:]] if len(X) > room else []

    def _finish_block(self) -> None:
        one = self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)
        self._done.append(self._transform(one))

    def joined(self, n_features: int) -> NDArray[Any]:
        """All rows; each block is released once it is copied."""
        if self._waiting:
            self._finish_block()
        if not self._done:
            return np.empty((0, n_features), dtype=np.float32)
        if is_foreign(self._done[0]):
            return namespace(self._done[0]).concat(self._done)
        width = self._done[0].shape[1]
        found = np.empty((sum(map(len, self._done)), width), dtype=np.result_type(*self._done))
        self._done.reverse()
        at = 0
        while self._done:
            block = self._done.pop()
            found[at : at + len(block)] = block
            at += len(block)
        return found


def uniform(rows: NDArray[np.intp], seed: int, salt: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each row number, as good as random: the mixing of SplitMix64."""
    start = (seed * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03) % 2**64
    mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)
