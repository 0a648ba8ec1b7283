"""`BinaryCodeClassifier` on a Dask cluster: rows stay with the workers, sums travel.

1. A few partitions give rows to a sample, which fixes what all sums have in common.
2. One task per worker collects its partitions: their sums, and a sample of their rows.
3. What was collected is merged pairwise in a tree, and sent to the client.
4. The client fits the model to it, as it does to rows in memory.

Tasks do not modify their arguments, so that Dask can run them again if a worker is lost.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bitclass._native import thread_limit
from bitclass._native.threads import training_threads
from bitclass._warn import how_to_install
from bitclass.arrays import Features, as_features
from bitclass.checks import check_rows
from bitclass.classifier import BinaryCodeClassifier
from bitclass.labels import check_label_kinds
from bitclass.model import TopClasses
from bitclass.report import Epoch
from bitclass.training.settings import Settings
from bitclass.training.sums import Collected, Sample

try:
    import dask
    import dask.array as da
    import distributed
    from dask.delayed import Delayed
    from dask.optimization import cull
    from dask.sizeof import sizeof
    from distributed import Client, Future, KilledWorker, futures_of
except ImportError as error:  # pragma: no cover - only without the extra
    raise ImportError(f"training on a cluster requires Dask; {how_to_install('dask')}") from error

# Rows from which standardisation and anchors are computed, and the partitions that give them.
SAMPLE_ROWS, SAMPLE_PARTITIONS = 10_000, 64
# Maximum size of this sample, and of the rows for refinement, in the memory of the client.
SAMPLE_BYTES = 256 << 20
# Partitions of unknown length get row numbers at this distance.
_MAX_PARTITION_ROWS = 1 << 32
# Time for a cluster without running workers to get some.
WORKER_SECONDS = 60.0
_POLL_SECONDS = 0.5
# If the graphs of the partitions have together more than this many times the tasks of their union,
# much of the work is shared, and is computed once, on the cluster.
_MAX_SHARED_TASKS = 4


class PartitionError(ValueError):
    """Error in a partition; the message starts with its number."""


class ClusterError(ConnectionError):
    """A cluster cannot be used, has no running workers, or lost its workers or scheduler."""


class DaskBinaryCodeClassifier(BinaryCodeClassifier):
    """`BinaryCodeClassifier` on a Dask cluster, with the same parameters and the same model.

    The workers sum over their partitions, the sums are merged, and the client fits the model to
    them. The cluster is that of the current `distributed.Client`.

    Parameters and attributes are those of `BinaryCodeClassifier`, except that `class_weight` cannot
    be "balanced". `n_jobs` is the number of threads per task, by default that of its worker.

    Standardisation and anchors are computed from at most about 10,000 rows of 64 partitions.
    Refinement runs on the client, on at most about 256 MB of rows, which are chosen by row number.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from bitclass.dask import DaskBinaryCodeClassifier
    >>> X = da.random.default_rng(0).standard_normal((600, 8), chunks=(200, 8))
    >>> y = da.where(X[:, 0] > 0, "right", "left")
    >>> with Client(processes=False, n_workers=2, dashboard_address=None) as client:
    ...     classifier = DaskBinaryCodeClassifier(n_bits=32, random_state=0).fit(X, y)
    ...     accuracy = classifier.score(X, y)
    >>> accuracy > 0.9
    True
    >>> classifier.to_local()
    BinaryCodeClassifier(n_bits=32, random_state=0)
    """

    def fit(  # type: ignore[override]  # groups would have to be on the client
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        callback: Callable[[Epoch], Any] | None = None,
    ) -> Self:
        """Train on Dask collections.

        Parameters
        ----------
        X : Dask array of shape (n_samples, n_features), or Dask data frame
            An array must not be split along the features; its blocks may be CSR arrays.
        y : Dask array or series of shape (n_samples,)
            Labels, in the same partitions as X.
        sample_weight : as y, optional
        callback : callable, optional
            Called after each epoch of refinement: see `BinaryCodeClassifier.fit`.

        Returns
        -------
        self
            If an error is raised, the estimator is unchanged.

        Raises
        ------
        PartitionError
            If a partition cannot be used; the message contains its number.
        ClusterError
            If the cluster cannot be used, or the connection was lost.
        """
        local = BinaryCodeClassifier(**self.get_params(deep=False))
        settings = local._checked_settings(callback, in_batches=True)
        # Without refinement the pool of rows suffices.
        max_bytes = min(settings.max_bytes, SAMPLE_BYTES) if settings.refine else 0
        settings = replace(settings, max_bytes=max_bytes)
        if y is None:
            raise ValueError("y is required")
        partitions = _partitions_of(X, y, sample_weight)
        local.n_features_in_ = X.shape[1]
        columns = tuple(getattr(X, "columns", ()))
        are_names = columns and all(isinstance(column, str) for column in columns)
        names = columns if are_names else None
        collected = _collected(local, settings, partitions, names)
        with training_threads(self.n_jobs):
            local._learn(settings, collected, keep=self.keep_sums)
        if names is not None:
            local.feature_names_in_ = np.array(names, dtype=object)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(local.__dict__)
        return self

    def to_local(self) -> BinaryCodeClassifier:
        """Convert to a fitted `BinaryCodeClassifier`, which shares the arrays of this one."""
        check_is_fitted(self)
        local = BinaryCodeClassifier()
        local.__dict__.update(self.__dict__)
        return local

    def predict(self, X: Any, *, reject: float | None = None) -> da.Array:
        """Lazy labels, a Dask array of shape (n_samples,).

        Columns of data frames are selected by name if `fit` had feature names. `reject` is that of
        `BinaryCodeClassifier.predict`.
        """
        return self._lazy(X, "predict", reject=reject)[0]

    def encode(self, X: Any) -> da.Array:
        """Lazy packed codes, a Dask array of shape (n_samples, ceil(n_bits / 8)), uint8."""
        return self._lazy(X, "encode")[0]

    def decision_function(self, X: Any) -> da.Array:
        """Lazy class scores: see `BinaryCodeClassifier.decision_function`."""
        return self._lazy(X, "decision_function")[0]

    def predict_proba(self, X: Any) -> da.Array:
        """Lazy class probabilities, a Dask array of shape (n_samples, n_classes)."""
        return self._lazy(X, "predict_proba")[0]

    def predict_log_proba(self, X: Any) -> da.Array:
        """Lazy logarithms of class probabilities, a Dask array of shape (n_samples, n_classes)."""
        return self._lazy(X, "predict_log_proba")[0]

    def typicality(self, X: Any) -> da.Array:
        """Lazy typicality, a Dask array of shape (n_samples,)."""
        return self._lazy(X, "typicality")[0]

    def top_classes(
        self, X: Any, k: int, *, probabilities: bool = False, typicality: bool = False
    ) -> TopClasses:
        """Lazy best classes: the Dask arrays of `BinaryCodeClassifier.top_classes`."""
        options = {"probabilities": probabilities, "typicality": typicality}
        return TopClasses(*self._lazy(X, "top_classes", k=k, **options))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on labelled rows, as in `fit`, computed on the workers."""
        labels, weights = (
            values.values if hasattr(values, "values") else values for values in (y, sample_weight)
        )
        weights = da.ones_like(labels, dtype=float) if weights is None else weights
        hits = da.where(self.predict(X) == labels, weights, 0.0)
        return float(hits.sum() / weights.sum())

    def _lazy(self, X: Any, method: str, **arguments: Any) -> list[Any]:
        """Results of a method of the local classifier for all partitions, as Dask arrays."""
        check_is_fitted(self)
        if isinstance(X, da.Array) and X.ndim == 2 and X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but the model takes {self.n_features_in_}"
            )
        partitions = _partitions_of(X)
        local = self.solve().to_local()
        names = tuple(local.__dict__.pop("feature_names_in_", ())) or None  # selected before
        found = getattr(local, method)(np.zeros((1, self.n_features_in_), np.float32), **arguments)
        outputs = found if isinstance(found, tuple) else (found,)
        empty = tuple(None if array is None else array[:0] for array in outputs)
        # A single task that all others depend on.
        predictor = dask.delayed(local, traverse=False)
        answers = dask.delayed(_answers, nout=len(empty))
        tasks = [
            answers(part.name, part.rows[0], predictor, names, method, empty, arguments)
            for part in partitions
        ]
        return [
            None if array is None else _joined(partitions, [task[i] for task in tasks], array)
            for i, array in enumerate(empty)
        ]


def _joined(partitions: list[_Partition], tasks: list[Delayed], empty: NDArray[Any]) -> da.Array:
    """A Dask array of the results of tasks, one for each partition."""
    lengths = [np.nan if part.n_rows is None else part.n_rows for part in partitions]
    blocks = [
        da.from_delayed(task, (n_rows, *empty.shape[1:]), dtype=empty.dtype)
        for task, n_rows in zip(tasks, lengths, strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _answers(
    name: str,
    X: Any,
    classifier: BinaryCodeClassifier,
    feature_names: tuple[str, ...] | None,
    method: str,
    empty: tuple[Any, ...],
    arguments: dict[str, Any],
) -> tuple[Any, ...]:
    """Results of a method for the rows of a partition; `empty` if there are no rows."""
    with _named_errors(name), thread_limit(_threads(classifier.n_jobs)):
        if not X.shape[0]:
            return empty
        X = as_features(X, classifier.n_features_in_, feature_names)
        found = getattr(classifier, method)(X, **arguments)
        return found if isinstance(found, tuple) else (found,)


# -- Training


@dataclass(frozen=True)
class _Checks:
    """What the rows of all partitions have in common."""

    classifier: BinaryCodeClassifier  # unfitted: number of features, class weights, threads
    feature_names: tuple[str, ...] | None

    def rows(self, parts: Any) -> tuple[Features, NDArray[Any], NDArray[np.float64], NDArray[Any]]:
        """Rows of positive weight, labels and weights of a partition, and all its classes."""
        X, y, sample_weight = _computed(parts)
        X = as_features(X, self.classifier.n_features_in_, self.feature_names)
        if not X.shape[0] or (sample_weight is not None and not sample_weight.any()):
            return X[:0], y[:0], np.empty(0), y[:0]
        X, labels, weights = check_rows(self.classifier, X, y, sample_weight, reset=False)
        used, classes = weights > 0, np.unique(labels)
        if not used.all():
            X, labels, weights = X[used], labels[used], weights[used]
        return X, labels, weights, classes


def _collected(
    classifier: BinaryCodeClassifier,
    settings: Settings,
    partitions: list[_Partition],
    feature_names: tuple[str, ...] | None,
) -> Collected:
    """The sums of all rows, and the rows that training needs one by one."""
    client = _current_client()
    workers = _worker_addresses(client)
    checks = _Checks(classifier, feature_names)
    sample = _sample(client, checks, partitions)
    with training_threads(classifier.n_jobs):
        start = classifier._start(settings, sample.X, sample.weights)
    tasks = []
    for group in _groups(client, partitions, workers):
        parts = [(part.name, part.first_row, part.in_sequence()) for part in group]
        tasks.append(dask.delayed(_collect)(checks, start, sample.labels[:1], parts))
    while len(tasks) > 1:
        pairs = [tasks[i : i + 2] for i in range(0, len(tasks), 2)]
        tasks = [dask.delayed(_merged)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    # Tasks contain anchors; Dask would warn above 10 MB.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        futures = client.compute(tasks)
    collected: Collected = _results(client, futures, ["the sums"])[0]
    return collected


def _sample(client: Client, checks: _Checks, partitions: list[_Partition]) -> Sample:
    """Some rows of partitions that are spread over all."""
    spread = {round(i) for i in np.linspace(0, len(partitions) - 1, SAMPLE_PARTITIONS)}
    quota = -(-SAMPLE_ROWS // len(spread))
    chosen = [partitions[i] for i in sorted(spread)]
    tasks = [dask.delayed(_some_rows)(checks, each.name, quota, each.rows) for each in chosen]
    found = _results(client, client.compute(tasks), [each.name for each in chosen])
    parts = [(part, each.name) for part, each in zip(found, chosen, strict=True) if len(part)]
    for part, name in parts:
        with _named_errors(name):
            check_label_kinds(parts[0][0].labels, part.labels)
    if not parts:
        raise ValueError(
            f"X must have rows with positive weight, found none in {len(chosen)} partitions"
        )
    return Sample.joined([part for part, _ in parts])


def _some_rows(checks: _Checks, name: str, quota: int, parts: tuple[Any, ...]) -> Sample:
    """At most `quota` rows of a partition, fewer if they are wide."""
    with _named_errors(name):
        X, labels, weights, _ = checks.rows(parts)
        fitting = SAMPLE_BYTES // SAMPLE_PARTITIONS * len(labels) // max(1, sizeof(X))
        rows = np.random.default_rng(0).permutation(len(labels))[: min(quota, max(fitting, 16))]
        return Sample(X, labels, weights, np.zeros(len(labels))).take(np.sort(rows))


def _collect(
    checks: _Checks, start: Collected, known: NDArray[Any], group: list[tuple[str, int, Any]]
) -> Collected:
    """Collect the rows of a group of partitions, one after another."""
    collected, n_rows = copy.deepcopy(start), 0
    with training_threads(_threads(checks.classifier.n_jobs)):
        for name, first_row, parts in group:
            with _named_errors(name):
                X, labels, weights, classes = checks.rows(parts)
                if len(labels):
                    check_label_kinds(known, labels)
                    collected.n_rows = first_row  # which rows are sampled depends on their numbers
                    collected.add(X, labels, weights, classes)
                    n_rows += len(labels)
    collected.n_rows = n_rows
    return collected.kept(start._max_bytes)


def _merged(one: Collected, other: Collected) -> Collected:
    merged = copy.deepcopy(one)
    merged.merge(other)
    return merged


@sizeof.register(Collected)  # type: ignore[untyped-decorator]
def _collected_bytes(collected: Collected) -> int:
    """Size by which Dask decides where to merge and what fits into memory."""
    sums = sum(getattr(value, "nbytes", 0) for value in vars(collected.sums).values())
    return int(sums) + sum(part.nbytes for part in (*collected._waiting, *collected._sampled))


# -- Partitions


@dataclass(frozen=True)
class _Partition:
    """Rows that are computed together."""

    name: str  # for error messages
    rows: tuple[Any, ...]  # X, y and sample_weight, delayed or None
    first_row: int  # number of its first row
    n_rows: int | None  # None if known only to the workers
    shared: bool  # whether other partitions depend on much of the same work

    def in_sequence(self) -> Any:
        """`rows` as an argument of a task that processes several partitions in sequence.

        The task computes each partition when it needs it. If they were delayed arguments, Dask
        would compute all of them first and keep them in the memory of the worker.
        """
        if self.shared:
            return self.rows
        if not futures_of(self.rows):
            # Together, because labels and weights often depend on the same values as X.
            return partial(dask.compute, *self.rows, scheduler="synchronous")
        # Futures stay arguments, so that Dask transfers them to the worker.
        return tuple(
            part
            if part is None or futures_of(part)
            else partial(dask.compute, part, scheduler="synchronous")
            for part in self.rows
        )


def _computed(rows: Any) -> tuple[Any, Any, Any]:
    """X, labels and sample weights of a partition, on a worker."""
    X, *columns = (
        part()[0] if callable(part) else part for part in (rows() if callable(rows) else rows)
    )
    if np.ndim(X) != 2:
        raise ValueError(f"X must have 2 dimensions, found shape {np.shape(X)}")
    for i, name in enumerate(("labels", "sample weights")):
        if columns[i] is not None:
            columns[i] = np.asarray(columns[i])
            if columns[i].shape != (X.shape[0],):
                raise ValueError(f"has {X.shape[0]} rows and {name} of shape {columns[i].shape}")
    return X, columns[0], columns[1]


def _partitions_of(X: Any, y: Any = None, sample_weight: Any = None) -> list[_Partition]:
    """Partitions of Dask arrays or data frames."""
    blocks, shared = _blocks("X", X)
    lengths = _lengths(X) if isinstance(X, da.Array) else None
    columns: list[list[Any]] = [blocks]
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is None:
            columns.append([None] * len(blocks))
            continue
        column, column_shared = _blocks(name, values)
        if len(column) != len(blocks):
            raise PartitionError(f"{name} has {len(column)} partitions, but X has {len(blocks)}")
        columns.append(column)
        shared = shared or column_shared
    n_rows = [None] * len(blocks) if lengths is None else lengths
    first_rows = np.arange(len(blocks)) * _MAX_PARTITION_ROWS
    if lengths is not None:
        first_rows = np.cumsum([0, *lengths])
    return [
        _Partition(f"partition {index}", rows, int(first_rows[index]), n_rows[index], shared)
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
            f"{name} must be a Dask array or a Dask data frame, found {type(values).__name__}; "
            "dask.array.from_array makes one of an array in memory"
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


def _groups(
    client: Client, partitions: Sequence[_Partition], workers: list[str]
) -> list[list[_Partition]]:
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
    return [[partitions[i] for i in sorted(group)] for group in groups.values() if group]


# -- The cluster


def _current_client() -> Client:
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


def _worker_addresses(client: Client) -> list[str]:
    """Addresses of the workers; waits until there is at least one."""
    deadline = time.monotonic() + WORKER_SECONDS
    # Not client.wait_for_workers: a worker may be gone again by the time the list is read.
    while not (workers := sorted(client.scheduler_info(n_workers=-1)["workers"])):
        if time.monotonic() > deadline:
            raise ClusterError(f"the Dask cluster has no workers after {WORKER_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    return workers


def _threads(n_jobs: int | None) -> int:
    """Number of threads of a task: `n_jobs`, or by default that of its worker."""
    return n_jobs if n_jobs is not None else int(distributed.get_worker().state.nthreads)


@contextlib.contextmanager
def _named_errors(partition: str) -> Iterator[None]:
    """Add the name of the partition to any error in the block."""
    try:
        yield
    except PartitionError:
        raise
    except ValueError as error:
        raise PartitionError(f"{partition}: {error}") from error
    except Exception as error:
        raise PartitionError(f"{partition}: {type(error).__name__}: {error}") from error


def _results(client: Client, futures: Sequence[Future], names: Sequence[str]) -> list[Any]:
    """Wait for the results of tasks, in order; if one fails, all are cancelled."""
    try:
        _wait(client, futures, names)
        return list(client.gather(list(futures)))
    except BaseException as error:
        # The traceback keeps the futures alive, so the cluster would continue computing them.
        with contextlib.suppress(Exception):
            client.cancel(list(futures))
        # A lost connection can raise an error of any type.
        lost = isinstance(error, Exception) and client.status != "running"
        if lost or isinstance(error, distributed.CancelledError):
            raise ClusterError("the connection to the Dask scheduler was lost") from None
        raise


def _wait(client: Client, futures: Sequence[Future], names: Sequence[str]) -> None:
    """Wait until all tasks are done, one fails, or there are no running workers any more."""
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
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        if any(worker.get("status", "running") == "running" for worker in workers):
            last_running = time.monotonic()
        elif time.monotonic() - last_running > WORKER_SECONDS:
            raise ClusterError(
                f"the Dask cluster has had no running workers for {WORKER_SECONDS:g} s: none are "
                "left, or all are paused for lack of memory; use smaller partitions or workers "
                "with more memory"
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
