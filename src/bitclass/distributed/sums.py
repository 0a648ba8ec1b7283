"""Sums on the workers: one set a lane, to which partition after partition is added.

A set of sums is large, 8 d (d + C) bytes, so a worker must not hold one for each partition, nor two
while it merges. Rows are therefore added in place, and merging takes the sums of another worker in
pieces.

Dask expects that a task leaves its arguments as they are, and here it does not. That is safe as
long as nobody sees sums that are half changed. Whoever changes them takes them out of their box
first; what is being sent elsewhere, or was, is copied then and left alone. A box that was taken
from is sent empty. Who finds a box empty raises `SumsMoved`, upon which all sums are made anew. It
happens only where a worker is retired in the middle of its work; when a worker dies Dask makes its
sums anew from the partitions.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from bitclass.anchors import RbfAnchors
from bitclass.classifier import BinaryCodeClassifier
from bitclass.distributed.errors import SumsMoved, naming
from bitclass.training import Statistics

__all__ = ["Cut", "Recipe", "Sums", "add_rows", "classes_of", "cuts", "handed_over", "threads_here"]

_PIECE_BYTES = 32 << 20


@dataclass(frozen=True)
class Recipe:
    """What a lane begins with: the estimator's parameters and its starting codes.

    Attributes
    ----------
    parameters : of `BinaryCodeClassifier`
    starting, shift, scale, keep_codes, anchors : as in `Statistics`
    classes : (C,) labels that will come, as far as they are known
    """

    parameters: dict[str, Any]
    starting: Any
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    keep_codes: bool
    anchors: RbfAnchors | None
    classes: NDArray[Any]

    @classmethod
    def of(cls, classifier: BinaryCodeClassifier, classes: NDArray[Any]) -> Recipe:
        """From an estimator that has begun."""
        statistics = classifier.statistics_
        return cls(
            classifier.get_params(deep=False),
            statistics.starting,
            statistics.shift,
            statistics.scale,
            statistics.keep_codes,
            statistics.anchors,
            classes,
        )

    def statistics(self) -> Statistics:
        """Empty sums."""
        statistics = Statistics(
            self.starting, self.shift, self.scale, self.keep_codes, self.anchors
        )
        statistics.add_classes(self.classes)
        return statistics


class Sums:
    """A box with an ordinary classifier that learns the rows of one lane.

    Attributes
    ----------
    starts : how many rows there were before each partition, by its number
    """

    def __init__(self, learner: BinaryCodeClassifier | None, starts: dict[int, int]) -> None:
        self.starts = starts
        self._learner = learner
        self._sent = False
        self._lock = threading.Lock()

    @classmethod
    def begun(cls, recipe: Recipe) -> Sums:
        """Sums over no rows yet."""
        parameters = recipe.parameters | {"n_jobs": threads_here(recipe.parameters["n_jobs"])}
        return cls(BinaryCodeClassifier(**parameters).resume(recipe.statistics()), {})

    def taken(self) -> BinaryCodeClassifier:
        """The learner, to be changed; the box is empty from now on."""
        with self._lock:
            learner, self._learner = self._learner, None
            sent = self._sent
        if learner is None:
            raise SumsMoved("these sums were taken by another task")
        return copy.deepcopy(learner) if sent else learner

    def statistics(self) -> Statistics:
        """The sums, to be read only."""
        learner = self._learner
        if learner is None:
            raise SumsMoved("these sums were taken by another task")
        return learner.statistics_

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            # What was sent once may still be on its way when the empty box is sent.
            self._sent = self._sent or self._learner is not None
            return Sums, (self._learner, self.starts)

    def __sizeof__(self) -> int:
        learner = self._learner
        if learner is None:
            return 64
        statistics = learner.statistics_
        n_classes, n_features = statistics.feature_sums.shape
        n_bits = statistics.code_sums.shape[1]
        kept = statistics.n_rows * (n_bits // 8 + 16) if statistics.keep_codes else 0
        return 8 * (n_features * (n_features + n_classes) + n_classes * n_bits) + kept


def threads_here(n_jobs: int | None) -> int:
    """Threads of a task: as many as its worker has, or as was asked for."""
    return n_jobs if n_jobs is not None else get_worker().state.nthreads


def add_rows(sums: Sums, index: int, partition: str, rows: Callable[..., Any], *parts: Any) -> Sums:
    """Add the rows of a partition to the sums of its lane."""
    learner = sums.taken()
    starts = sums.starts | {index: learner.statistics_.n_rows}
    with naming(partition):
        for X, labels, weights in rows(*parts):
            learner.partial_fit(X, labels, sample_weight=weights)
    return Sums(learner, starts)


def classes_of(sums: Sums) -> tuple[NDArray[Any], int]:
    """Labels that occur in a lane, (C,), and how many of its rows count: those of weight 0 not."""
    statistics = sums.statistics()
    return statistics.classes, statistics.n_rows


@dataclass(frozen=True)
class Cut:
    """Which part of the sums a piece is.

    Attributes
    ----------
    classes : (k,) the classes whose sums these are, or None for rows of the Gram matrix
    rows : slice of the classes or of the Gram matrix
    """

    classes: NDArray[Any] | None
    rows: slice


def cuts(classes: NDArray[Any], n_features: int, n_bits: int) -> list[Cut]:
    """Cut sums of these classes into pieces of at most 32 MB.

    Examples
    --------
    >>> [cut.rows for cut in cuts(np.arange(3), n_features=2800, n_bits=128)]
    [slice(0, 1497, None), slice(1497, 2800, None), slice(0, 3, None)]
    """
    gram_step = max(1, _PIECE_BYTES // (8 * n_features))
    class_step = max(1, _PIECE_BYTES // (8 * (n_features + n_bits)))
    found = [
        Cut(None, slice(start, min(start + gram_step, n_features)))
        for start in range(0, n_features, gram_step)
    ]
    for start in range(0, len(classes), class_step):
        rows = slice(start, min(start + class_step, len(classes)))
        found.append(Cut(classes[rows], rows))
    return found


def piece(sums: Sums, cut: Cut) -> list[NDArray[np.float64]]:
    """Part of the sums, to be added to those of another lane."""
    statistics = sums.statistics()
    if cut.classes is None:
        return [statistics.gram[cut.rows]]
    tables = (statistics.feature_sums, statistics.code_sums, statistics.class_weights)
    return [table[cut.rows] for table in tables]


def widened(sums: Sums, classes: NDArray[Any], after: Any) -> Sums:
    """Make room for the classes of another lane. `after` is what has to be done before."""
    learner = sums.taken()
    learner.statistics_.add_classes(classes)
    return Sums(learner, sums.starts)


def merged(sums: Sums, cut: Cut, pieces: Sequence[NDArray[np.float64]]) -> Sums:
    """Add a piece of the sums of another lane."""
    learner = sums.taken()
    statistics = learner.statistics_
    if cut.classes is None:
        statistics.gram[cut.rows] += pieces[0]
    else:
        places = np.searchsorted(statistics.classes, cut.classes)
        tables = (statistics.feature_sums, statistics.code_sums, statistics.class_weights)
        for table, part in zip(tables, pieces, strict=True):
            table[places] += part
    return Sums(learner, sums.starts)


def handed_over(sums: Sums) -> dict[str, Any]:
    """The sums for the client, without the rows that are kept."""
    statistics = sums.statistics()
    names = ("classes", "gram", "feature_sums", "code_sums", "class_weights")
    return {name: getattr(statistics, name) for name in names}
