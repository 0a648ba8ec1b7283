"""Lanes: who adds up which partitions, and in what order.

A lane is a list of partitions that are added one after another to one set of sums, at home on one
worker. Lanes are settled before the first row is added: by where the partitions lie, if they are in
the memory of workers, so that none of them travels; else each worker gets a run of neighbouring
partitions. Which worker is faster, or dies, changes nothing of the order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
from dask.core import get_dependencies
from dask.delayed import Delayed
from distributed import Future
from numpy.typing import NDArray

from bitclass.distributed.cluster import Run
from bitclass.distributed.partitions import Partition
from bitclass.distributed.sums import (
    Recipe,
    Sums,
    add_rows,
    classes_of,
    cuts,
    handed_over,
    merged,
    piece,
    widened,
)

__all__ = ["Lane", "lanes_for", "merged_sums", "summed", "walk"]

# Steps of a lane that are given to the cluster at once: while the one is added, the next is loaded.
_STEPS_AHEAD = 2
# How far to look for what a partition is made of.
_MOST_ANCESTORS = 100


@dataclass(frozen=True)
class Lane:
    """Partitions that are added one after another.

    Attributes
    ----------
    index : int
    home : address of the worker it is given to
    partitions : in the order in which they are added
    """

    index: int
    home: str
    partitions: tuple[Partition, ...]


def lanes_for(run: Run, partitions: Sequence[Partition], n_rows: Sequence[int]) -> list[Lane]:
    """Share partitions out among the workers that are there.

    Parameters
    ----------
    partitions : of which `n_rows` says how many rows each has
    """
    workers = sorted(run.present_workers())
    homes = _homes(run, partitions)
    if homes is None:
        ends = np.cumsum(n_rows)
        middles = ends - np.asarray(n_rows) / 2
        share = ends[-1] / len(workers)
        homes = [workers[min(int(middle // share), len(workers) - 1)] for middle in middles]
    by_home: dict[str, list[Partition]] = {}
    for partition, home in zip(partitions, homes, strict=True):
        by_home.setdefault(home, []).append(partition)
    return [Lane(index, home, tuple(own)) for index, (home, own) in enumerate(by_home.items())]


def _homes(run: Run, partitions: Sequence[Partition]) -> list[str] | None:
    """The workers that hold the features of each partition; None unless all are in memory.

    What all partitions are made of says nothing: the mean of all rows, say, would put every
    partition on the worker that holds it.
    """
    features = [partition.parts[0] for partition in partitions]
    if not all(isinstance(value, Delayed | Future) for value in features):
        return None
    # By identity, with what it is the identity of, so that nothing else can get the same.
    graphs: dict[int, tuple[Any, dict[Any, Any]]] = {}
    roots = []
    for value in features:
        if isinstance(value, Future):
            roots.append([value.key])
            continue
        layers = value.__dask_graph__()
        if id(layers) not in graphs:
            graphs[id(layers)] = (layers, dict(layers))
        roots.append(_ancestors(graphs[id(layers)][1], value.key))
    uses = Counter(key for found in roots for key in found)
    if len(roots) > 1:
        roots = [[key for key in found if uses[key] < len(roots)] for found in roots]
    keys = sorted({key for found in roots for key in found}, key=str)
    held: Mapping[Any, Sequence[str]] = run.client.sync(run.client.scheduler.who_has, keys=keys)
    homes = []
    for found in roots:
        holders = sorted(holder for key in found for holder in held.get(key) or ())
        if not holders:
            return None
        homes.append(max(holders, key=holders.count))
    return homes


def _ancestors(graph: Mapping[Any, Any], key: Any) -> list[Any]:
    """A task and what it is made of, nearest first, as far as that is worth looking."""
    found = {key: None}
    waiting = deque([key])
    while waiting and len(found) < _MOST_ANCESTORS:
        for other in get_dependencies(graph, waiting.popleft()):
            if other not in found:
                found[other] = None
                waiting.append(other)
    return list(found)


def walk(
    run: Run,
    lanes: Sequence[Lane],
    begun: Iterable[Future],
    step: Callable[[Lane, Partition, Future], Delayed],
    tell: Callable[[Partition], None],
) -> list[Future]:
    """Do a step for each partition, those of a lane one after another.

    The client gives the cluster only the next steps of each lane: a worker never holds more than
    the partitions of these, and when the client dies nothing is left to do.

    Parameters
    ----------
    begun : what each lane begins with
    step : the task of one partition, which takes the result of the one before
    tell : called with each partition that is done

    Returns
    -------
    list
        The last result of each lane.
    """
    ends = list(begun)
    coming = [deque(lane.partitions) for lane in lanes]
    waiting: dict[str, tuple[Future, Lane, Partition]] = {}

    def go_on(lane: Lane) -> None:
        if coming[lane.index]:
            partition = coming[lane.index].popleft()
            task = step(lane, partition, ends[lane.index])
            ends[lane.index] = run.start(task, lane.home)
            waiting[ends[lane.index].key] = (ends[lane.index], lane, partition)

    for _ in range(_STEPS_AHEAD):
        for lane in lanes:
            go_on(lane)
    while waiting:
        futures = [future for future, _, _ in waiting.values()]
        for future in run.done(futures, lambda one: waiting[one.key][2].described()):
            _, lane, partition = waiting.pop(future.key)
            tell(partition)
            go_on(lane)
    return ends


def summed(
    run: Run,
    lanes: Sequence[Lane],
    recipe: Recipe,
    attempt: int,
    tell: Callable[[Partition], None],
) -> list[Future]:
    """Sums over the rows of each lane."""
    at_workers = run.start(dask.delayed(recipe, name=run.key("recipe", attempt), traverse=False))
    begun = [
        run.start(
            dask.delayed(Sums.begun)(
                at_workers, dask_key_name=run.key("begin", attempt, lane.index)
            ),
            lane.home,
        )
        for lane in lanes
    ]

    def step(lane: Lane, partition: Partition, sums: Future) -> Delayed:
        return dask.delayed(add_rows)(
            sums,
            partition.index,
            partition.described(),
            partition.rows,
            *partition.parts,
            dask_key_name=run.key("sums", attempt, partition.index),
        )

    return walk(run, lanes, begun, step, tell)


def merged_sums(
    run: Run,
    lanes: Sequence[Lane],
    sums: Sequence[Future],
    after: Sequence[Future | None],
    recipe: Recipe,
    attempt: int,
) -> dict[str, Any]:
    """The sums of all lanes, merged in a tree of neighbours: 0 with 1, 2 with 3, 0 with 2, ...

    With them, under ``n_rows``, comes the number of rows that count.

    Parameters
    ----------
    sums : of each lane
    after : what has to be done on each lane before its sums change
    """
    found = [
        run.start(
            dask.delayed(classes_of)(one, dask_key_name=run.key("classes", attempt, lane.index)),
            lane.home,
        )
        for lane, one in zip(lanes, sums, strict=True)
    ]
    # Now, for sums that have been merged can no longer be asked.
    answers = run.results(found, lambda _: "the classes of a lane")
    del found
    classes = [one for one, _ in answers]
    ends = list(sums)
    width = 1
    while width < len(lanes):
        for left in range(0, len(lanes) - width, 2 * width):
            ends[left], classes[left] = _merged_pair(
                run, lanes, (left, left + width), ends, classes, after[left], recipe, attempt
            )
        width *= 2
    last = dask.delayed(handed_over)(ends[0], dask_key_name=run.key("total", attempt))
    totals = dict(run.result(run.start(last, lanes[0].home), "the merging of sums"))
    return totals | {"n_rows": sum(n_rows for _, n_rows in answers)}


def _merged_pair(
    run: Run,
    lanes: Sequence[Lane],
    pair: tuple[int, int],
    sums: Sequence[Future],
    classes: Sequence[NDArray[Any]],
    after: Future | None,
    recipe: Recipe,
    attempt: int,
) -> tuple[Future, NDArray[Any]]:
    """Merge the sums of the second lane of a pair into those of the first, piece by piece."""
    left, right = pair
    both = np.union1d(classes[left], classes[right])
    home, other = lanes[left].home, lanes[right].home
    wide = dask.delayed(widened)(
        sums[left], both, after, dask_key_name=run.key("widen", attempt, left, right)
    )
    end = run.start(wide, home)
    pieces = cuts(classes[right], len(recipe.shift), recipe.starting.n_bits)
    for place, cut in enumerate(pieces):
        numbers = (attempt, left, right, place)
        part = run.start(
            dask.delayed(piece)(sums[right], cut, dask_key_name=run.key("piece", *numbers)), other
        )
        task = dask.delayed(merged)(end, cut, part, dask_key_name=run.key("merge", *numbers))
        end = run.start(task, home)
    return end, both
