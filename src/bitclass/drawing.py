"""Which rows refinement learns from, and which are held out from it.

Rows are drawn by their numbers alone, so that batches and order of reading do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitclass.rows import Features, dense_rows
from bitclass.training import Statistics

__all__ = ["Batch", "Drawing", "Replay", "Sample", "uniform"]

#: Rows once more: the first row's number, X (m, d), labels (m,), weights (m,) or None.
Batch = tuple[int, Features, NDArray[Any], NDArray[np.float64] | None]
#: Each call passes over all rows, in the same order.
Replay = Callable[[], Iterator[Batch]]

_HELD_OUT_SHARE, _LARGEST_SHARE = 0.05, 0.2
_FEWEST_HELD_OUT, _MOST_HELD_OUT = 200, 4096
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Sample:
    """Some rows.

    Attributes
    ----------
    X : (m, d), as they are or whitened
    own : (m,) index of each row's class
    weights : (m,), or None for ones
    numbers : (m,) of the rows, ascending
    """

    X: NDArray[Any]
    own: NDArray[np.intp]
    weights: NDArray[np.float64] | None
    numbers: NDArray[np.uint64]


class Whitens(Protocol):
    """Gives rows the coordinates that refinement works in."""

    def rows(self, statistics: Statistics, X: NDArray[Any]) -> NDArray[np.float32]:
        """Whitened rows, (n, d) float32, of dense rows as the estimator takes them."""
        ...


class Drawing:
    """Draws rows that were summed.

    Parameters
    ----------
    statistics : Statistics, the sums over all rows
    classes : (C,) labels of the classes that have rows
    n_rows : int, how many rows pass
    seed : int
    max_bytes : int, memory that a sample may take
    """

    def __init__(
        self,
        statistics: Statistics,
        classes: NDArray[Any],
        n_rows: int,
        seed: int,
        max_bytes: int,
    ) -> None:
        self.statistics = statistics
        self.classes = classes
        self.seed = seed
        self.most_rows = max(1024, max_bytes // (4 * len(statistics.shift)))
        if n_rows > self.most_rows:  # rows of a sample are held twice for a moment
            self.most_rows = max(1024, self.most_rows // 2)
        self._n_samples = 0
        n_rows = max(n_rows, 1)
        share = min(max(_HELD_OUT_SHARE, _FEWEST_HELD_OUT / n_rows), _LARGEST_SHARE)
        self._share = min(share, _MOST_HELD_OUT / n_rows)
        self._held_out = np.empty(0, dtype=np.uint64)

    def held_out(self, replay: Replay) -> Sample:
        """The rows held out; no class loses more than half of its weight to them."""

        def chosen(rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
            return np.asarray(uniform(rows, self.seed, 0) < self._share)

        found = self._drawn(replay, chosen, lambda X: X)
        weights = np.ones(len(found.own)) if found.weights is None else found.weights
        lost = np.bincount(found.own, weights=weights, minlength=len(self.classes))
        there = self.statistics.class_weights
        there = there[there > 0]
        # The slack is for the order in which weights were added up.
        stay = np.flatnonzero(2.0 * lost[found.own] <= (1.0 + 1e-9) * there[found.own])
        self._held_out = found.numbers[stay]
        kept = None if found.weights is None else found.weights[stay]
        return Sample(found.X[stay], found.own[stay], kept, self._held_out)

    def sample(self, replay: Replay, share: float, whitening: Whitens) -> Sample:
        """Whitened rows drawn from those that are not held out, others each time."""
        self._n_samples += 1
        salt = self._n_samples

        def chosen(rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
            drawn = uniform(rows, self.seed, salt) < share if share < 1.0 else True
            return np.asarray(~np.isin(rows, self._held_out, assume_unique=True) & drawn)

        return self._drawn(replay, chosen, lambda X: whitening.rows(self.statistics, X))

    def _drawn(
        self,
        replay: Replay,
        choose: Callable[[NDArray[np.uint64]], NDArray[np.bool_]],
        take: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> Sample:
        """Rows that `choose` picks by their numbers, as `take` gives them."""
        blocks = _Blocks(take)
        own, weights, numbers = [], [], []
        weighted, n_seen = False, 0
        for first_row, X, labels, of_rows in replay():
            n_seen += X.shape[0]
            there = np.arange(first_row, first_row + X.shape[0], dtype=np.uint64)
            place = np.minimum(np.searchsorted(self.classes, labels), len(self.classes) - 1)
            # Classes whose rows all have weight 0 are not in the model.
            picked = choose(there) & (self.classes[place] == labels)
            if of_rows is not None:
                weighted = True
                picked &= of_rows > 0
            chosen = np.flatnonzero(picked)
            for start in range(0, len(chosen), _ROWS_AT_ONCE):
                blocks.add(dense_rows(X, chosen[start : start + _ROWS_AT_ONCE]))
            own.append(place[chosen])
            numbers.append(there[chosen])
            weights.append(np.ones(len(chosen)) if of_rows is None else of_rows[chosen])
        if n_seen == 0:
            raise ValueError("replay must give the rows each time it is called, found none of them")
        return Sample(
            blocks.joined(self.statistics.n_features),
            np.concatenate(own),
            np.concatenate(weights) if weighted else None,
            np.concatenate(numbers),
        )


class _Blocks:
    """Rows as `take` gives them, taken by so many at once: then it rounds alike in any batches."""

    def __init__(self, take: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        self._take = take
        self._taken: list[NDArray[Any]] = []
        self._waiting: list[NDArray[Any]] = []
        self._n_waiting = 0

    def add(self, X: NDArray[Any]) -> None:
        """Add rows (m, d), at most as many as are taken at once."""
        room = _ROWS_AT_ONCE - self._n_waiting
        self._waiting.append(X[:room])
        self._n_waiting += len(X)
        if self._n_waiting >= _ROWS_AT_ONCE:
            self._take_waiting()
            self._waiting, self._n_waiting = [X[room:]], len(X) - room

    def _take_waiting(self) -> None:
        one = len(self._waiting) == 1
        self._taken.append(self._take(self._waiting[0] if one else np.concatenate(self._waiting)))

    def joined(self, n_features: int) -> NDArray[Any]:
        """All rows, (n, d); none of them have `n_features`."""
        if self._n_waiting:
            self._take_waiting()
        self._waiting, self._n_waiting = [], 0
        if not self._taken:
            return np.empty((0, n_features), dtype=np.float32)
        if len(self._taken) == 1:
            return self._taken.pop()
        # Each block is let go as soon as it is copied, so that rows are hardly ever held twice.
        n_rows, width = sum(map(len, self._taken)), self._taken[0].shape[1]
        rows = np.empty((n_rows, width), dtype=np.result_type(*self._taken))
        self._taken.reverse()
        at = 0
        while self._taken:
            block = self._taken.pop()
            rows[at : at + len(block)] = block
            at += len(block)
        return rows


def uniform(rows: NDArray[np.uint64], seed: int, salt: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each row number, as good as random: the mixing of SplitMix64."""
    start = (seed * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03) % 2**64
    mixed = rows * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)
