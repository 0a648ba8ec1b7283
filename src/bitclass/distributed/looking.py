"""The first look at partitions: what they are, whether they go together, and a fair sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from bitclass.classifier import BinaryCodeClassifier
from bitclass.distributed.errors import PartitionError, naming
from bitclass.distributed.partitions import Partition, names_of, plain
from bitclass.drawing import uniform
from bitclass.rows import Features
from bitclass.validation import check_labels, check_rows

__all__ = [
    "Drawn",
    "Facts",
    "Quota",
    "Sample",
    "check_together",
    "drawn_rows",
    "fair_sample",
    "joined",
    "look",
    "rows_that_fit",
    "thinned",
]

#: Rows that were drawn: X (m, d), labels (m,), weights (m,) or None.
Drawn = tuple[Features, NDArray[Any], NDArray[np.float64] | None]


@dataclass(frozen=True)
class Facts:
    """What a worker found in a partition.

    Attributes
    ----------
    n_rows, n_features, n_bytes : int
    dtype : str, of the features
    layout : "dense" or "sparse"
    names : names of the features, None where they have none
    classes : (C,) labels that occur
    """

    n_rows: int
    n_features: int
    n_bytes: int
    dtype: str
    layout: str
    names: tuple[str, ...] | None
    classes: NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """Some rows of a partition.

    Attributes
    ----------
    X : (m, d)
    labels : (m,)
    ranks : (m,) the order in which to take them where fewer are wanted
    of_rows : int, how many rows they were drawn from
    """

    X: Features
    labels: NDArray[Any]
    ranks: NDArray[np.intp]
    of_rows: int


@dataclass(frozen=True)
class Quota:
    """How many rows of a partition to draw.

    Attributes
    ----------
    n_rows : int, most rows of this partition
    of_rows : int, most rows of the whole sample
    n_bytes : int, most bytes of the whole sample, where rows are so wide that these hold fewer
    """

    n_rows: int
    of_rows: int
    n_bytes: int

    def of_width(self, n_features: int) -> int:
        """The most rows of a partition of so many features.

        Examples
        --------
        >>> quota = Quota(n_rows=500, of_rows=10_000, n_bytes=256 << 20)
        >>> quota.of_width(1024), quota.of_width(33_554)
        (500, 52)
        """
        fitting = rows_that_fit(self.of_rows, n_features, self.n_bytes)
        if fitting == self.of_rows:
            return self.n_rows
        # Two more than the share, as where widths are known before.
        return self.n_rows * fitting // self.of_rows + 2


def rows_that_fit(n_most: int, n_features: int, n_bytes: int) -> int:
    """At most `n_most` rows, and at most so many bytes of float64 unless that is under 256 rows."""
    return min(n_most, max(256, n_bytes // (8 * max(1, n_features))))


def look(partition: str, key: tuple[int, int], quota: Quota, *parts: Any) -> tuple[Facts, Sample]:
    """Look at a partition on its worker.

    Parameters
    ----------
    partition : its name, for errors
    key : seed and number of the partition, from which the sample is drawn
    quota : most rows of the sample
    parts : X (n, d), y (n,), and weights (n,) or None
    """
    with naming(partition):
        given, labels = parts[0], np.asarray(plain(parts[1]))
        X = plain(given)
        is_sparse = scipy.sparse.issparse(X)
        if is_sparse:
            X = X.tocsr()
        if getattr(X, "ndim", 0) != 2 or labels.ndim != 1:
            raise ValueError(
                f"must have features of 2 axes and labels of 1, found {type(given).__name__} of "
                f"shape {np.shape(given)} and labels of shape {labels.shape}"
            )
        if X.shape[0] == 0:
            raise ValueError("is empty: leave empty partitions out")
        if len(labels) != X.shape[0]:
            raise ValueError(f"has {X.shape[0]} rows and {len(labels)} labels")
        if X.dtype.kind not in "biuf":
            raise ValueError(f"must have features that are numbers, found dtype {X.dtype}")
        assert_all_finite(X, input_name="X")
        assert_all_finite(labels, input_name="y")
        check_labels(labels)
        counting = _counting(plain(parts[2]), labels)
        chosen, ranks = _chosen(key, len(counting), quota.of_width(X.shape[1]))
        rows = counting[chosen]
        facts = Facts(
            n_rows=X.shape[0],
            n_features=X.shape[1],
            n_bytes=X.data.nbytes + X.indices.nbytes if is_sparse else X.nbytes,
            dtype=str(X.dtype),
            layout="sparse" if is_sparse else "dense",
            names=names_of(given),
            classes=np.unique(labels),
        )
        return facts, Sample(X[rows], labels[rows], ranks, len(counting))


def _counting(weights: Any, labels: NDArray[Any]) -> NDArray[np.intp]:
    """Numbers of the rows that count: those of weight 0 do not."""
    if weights is None:
        return np.arange(len(labels))
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != labels.shape:
        raise ValueError(f"has {len(labels)} labels and weights of shape {weights.shape}")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError("must have weights that are finite numbers of at least 0")
    return np.flatnonzero(weights)


def _chosen(
    key: tuple[int, int], n_rows: int, n_most: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows drawn from `n_rows`, rising, and the rank of each."""
    drawn = np.random.default_rng(key).permutation(n_rows)[:n_most]
    order = np.argsort(drawn)
    return drawn[order], order


def check_together(facts: Sequence[Facts]) -> None:
    """Refuse partitions of different widths, types, layouts or names, naming the first such."""
    first = facts[0]
    for index, found in enumerate(facts):
        for what, one, other in (
            ("features", first.n_features, found.n_features),
            ("features of type", first.dtype, found.dtype),
            ("features that are", first.layout, found.layout),
            ("features named", first.names, found.names),
            ("labels that are", _kind(first.classes), _kind(found.classes)),
        ):
            if one != other:
                raise PartitionError(
                    f"partition {index}: has {_said(what, other)}, but partition 0 has "
                    f"{_said(what, one)}"
                )


def _said(what: str, value: Any) -> str:
    if isinstance(value, int):
        return f"{value} {what}"
    if isinstance(value, tuple):
        return f"{what} {', '.join(value[:3])}{', ...' if len(value) > 3 else ''}"
    return f"{what} {'nothing' if value is None else value}"


def _kind(labels: NDArray[Any]) -> str:
    if labels.dtype.kind in "biuf":
        return "numbers"
    if labels.dtype.kind in "SUT" or all(isinstance(label, str | bytes) for label in labels):
        return "text"
    return f"of type {labels.dtype}"


def fair_sample(
    ask: Callable[[Sequence[Quota]], Sequence[tuple[Facts, Sample]]],
    partitions: Sequence[Partition],
    n_most: int,
    seed: int,
    n_bytes: int,
) -> tuple[list[Facts], list[Sample]]:
    """Every row with the same chance, at most `n_most`; the same for the same seed and partitions.

    Parameters
    ----------
    ask : has each partition looked at, with the most rows to draw from each
    partitions : of known and unknown lengths
    n_most : int
    seed : int
    n_bytes : most bytes of the sample, once it is known how wide rows are
    """
    rounding = float(np.random.default_rng(seed).random())
    lengths = [partition.n_rows for partition in partitions]
    known = [length for length in lengths if length is not None]
    if len(known) == len(lengths):
        quotas = _quotas(known, n_most)
    else:
        # Twice an even share, so that lengths that differ somewhat still give a fair sample.
        quotas = [-(-2 * n_most // len(partitions))] * len(partitions)
    answers = ask([Quota(quota, n_most, n_bytes) for quota in quotas])
    facts = [found for found, _ in answers]
    check_together(facts)
    n_most = rows_that_fit(n_most, facts[0].n_features, n_bytes)
    samples = thinned([sample for _, sample in answers], n_most, rounding)
    found_lengths = [sample.of_rows for sample in samples]
    n_found, n_there = sum(len(sample.labels) for sample in samples), sum(found_lengths)
    if 2 * n_found < min(n_most, n_there) or n_found < n_there <= n_most:
        # Lengths differ widely, or all rows could come: now that lengths are known, ask for the
        # right shares.
        answers = ask([Quota(own, n_most, n_bytes) for own in _quotas(found_lengths, n_most)])
        samples = thinned([sample for _, sample in answers], n_most, rounding)
    return facts, samples


def _quotas(lengths: Sequence[int], n_most: int) -> list[int]:
    total = max(1, sum(lengths))
    return [min(length, n_most * length // total + 2) for length in lengths]


def thinned(samples: Sequence[Sample], n_most: int, rounding: float) -> list[Sample]:
    """Samples cut down to one and the same share of the rows of each partition.

    `rounding` in [0, 1) says how parts of a row are rounded; where it is drawn at random, every row
    has the same chance.

    Examples
    --------
    >>> X = np.zeros((4, 1))
    >>> short = Sample(X, np.arange(4), np.array([2, 0, 1, 3]), of_rows=4)
    >>> long = Sample(X, np.arange(4), np.array([2, 0, 1, 3]), of_rows=8)
    >>> [sample.labels.tolist() for sample in thinned([short, long], 100, 0.0)]
    [[1, 2], [0, 1, 2, 3]]
    """
    total = sum(sample.of_rows for sample in samples)
    shares = [len(sample.labels) / sample.of_rows for sample in samples if sample.of_rows]
    share = min([1.0, n_most / max(1, total), *shares])
    kept = []
    before = 0
    for sample in samples:
        after = before + sample.of_rows
        wanted = int(after * share + rounding + 1e-9) - int(before * share + rounding + 1e-9)
        rows = sample.ranks < wanted
        kept.append(
            replace(sample, X=sample.X[rows], labels=sample.labels[rows], ranks=sample.ranks[rows])
        )
        before = after
    return kept


def joined(samples: Sequence[Sample]) -> tuple[Features, NDArray[Any]]:
    """All rows of samples in the order of the partitions: X (m, d), labels (m,)."""
    parts = [sample.X for sample in samples]
    X = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else scipy.sparse.vstack(parts)
    return X, np.concatenate([sample.labels for sample in samples])


def drawn_rows(
    partition: str,
    rows: Callable[..., Any],
    first_row: int,
    share: float,
    seed: int,
    learner: BinaryCodeClassifier,
    *parts: Any,
) -> list[Drawn]:
    """Rows of a partition that are drawn by their numbers, on a worker; as they are, also sparse.

    Parameters
    ----------
    partition : which one it is, for errors
    rows : called with `parts`, gives the rows in batches
    first_row : number of its first row
    share : of the rows to draw
    seed : of the draw
    learner : has the number of features and the weights of the classes

    Returns
    -------
    list
        For each batch X (m, d), labels (m,), and weights (m,), those of the classes included, or
        None for ones. Rows of weight 0 are never drawn.
    """
    found = []
    with naming(partition):
        for X, labels, weights in rows(*parts):
            X, labels, _, weights = check_rows(learner, X, labels, weights, reset=False)
            numbers = np.arange(first_row, first_row + len(labels), dtype=np.uint64)
            drawn = uniform(numbers, seed, salt=0) < share
            chosen = np.flatnonzero(drawn if weights is None else drawn & (weights > 0))
            found.append((X[chosen], labels[chosen], None if weights is None else weights[chosen]))
            first_row += len(labels)
    return found
