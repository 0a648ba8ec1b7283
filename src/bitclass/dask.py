"""`BinaryCodeClassifier` on a Dask cluster: rows stay with the workers, sums travel.

1. Every partition is checked and gives a few rows to a sample, which fixes what all sums share.
2. One task per worker sums its partitions, and selects rows for refinement.
3. The sums are merged pairwise in a tree, the only results that workers send to each other.
4. The client gets the sums and the selected rows, and fits the model.

Tasks do not modify their arguments, so that Dask can run them again if a worker is lost.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bitclass._native import thread_limit
from bitclass._native.threads import training_threads
from bitclass.arrays import Features, as_features, take, to_host
from bitclass.classifier import BinaryCodeClassifier
from bitclass.training import Statistics, start_statistics
from bitclass.training.refinement.refine import uniform
from bitclass.training.statistics import check_label_kinds
from bitclass.validation import check_initial_codes, check_rows, settings_of

try:
    import dask
    import dask.array as da
    import distributed
    from dask.delayed import Delayed
    from dask.optimization import cull
    from dask.sizeof import sizeof
    from distributed import Client, Future, KilledWorker, futures_of
except ImportError as error:  # pragma: no cover - only without the extra
    raise ImportError(
        "training on a cluster requires Dask; install it with: pip install 'bitclass[dask]'"
    ) from error

__all__ = ["ClusterError", "DaskBinaryCodeClassifier", "PartitionError"]

# Number of rows from which standardisation and anchors are computed.
SAMPLE_ROWS = 10_000
# Maximum size of that sample, and of the rows for refinement, in the memory of the client.
SAMPLE_BYTES = 256 << 20
# Timeouts for a cluster without running workers to get some, and for connecting to a worker
# directly before its results are fetched through the scheduler.
WORKER_SECONDS = 60.0
DIRECT_SECONDS = 3.0
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

    Standardisation and anchors are computed from a random sample of at most about 10,000 rows, the
    same for the same `random_state` and partitions. Refinement runs on the client, on at most about
    256 MB of rows; which rows these are does not depend on the partitions.

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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # type: ignore[override]
        """Train on Dask collections.

        Parameters
        ----------
        X : Dask array of shape (n_samples, n_features), or Dask data frame
            An array must not be split along the features; its blocks may be CSR arrays. Data that
            are not in the memory of the workers are computed twice, once for the sample and once
            for the sums; persist them if they fit.
        y : Dask array or series of shape (n_samples,), or NumPy array
            Labels, in the same partitions as X.
        sample_weight : as y, optional

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
        local._checked_settings(in_batches=True)
        if y is None:
            raise ValueError("y is required")
        _fit(local, _current_client(), _partitions_of(X, y, sample_weight))
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(local.__dict__)
        return self

    def to_local(self) -> BinaryCodeClassifier:
        """Convert to a fitted `BinaryCodeClassifier`, which shares the arrays of this one."""
        check_is_fitted(self)
        local = BinaryCodeClassifier()
        local.__dict__.update(self.__dict__)
        return local

    def predict(self, X: Any) -> da.Array:
        """Predict classes, lazily, on the workers.

        Parameters
        ----------
        X : as in `fit`
            Columns of data frames are selected by name if `fit` had feature names.

        Returns
        -------
        Dask array of shape (n_samples,)
        """
        return self._lazy(X, "predict")[0]

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

    def top_classes(self, X: Any, k: int, *, probabilities: bool = False) -> tuple[da.Array, ...]:
        """Lazy best classes: the Dask arrays of `BinaryCodeClassifier.top_classes`."""
        return self._lazy(X, "top_classes", k=k, probabilities=probabilities)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on labelled rows, computed on the workers.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`

        Returns
        -------
        float
        """
        client, partitions = _current_client(), self._partitions(X, y, sample_weight)
        tasks = self._tasks(partitions, "score", (np.empty((0, 2)),))
        found = _results(client, client.compute(tasks), [part.name for part in partitions])
        hits, total = sum(counts.sum(axis=0) for (counts,) in found)
        return float(hits / total)

    def _lazy(self, X: Any, method: str, **arguments: Any) -> tuple[da.Array, ...]:
        """Results of a method of the local classifier for all partitions, as Dask arrays."""
        partitions = self._partitions(X)
        example = np.zeros((1, self.n_features_in_), dtype=np.float32)
        found = getattr(self._without_names(), method)(example, **arguments)
        empty = tuple(array[:0] for array in (found if isinstance(found, tuple) else (found,)))
        tasks = self._tasks(partitions, method, empty, **arguments)
        columns: list[list[da.Array]] = [[] for _ in empty]
        for partition, task in zip(partitions, tasks, strict=True):
            n_rows = np.nan if partition.n_rows is None else partition.n_rows
            for column, part, array in zip(columns, task, empty, strict=True):
                shape = (n_rows, *array.shape[1:])
                column.append(da.from_delayed(part, shape, dtype=array.dtype))
        return tuple(da.concatenate(column, allow_unknown_chunksizes=True) for column in columns)

    def _tasks(
        self, partitions: list[_Partition], method: str, empty: tuple[Any, ...], **arguments: Any
    ) -> list[Any]:
        # A single task that all others depend on.
        predictor = dask.delayed(self._without_names(), traverse=False)
        names = _names_of(self)
        answers = dask.delayed(_answers, nout=len(empty))
        return [
            answers(part.name, part.rows, predictor, names, method, empty, arguments)
            for part in partitions
        ]

    def _without_names(self) -> BinaryCodeClassifier:
        """The local classifier without feature names: columns are selected before."""
        local = self.solve().to_local()
        local.__dict__.pop("feature_names_in_", None)
        return local

    def _partitions(self, X: Any, y: Any = None, sample_weight: Any = None) -> list[_Partition]:
        """Partitions of X, checked as far as possible without computing them."""
        check_is_fitted(self)
        if isinstance(X, da.Array) and X.ndim == 2 and X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but the model takes {self.n_features_in_}"
            )
        return _partitions_of(X, y, sample_weight)


def _names_of(classifier: BinaryCodeClassifier) -> tuple[str, ...] | None:
    names = getattr(classifier, "feature_names_in_", None)
    return None if names is None else tuple(names.tolist())


def _answers(
    name: str,
    rows: tuple[Any, ...],
    classifier: BinaryCodeClassifier,
    feature_names: tuple[str, ...] | None,
    method: str,
    empty: tuple[NDArray[Any], ...],
    arguments: dict[str, Any],
) -> tuple[NDArray[Any], ...]:
    """Results of a method for the rows of a partition; `empty` if there are no rows."""
    with _named_errors(name), thread_limit(_threads(classifier.n_jobs)):
        X, y, sample_weight = _checked(rows)
        if not X.shape[0]:
            return empty
        X = as_features(X, classifier.n_features_in_, feature_names)
        if method == "score":
            weights = np.ones(len(y)) if sample_weight is None else sample_weight
            hits = weights[classifier.predict(X) == y]
            return (np.array([[hits.sum(), weights.sum()]]),)
        found = getattr(classifier, method)(X, **arguments)
        return found if isinstance(found, tuple) else (found,)


# -------------------------------------------------------------------------------------------------
# Training
# -------------------------------------------------------------------------------------------------


def _fit(classifier: BinaryCodeClassifier, client: Client, partitions: list[_Partition]) -> None:
    """Train a local classifier on partitions."""
    workers = _worker_addresses(client)
    random = check_random_state(classifier.random_state)
    samples = _sample_partitions(client, partitions, int(random.randint(2**31 - 1)))
    names = next((sample.feature_names for sample in samples if sample.n_rows), None)
    lengths = [sample.n_rows for sample in samples]
    task = _sum_task(classifier, samples, names)

    first_rows = np.cumsum([0, *lengths]).tolist()
    sums, selected = [], []
    for group in _groups(client, partitions, workers):
        rows = [(partitions[i].name, first_rows[i], partitions[i].in_sequence()) for i in group]
        found = dask.delayed(_sum, nout=2)(task, rows)
        sums.append(found[0])
        selected.append(found[1])
    while len(sums) > 1:
        pairs = [sums[i : i + 2] for i in range(0, len(sums), 2)]
        sums = [dask.delayed(_merged)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    # Tasks contain anchors; Dask would warn above 10 MB.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        futures = client.compute([*sums, *selected])
    total, *parts = _results(client, futures, ["the sums"] * len(futures))
    batches = sorted((batch for part in parts for batch in part), key=lambda batch: batch[0])
    _fit_sums(classifier, total, [batch[1:] for batch in batches], names)


class _Sample(NamedTuple):
    """Some rows of a partition, with facts about all of its rows."""

    name: str  # of the partition
    n_rows: int  # in the partition
    feature_names: tuple[str, ...] | None
    X: Any
    labels: NDArray[Any]


def _sample_partitions(
    client: Client, partitions: Sequence[_Partition], seed: int
) -> list[_Sample]:
    """Check all partitions on the workers, and sample a few rows of each."""
    # Twice an even share, because partitions may be longer than others.
    quota = -(-2 * SAMPLE_ROWS // len(partitions))
    tasks = [
        dask.delayed(_sample_partition)(partition.name, (seed, index), quota, partition.rows)
        for index, partition in enumerate(partitions)
    ]
    return _results(client, client.compute(tasks), [partition.name for partition in partitions])


def _sample_partition(name: str, seed: tuple[int, int], quota: int, rows: Any) -> _Sample:
    """Sample at most `quota` rows of a partition, fewer if the rows are wide."""
    with _named_errors(name):
        X, labels, weights = _checked(rows)
        candidates = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
        max_rows = SAMPLE_BYTES * max(1, X.shape[0]) // max(1, sizeof(X))
        quota = -(-quota * min(max(256, max_rows), SAMPLE_ROWS) // SAMPLE_ROWS)
        drawn = np.sort(np.random.default_rng(seed).permutation(candidates)[:quota])
        columns = tuple(getattr(X, "columns", ()))
        are_names = columns and all(isinstance(column, str) for column in columns)
        names = columns if are_names else None
        return _Sample(name, X.shape[0], names, _take(X, drawn), labels[drawn])


def _take(X: Any, rows: NDArray[np.intp]) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else take(X, rows)


def _joined(
    classifier: BinaryCodeClassifier, samples: Sequence[_Sample], names: tuple[str, ...] | None
) -> tuple[Features, NDArray[Any], NDArray[np.float64]]:
    """Rows with about the same share of each partition, labels, and class weights.

    Also sets `n_features_in_` of the classifier.
    """
    share = min(1.0, SAMPLE_ROWS / max(1, sum(sample.n_rows for sample in samples)))
    parts: list[tuple[Features, NDArray[Any], NDArray[np.float64]]] = []
    for sample in samples:
        n = min(len(sample.labels), int(np.ceil(sample.n_rows * share)))
        if n == 0:
            continue
        rows = np.linspace(0, len(sample.labels), n, endpoint=False).astype(int)
        with _named_errors(sample.name):
            X = _take(sample.X, rows)
            if not parts:
                classifier.n_features_in_ = X.shape[1] if names is None else len(names)
            X = as_features(X, classifier.n_features_in_, names)
            X, labels, weights = check_rows(classifier, X, sample.labels[rows], None, reset=False)
            check_label_kinds(parts[0][1] if parts else labels, labels)
        parts.append((X, labels, np.ones(len(labels)) if weights is None else weights))
    weights = np.concatenate([part[2] for part in parts] or [np.empty(0)])
    if not weights.any():
        raise ValueError("X must have rows with positive weight, found none in the sample")
    blocks, kept = [part[0] for part in parts], weights > 0
    sparse = any(scipy.sparse.issparse(X) for X in blocks)
    X = scipy.sparse.vstack(blocks, format="csr") if sparse else np.concatenate(blocks)
    return X[kept], np.concatenate([part[1] for part in parts])[kept], weights[kept]


@dataclass(frozen=True)
class _SumTask:
    """What all tasks that sum have in common."""

    empty: Callable[[], Statistics]  # a function, since the zeros may be large
    checks: BinaryCodeClassifier  # unfitted: number of features, class weights, threads
    feature_names: tuple[str, ...] | None
    share: float  # fraction of rows to select for refinement
    seed: int  # of this selection


def _sum_task(
    classifier: BinaryCodeClassifier, samples: Sequence[_Sample], names: tuple[str, ...] | None
) -> _SumTask:
    X, labels, weights = _joined(classifier, samples, names)
    n_rows = sum(sample.n_rows for sample in samples)
    share = min(1.0, SAMPLE_BYTES / (n_rows * sizeof(X) / X.shape[0]))
    settings = settings_of(classifier.get_params(deep=False))
    codes = check_initial_codes(classifier.initial_codes, None, settings.n_bits)
    with training_threads(classifier.n_jobs):
        start = start_statistics(settings, X, labels, weights, codes)
    empty = partial(Statistics, start.starting, start.shift, start.scale, anchors=start.anchors)
    checks = BinaryCodeClassifier(class_weight=classifier.class_weight, n_jobs=classifier.n_jobs)
    checks.n_features_in_ = classifier.n_features_in_
    seed = int(check_random_state(classifier.random_state).randint(2**31 - 1))
    return _SumTask(empty, checks, names, 0.0 if classifier.refine is False else share, seed)


#: Number of the first row, then X (m, d), labels (m,) and sample weights (m,) or None.
_SelectedRows = tuple[int, Features, NDArray[Any], NDArray[Any] | None]


def _sum(
    task: _SumTask, group: list[tuple[str, int, Any]]
) -> tuple[Statistics, list[_SelectedRows]]:
    """Sum over a group of partitions one after another, and select rows for refinement."""
    sums, selected = task.empty(), []
    with training_threads(_threads(task.checks.n_jobs)):
        for name, first_row, rows in group:
            with _named_errors(name):
                X, y, sample_weight = _checked(rows() if callable(rows) else rows)
                if not X.shape[0]:
                    continue
                X = as_features(X, task.checks.n_features_in_, task.feature_names)
                X, labels, weights = check_rows(task.checks, X, y, sample_weight, reset=False)
                kept = np.arange(len(labels))
                if weights is not None and not weights.all():
                    kept = np.flatnonzero(weights > 0)
                    X, labels, weights = take(X, kept), labels[kept], weights[kept]
                if len(kept):
                    sums.add(X, labels, weights)
                chosen = np.flatnonzero(uniform(first_row + kept, task.seed, 0) < task.share)
                if len(chosen):
                    # Without class weights, which are applied where these rows are used.
                    given = None if sample_weight is None else sample_weight[kept[chosen]]
                    selected.append((first_row, take(X, chosen), labels[chosen], given))
    return sums, selected


def _merged(one: Statistics, other: Statistics) -> Statistics:
    """Merge into new sums, since Dask may use the given ones again."""
    merged = Statistics(one.starting, one.shift, one.scale, anchors=one.anchors)
    merged.merge(one)
    merged.merge(other)
    return merged


@sizeof.register(Statistics)  # type: ignore[untyped-decorator]
def _sums_bytes(sums: Statistics) -> int:
    """Size of sums, by which Dask decides where to merge them and what fits into memory."""
    return int(sum(array.nbytes for array in vars(sums).values() if hasattr(array, "nbytes")))


def _fit_sums(
    classifier: BinaryCodeClassifier,
    sums: Statistics,
    batches: list[tuple[Any, ...]],
    names: tuple[str, ...] | None,
) -> None:
    """Fit the model to the sums of all rows, and refine it on the selected rows."""
    n_rows = sum(len(batch[1]) for batch in batches)
    classifier.fit_batches(
        lambda start_row: iter(batches if start_row == 0 else []),
        statistics=sums,
        n_rows=n_rows,
        feature_names=names,
    )


# -------------------------------------------------------------------------------------------------
# Partitions
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Partition:
    """Rows that are computed together."""

    name: str  # for error messages
    rows: tuple[Any, ...]  # X, y and sample_weight, delayed or None
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
            part if part is None or futures_of(part) else partial(_computed, part)
            for part in self.rows
        )


def _computed(part: Delayed) -> Any:
    return dask.compute(part, scheduler="synchronous")[0]


def _checked(rows: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """X, labels and sample weights of a partition, on a worker."""
    X, *columns = (part() if callable(part) else part for part in rows)
    X = X if hasattr(X, "columns") or scipy.sparse.issparse(X) else to_host(X)
    if np.ndim(X) != 2:
        raise ValueError(f"X must have 2 dimensions, found shape {np.shape(X)}")
    for i, name in enumerate(("labels", "sample weights")):
        if columns[i] is not None:
            columns[i] = np.asarray(to_host(columns[i]))
            if columns[i].shape != (X.shape[0],):
                raise ValueError(f"has {X.shape[0]} rows and {name} of shape {columns[i].shape}")
    return X, columns[0], columns[1]


def _partitions_of(X: Any, y: Any = None, sample_weight: Any = None) -> list[_Partition]:
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
            for index, (own, other) in enumerate(zip(values.chunks[0], lengths, strict=True)):
                if own != other and not np.isnan(own):
                    raise PartitionError(
                        f"partition {index}: {name} has {own} rows, but X has {other}"
                    )
        columns.append(column)
        shared = shared or column_shared
    return [
        _Partition(f"partition {index}", rows, lengths[index] if lengths else None, shared)
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
            f"{name} must be a Dask array or a Dask data frame, found {type(values).__name__}; use "
            "BinaryCodeClassifier for rows in memory"
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
) -> list[list[int]]:
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


# -------------------------------------------------------------------------------------------------
# The cluster
# -------------------------------------------------------------------------------------------------


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
