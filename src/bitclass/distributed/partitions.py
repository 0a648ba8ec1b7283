"""Partitions: Dask collections, delayed values, futures or files, and their rows on a worker."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.optimization import cull
from distributed import Client, Future, futures_of
from numpy.typing import NDArray

from bitclass.arrays import Features, to_host
from bitclass.distributed.cluster import PartitionError

__all__ = [
    "FeatureFiles",
    "FileRange",
    "Partition",
    "collection_partitions",
    "column_names",
    "file_partitions",
    "grouped",
    "is_files",
    "row_batches",
]

#: X (m, d) array, CSR or frame, labels (m,) or None, sample weights (m,) or None.
RowBatch = tuple[Features, Any, Any]

# Partitions whose graphs together have this many times the tasks of their union share much of
# their work, which is then computed once, on the cluster.
_MAX_SHARED_TASKS = 4


@dataclass(frozen=True)
class FeatureFiles:
    """Feature files that the workers read; they must see them at the same paths.

    Parameters
    ----------
    paths : path or sequence of paths
    features, labels, labels_file, format, n_features, first_index, header : optional
        As `bitclass.io.open_rows` takes them.

    Examples
    --------
    >>> FeatureFiles(["/data/a.parquet", "/data/b.parquet"], labels="species").labels
    'species'
    """

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    features: str | int | Sequence[str | int] | None = None
    labels: str | int | bool | None = None
    labels_file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    format: str | None = None
    n_features: int | None = None
    first_index: int | None = None
    header: bool | None = None

    def open(self, feature_names: Sequence[str] | None = None, classes: Any = None) -> Any:
        """Open the files on the machine that calls this."""
        from bitclass.io import open_rows

        given = {name: value for name, value in vars(self).items() if value is not None}
        return open_rows(**given, feature_names=feature_names, classes=classes)


@dataclass(frozen=True)
class FileRange:
    """Rows of files, read on the worker; names and classes are those of a model."""

    files: FeatureFiles
    start: int
    stop: int
    feature_names: tuple[str, ...] | None = None
    classes: NDArray[Any] | None = None

    def batches(self) -> Iterator[RowBatch]:
        """The rows, in batches of bounded size."""
        if self.start == self.stop:
            return
        rows = self.files.open(self.feature_names, self.classes)
        with closing(rows.batches(self.start)) as batches:
            for batch in batches:
                n = min(batch.X.shape[0], self.stop - batch.first_row)
                yield batch.X[:n], None if batch.labels is None else batch.labels[:n], None
                if batch.first_row + n >= self.stop:
                    return


class Lazy:
    """A delayed value that is computed inside the task that uses it, when its turn comes.

    As an argument of the task, Dask would compute it before: a task that goes through many
    partitions would then hold all of them.
    """

    def __init__(self, value: Delayed) -> None:
        self.value = value


@dataclass(frozen=True)
class Partition:
    """Rows that are read together."""

    name: str  # for errors
    parts: tuple[Any, ...]  # delayed values, futures or arrays: X, y, sample_weight; or a FileRange
    n_rows: int | None  # None where only the workers know
    in_task: bool = False  # whether a task that uses several should compute delayed parts itself

    def in_sequence(self) -> tuple[Any, ...]:
        """`parts` as an argument of a task that goes through several partitions."""
        if not self.in_task:
            return self.parts
        return tuple(
            Lazy(part) if isinstance(part, Delayed) and not futures_of(part) else part
            for part in self.parts
        )


def row_batches(parts: Sequence[Any]) -> Iterator[RowBatch]:
    """The rows of a partition, on a worker."""
    if isinstance(parts[0], FileRange):
        yield from parts[0].batches()
        return
    # Together, because labels and weights are often made from the same values as X.
    lazy = [part.value for part in parts if isinstance(part, Lazy)]
    computed = iter(dask.compute(*lazy, scheduler="synchronous"))
    X, y, weights = (next(computed) if isinstance(part, Lazy) else part for part in parts)
    if np.ndim(X) != 2 and not hasattr(X, "tocsr"):
        raise ValueError(f"X must have 2 dimensions, found shape {np.shape(X)}")
    y, weights = to_host(y), to_host(weights)
    for name, values in (("labels", y), ("sample weights", weights)):
        if values is not None and len(values) != X.shape[0]:
            raise ValueError(f"has {X.shape[0]} rows and {len(values)} {name}")
    yield X, None if y is None else np.asarray(y), None if weights is None else np.asarray(weights)


def column_names(X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame, where all of them are text."""
    names = tuple(getattr(X, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def is_files(X: Any) -> bool:
    """Whether rows are given as files.

    Examples
    --------
    >>> is_files(["a.npy", "b.npy"]), is_files(FeatureFiles("a.npy")), is_files([[1.0]])
    (True, True, False)
    """
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(path, str | os.PathLike) for path in X)
    return isinstance(X, str | os.PathLike | FeatureFiles)


def file_partitions(
    files: FeatureFiles,
    n_rows: int,
    n_partitions: int,
    feature_names: tuple[str, ...] | None = None,
    classes: NDArray[Any] | None = None,
) -> list[Partition]:
    """Consecutive ranges of rows of files, about equal in length."""
    ends = np.linspace(0, n_rows, min(n_partitions, n_rows) + 1).astype(int).tolist()
    return [
        Partition(
            f"rows {start} to {stop}",
            (FileRange(files, start, stop, feature_names, classes),),
            stop - start,
        )
        for start, stop in itertools.pairwise(ends)
    ]


def collection_partitions(X: Any, y: Any = None, sample_weight: Any = None) -> list[Partition]:
    """Partitions of Dask collections, or of lists of delayed values or futures.

    `y` and `sample_weight` may be arrays where the lengths of partitions are known.
    """
    blocks, lengths, in_task = _blocks("X", X)
    columns: list[list[Any]] = [blocks]
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is None:
            columns.append([None] * len(blocks))
            continue
        if lengths is not None and isinstance(values, np.ndarray):
            if values.shape != (sum(lengths),):
                raise ValueError(
                    f"{name} must have one value for each of the {sum(lengths)} rows of X, found "
                    f"shape {values.shape}"
                )
            columns.append(np.split(values, np.cumsum(lengths)[:-1]))
            continue
        found, found_lengths, apart = _blocks(name, values)
        in_task = in_task and apart
        if len(found) != len(blocks):
            raise PartitionError(f"{name} has {len(found)} partitions, but X has {len(blocks)}")
        for index, pair in enumerate(zip(lengths or (), found_lengths or (), strict=False)):
            if pair[0] != pair[1]:
                raise PartitionError(
                    f"partition {index}: {name} has {pair[1]} rows, but X has {pair[0]}"
                )
        columns.append(found)
    return [
        Partition(f"partition {index}", parts, lengths[index] if lengths else None, in_task)
        for index, parts in enumerate(zip(*columns, strict=True))
    ]


def _blocks(name: str, values: Any) -> tuple[list[Any], list[int] | None, bool]:
    """Delayed values or futures of the partitions, their lengths, and whether they stand apart."""
    lengths = None
    if isinstance(values, da.Array):
        n_axes = 2 if name == "X" else 1
        if values.ndim != n_axes:
            raise ValueError(f"{name} must have {n_axes} dimensions, found {values.ndim}")
        if np.isnan(values.shape).any():
            raise ValueError(
                f"{name} has chunks of unknown size: call {name}.compute_chunk_sizes() first"
            )
        if n_axes == 2 and values.numblocks[1] != 1:
            raise ValueError(
                f"X must not be split along the features, found chunks of {values.chunks[1]} "
                "features: use X.rechunk({1: -1})"
            )
        lengths = [int(length) for length in values.chunks[0]]
    if dask.is_dask_collection(values) and hasattr(values, "to_delayed"):
        # Optimising drops the futures of what is in memory, and nothing would keep it there.
        optimize = not futures_of(values)
        found = np.ravel(values.to_delayed(optimize_graph=optimize)).tolist()
    elif isinstance(values, list | tuple) and any(
        isinstance(value, Delayed | Future) for value in values
    ):
        for index, value in enumerate(values):
            if not isinstance(value, Delayed | Future):
                raise TypeError(
                    f"{name} must hold delayed values or futures, found "
                    f"{type(value).__name__} at partition {index}"
                )
        found = list(values)
    else:
        raise TypeError(
            f"{name} must be a Dask array, a Dask frame, or a list of delayed values, futures or "
            f"paths, found {type(values).__name__}; BinaryCodeClassifier learns from rows in memory"
        )
    blocks, apart = _separated(found)
    return blocks, lengths, apart


def _separated(blocks: list[Delayed | Future]) -> tuple[list[Delayed | Future], bool]:
    """Each partition with its own tasks alone, and whether partitions share little work."""
    graphs: dict[int, dict[Any, Any]] = {}
    found: list[Delayed | Future] = []
    keys: set[Any] = set()
    n_tasks = 0
    for block in blocks:
        if isinstance(block, Future):
            found.append(block)
            continue
        layers = block.__dask_graph__()
        if id(layers) not in graphs:
            graphs[id(layers)] = dict(layers)
        graph = graphs[id(layers)]
        if isinstance(graph[block.key], Future):
            found.append(graph[block.key])
            continue
        own = cull(graph, [block.key])[0]
        n_tasks += len(own)
        keys.update(own)
        if n_tasks > _MAX_SHARED_TASKS * max(len(graph), len(keys)):
            return blocks, False
        found.append(Delayed(block.key, own))
    return found, n_tasks <= _MAX_SHARED_TASKS * len(keys)


def grouped(client: Client, partitions: Sequence[Partition], workers: list[str]) -> list[list[int]]:
    """One group of partitions per worker: those that it holds, or a run of consecutive ones."""
    held = [futures_of(partition.parts[0]) for partition in partitions]
    # A future that several partitions are made from does not tell where they are.
    uses = Counter(future.key for futures in held for future in futures)
    own = [[future for future in futures if uses[future.key] == 1] for futures in held]
    where = client.who_has([future for futures in own for future in futures]) if any(own) else {}
    groups: dict[str, list[int]] = {worker: [] for worker in workers}
    elsewhere = []
    for index, futures in enumerate(own):
        holders = [worker for future in futures for worker in where.get(future.key, ())]
        if holders and holders[0] in groups:
            groups[holders[0]].append(index)
        else:
            elsewhere.append(index)
    for worker, run in zip(workers, np.array_split(elsewhere, len(workers)), strict=True):
        groups[worker].extend(int(index) for index in run)
    return [sorted(group) for group in groups.values() if group]
