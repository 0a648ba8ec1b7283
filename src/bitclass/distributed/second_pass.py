"""Losses that know every row's code: codes stay on the workers, groups of equal codes travel.

The workers keep which group each of their rows is in. The client alternates W-step and B-step on
the groups of all lanes, which gives what all rows would give. Where a row's code then differs from
its class's, its worker adds the difference to X'B in a second pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed
from distributed import Future
from numpy.typing import NDArray

from bitclass.blas import training_threads
from bitclass.classifier import BinaryCodeClassifier
from bitclass.codes import pack
from bitclass.distributed.cluster import Run
from bitclass.distributed.errors import naming
from bitclass.distributed.lanes import Lane, walk
from bitclass.distributed.partitions import Partition
from bitclass.distributed.sums import Recipe, Sums, threads_here
from bitclass.rows import Features
from bitclass.training import Groups, Statistics
from bitclass.validation import check_rows

__all__ = ["LaneGroups", "SpreadStatistics", "groups_of", "kept_rows", "second_pass"]

#: Cross (d, r) and code sum (r,).
Totals = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class LaneGroups:
    """The distinct (class, code) pairs of a lane.

    Attributes
    ----------
    classes : (C,) labels of the lane
    labels : (g,) index into `classes`
    codes : (g, bytes) packed
    weights : (g,) summed weights
    """

    classes: NDArray[Any]
    labels: NDArray[np.intp]
    codes: NDArray[np.uint8]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class _Kept:
    """What a worker keeps of the rows of a lane: 12 bytes a row, beside the groups."""

    groups: LaneGroups
    inverse: NDArray[np.int32]
    row_weights: NDArray[np.float64]
    starts: dict[int, int]


def kept_rows(sums: Sums) -> _Kept:
    """Group the rows of a lane by class and code."""
    statistics = sums.statistics()
    labels, codes, weights = statistics.kept_rows()
    groups = Groups.of_samples(labels, codes, weights)
    found = LaneGroups(statistics.classes, groups.labels, groups.codes, groups.weights)
    return _Kept(found, groups.inverse.astype(np.int32), weights, sums.starts)


def groups_of(kept: _Kept) -> LaneGroups:
    """The groups, for the client."""
    return kept.groups


@dataclass(frozen=True)
class _Changes:
    """Groups of a lane whose code differs from that of their class: places, new and old codes."""

    places: NDArray[np.intp]
    new: NDArray[np.uint8]
    old: NDArray[np.uint8]


def add_differences(
    totals: Totals,
    recipe: Recipe,
    kept: _Kept,
    changes: _Changes,
    index: int,
    partition: str,
    rows: Callable[..., Any],
    *parts: Any,
) -> Totals:
    """Add what the rows of a partition count beyond the code of their class."""
    cross, code_sum = totals[0].copy(), totals[1].copy()
    statistics = recipe.statistics()
    learner = BinaryCodeClassifier(**recipe.parameters)
    learner.n_features_in_ = statistics.n_features
    place = np.full(len(kept.groups.labels), -1)
    place[changes.places] = np.arange(len(changes.places))
    row = kept.starts[index]
    with naming(partition), training_threads(threads_here(learner.n_jobs)):
        for X, labels, weights in rows(*parts):
            X, labels, _, weights = check_rows(learner, X, labels, weights, reset=False)
            if weights is not None and not weights.all():
                X = X[weights > 0]
            own = slice(row, row + X.shape[0])
            changed = place[kept.inverse[own]]
            chosen = np.flatnonzero(changed >= 0)
            statistics.add_differences(
                X,
                chosen,
                changes.new[changed[chosen]],
                changes.old[changed[chosen]],
                kept.row_weights[own][chosen],
                cross,
                code_sum,
            )
            row = own.stop
    return cross, code_sum


class SpreadStatistics(Statistics):
    """Sums over all rows, whose rows are on workers: each kept row here is one group of a lane.

    Parameters
    ----------
    recipe : Recipe
    totals : the sums by name, and the number of rows
    lanes : LaneGroups of each lane, in order; empty for the hinge loss
    """

    def __init__(self, recipe: Recipe, totals: dict[str, Any], lanes: Sequence[LaneGroups]) -> None:
        super().__init__(
            recipe.starting, recipe.shift, recipe.scale, recipe.keep_codes, recipe.anchors
        )
        for name, values in totals.items():
            setattr(self, name, values)
        for groups in lanes:
            place = np.searchsorted(self.classes, groups.classes)
            self.keep_rows(place[groups.labels], groups.codes, groups.weights)
        self.ask: Callable[[_Changes], Totals] | None = None

    def cross(
        self,
        class_codes: NDArray[np.int8],
        batches: Iterable[tuple[int, Features]] = (),
        codes: NDArray[np.uint8] | None = None,
    ) -> Totals:
        """Sums of ``weight z b'`` and ``weight b`` over all rows; see `Statistics.cross`."""
        cross, code_sum = super().cross(class_codes)
        if codes is None or self.ask is None:
            return cross, code_sum
        old = pack(class_codes)[self.kept_rows()[0]]
        differing = np.flatnonzero(np.any(codes != old, axis=1))
        if len(differing):
            more = self.ask(_Changes(differing, codes[differing], old[differing]))
            cross, code_sum = cross + more[0], code_sum + more[1]
        return cross, code_sum

    def plain(self) -> Statistics:
        """The same sums without the workers."""
        statistics = Statistics(
            self.starting, self.shift, self.scale, self.keep_codes, self.anchors
        )
        for name in ("classes", "gram", "feature_sums", "code_sums", "class_weights", "n_rows"):
            setattr(statistics, name, getattr(self, name))
        if self.keep_codes:
            statistics.keep_rows(*self.kept_rows())
        return statistics


def second_pass(
    run: Run,
    lanes: Sequence[Lane],
    recipe: Recipe,
    kept: Sequence[Future],
    n_groups: Sequence[int],
    changes: _Changes,
    attempt: int,
    tell: Callable[[Partition], None],
) -> Totals:
    """Have the workers add what rows count beyond the code of their class.

    Parameters
    ----------
    kept : what is kept of the rows of each lane
    n_groups : how many groups each lane has
    changes : of the groups of all lanes
    """
    n_bits = recipe.starting.n_bits
    zeros = (np.zeros((len(recipe.shift), n_bits)), np.zeros(n_bits))
    at_workers = run.start(
        dask.delayed(recipe, name=run.key("recipe_again", attempt), traverse=False)
    )
    bounds = np.cumsum([0, *n_groups])
    asked: list[Lane] = []
    of_lanes: dict[int, Any] = {}
    for lane in lanes:
        first, last = np.searchsorted(changes.places, bounds[lane.index : lane.index + 2])
        if first == last:
            continue
        own = _Changes(
            changes.places[first:last] - bounds[lane.index],
            changes.new[first:last],
            changes.old[first:last],
        )
        key = run.key("changes", attempt, lane.index)
        of_lanes[len(asked)] = (
            run.start(dask.delayed(own, name=key, traverse=False), lane.home),
            kept[lane.index],
        )
        asked.append(Lane(len(asked), lane.home, lane.partitions))
    zero = run.start(dask.delayed(zeros, name=run.key("zeros", attempt), traverse=False))

    def step(lane: Lane, partition: Partition, totals: Future) -> Delayed:
        own, rows = of_lanes[lane.index]
        return dask.delayed(add_differences)(
            totals,
            at_workers,
            rows,
            own,
            partition.index,
            partition.described(),
            partition.rows,
            *partition.parts,
            dask_key_name=run.key("again", attempt, partition.index),
        )

    ends = walk(run, asked, [zero] * len(asked), step, tell)
    cross, code_sum = zeros
    for more_cross, more_sum in run.results(ends, lambda _: "the second pass"):
        cross = cross + more_cross
        code_sum = code_sum + more_sum
    return cross, code_sum
