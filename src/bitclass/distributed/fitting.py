"""Training on a cluster: a sample, sums on the workers, a tree of merges, the solution here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import distributed
import numpy as np
import scipy.sparse
from dask.delayed import Delayed
from dask.sizeof import sizeof
from distributed import Client
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass._native.threads import training_threads
from bitclass.arrays import Features, as_features, is_foreign, take, to_host
from bitclass.classifier import BinaryCodeClassifier
from bitclass.distributed.cluster import named_errors, results, worker_addresses, worker_threads
from bitclass.distributed.partitions import (
    FeatureFiles,
    Partition,
    column_names,
    file_partitions,
    grouped,
    row_batches,
)
from bitclass.training import Statistics, start_statistics
from bitclass.training.refinement.split import uniform
from bitclass.training.statistics import check_label_kinds
from bitclass.validation import check_initial_codes, check_rows, settings_of

__all__ = ["Progress", "fit_collections", "fit_files", "open_on_worker"]

#: Called with the name of the pass, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
#: Number of the first row, then X (m, d), labels (m,) and sample weights (m,) or None.
SelectedRows = tuple[int, Features, NDArray[Any], NDArray[Any] | None]

# The sample that sets up standardisation, anchors and starting codes.
SAMPLE_ROWS = 10_000
# Bytes of rows that the client holds: of that sample, and of the rows for refinement.
SAMPLE_BYTES = 256 << 20


def fit_collections(
    classifier: BinaryCodeClassifier,
    client: Client,
    partitions: Sequence[Partition],
    progress: Progress | None,
) -> None:
    """Train on partitions of Dask collections."""
    workers = worker_addresses(client)
    samples = _sample_partitions(client, partitions, _seed(classifier), progress)
    names = next((part_sample.names for part_sample in samples if part_sample.n_rows), None)
    sample = _joined_sample(classifier, partitions, samples, names)
    known = [
        replace(part, n_rows=part_sample.n_rows)
        for part, part_sample in zip(partitions, samples, strict=True)
    ]
    _fit(classifier, client, known, grouped(client, known, workers), sample, names, progress)


def fit_files(
    classifier: BinaryCodeClassifier,
    client: Client,
    files: FeatureFiles,
    progress: Progress | None,
) -> None:
    """Train on files that the workers read."""
    workers = worker_addresses(client)
    opened = open_on_worker(client, files, sample=True)
    if opened.sample is None:
        raise ValueError(f"{opened.description}: no labels found; name them with labels")
    partitions = file_partitions(files, opened.n_rows, len(workers))
    groups = [[index] for index in range(len(partitions))]
    classifier.n_features_in_ = opened.n_features
    names = opened.feature_names
    _fit(classifier, client, partitions, groups, opened.sample, names, progress)


@sizeof.register(Statistics)  # type: ignore[untyped-decorator]
def _statistics_bytes(statistics: Statistics) -> int:
    """Bytes of sums, by which Dask decides where to merge them and what fits into memory."""
    return int(sum(array.nbytes for array in vars(statistics).values() if hasattr(array, "nbytes")))


# -------------------------------------------------------------------------------------------------
# The sample
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """Facts about files as a worker sees them, and sample rows if asked for and labelled."""

    n_rows: int
    n_features: int
    feature_names: tuple[str, ...] | None
    description: str
    sample: tuple[Features, NDArray[Any]] | None


def open_on_worker(
    client: Client,
    files: FeatureFiles,
    feature_names: tuple[str, ...] | None = None,
    *,
    sample: bool = False,
) -> Opened:
    """Open files on a worker, which may see other paths than the client."""
    worker_addresses(client)
    future = client.submit(_open, files, feature_names, sample, pure=False)
    opened: Opened = results(client, [future], ["files"])[0]
    return opened


def _open(files: FeatureFiles, feature_names: tuple[str, ...] | None, sample: bool) -> Opened:
    with named_errors("files"):
        rows = files.open(feature_names)
        drawn = rows.sample() if sample and rows.has_labels else None
        return Opened(rows.n_rows, rows.n_features, rows.feature_names, rows.description, drawn)


@dataclass(frozen=True)
class _PartitionSample:
    """Length of a partition, names of its columns, and some rows, drawn at random."""

    n_rows: int
    names: tuple[str, ...] | None
    X: Any
    labels: NDArray[Any]


def _sample_partitions(
    client: Client, partitions: Sequence[Partition], seed: int, progress: Progress | None
) -> list[_PartitionSample]:
    """Check all partitions on the workers, and draw a few rows of each."""
    lengths = [partition.n_rows for partition in partitions]
    total = sum(length or 0 for length in lengths)
    # Where lengths are not known before, twice an even share leaves room for some that are longer.
    even = -(-2 * SAMPLE_ROWS // len(partitions))
    quotas = [even if n is None else -(-n * SAMPLE_ROWS // max(total, 1)) for n in lengths]
    tasks = [
        dask.delayed(_sample_partition)(partition.name, (seed, index), quota, *partition.parts)
        for index, (partition, quota) in enumerate(zip(partitions, quotas, strict=True))
    ]
    futures = client.compute(tasks)

    def report() -> None:
        if progress is not None:
            done = sum(future.status == "finished" for future in futures)
            progress("sampling", done, len(futures))

    return results(client, futures, [partition.name for partition in partitions], report)


def _sample_partition(
    name: str, seed: tuple[int, int], quota: int, *parts: Any
) -> _PartitionSample:
    """Draw at most `quota` rows of a partition."""
    with named_errors(name):
        X, labels, weights = next(row_batches(parts))
        counting = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
        # Fewer of wide rows.
        max_rows = max(256, SAMPLE_BYTES // (8 * max(1, X.shape[1])))
        quota = -(-quota * min(max_rows, SAMPLE_ROWS) // SAMPLE_ROWS)
        rows = np.sort(np.random.default_rng(seed).permutation(counting)[:quota])
        drawn = X.iloc[rows] if hasattr(X, "iloc") else to_host(take(X, rows))
        return _PartitionSample(X.shape[0], column_names(X), drawn, labels[rows])


def _joined_sample(
    classifier: BinaryCodeClassifier,
    partitions: Sequence[Partition],
    samples: Sequence[_PartitionSample],
    names: tuple[str, ...] | None,
) -> tuple[Features, NDArray[Any]]:
    """The sample, in about the same share of each partition; `classifier` learns the width."""
    share = SAMPLE_ROWS / max(1, sum(part_sample.n_rows for part_sample in samples))
    parts: list[Features] = []
    labels: list[NDArray[Any]] = []
    for partition, part_sample in zip(partitions, samples, strict=True):
        n = min(len(part_sample.labels), -(-part_sample.n_rows * min(share, 1.0) // 1))
        if n == 0:
            continue
        # Every k-th of the rows, which are in order.
        rows = np.linspace(0, len(part_sample.labels), int(n), endpoint=False).astype(int)
        with named_errors(partition.name):
            X = part_sample.X.iloc[rows] if hasattr(part_sample.X, "iloc") else part_sample.X[rows]
            if not parts:
                width = X.shape[1] if names is None else len(names)
                classifier.n_features_in_ = width
            X = as_features(X, width, names)
            X, own, _ = check_rows(classifier, X, part_sample.labels[rows], None, reset=False)
            check_label_kinds(labels[0] if labels else own, own)
        parts.append(X)
        labels.append(own)
    if not parts:
        raise ValueError("X must have rows of positive weight, found none")
    sparse = any(scipy.sparse.issparse(X) for X in parts)
    X = scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    return X, np.concatenate(labels)


def _seed(classifier: BinaryCodeClassifier) -> int:
    return int(check_random_state(classifier.random_state).randint(2**31 - 1))


# -------------------------------------------------------------------------------------------------
# Sums
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Start:
    """What the tasks that sum start from; without the zeros, which may be large."""

    starting: Any
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    anchors: Any
    checks: BinaryCodeClassifier  # not fitted: number of features, class weights, threads
    names: tuple[str, ...] | None  # of the features
    share: float  # of the rows, to draw for refinement
    seed: int  # of the draw
    topic: str  # where progress is reported

    def statistics(self) -> Statistics:
        """Empty statistics."""
        return Statistics(self.starting, self.shift, self.scale, anchors=self.anchors)


def _fit(
    classifier: BinaryCodeClassifier,
    client: Client,
    partitions: Sequence[Partition],
    groups: Sequence[Sequence[int]],
    sample: tuple[Features, NDArray[Any]],
    names: tuple[str, ...] | None,
    progress: Progress | None,
) -> None:
    """Sum all rows on the workers, and solve here."""
    lengths = [partition.n_rows or 0 for partition in partitions]
    n_rows = sum(lengths)
    row_bytes = _n_bytes(sample[0]) / sample[0].shape[0]
    share = 0.0 if classifier.refine is False else min(1.0, SAMPLE_BYTES / (n_rows * row_bytes))
    start = _start(classifier, sample, names, share)
    first_rows = np.cumsum([0, *lengths])
    sums, drawn = [], []
    for number, group in enumerate(groups):
        found = dask.delayed(_sum, nout=2)(
            start,
            number,
            [partitions[index].name for index in group],
            [int(first_rows[index]) for index in group],
            [partitions[index].in_sequence() for index in group],
        )
        sums.append(found[0])
        drawn.append(found[1])
    done = dict.fromkeys(range(len(groups)), 0)

    def on_event(event: tuple[float, tuple[int, int]]) -> None:
        done[event[1][0]] = event[1][1]

    def report() -> None:
        if progress is not None:
            progress("learning", sum(done.values()), n_rows)

    client.subscribe_topic(start.topic, on_event)
    try:
        # Anchors and starting codes travel with the tasks, where Dask would warn above 10 MB.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            futures = client.compute([_merged(sums), *drawn])
        found = results(client, futures, ["the sums"] * len(futures), report)
    finally:
        client.unsubscribe_topic(start.topic)
    batches = sorted((batch for part in found[1:] for batch in part), key=lambda batch: batch[0])

    def drawn_batches(start_row: int) -> Iterator[tuple[Any, ...]]:
        return iter([batch[1:] for batch in batches] if start_row == 0 else [])

    classifier.fit_batches(
        drawn_batches,
        statistics=found[0],
        n_rows=sum(len(batch[2]) for batch in batches),
        feature_names=names,
    )


def _start(
    classifier: BinaryCodeClassifier,
    sample: tuple[Features, NDArray[Any]],
    names: tuple[str, ...] | None,
    share: float,
) -> _Start:
    seed = _seed(classifier)
    X, labels, weights = check_rows(classifier, *sample, None, reset=False)
    if weights is not None:
        counts = weights > 0
        if not counts.any():
            raise ValueError("class_weight must be positive for some class of the sample")
        X, labels, weights = X[counts], labels[counts], weights[counts]
    settings = settings_of(classifier.get_params(deep=False))
    codes = check_initial_codes(classifier.initial_codes, None, settings.n_bits)
    with training_threads(classifier.n_jobs):
        empty = start_statistics(settings, X, labels, weights, codes)
    checks = BinaryCodeClassifier(class_weight=classifier.class_weight, n_jobs=classifier.n_jobs)
    checks.n_features_in_ = classifier.n_features_in_
    return _Start(
        empty.starting,
        empty.shift,
        empty.scale,
        empty.anchors,
        checks,
        names,
        share,
        seed,
        f"bitclass-{uuid.uuid4().hex}",
    )


def _n_bytes(X: Features) -> int:
    if scipy.sparse.issparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    return int(X.nbytes)


def _sum(
    start: _Start,
    number: int,
    names: list[str],
    first_rows: list[int],
    partitions: list[Any],
) -> tuple[Statistics, list[SelectedRows]]:
    """Sum a group of partitions, one after the other, and draw rows for refinement.

    It changes none of its arguments, so that Dask may run it again.
    """
    statistics = start.statistics()
    selected: list[SelectedRows] = []
    n_done = 0
    with training_threads(worker_threads(start.checks.n_jobs)):
        for name, row, parts in zip(names, first_rows, partitions, strict=True):
            with named_errors(name):
                for X, y, sample_weight in row_batches(parts):
                    n_done += X.shape[0]
                    if X.shape[0]:
                        selected += _add(start, statistics, row, X, y, sample_weight)
                    row += X.shape[0]
                    distributed.get_worker().log_event(start.topic, (number, n_done))
    return statistics, selected


def _add(
    start: _Start,
    statistics: Statistics,
    first_row: int,
    X: Any,
    y: NDArray[Any],
    sample_weight: NDArray[Any] | None,
) -> list[SelectedRows]:
    """Add a batch of rows; those that are selected for refinement, if any."""
    n_features = start.checks.n_features_in_
    X = X if is_foreign(X) else as_features(X, n_features, start.names)
    X, labels, weights = check_rows(start.checks, X, y, sample_weight, reset=False)
    rows = np.arange(first_row, first_row + len(labels))
    chosen = uniform(rows, start.seed, 0) < start.share
    if weights is None or weights.all():
        statistics.add(X, labels, weights)
    else:
        counts = weights > 0
        chosen &= counts
        if counts.any():
            statistics.add(take(X, np.flatnonzero(counts)), labels[counts], weights[counts])
    if not chosen.any():
        return []
    # Class weights are applied where these rows are used.
    own = None if sample_weight is None else sample_weight[chosen]
    return [(first_row, to_host(take(X, np.flatnonzero(chosen))), labels[chosen], own)]


def _merged(sums: list[Delayed]) -> Delayed:
    """A tree of merges."""
    while len(sums) > 1:
        pairs = [sums[index : index + 2] for index in range(0, len(sums), 2)]
        sums = [dask.delayed(_merge)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return sums[0]


def _merge(one: Statistics, other: Statistics) -> Statistics:
    """Merge into new statistics: Dask may send or use the given ones again."""
    merged = Statistics(one.starting, one.shift, one.scale, anchors=one.anchors)
    merged.merge(one)
    merged.merge(other)
    return merged
