"""Refinement on the rows, and the judge: rows, epochs, acceptance, calibration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeGuard

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass._native import SparseRows, effective_threads, product, thread_limit
from bitclass.arrays import class_blocks, sample_rows
from bitclass.codes import make_distinct, pack, sign
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.report import Epoch, Report
from bitclass.training.closed_form import (
    MAX_BIASED_CLASSES,
    ClosedForm,
    DenseWhitening,
    WideWhitening,
    best_temperature,
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
from bitclass.training.sums import Sample, Sums, row_keys

__all__ = [
    "RESCORE_LENGTHS",
    "Candidate",
    "Fitted",
    "Fold",
    "Judged",
    "Refinement",
    "calibrated",
    "candidate_of",
    "is_better",
    "judge",
    "margin_sharpness",
    "prior_temperature",
    "refine",
    "score_deviation",
    "sharpness",
    "typical_score",
    "with_all_rows",
]

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
_TYPICALITY_QUANTILES = 256
_MIN_DRAWN_SHARE = 1 / 32  # fewer drawn rows cost more than they bring
_DRAWN_DEVIATIONS = 8192  # supply of those of drawn rows from their class means
#: Short-list lengths that ``rescore="auto"`` chooses from; the first is the default.
RESCORE_LENGTHS = (16, 64)
_LEAST_PRIOR_TEMPERATURE = 0.5  # in units of that of drawn rows
# Number of (row, class) pairs that the temperature is fitted on.
_MAX_CALIBRATION_PAIRS = 100_000_000
# Margins in the softmax, in nats per logarithm of the number of classes, of a row whose bits are
# all right, against the nearest other class.
_NATS_OF_SIGNS, _NATS_OF_TANH = 1.5, 2.2
_NATS_OF_SINGLE_ROWS, _DEVIATION_OF_SINGLE_ROWS = 16.0, 0.8
# With more classes than this, codes are taken to be as far apart as random ones: 20,902 characters
# +2.1 points, but 2,201 characters -2.7.
_CLASSES_IN_ALL_CODES = 8192


@dataclass(frozen=True)
class Fitted:
    """The result of training.

    Attributes
    ----------
    model : PackedModel, with the classes that have rows
    report : Report
    """

    model: PackedModel
    report: Report


@dataclass(frozen=True)
class Candidate:
    """A model in the making.

    Attributes
    ----------
    hash_function : HashFunction
    weights : (C, r) int8
    bias : (C,) float32, of the class scores
    sharpness : float, inverse temperature of the class scores, before calibration
    """

    hash_function: HashFunction
    weights: NDArray[np.int8]
    bias: NDArray[np.float32]
    sharpness: float

    def model(
        self, classes: NDArray[Any], prior: NDArray[np.float64], temperature: float
    ) -> PackedModel:
        """The model where classes have the shares `prior` (C,); see `prior_temperature`."""
        weights = make_distinct(self.weights, self.weights, classes)
        bias = self.bias + np.log(prior) * temperature
        bias -= bias.max()
        uneven = np.ptp(bias) > 1e-6
        return PackedModel(
            classes,
            pack(weights),
            self.hash_function,
            bias=bias.astype(np.float32) if uneven else None,
            rescore=RESCORE_LENGTHS[0],
        )


def score_deviation(rows_per_class: float) -> float:
    """Standard deviation of the scores within classes; it grows with the rows per class."""
    return 0.7 * float(np.clip((rows_per_class / 100.0) ** (1.0 / 6.0), 0.6, 1.6))


def sharpness(
    closed: ClosedForm, rows: NDArray[np.float32] | None = None, y: NDArray[np.intp] | None = None
) -> tuple[float, float]:
    """Factors on the class scores in the softmax, by sign and by tanh.

    With them a row whose bits are all right exceeds the nearest other class by a given number of
    nats: classes on a line or a grid differ in few bits, so each bit counts for more. Where
    classes overlap so much that rows are less certain, their sharpness is used: that of rows drawn
    from the sums, or of given rows (m, k) of the classes `y` if these are more certain.
    """
    of_signs, of_tanh = _likely_sharpness(closed)
    if rows is not None:
        more = _likely_sharpness(closed, y, rows)
        of_signs, of_tanh = max(of_signs, more[0]), max(of_tanh, more[1])
    by_signs, by_tanh = margin_sharpness(closed.weights)
    return min(by_signs, of_signs), min(by_tanh, of_tanh)


def margin_sharpness(weights: NDArray[np.int8]) -> tuple[float, float]:
    """Factors on the class scores by which right bits exceed the nearest class by given nats."""
    n_classes, n_bits = weights.shape
    some = weights[sample_rows(n_classes, 1024)].astype(np.float32)
    agreement = some @ some.T
    np.fill_diagonal(agreement, -np.inf)
    gap = float(np.mean(n_bits - agreement.max(axis=1)))
    nats = max(math.log(n_classes), math.log(n_bits) - 1.4)
    gap = max(gap, 2.0)
    return _NATS_OF_SIGNS * nats / gap, _NATS_OF_TANH * nats / gap


def candidate_of(closed: ClosedForm) -> Candidate:
    """The closed form as a candidate."""
    hash_function = closed.whitening.hash_function(closed.Q, closed.t)
    if closed.whitening.sums.has_single_rows:
        sharp = _sharpness_of_single_rows(closed)
    else:
        sharp = _likely_sharpness(closed)[1]
    return Candidate(hash_function, closed.weights, closed.bias, sharp)


def _sharpness_of_single_rows(closed: ClosedForm) -> float:
    """Inverse temperature where each class has one row, so that nothing tells how far others are.

    Such a row exceeds the average of the other classes by a given number of nats, and classes
    differ by a given one at least: between the most likely values on four datasets of embeddings
    and CNN features (15 to 22 nats; 0.7 to 1.5 standard deviations), and letters.
    """
    some = sample_rows(len(closed.weights), 1024)
    F = closed.whitening.means[some] @ closed.Q.astype(np.float32) + closed.t.astype(np.float32)
    scores = np.tanh(F) @ closed.weights[some].astype(np.float32).T
    others = scores[~np.eye(len(some), dtype=bool)]
    exceeds = float(np.diag(scores).mean() - others.mean())
    least = _DEVIATION_OF_SINGLE_ROWS * float(others.std())
    return 1.0 / max(exceeds / _NATS_OF_SINGLE_ROWS, least, 1e-6)


def typical_score(closed: ClosedForm) -> float:
    """Mean of the best class scores of rows drawn from the sums as if unseen."""
    random, n_classes = np.random.default_rng(0), len(closed.weights)
    A = closed.whitening.draw(random.integers(n_classes, size=512), random, unseen=True)
    values = np.tanh(A @ closed.Q.astype(np.float32) + closed.t.astype(np.float32))
    scores = values @ closed.weights.astype(np.float32).T + closed.bias
    return float(scores.max(axis=1).mean())


def _likely_sharpness(
    closed: ClosedForm, y: NDArray[np.intp] | None = None, A: NDArray[np.float32] | None = None
) -> tuple[float, float]:
    """Inverse temperatures at which rows are most likely, by sign and tanh.

    They are rows A (m, k) of the classes `y` (m,), or are drawn from the sums as if unseen.
    """
    random, n_classes = np.random.default_rng(0), len(closed.weights)
    if y is None or A is None:
        y = random.integers(n_classes, size=512)
        A = closed.whitening.draw(y, random, unseen=True)
    F = A @ closed.Q.astype(np.float32) + closed.t.astype(np.float32)
    some = np.unique(np.concatenate([y, np.arange(0, n_classes, 1 + n_classes // 4096)]))
    weights = closed.weights[some].astype(np.float32)
    place = np.searchsorted(some, y)
    of_signs, of_tanh = (
        1.0 / best_temperature(values @ weights.T, place)[0]
        for values in (np.where(F >= 0, np.float32(1), np.float32(-1)), np.tanh(F))
    )
    return of_signs, of_tanh


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

        Deviations from the class means are sums of two from a supply of them: normal numbers for
        each row cost more than a step.
        """
        whitening, random = self._whitening, self._random
        assert isinstance(whitening, DenseWhitening)
        noise = whitening.draw_noise(_DRAWN_DEVIATIONS, random) * np.float32(math.sqrt(0.5))
        bounds = np.cumsum(self._drawn_classes)
        while True:
            y = np.searchsorted(bounds, random.random(m) * bounds[-1], side="right")
            one, other = random.integers(len(noise), size=(2, m))
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
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, batches)
        while True:
            batch, following = following.result(), pool.submit(next, batches)
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
        # Of two random codes half of the bits differ, so the scores are n_bits apart.
        nats = math.log(n_classes) / len(closed.t)
        sharp = _NATS_OF_SIGNS * nats, _NATS_OF_TANH * nats
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


def with_all_rows(candidate: Candidate, sums: Sums) -> Candidate:
    """A model of wide rows whose weights are the codes of the class means of all rows."""
    hash_function = candidate.hash_function
    if hash_function.columns is None:
        return candidate
    weights = np.empty_like(candidate.weights)
    of_classes = sp.csr_array(sums.feature_sums)[:, hash_function.columns]
    for part in class_blocks(len(weights)):
        scores = of_classes[part] @ hash_function.projection / sums.mass[part, None]
        weights[part] = sign(scores + hash_function.intercept)
    return replace(candidate, weights=weights)


# -------------------------------------------------------------------------------------------------
# The judge
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """How a model scores rows that it has not seen.

    Attributes
    ----------
    listed : (n, m + 1), gaps between the best score and those of the short list, and of the best
        class that is not on it; the list has the best class at least
    counts : (n, r + 1), number of other classes 0, 2, 4, ... below that one
    gap : (n,), gap of the true class
    best : (n,), the best score
    correct : (n,) whether the prediction is correct
    weights : (n,)
    length : int, length of the short list with which rows were scored
    """

    listed: NDArray[np.float64]
    counts: NDArray[np.float64]
    gap: NDArray[np.float64]
    best: NDArray[np.float32]
    correct: NDArray[np.bool_]
    weights: NDArray[np.float64]
    length: int

    @property
    def accuracy(self) -> float:
        """Weighted accuracy."""
        return float(np.average(self.correct, weights=self.weights))

    def log_others(self, inverse: float) -> NDArray[np.float64]:
        """Logarithm (n,) of the sum of exp(-gap / temperature) over all classes but the best."""
        steps = 2.0 * np.arange(self.counts.shape[1])
        last = np.where(np.isfinite(self.listed[:, -1]), self.listed[:, -1], 0.0)
        others = self.counts @ np.exp(-inverse * steps) * np.exp(-inverse * last)
        others += np.exp(-inverse * self.listed[:, 1:-1]).sum(axis=1)
        return np.asarray(np.log(np.maximum(others, 1e-300)))

    def log_likelihoods(self, temperature: float) -> NDArray[np.float64]:
        """Logarithms (n,) of the probabilities of the true classes."""
        others = np.exp(self.log_others(1.0 / temperature))
        return np.asarray(-self.gap / temperature - np.log1p(others))

    @cached_property
    def quadratic_scores(self) -> NDArray[np.float64]:
        """Quadratic scores (n,) of the probabilities: ``2 p_y - |p|^2``, at most 1."""
        inverse = 1.0 / self.temperature
        total = 1.0 + np.exp(self.log_others(inverse))
        squares = (1.0 + np.exp(self.log_others(2.0 * inverse))) / total**2
        return np.asarray(2.0 * np.exp(-self.gap * inverse) / total - squares)

    @cached_property
    def temperature(self) -> float:
        """Temperature that calibrates the probabilities of the predicted classes.

        It minimises the cross-entropy between the probability of the predicted class and whether
        the prediction is correct. The likelihood of the labels would be dominated by rows whose
        true class is not on the short list, which makes predictions underconfident.
        """
        correct = self.correct
        # One half of an extra row counts as wrong: if all were correct, there would be no minimum.
        target = correct * (1.0 - 0.5 / (np.count_nonzero(correct) + 1.0))

        def cross_entropy(log_inverse: float) -> float:
            log_others = self.log_others(math.exp(log_inverse))
            # p = 1 / (1 + others); in terms of `others`, log(1 - p) does not lose precision.
            losses = np.logaddexp(0.0, log_others) - (1.0 - target) * log_others
            return float(np.average(losses, weights=self.weights))

        bounds = (math.log(1e-3), math.log(1e4))
        found = scipy.optimize.minimize_scalar(
            cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-6}
        )
        return 1.0 / math.exp(found.x)


def _stacked(parts: Sequence[NDArray[np.float64]], fill: float) -> NDArray[np.float64]:
    """Rows of several arrays, filled up to the same width."""
    width = max(part.shape[1] for part in parts)
    pads = [((0, 0), (0, width - part.shape[1])) for part in parts]
    padded = [
        np.pad(part, pad, constant_values=fill) for part, pad in zip(parts, pads, strict=True)
    ]
    return np.concatenate(padded)


def prior_temperature(
    candidate: Candidate, rows: Sample, classes: NDArray[Any], shares: NDArray[np.float64]
) -> float:
    """Temperature of the scores before the prior is added.

    It is the one at which rows that were not seen are most likely, given the `shares` (C,) of the
    classes among them.
    """
    n_classes = len(classes)
    if n_classes > MAX_BIASED_CLASSES or np.ptp(shares) <= 1e-9:
        return 1.0 / candidate.sharpness
    some = sample_rows(len(rows), 512)
    y = np.searchsorted(classes, rows.labels[some])
    model = PackedModel(
        classes,
        pack(candidate.weights),
        candidate.hash_function,
        bias=candidate.bias,
        rescore=n_classes,
    )
    scores = model.scores(rows.features(some))
    # Rows that are all right have no most likely temperature.
    least = _LEAST_PRIOR_TEMPERATURE / candidate.sharpness
    return best_temperature(scores, y, rows.weights[some], np.log(shares), least)[0]


#: A model, rows of its classes by which it is judged, and their weights.
Fold = tuple[PackedModel, Sample, NDArray[np.float64]]


def judge(folds: list[Fold], rescore: int | None) -> Judged:
    """Score rows that the models have not seen.

    Parameters
    ----------
    folds : models, the rows of their classes that each is judged by, and the weights of the rows
    rescore : int, length of the short list, or None for the one that suits the models best
    """
    n_classes = max(len(model.classes) for model, _, _ in folds)
    parts = []
    for model, rows, weights in folds:
        some = sample_rows(len(rows), max(256, _MAX_CALIBRATION_PAIRS // n_classes))
        y = np.searchsorted(model.classes, rows.labels[some])
        parts.append((model, rows.features(some), y, weights[some]))
    all_weights = np.concatenate([weights for _, _, _, weights in parts])

    def judged(length: int) -> Judged:
        for model, _, _ in folds:
            model.rescore = length
        gaps = [_score_gaps(model, X, y) for model, X, y, _ in parts]
        listed, counts, gap, best, correct = zip(*gaps, strict=True)
        return Judged(
            _stacked(listed, np.inf),
            _stacked(counts, 0.0),
            np.concatenate(gap),
            np.concatenate(best),
            np.concatenate(correct),
            all_weights,
            length,
        )

    lengths = RESCORE_LENGTHS if rescore is None else (rescore,)
    found = judged(lengths[0])
    for other in lengths[1:]:
        if min(other, n_classes) == min(found.length, n_classes):
            continue
        more = judged(other)
        # Also if only classes that are seldom the best are ranked better.
        after, before = (each.log_likelihoods(each.temperature) for each in (more, found))
        if _exceeds(after, before, all_weights):
            found = more
    for model, _, _ in folds:
        model.rescore = found.length
    return found


def _score_gaps(model: PackedModel, X: Any, y: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
    """Gaps of the classes on the short list, counts of the others, and what `Judged` says of rows.

    The list is that of the nearest class if none is rescored.
    """
    rows, index, m = model._rows(X), model._index, model.n_rescored
    codes, n_classes = model.hash_function.encode(rows), len(model.classes)
    if m:
        classes, scores, distances = model.hash_function.rescored(rows, index, m, m)
    else:
        classes, distances = index.top_k(codes, 1)
        scores = model._score_of(classes, distances)
    best, by_distance = scores[:, 0], model._score_of(classes, distances).astype(np.float64)
    gaps = best.astype(np.float64)[:, None] - scores
    # Classes that are not on the list rank below it, in the order of their distances.
    below = gaps[:, -1] + by_distance.min(axis=1) + (1.0 if m else 0.0)
    if len(classes[0]) == n_classes:
        others, counts = np.full(len(y), -np.inf), np.zeros((len(y), 1))
    else:
        width = model.n_bits + 1
        if model.bias is not None:  # biases widen the range of the scores
            width += min(int(np.ptp(model.bias) / 2) + 2, 4 * width)
        others, counts = index.counts(codes, model.n_bits, classes, width)
    to_true = np.bitwise_count(codes ^ model.weights[y]).sum(axis=1, dtype=np.int32)
    is_true = classes == y[:, None]
    gap = np.where(
        is_true.any(axis=1), (gaps * is_true).sum(axis=1), below - model._score_of(y, to_true)
    )
    listed = np.concatenate([gaps, (below - others)[:, None]], axis=1)
    return listed, counts, gap, best, is_true[:, 0]


def is_better(other: Judged, one: Judged) -> bool:
    """Whether the quadratic scores of a model are better than another's.

    They tell more than the number of correct predictions if rows are few, and are bounded: the
    log-likelihood is dominated by the few rows whose true class is not on the short list.
    """
    return _exceeds(other.quadratic_scores, one.quadratic_scores, other.weights)


def _exceeds(
    values: NDArray[np.float64], others: NDArray[np.float64], weights: NDArray[np.float64]
) -> bool:
    """Whether the mean of values (n,) exceeds that of others by one standard error."""
    gains, weights = values - others, weights / weights.sum()
    mean = float(weights @ gains)
    return mean > math.sqrt(float(weights**2 @ (gains - mean) ** 2) + 1e-24)


def calibrated(
    model: PackedModel, length: int, temperature: float, judged: Judged | None
) -> PackedModel:
    """The model with its short list, its temperature, and the best scores of rows not seen."""
    table = None
    if judged is not None:
        order = np.argsort(judged.best, kind="stable")
        best, weights = judged.best[order].astype(np.float64), judged.weights[order]
        if length == 0:  # even integers: those of equal score are spread out
            _, first, counts = np.unique(best, return_index=True, return_counts=True)
            place = np.arange(len(best)) - np.repeat(first, counts) + 0.5
            best += 2.0 * place / np.repeat(counts, counts) - 1.0
        n = min(len(best), _TYPICALITY_QUANTILES)
        below = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
        table = np.interp((np.arange(n) + 0.5) / n, below, best).astype(np.float32)
    return model.replaced(rescore=length, temperature=temperature, typicality=table)
