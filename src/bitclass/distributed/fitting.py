"""Training on a cluster: sampling, sums on the workers, a tree of merges, solving on the client."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import dask
import distributed
import numpy as np
import scipy.sparse
from dask.delayed import Delayed
from dask.sizeof import sizeof
from distributed import Client
from distributed.client import ClosedClientError
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass._native.threads import training_threads
from bitclass.arrays import Features, as_features, is_foreign, take, to_host
from bitclass.classifier import BinaryCodeClassifier
from bitclass.distributed.cluster import (
    FeatureFiles,
    Partition,
    collection_partitions,
    file_partitions,
    files_of,
    grouped,
    named_errors,
    results,
    row_batches,
    worker_addresses,
    worker_threads,
)
from bitclass.training import Statistics, start_statistics
from bitclass.training.refinement.refine import uniform
from bitclass.training.statistics import check_label_kinds
from bitclass.validation import check_initial_codes, check_rows, settings_of

__all__ = ["Progress", "fit_on_workers"]

#: Called with the name of the pass, the amount done and the total.
Progress = Callable[[str, int, int], None]
#: Number of the first row, then X (m, d), labels (m,) and sample weights (m,) or None.
SelectedRows = tuple[int, Features, NDArray[Any], NDArray[Any] | None]

# Size of the sample for standardisation, anchors and starting codes.
SAMPLE_ROWS = 10_000
# Maximum size of that sample, and of the rows for refinement, in the memory of the client.
SAMPLE_BYTES = 256 << 20


def fit_on_workers(
    classifier: BinaryCodeClassifier,
    client: Client,
    X: Any,
    y: Any,
    sample_weight: Any,
    progress: Progress | None,
) -> None:
    """Train on files read by the workers, or on partitions of Dask collections."""
    workers = worker_addresses(client)
    files = files_of(X)
    if files is not None:
        future = client.submit(_sample_files, files, pure=False)
        samples = results(client, [future], ["files"])
        partitions = file_partitions(files, samples[0].n_rows, len(workers))
        lengths = [partition.n_rows or 0 for partition in partitions]
        groups = [[index] for index in range(len(partitions))]
    else:
        partitions = collection_partitions(X, y, sample_weight)
        samples = _sample_partitions(client, partitions, _seed(classifier), progress)
        lengths = [sample.n_rows for sample in samples]
        groups = grouped(client, partitions, workers)
    names = next((sample.feature_names for sample in samples if sample.n_rows), None)
    task = _sum_settings(classifier, samples, names, sum(lengths))

    first_rows = np.cumsum([0, *lengths]).tolist()
    sums, drawn = [], []
    for number, group in enumerate(groups):
        group_rows = [
            (partitions[index].name, first_rows[index], partitions[index].in_sequence())
            for index in group
        ]
        found = dask.delayed(_sum, nout=2)(task, number, group_rows)
        sums.append(found[0])
        drawn.append(found[1])
    done = dict.fromkeys(range(len(groups)), 0)

    def on_event(event: tuple[float, tuple[int, int]]) -> None:
        done[event[1][0]] = event[1][1]

    def report() -> None:
        if progress is not None:
            progress("learning", sum(done.values()), sum(lengths))

    client.subscribe_topic(task.topic, on_event)
    try:
        # Tasks contain anchors and starting codes; Dask would warn above 10 MB.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            futures = client.compute([_merge_tree(sums), *drawn])
        statistics, *selected = results(client, futures, ["the sums"] * len(futures), report)
    finally:
        with contextlib.suppress(ClosedClientError):  # or it would hide why it is closed
            client.unsubscribe_topic(task.topic)
    batches = sorted((batch for part in selected for batch in part), key=lambda batch: batch[0])

    def drawn_batches(start_row: int) -> Iterator[tuple[Any, ...]]:
        return iter([batch[1:] for batch in batches] if start_row == 0 else [])

    classifier.fit_batches(
        drawn_batches,
        statistics=statistics,
        n_rows=sum(len(batch[2]) for batch in batches),
        feature_names=names,
    )


def _seed(classifier: BinaryCodeClassifier) -> int:
    return int(check_random_state(classifier.random_state).randint(2**31 - 1))


# -------------------------------------------------------------------------------------------------
# The sample
# -------------------------------------------------------------------------------------------------


class _Sample(NamedTuple):
    """Some rows of a partition or of files, with facts about all of its rows."""

    name: str  # of the partition
    n_rows: int  # in the partition
    feature_names: tuple[str, ...] | None
    X: Any
    labels: NDArray[Any]


def _spread(rows: Any, n_rows: int = 8192) -> tuple[Any, Any]:
    """Rows spread evenly over all files, which may be sorted by class."""
    from scipy.sparse import vstack

    places = np.linspace(0, rows.n_rows - 1, min(n_rows, rows.n_rows)).astype(np.intp)
    parts, labels = [], []
    for batch in rows.batches():
        here = places - batch.first_row
        here = here[(here >= 0) & (here < len(batch))]
        parts.append(batch.X[here])
        labels.append(batch.labels[here])
    X = vstack(parts, format="csr") if rows.is_sparse else np.concatenate(parts)
    return X, np.concatenate(labels)


def _sample_files(files: FeatureFiles) -> _Sample:
    with named_errors("files"):
        rows = files.open()
        if not rows.has_labels:
            raise ValueError(f"{rows.description}: no labels found; specify them with labels")
        return _Sample("files", rows.n_rows, rows.feature_names, *_spread(rows))


def _sample_partitions(
    client: Client, partitions: Sequence[Partition], seed: int, progress: Progress | None
) -> list[_Sample]:
    """Check all partitions on the workers, and sample a few rows of each."""
    lengths = [partition.n_rows for partition in partitions]
    total = sum(length or 0 for length in lengths)
    # If lengths are unknown, twice an even share leaves room for partitions that are longer.
    even = -(-2 * SAMPLE_ROWS // len(partitions))
    quotas = [even if n is None else -(-n * SAMPLE_ROWS // max(total, 1)) for n in lengths]
    tasks = [
        dask.delayed(_sample_partition)(partition.name, (seed, index), quota, partition.rows)
        for index, (partition, quota) in enumerate(zip(partitions, quotas, strict=True))
    ]
    futures = client.compute(tasks)

    def report() -> None:
        if progress is not None:
            done = sum(future.status == "finished" for future in futures)
            progress("sampling", done, len(futures))

    return results(client, futures, [partition.name for partition in partitions], report)


def _sample_partition(name: str, seed: tuple[int, int], quota: int, rows: Any) -> _Sample:
    """Sample at most `quota` rows of a partition."""
    with named_errors(name):
        X, labels, weights = next(row_batches(rows))
        candidates = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
        # Fewer if the rows are wide.
        max_rows = max(256, SAMPLE_BYTES // (8 * max(1, X.shape[1])))
        quota = -(-quota * min(max_rows, SAMPLE_ROWS) // SAMPLE_ROWS)
        drawn = np.sort(np.random.default_rng(seed).permutation(candidates)[:quota])
        columns = tuple(getattr(X, "columns", ()))
        are_names = columns and all(isinstance(column, str) for column in columns)
        names = columns if are_names else None
        return _Sample(name, X.shape[0], names, _take_rows(X, drawn), labels[drawn])


def _take_rows(X: Any, rows: NDArray[np.intp]) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else to_host(take(X, rows))


def _join_samples(
    classifier: BinaryCodeClassifier,
    samples: Sequence[_Sample],
    names: tuple[str, ...] | None,
) -> tuple[Features, NDArray[Any], NDArray[np.float64]]:
    """Rows with about the same share of each partition, labels, and class weights.

    Also sets `n_features_in_` of the classifier.
    """
    share = SAMPLE_ROWS / max(1, sum(sample.n_rows for sample in samples))
    parts: list[tuple[Features, NDArray[Any], NDArray[np.float64]]] = []
    for sample in samples:
        n = min(len(sample.labels), -(-sample.n_rows * min(share, 1.0) // 1))
        if n == 0:
            continue
        # Evenly spaced rows, which are in order.
        rows = np.linspace(0, len(sample.labels), int(n), endpoint=False).astype(int)
        with named_errors(sample.name):
            X = _take_rows(sample.X, rows)
            if not parts:
                classifier.n_features_in_ = X.shape[1] if names is None else len(names)
            X = as_features(X, classifier.n_features_in_, names)
            X, labels, weights = check_rows(classifier, X, sample.labels[rows], None, reset=False)
            check_label_kinds(parts[0][1] if parts else labels, labels)
        parts.append((X, labels, np.ones(len(labels)) if weights is None else weights))
    if not parts:
        raise ValueError("X must have rows with positive weight, found none")
    columns = list(zip(*parts, strict=True))
    sparse = any(scipy.sparse.issparse(X) for X in columns[0])
    X = scipy.sparse.vstack(columns[0], format="csr") if sparse else np.concatenate(columns[0])
    weights = np.concatenate(columns[2])
    if not weights.any():
        raise ValueError("class_weight must be positive for some class in the sample")
    mask = weights > 0
    return X[mask], np.concatenate(columns[1])[mask], weights[mask]


# -------------------------------------------------------------------------------------------------
# Sums
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SumSettings:
    """Settings shared by all tasks that sum."""

    empty: Callable[[], Statistics]  # a function, since the zeros may be large
    checks: BinaryCodeClassifier  # unfitted: number of features, class weights, threads
    feature_names: tuple[str, ...] | None
    share: float  # fraction of rows to sample for refinement
    seed: int  # of this sample
    topic: str  # for progress events


def _sum_settings(
    classifier: BinaryCodeClassifier,
    samples: Sequence[_Sample],
    names: tuple[str, ...] | None,
    n_rows: int,
) -> _SumSettings:
    X, labels, weights = _join_samples(classifier, samples, names)
    share = 0.0
    if classifier.refine is not False:
        share = min(1.0, SAMPLE_BYTES / (n_rows * sizeof(X) / X.shape[0]))
    seed = _seed(classifier)
    settings = settings_of(classifier.get_params(deep=False))
    codes = check_initial_codes(classifier.initial_codes, None, settings.n_bits)
    with training_threads(classifier.n_jobs):
        start = start_statistics(settings, X, labels, weights, codes)
    empty = partial(Statistics, start.starting, start.shift, start.scale, anchors=start.anchors)
    checks = BinaryCodeClassifier(class_weight=classifier.class_weight, n_jobs=classifier.n_jobs)
    checks.n_features_in_ = classifier.n_features_in_
    return _SumSettings(empty, checks, names, share, seed, f"bitclass-{uuid.uuid4().hex}")


@sizeof.register(Statistics)  # type: ignore[untyped-decorator]
def _statistics_bytes(statistics: Statistics) -> int:
    """Size of statistics, by which Dask decides where to merge them and what fits into memory."""
    return int(sum(array.nbytes for array in vars(statistics).values() if hasattr(array, "nbytes")))


def _sum(
    task: _SumSettings, number: int, group: list[tuple[str, int, Any]]
) -> tuple[Statistics, list[SelectedRows]]:
    """Sum over a group of partitions in sequence, and sample rows for refinement.

    The arguments are not modified, so that Dask can run it again.
    """
    statistics = task.empty()
    selected: list[SelectedRows] = []
    n_done = 0
    with training_threads(worker_threads(task.checks.n_jobs)):
        for name, row, rows in group:
            with named_errors(name):
                for X, y, sample_weight in row_batches(rows):
                    n_done += X.shape[0]
                    if X.shape[0]:
                        selected += _add(task, statistics, row, X, y, sample_weight)
                    row += X.shape[0]
                    distributed.get_worker().log_event(task.topic, (number, n_done))
    return statistics, selected


def _add(
    task: _SumSettings,
    statistics: Statistics,
    first_row: int,
    X: Any,
    y: NDArray[Any],
    sample_weight: NDArray[Any] | None,
) -> list[SelectedRows]:
    """Add a batch of rows, and return the rows selected for refinement."""
    if not is_foreign(X):
        X = as_features(X, task.checks.n_features_in_, task.feature_names)
    X, labels, weights = check_rows(task.checks, X, y, sample_weight, reset=False)
    rows = np.arange(len(labels))
    if weights is not None and not weights.all():
        rows = np.flatnonzero(weights > 0)
        X, labels, weights = take(X, rows), labels[rows], weights[rows]
    if len(rows):
        statistics.add(X, labels, weights)
    chosen = np.flatnonzero(uniform(first_row + rows, task.seed, 0) < task.share)
    if not len(chosen):
        return []
    # Without class weights, which are applied where these rows are used.
    weights = None if sample_weight is None else sample_weight[rows[chosen]]
    return [(first_row, to_host(take(X, chosen)), labels[chosen], weights)]


def _merge_tree(sums: list[Delayed]) -> Delayed:
    """Merge sums in a binary tree."""
    while len(sums) > 1:
        pairs = [sums[index : index + 2] for index in range(0, len(sums), 2)]
        sums = [dask.delayed(_merge)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return sums[0]


def _merge(one: Statistics, other: Statistics) -> Statistics:
    """Merge into new statistics, since Dask may use the given ones again."""
    merged = Statistics(one.starting, one.shift, one.scale, anchors=one.anchors)
    merged.merge(one)
    merged.merge(other)
    return merged
