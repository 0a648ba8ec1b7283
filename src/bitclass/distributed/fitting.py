"""The course of a fit on a cluster: look, sum, merge, learn."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import dask
import numpy as np
from distributed import Future
from numpy.typing import NDArray

from bitclass.classifier import BinaryCodeClassifier
from bitclass.distributed.cluster import Run
from bitclass.distributed.errors import SumsMoved
from bitclass.distributed.lanes import Lane, lanes_for, merged_sums, summed
from bitclass.distributed.looking import (
    Drawn,
    Facts,
    Quota,
    Sample,
    drawn_rows,
    fair_sample,
    joined,
    look,
    rows_that_fit,
)
from bitclass.distributed.partitions import (
    FeatureFiles,
    Partition,
    collection_partitions,
    file_partitions,
)
from bitclass.distributed.second_pass import (
    LaneGroups,
    SpreadStatistics,
    groups_of,
    kept_rows,
    second_pass,
)
from bitclass.distributed.sums import Recipe
from bitclass.drawing import Batch as RowBatch
from bitclass.rows import Features
from bitclass.streaming import spread_sample

__all__ = ["Progress", "fit_collections", "fit_files", "open_at_workers"]

#: Called with the name of the pass, how many rows of it are done, and how many there are.
Progress = Callable[[str, int, int], None]

# Rows on which starting codes are set up: as many as settle means and deviations, unless they
# would fill the client's memory. The bytes also bound the rows of the refinement.
_SAMPLE_ROWS = 10_000
_SAMPLE_BYTES = 256 << 20
# How often sums are made anew because workers left in the middle in a way that Dask cannot mend.
_ATTEMPTS = 5


def fit_files(
    classifier: BinaryCodeClassifier, run: Run, files: FeatureFiles, progress: Progress
) -> None:
    """Learn from files that the workers read; as `bitclass.streaming.fit_reader` would.

    Parameters
    ----------
    classifier : becomes fitted
    """
    reader, at_workers = open_at_workers(run, files)
    if not reader.has_labels:
        raise ValueError(f"{reader.description}: no labels found; name them with labels")
    sample = dask.delayed(spread_sample)(at_workers, dask_key_name=run.key("sample"))
    classifier.begin(*run.result(run.start(sample), "the sample for starting codes"))
    partitions = file_partitions(reader, at_workers, len(run.present_workers()))
    n_rows = [partition.n_rows or 0 for partition in partitions]
    _learn(classifier, run, partitions, n_rows, np.empty(0), progress)


def open_at_workers(run: Run, files: FeatureFiles) -> tuple[Any, Future]:
    """Open files where workers see them: the reader, and the same as a future."""
    task = dask.delayed(FeatureFiles.open)(
        dask.delayed(files, traverse=False), dask_key_name=run.key("files")
    )
    future = run.start(task)
    return run.result(future, "the opening of files"), future


def fit_collections(
    classifier: BinaryCodeClassifier,
    run: Run,
    X: Any,
    y: Any,
    sample_weight: Any,
    progress: Progress,
) -> None:
    """Learn from Dask collections.

    Parameters
    ----------
    classifier : becomes fitted
    X, y, sample_weight : see `collection_partitions`
    """
    partitions = collection_partitions(X, y, sample_weight)
    seed = _seed(classifier)
    looks = itertools.count()

    def ask(quotas: Sequence[Quota]) -> list[tuple[Facts, Sample]]:
        return _looked_at(run, partitions, seed, quotas, next(looks), progress)

    n_most = _SAMPLE_ROWS
    if isinstance(getattr(X, "shape", (0, None))[1], int):
        n_most = rows_that_fit(n_most, X.shape[1], _SAMPLE_BYTES)
    facts, samples = fair_sample(ask, partitions, n_most, seed, _SAMPLE_BYTES)
    rows, labels = joined(samples)
    classifier.begin(_named(rows, facts[0].names), labels)
    known = [
        Partition(part.index, part.rows, part.parts, found.n_rows, found.n_bytes)
        for part, found in zip(partitions, facts, strict=True)
    ]
    classes = reduce(np.union1d, [found.classes for found in facts])
    _learn(classifier, run, known, [found.n_rows for found in facts], classes, progress)


def _looked_at(
    run: Run,
    partitions: Sequence[Partition],
    seed: int,
    quotas: Sequence[Quota],
    attempt: int,
    progress: Progress,
) -> list[tuple[Facts, Sample]]:
    tasks = [
        dask.delayed(look)(
            partition.described(),
            (seed, partition.index),
            quota,
            *partition.parts,
            dask_key_name=run.key("look", attempt, partition.index),
        )
        for partition, quota in zip(partitions, quotas, strict=True)
    ]
    names = {
        task.key: partition.described() for task, partition in zip(tasks, partitions, strict=True)
    }
    done: list[Future] = []

    def tell(future: Future) -> None:
        done.append(future)
        progress("looking", len(done), len(tasks))

    return run.results(run.client.compute(tasks), lambda one: names[one.key], tell)


def _named(X: Features, names: tuple[str, ...] | None) -> Any:
    """Rows as a frame, where features have names, so that the estimator remembers them."""
    if names is None:
        return X
    import pandas

    return pandas.DataFrame(X, columns=list(names))


def _learn(
    classifier: BinaryCodeClassifier,
    run: Run,
    partitions: Sequence[Partition],
    n_rows: Sequence[int],
    classes: NDArray[Any],
    progress: Progress,
) -> None:
    """Sum, merge and solve, with an estimator that has begun."""
    recipe = Recipe.of(classifier, classes)
    for attempt in range(_ATTEMPTS):
        lanes = lanes_for(run, partitions, n_rows)
        try:
            statistics = _all_sums(run, lanes, recipe, attempt, sum(n_rows), progress)
            classifier.resume(statistics)
            rows = _sample(classifier, run, partitions, n_rows, attempt, progress)
            n_drawn = sum(len(labels) for _, _, labels, _ in rows)
            classifier.solve(rows.__iter__, n_rows=n_drawn)
            break
        except SumsMoved:
            if attempt + 1 == _ATTEMPTS:
                raise
            run.let_go(keys={run.key("files")})
    classifier._knowledge.statistics = statistics.plain()


def _sample(
    classifier: BinaryCodeClassifier,
    run: Run,
    partitions: Sequence[Partition],
    n_rows: Sequence[int],
    attempt: int,
    progress: Progress,
) -> list[RowBatch]:
    """Rows for the refinement, which runs here: as many as fit, drawn by their numbers."""
    if not classifier.refine:
        return []
    total = sum(n_rows)
    learner = BinaryCodeClassifier(class_weight=classifier.class_weight)
    learner.n_features_in_ = classifier.statistics_.n_features
    n_bytes = [
        4 * learner.n_features_in_ * length if partition.n_bytes is None else partition.n_bytes
        for partition, length in zip(partitions, n_rows, strict=True)
    ]
    share = min(1.0, _SAMPLE_BYTES / max(1, sum(n_bytes)))
    starts = np.cumsum([0, *n_rows[:-1]]).tolist()
    tasks = [
        dask.delayed(drawn_rows)(
            partition.described(),
            partition.rows,
            start,
            share,
            _seed(classifier),
            learner,
            *partition.parts,
            dask_key_name=run.key("draw", attempt, partition.index),
        )
        for partition, start in zip(partitions, starts, strict=True)
    ]
    of_keys = {task.key: partition for task, partition in zip(tasks, partitions, strict=True)}
    count = _counting("drawing rows", total, progress)
    found: list[list[Drawn]] = run.results(
        run.client.compute(tasks),
        lambda one: of_keys[one.key].described(),
        lambda one: count(of_keys[one.key]),
    )
    rows: list[RowBatch] = []
    first_row = 0
    for X, labels, weights in itertools.chain.from_iterable(found):
        rows.append((first_row, X, labels, weights))
        first_row += len(labels)
    return rows


def _seed(classifier: BinaryCodeClassifier) -> int:
    """Seed of what is drawn on the workers: the same in each attempt."""
    state = classifier.random_state
    return int(state) if isinstance(state, numbers.Integral) else 0


def _all_sums(
    run: Run,
    lanes: Sequence[Lane],
    recipe: Recipe,
    attempt: int,
    n_rows: int,
    progress: Progress,
) -> SpreadStatistics:
    """Sums over all rows, which know how to ask the workers for a second pass."""
    sums = summed(run, lanes, recipe, attempt, _counting("learning", n_rows, progress))
    kept: list[Future | None] = [None] * len(lanes)
    groups: list[LaneGroups] = []
    if recipe.keep_codes:
        rows = [
            run.start(
                dask.delayed(kept_rows)(one, dask_key_name=run.key("kept", attempt, lane.index)),
                lane.home,
            )
            for lane, one in zip(lanes, sums, strict=True)
        ]
        asked = [
            run.start(
                dask.delayed(groups_of)(one, dask_key_name=run.key("groups", attempt, lane.index))
            )
            for lane, one in zip(lanes, rows, strict=True)
        ]
        groups = run.results(asked, lambda _: "the codes of a lane")
        kept = list(rows)
    totals = merged_sums(run, lanes, sums, kept, recipe, attempt)
    statistics = SpreadStatistics(recipe, totals, groups)
    if recipe.keep_codes:
        n_groups = [len(found.labels) for found in groups]
        statistics.ask = lambda changes: second_pass(
            run,
            lanes,
            recipe,
            [one for one in kept if one is not None],
            n_groups,
            changes,
            attempt,
            _counting("second pass", n_rows, progress),
        )
    return statistics


def _counting(name: str, n_rows: int, progress: Progress) -> Callable[[Partition], None]:
    """Tell of rows as partitions are done."""
    done = 0

    def tell(partition: Partition) -> None:
        nonlocal done
        done += partition.n_rows or 0
        progress(name, done, n_rows)

    return tell
