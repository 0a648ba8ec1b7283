"""Refinement on mini-batches of rows: which rows, how many epochs, from which start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass._native import SparseRows, effective_threads, product, thread_limit
from bitclass.arrays import class_blocks, sample_rows
from bitclass.codes import sign
from bitclass.report import Epoch
from bitclass.training.candidate import Candidate, sharpness, sharpness_of_random_codes
from bitclass.training.closed_form import (
    ClosedForm,
    DenseWhitening,
    WideWhitening,
    score_deviation,
    score_sizes,
)
from bitclass.training.settings import Settings
from bitclass.training.steps import (
    DenseProjection,
    MeanSteps,
    Objective,
    Schedule,
    SparseProjection,
    Steps,
)
from bitclass.training.sums import Sample, row_keys

# Row visits in total, at most and at least, and epochs; similarities to anchors need more.
_MAX_EPOCHS, _MAX_VISITS, _MIN_VISITS = 12, 250_000, 40_000
_MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS = 20, 400_000
_ROWS_PER_STEP, _ROWS_PER_LARGE_STEP, _MANY_ROWS = 256, 512, 10_000
# The same for sparse wide rows.
_WIDE_EPOCHS, _MAX_WIDE_VISITS, _MIN_WIDE_VISITS = 8, 1_000_000, 50_000
# Share of the entries that a sparse row lacks at a visit. Classes are then told by more of their
# columns, as other rows require and smaller projections: on held-out texts of CLINC-150, 0.171
# nats instead of 0.178, and with 40 % of the columns 95.7 instead of 95.6 %; 0.4 gave 0.173 nats.
_DROPPED_SHARE = 0.2
# The same if weights are class means: visits of each class, and classes per step to start from; and
# the factor on the learning rates.
_EPOCHS_OF_CLASSES, _CLASSES_PER_STEP, _MAX_ROWS_OF_CLASS = 2, 128, 16
_PEAK_OF_CLASSES = 1 / 3
_ROWS_PER_BLOCK = 1024
_MIN_DRAWN_SHARE = 1 / 32  # fewer drawn rows cost more than they bring
_DRAWN_DEVIATIONS = 8192  # supply of those of drawn rows from their class means
# With more classes than this, codes are taken to be as far apart as random ones: 20,902 characters
# +2.1 points, but 2,201 characters -2.7.
_CLASSES_IN_ALL_CODES = 8192


# -------------------------------------------------------------------------------------------------
# Rows and epochs
# -------------------------------------------------------------------------------------------------


class _TrainingRows:
    """Mini-batches of real rows, mixed with rows drawn from the sums where these are few.

    The share of drawn rows is that part of the class means which the rows do not determine, on
    average over the classes: it goes to 0 with many rows. Classes with few rows get more.
    """

    def __init__(
        self, closed: ClosedForm, sample: Sample, max_rows: int, random: np.random.Generator
    ) -> None:
        whitening = self._whitening = closed.whitening
        if len(sample) > max_rows:
            sample = sample.select(np.sort(np.argsort(row_keys(sample.keys))[:max_rows]))
        self.y = np.searchsorted(whitening.sums.classes, sample.labels)
        n_classes = len(whitening.sums.classes)
        counts = np.bincount(self.y, minlength=n_classes)
        mean_weights = np.bincount(self.y, sample.weights, n_classes) / np.maximum(counts, 1)
        weights = sample.weights / mean_weights[self.y]
        self._weights, self._random = weights.astype(np.float32), random
        self.rows = _coordinates(whitening, sample)
        unknown = whitening.unknown
        self.drawn_share = float(unknown.mean()) if isinstance(whitening, DenseWhitening) else 0.0
        if self.drawn_share < _MIN_DRAWN_SHARE:
            self.drawn_share = 0.0
        self._drawn_classes = unknown / max(unknown.sum(), 1e-300)
        shares = self.drawn_share * self._drawn_classes
        shares += (1.0 - self.drawn_share) * counts / counts.sum()
        self.log_shares = np.log(np.maximum(shares, 1e-12)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.y)

    def _visited(self, chosen: NDArray[np.intp]) -> Any:
        """Some rows; sparse ones without a random share of their entries."""
        rows = self.rows[chosen]
        if isinstance(rows, SparseRows):
            stays = self._random.random(len(rows.data), np.float32) >= _DROPPED_SHARE
            rows.data *= stays / np.float32(1.0 - _DROPPED_SHARE)
        return rows

    def batches(
        self, n_per_step: int
    ) -> Iterator[tuple[Any, NDArray[np.intp], NDArray[np.float32]]]:
        """Mini-batches without end: all rows in random order again and again, and drawn rows."""
        n_drawn = round(self.drawn_share * n_per_step)
        n_real = max(1, min(n_per_step - n_drawn, len(self)))
        more_rows = self._drawn_batches(n_drawn)
        while True:
            order = self._random.permutation(len(self))
            for start in range(0, len(self) - n_real + 1, n_real):
                chosen = order[start : start + n_real]
                rows, y, weights = self._visited(chosen), self.y[chosen], self._weights[chosen]
                if n_drawn:
                    drawn, y_drawn = next(more_rows)
                    rows, y = np.concatenate([rows, drawn]), np.concatenate([y, y_drawn])
                    weights = np.concatenate([weights, np.ones(n_drawn, np.float32)])
                yield rows, y, weights

    def _drawn_batches(self, m: int) -> Iterator[tuple[NDArray[np.float32], NDArray[np.intp]]]:
        """Rows (m, k) drawn from the sums, and their classes, without end.

        After the first ones, deviations from the class means are sums of two of these: normal
        numbers for each row cost more than a step.
        """
        whitening, random = self._whitening, self._random
        assert isinstance(whitening, DenseWhitening)
        bounds = np.cumsum(self._drawn_classes)

        def classes() -> NDArray[np.intp]:
            return np.searchsorted(bounds, random.random(m) * bounds[-1], side="right")

        supply = []
        for _ in range(math.ceil(_DRAWN_DEVIATIONS / m)):
            supply.append(whitening.draw_noise(m, random))
            y = classes()
            yield whitening.means[y] + supply[-1], y
        noise = np.concatenate(supply) * np.float32(math.sqrt(0.5))
        while True:
            one, other = random.integers(len(noise), size=(2, m))
            y = classes()
            rows = whitening.means[y]
            rows += noise[one]
            rows += noise[other]
            yield rows, y


class _RowsOfClasses(_TrainingRows):
    """Mini-batches of all rows of some classes, many of them near each other."""

    def __init__(self, closed: ClosedForm, sample: Sample, random: np.random.Generator) -> None:
        super().__init__(closed, sample, len(sample), random)
        self.steps: MeanSteps | None = None

    def batches(
        self, n_per_step: int
    ) -> Iterator[tuple[Any, NDArray[np.intp], NDArray[np.float32]]]:
        """Mini-batches without end; in each pass they start from each class about once."""
        assert self.steps is not None
        counts = np.bincount(self.y, minlength=len(self.log_shares))
        starts = np.cumsum(counts) - counts
        while True:
            order = self._random.permutation(len(self))
            order = order[np.argsort(self.y[order], kind="stable")]
            seeds = self._random.permutation(np.flatnonzero(counts))
            for start in range(0, len(seeds), n_per_step):
                classes = self.steps.near_classes(seeds[start : start + n_per_step])
                lengths = np.minimum(counts[classes], _MAX_ROWS_OF_CLASS)
                skipped = starts[classes] - (np.cumsum(lengths) - lengths)
                chosen = order[np.arange(int(lengths.sum())) + np.repeat(skipped, lengths)]
                yield self._visited(chosen), self.y[chosen], self._weights[chosen]


class _SparseCoordinates:
    """Columns of sparse rows, divided by their sizes, by row index."""

    def __init__(self, whitening: WideWhitening, sample: Sample) -> None:
        rows = sample.features()[:, whitening.columns]
        self._rows = sp.csr_array(rows, dtype=np.float32)
        self._rows.data /= whitening.sizes[self._rows.indices]

    def __getitem__(self, chosen: NDArray[np.intp]) -> SparseRows:
        return SparseRows.of(self._rows[chosen])

    @property
    def entries_per_row(self) -> float:
        """Mean number of entries per row."""
        return float(self._rows.nnz / max(self._rows.shape[0], 1))


def _is_sparse(whitening: Any) -> TypeGuard[WideWhitening]:
    """Whether refinement works on the columns of sparse rows."""
    return isinstance(whitening, WideWhitening) and whitening.sparse


def _coordinates(whitening: Any, sample: Sample) -> Any:
    """Rows in the coordinates of the projection that is trained."""
    if _is_sparse(whitening):
        return _SparseCoordinates(whitening, sample)
    A = np.empty((len(sample), whitening.means.shape[1]), dtype=np.float32)

    def transform(start: int) -> None:
        part = slice(start, min(start + _ROWS_PER_BLOCK, len(A)))
        with thread_limit(1):  # one kernel thread per thread of the pool
            A[part] = whitening.rows(sample.X, part if sample.rows is None else sample.rows[part])

    with ThreadPoolExecutor(effective_threads(None)) as pool:
        list(pool.map(transform, range(0, len(A), _ROWS_PER_BLOCK)))
    return A


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """The same mini-batches, each made by another thread during the step before."""
    if effective_threads(None) == 1:
        yield from batches
        return

    def following() -> Any:
        with thread_limit(1):  # the others are at work on the step
            return next(batches)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(following)
        while True:
            batch, future = future.result(), pool.submit(following)
            yield batch


@dataclass(frozen=True)
class Refinement:
    """A refined candidate, and how it came about."""

    candidate: Candidate
    epochs: tuple[Epoch, ...]
    stopped: str | None


def refine(settings: Settings, closed: ClosedForm, sample: Sample, judged: Sample) -> Refinement:
    """Improve projection, weights and bias jointly on mini-batches of rows.

    Parameters
    ----------
    settings : Settings
    closed : ClosedForm, to start from
    sample : Sample of training rows
    judged : Sample, rows for the accuracy after each epoch; may be empty
    """
    whitening, random = closed.whitening, np.random.default_rng([settings.seed, 1])
    max_epochs, max_visits = _MAX_EPOCHS, _MAX_VISITS
    if settings.kernel:
        max_epochs, max_visits = _MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS
    width = whitening.means.shape[1]
    max_rows = min(max_visits, max(1024, settings.max_bytes // (4 * width)))
    if _is_sparse(whitening):
        max_rows = len(sample)
    # Rows have random numbers of their own, since they are drawn ahead of the steps.
    rows = _TrainingRows(closed, sample, max_rows, np.random.default_rng([settings.seed, 3]))
    n_visits = max(min(max_epochs * len(rows), max_visits), _MIN_VISITS)
    n_per_step = _ROWS_PER_STEP if len(rows) < _MANY_ROWS else _ROWS_PER_LARGE_STEP
    if _is_sparse(whitening):
        n_visits = max(min(_WIDE_EPOCHS * len(rows), _MAX_WIDE_VISITS), _MIN_WIDE_VISITS)
        n_per_step = _ROWS_PER_STEP
        if len(closed.weights) > settings.learned_classes:
            rows = _RowsOfClasses(closed, sample, random)
            n_per_step = _CLASSES_PER_STEP
            n_visits = _EPOCHS_OF_CLASSES * len(closed.weights)
    n_steps = max(1, n_visits // n_per_step)
    # The less the rows say about the class means, the less far they lead from the closed form.
    peak = (1.0 - rows.drawn_share) ** 2
    if isinstance(rows, _RowsOfClasses):
        peak = _PEAK_OF_CLASSES
    steps = _start(settings, closed, rows, Schedule(n_steps, peak), random)
    A_judged = _coordinates(whitening, judged) if len(judged) else None
    y_judged = np.searchsorted(whitening.sums.classes, judged.labels)
    # Of few rows, an epoch is several passes; of classes, it is one over all of them.
    n_visited = len(closed.weights) if isinstance(rows, _RowsOfClasses) else len(rows)
    per_epoch = max(1, n_visited // n_per_step, math.ceil(n_steps / max_epochs))
    n_epochs = math.ceil(n_steps / per_epoch)
    epochs: list[Epoch] = []
    stopped, batches = None, rows.batches(n_per_step)
    if not isinstance(rows, _RowsOfClasses):  # whose classes depend on the steps before
        batches = _ahead(batches)
    while not steps.finished and stopped is None:
        for batch in islice(batches, per_epoch):
            steps.step(*batch)
            if steps.finished or settings.out_of_time:
                break
        accuracy = None
        if A_judged is not None:
            accuracy = _accuracy(steps, A_judged, y_judged, judged)
        epochs.append(Epoch(len(epochs) + 1, n_epochs, accuracy, steps.mean_loss()))
        settings.print_line(
            f"epoch {len(epochs)} of {n_epochs}: mean cross-entropy {epochs[-1].objective:.3f}"
            + ("" if accuracy is None else f", {accuracy:.2%} of the judged rows")
        )
        if settings.callback is not None and settings.callback(epochs[-1]):
            stopped = "callback"
        elif settings.out_of_time and not steps.finished:
            stopped = "max_time"
    return Refinement(_refined(closed, steps), tuple(epochs), stopped)


def _refined(closed: ClosedForm, steps: Steps) -> Candidate:
    projection, whitening = steps.projection, closed.whitening
    if _is_sparse(whitening):
        hash_function = whitening.wide_hash_function(projection.matrix, projection.intercept)
    else:
        hash_function = whitening.hash_function(projection.matrix, projection.intercept)
    return Candidate(hash_function, steps.weights, steps.bias, steps.objective.sharpness[1])


def _start(
    settings: Settings,
    closed: ClosedForm,
    rows: _TrainingRows,
    schedule: Schedule,
    random: np.random.Generator,
) -> Steps:
    """Set up the steps; with very many classes, weights follow the class means."""
    whitening = closed.whitening
    n_classes = len(closed.weights)
    deviation = score_deviation(whitening.sums.effective_rows / n_classes)
    if _is_sparse(whitening):
        projection: Any = SparseProjection(
            whitening.projection(closed.Q),
            whitening.intercept(closed.Q, closed.t),
            deviation,
            rows.rows.entries_per_row,
        )
    else:
        size = score_sizes(whitening, closed.Q, deviation)
        closed = replace(closed, Q=closed.Q * size, t=closed.t * size)
        projection = DenseProjection(closed.Q, closed.t, deviation)
    means, class_means = None, None
    Q, t = closed.Q.astype(np.float32), closed.t.astype(np.float32)
    if n_classes <= settings.learned_classes:
        means = whitening.means @ Q + t
    else:

        def class_means() -> NDArray[np.int8]:
            found = np.empty(closed.weights.shape, dtype=np.int8)
            for part in class_blocks(n_classes):
                scores = product(whitening.means[part], projection.matrix)
                found[part] = sign(scores + projection.intercept)
            return found

    some = sample_rows(len(rows), 512)
    # Where the means are known, the rows are as good as unseen ones.
    known = isinstance(whitening, DenseWhitening) and rows.drawn_share == 0.0
    given = (rows.rows[some], rows.y[some]) if known else ()
    is_random = _is_sparse(whitening) and n_classes > settings.learned_classes
    if n_classes <= _CLASSES_IN_ALL_CODES and not is_random:
        sharp = sharpness(closed, *given)
    else:
        sharp = sharpness_of_random_codes(n_classes, len(closed.t))
    objective = Objective(sharp, rows.log_shares)
    bias = np.zeros(n_classes, dtype=np.float32)
    if isinstance(rows, _RowsOfClasses) and _is_sparse(whitening):
        of_classes = whitening.class_rows()
        # So many class means have more directions than there are bits: random ones keep all.
        projection.randomise(of_classes, random)

        def mean_signs() -> NDArray[np.int8]:
            found = np.empty(closed.weights.shape, dtype=np.int8)
            for part in class_blocks(n_classes):
                found[part] = sign(projection.scores(of_classes[part]))
            return found

        rows.steps = MeanSteps(
            projection, closed.weights, None, bias, objective, schedule, random, mean_signs
        )
        return rows.steps
    return Steps(projection, closed.weights, means, bias, objective, schedule, random, class_means)


def _accuracy(steps: Steps, rows: Any, y: NDArray[np.intp], judged: Sample) -> float:
    """Accuracy on the judged rows, where classes are as frequent as in the training rows."""
    n_classes = len(steps.bias)
    some = sample_rows(len(y), max(64, min(1024, (1 << 23) // n_classes)))
    values = np.tanh(steps.projection.scores(rows[some]))
    scores = values @ steps.weights.astype(np.float32).T + steps.bias
    scores += steps.objective.log_shares / steps.objective.sharpness[1]
    return float(np.average(scores.argmax(axis=1) == y[some], weights=judged.weights[some]))
