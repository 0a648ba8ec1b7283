"""Dask clients, task results, partitions of rows, and errors that name the partition."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
from dask.delayed import Delayed
from dask.optimization import cull
from distributed import Client, Future, KilledWorker, futures_of
from numpy.typing import NDArray

from bitclass.arrays import Features, to_host

__all__ = [
    "ClusterError",
    "FeatureFiles",
    "Partition",
    "PartitionError",
    "collection_partitions",
    "connected",
    "current_client",
    "file_partitions",
    "files_of",
    "grouped",
    "named_errors",
    "results",
    "row_batches",
    "worker_addresses",
    "worker_threads",
]

#: X (m, d) as array, CSR or data frame, labels (m,) or None, sample weights (m,) or None.
RowBatch = tuple[Features, Any, Any]

# Timeouts for connecting to a scheduler, for a cluster without running workers to get some, and for
# connecting to a worker directly before its results are fetched through the scheduler.
CONNECT_SECONDS = 10.0
WORKER_SECONDS = 60.0
DIRECT_SECONDS = 3.0
_POLL_SECONDS = 0.5
# If the graphs of the partitions have together more than this many times the tasks of their union,
# much of the work is shared, and is computed once, on the cluster.
_MAX_SHARED_TASKS = 4


class PartitionError(ValueError):
    """Error in a partition; the message starts with its number."""


class ClusterError(ConnectionError):
    """A cluster cannot be reached, has no running workers, or lost its workers or scheduler."""


@contextlib.contextmanager
def named_errors(partition: str) -> Iterator[None]:
    """Add the name of the partition to any error in the block."""
    try:
        yield
    except PartitionError:
        raise
    except ValueError as error:
        raise PartitionError(f"{partition}: {error}") from error
    except Exception as error:
        raise PartitionError(f"{partition}: {type(error).__name__}: {error}") from error


# -------------------------------------------------------------------------------------------------
# Clients and results
# -------------------------------------------------------------------------------------------------


def current_client() -> Client:
    """The default client of Dask collections; an error if there is none."""
    try:
        client = distributed.default_client()
    except ValueError:
        raise ClusterError(
            "no Dask client: create one first, for example distributed.Client('tcp://HOST:8786') "
            "or distributed.Client(distributed.LocalCluster())"
        ) from None
    if client.asynchronous:
        raise ClusterError("the Dask client is asynchronous; create one with asynchronous=False")
    if client.status != "running":
        raise ClusterError(f"the Dask client is {client.status}")
    return client


@contextlib.contextmanager
def connected(where: str) -> Iterator[Client]:
    """Connect a client to a cluster, and close it at the end of the block.

    Parameters
    ----------
    where : str
        ``tcp://HOST:PORT`` of a scheduler, or ``local:N`` for N new processes on this machine.

    Yields
    ------
    distributed.Client

    Examples
    --------
    >>> with connected("cluster 7"):
    ...     pass
    Traceback (most recent call last):
    ...
    ValueError: a Dask cluster must be tcp://HOST:PORT or local:WORKERS, found 'cluster 7'
    """
    kind, _, rest = where.partition(":")
    if kind == "local" and rest.isascii() and rest.isdigit() and int(rest) > 0:
        with (
            distributed.LocalCluster(
                n_workers=int(rest),
                host="127.0.0.1",
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    if "://" not in where or not rest.strip("/"):
        raise ValueError(
            f"a Dask cluster must be tcp://HOST:PORT or local:WORKERS, found {where!r}"
        )
    try:
        client = Client(where, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ClusterError(f"cannot reach a Dask scheduler at {where}: {error}") from None
    with client:
        yield client


def worker_addresses(client: Client) -> list[str]:
    """Addresses of the workers; waits until there is at least one."""
    deadline = time.monotonic() + WORKER_SECONDS
    # Not client.wait_for_workers: a worker may be gone again by the time the list is read.
    while not (workers := sorted(client.scheduler_info(n_workers=-1)["workers"])):
        if time.monotonic() > deadline:
            raise ClusterError(f"the Dask cluster has no workers after {WORKER_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    return workers


def worker_threads(n_jobs: int | None) -> int:
    """Number of threads of a task: `n_jobs`, or by default that of its worker."""
    return n_jobs if n_jobs is not None else int(distributed.get_worker().state.nthreads)


def results(
    client: Client,
    futures: Sequence[Future],
    names: Sequence[str],
    report: Callable[[], None] | None = None,
) -> list[Any]:
    """Wait for the results of tasks, in order; if one fails, all are cancelled."""
    try:
        _wait(client, futures, names, report)
        # Directly from the workers, unless the client is configured otherwise: through the
        # scheduler, 256 MB of rows take six times the CPU time. Dask falls back to the scheduler if
        # it cannot connect to a worker, which should not take long.
        direct = client.direct_to_workers is not False
        with dask.config.set({"distributed.comm.timeouts.connect": DIRECT_SECONDS}):
            return list(client.gather(list(futures), direct=direct))
    except BaseException as error:
        # The traceback keeps the futures alive, so the cluster would continue computing them.
        with contextlib.suppress(Exception):
            client.cancel(list(futures))
        # A lost connection can raise an error of any type.
        lost = isinstance(error, Exception) and client.status != "running"
        if lost or isinstance(error, distributed.CancelledError):
            raise ClusterError("the connection to the Dask scheduler was lost") from None
        raise


def _wait(
    client: Client,
    futures: Sequence[Future],
    names: Sequence[str],
    report: Callable[[], None] | None,
) -> None:
    last_running = time.monotonic()
    waiting = True
    while waiting:
        try:
            distributed.wait(list(futures), timeout=_POLL_SECONDS)
            waiting = False
        except (TimeoutError, distributed.TimeoutError):
            pass
        failed = [pair for pair in zip(futures, names, strict=True) if pair[0].status == "error"]
        if failed:
            raise _named([(future.exception(), name) for future, name in failed]) from None
        if report is not None:
            report()
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        statuses = {worker.get("status", "running") for worker in workers}
        if "running" in statuses:
            last_running = time.monotonic()
        elif time.monotonic() - last_running > WORKER_SECONDS:
            is_paused = "paused" in statuses  # others may still be there while they close
            found = "all are paused for lack of memory" if is_paused else "none are left"
            raise ClusterError(
                f"the Dask cluster has had no running workers for {WORKER_SECONDS:g} s: {found}; "
                "use smaller partitions or workers with more memory"
            )


def _named(errors: Sequence[tuple[BaseException, str]]) -> Exception:
    """Convert the first error of named tasks, without the traceback of the worker."""
    error, name = errors[0]
    if isinstance(error, KilledWorker):
        # Dask does not know which of the tasks that a worker had been given was the last one.
        given = [name for error, name in errors if isinstance(error, KilledWorker)]
        return ClusterError(
            f"{' or '.join(dict.fromkeys(given))}: {error.allowed_failures + 1} workers died while "
            f"computing it, the last at {error.last_worker.address}; most likely a partition does "
            "not fit into the memory of a worker: use smaller partitions or workers with more "
            "memory"
        )
    if isinstance(error, PartitionError):
        return PartitionError(str(error))
    found = PartitionError(f"{name}: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found


# -------------------------------------------------------------------------------------------------
# Partitions
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partition:
    """Rows that are read together."""

    name: str  # for error messages
    #: X, y and sample_weight, delayed or None, or a function that yields batches on a worker
    rows: Any
    n_rows: int | None  # None if known only to the workers
    shared: bool = False  # whether other partitions depend on much of the same work

    def in_sequence(self) -> Any:
        """`rows` as an argument of a task that processes several partitions in sequence.

        The task computes each partition when it needs it. If they were delayed arguments, Dask
        would compute all of them first and keep them in the memory of the worker.
        """
        if callable(self.rows) or self.shared:
            return self.rows
        if not futures_of(self.rows):
            # Together, because labels and weights often depend on the same values as X.
            return partial(_batch, self.rows)
        # Futures stay arguments, so that Dask transfers them to the worker.
        return tuple(
            part if part is None or futures_of(part) else partial(_value, part)
            for part in self.rows
        )


def _batch(rows: tuple[Any, ...]) -> list[RowBatch]:
    return [dask.compute(*rows, scheduler="synchronous")]


def _value(part: Delayed) -> Any:
    return dask.compute(part, scheduler="synchronous")[0]


def row_batches(rows: Any) -> Iterator[RowBatch]:
    """Yield the rows of a partition, on a worker."""
    for parts in rows() if callable(rows) else [rows]:
        X, y, weights = (part() if callable(part) else part for part in parts)
        if np.ndim(X) != 2:
            raise ValueError(f"X must have 2 dimensions, found shape {np.shape(X)}")
        columns = []
        for name, values in (("labels", y), ("sample weights", weights)):
            values = None if values is None else np.asarray(to_host(values))
            if values is not None and values.shape != (X.shape[0],):
                raise ValueError(f"has {X.shape[0]} rows and {name} of shape {values.shape}")
            columns.append(values)
        yield X, columns[0], columns[1]


@dataclass(frozen=True)
class FeatureFiles:
    """Feature files read by the workers, at the same paths on all of them.

    Parameters
    ----------
    paths : path or sequence of paths
    features, labels, labels_file, format, n_features, header : optional
        As in `bitclass.io.open_rows`.

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
    header: bool = True

    def open(self, feature_names: Sequence[str] | None = None, classes: Any = None) -> Any:
        """Open the files on this machine."""
        from bitclass.io import open_rows

        given = {name: value for name, value in vars(self).items() if value is not None}
        return open_rows(**given, feature_names=feature_names, classes=classes)


def files_of(X: Any) -> FeatureFiles | None:
    """X as feature files; None if X is not a `FeatureFiles`, a path or a list of paths."""
    if isinstance(X, FeatureFiles):
        return X
    paths = X if isinstance(X, list | tuple) and X else [X]
    are_files = all(isinstance(path, str | os.PathLike) for path in paths)
    return FeatureFiles(paths) if are_files else None


def file_partitions(
    files: FeatureFiles,
    n_rows: int,
    n_partitions: int,
    feature_names: tuple[str, ...] | None = None,
    classes: NDArray[Any] | None = None,
) -> list[Partition]:
    """Split the rows of files into consecutive ranges of about equal length.

    `feature_names` and `classes` are those of a model.
    """
    ends = np.linspace(0, n_rows, min(n_partitions, n_rows) + 1).astype(int).tolist()
    return [
        Partition(
            f"rows {start} to {stop}",
            partial(_file_batches, files, start, stop, feature_names, classes),
            stop - start,
        )
        for start, stop in itertools.pairwise(ends)
    ]


def _file_batches(
    files: FeatureFiles, start: int, stop: int, feature_names: Any, classes: Any
) -> Iterator[RowBatch]:
    """Yield rows of files in batches of bounded size."""
    rows = files.open(feature_names, classes)
    with contextlib.closing(rows.batches()) as batches:
        for batch in batches:
            if batch.first_row + len(batch) <= start:
                continue
            batch = batch.slice(max(0, start - batch.first_row))
            n = min(batch.X.shape[0], stop - batch.first_row)
            yield batch.X[:n], None if batch.labels is None else batch.labels[:n], None
            if batch.first_row + n >= stop:
                return


def collection_partitions(X: Any, y: Any = None, sample_weight: Any = None) -> list[Partition]:
    """Partitions of Dask arrays or data frames; `y` and `sample_weight` may be NumPy arrays."""
    blocks, shared = _blocks("X", X)
    lengths = _lengths(X) if isinstance(X, da.Array) else None
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
            values = da.from_array(values, chunks=(lengths,))
        column, column_shared = _blocks(name, values)
        if len(column) != len(blocks):
            raise PartitionError(f"{name} has {len(column)} partitions, but X has {len(blocks)}")
        if lengths is not None and isinstance(values, da.Array):
            for index, pair in enumerate(zip(values.chunks[0], lengths, strict=True)):
                if pair[0] != pair[1] and not np.isnan(pair[0]):
                    raise PartitionError(
                        f"partition {index}: {name} has {pair[0]} rows, but X has {pair[1]}"
                    )
        columns.append(column)
        shared = shared or column_shared
    return [
        Partition(f"partition {index}", rows, lengths[index] if lengths else None, shared)
        for index, rows in enumerate(zip(*columns, strict=True))
    ]


def _lengths(X: da.Array) -> tuple[int, ...]:
    """Number of rows of each block of an array; every block must have all features."""
    if X.ndim != 2:
        raise ValueError(f"X must have 2 dimensions, found {X.ndim}")
    if np.isnan(X.shape).any():
        raise ValueError("X has chunks of unknown size; call X.compute_chunk_sizes() first")
    if X.numblocks[1] != 1:
        raise ValueError(
            f"X must not be split along the features, found chunks of {X.chunks[1]} features; use "
            "X.rechunk({1: -1})"
        )
    return tuple(map(int, X.chunks[0]))


def _blocks(name: str, values: Any) -> tuple[list[Delayed], bool]:
    """The partitions, each with only the tasks it needs, and whether they share many tasks."""
    if not (dask.is_dask_collection(values) and hasattr(values, "to_delayed")):
        raise TypeError(
            f"{name} must be a Dask array, a Dask data frame or paths of files, found "
            f"{type(values).__name__}; use BinaryCodeClassifier for rows in memory"
        )
    # Optimising would drop the futures that keep persisted data in memory.
    optimize = not futures_of(values)
    blocks = np.ravel(values.to_delayed(optimize_graph=optimize)).tolist()
    graph = dict(blocks[0].__dask_graph__())
    found, n_tasks = [], 0
    for block in blocks:
        tasks = cull(graph, [block.key])[0]
        n_tasks += len(tasks)
        if n_tasks > _MAX_SHARED_TASKS * len(graph):
            return blocks, True
        found.append(Delayed(block.key, tasks))
    return found, False


def grouped(client: Client, partitions: Sequence[Partition], workers: list[str]) -> list[list[int]]:
    """One group of partitions per worker: those in its memory, or a run of consecutive ones."""
    persisted = [futures_of(partition.rows[0]) for partition in partitions]
    # A future that several partitions depend on does not tell where they are.
    uses = Counter(future.key for futures in persisted for future in futures)
    unique = [[future for future in futures if uses[future.key] == 1] for futures in persisted]
    keys = [future for futures in unique for future in futures]
    where = client.who_has(keys) if keys else {}
    groups: dict[str, list[int]] = {worker: [] for worker in workers}
    elsewhere = []
    for index, futures in enumerate(unique):
        holders = [worker for future in futures for worker in where.get(future.key, ())]
        known = [worker for worker in holders if worker in groups]
        if known:
            groups[min(known, key=lambda worker: len(groups[worker]))].append(index)
        else:
            elsewhere.append(index)
    for worker, run in zip(workers, np.array_split(elsewhere, len(workers)), strict=True):
        groups[worker].extend(int(index) for index in run)
    return [sorted(group) for group in groups.values() if group]
