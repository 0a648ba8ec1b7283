"""Refinement of a closed-form model on the rows themselves.

Some rows are held out, both from refinement and from the model that it starts from. The refined
model is kept only if it is at least as accurate on them as the initial one, and the temperature of
the probabilities is fitted on them. If the rows do not fit into memory, each pass over them draws a
fresh sample. Rows are sampled by their row numbers alone, so the result does not depend on how they
are split into batches.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass._native import effective_threads, thread_limit
from bitclass.arrays import (
    Array,
    Features,
    class_blocks,
    dense_rows,
    device,
    is_foreign,
    like,
    namespace,
    sample_rows,
    signs,
    take,
    to_host,
)
from bitclass.codes import CodeWarning, make_distinct, pack, sign
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.discriminant import (
    Coordinates,
    best_alpha,
    coordinates_to_refine,
    scatter_of,
    target_deviation,
)
from bitclass.training.refinement.steps import Refinement, Schedule, mini_batches
from bitclass.training.settings import RESCORE_LENGTHS, Epoch, Settings
from bitclass.training.statistics import Statistics, Sums

__all__ = [
    "Batch",
    "BestEpoch",
    "Evaluated",
    "Facts",
    "Refined",
    "Rows",
    "Sample",
    "Split",
    "Start",
    "class_mean_weights",
    "fitted_temperature",
    "refine",
    "uniform",
    "with_short_list",
]

_HELD_OUT_SHARE, _MAX_HELD_OUT_SHARE = 0.05, 0.2
_MIN_HELD_OUT, _MAX_HELD_OUT = 200, 4096
# Rows with a weight below this share of the mean are part of the sums only: in refinement they
# would add steps with little effect, and held-out rows with little influence.
_MIN_WEIGHT = 0.01
_ROWS_PER_BLOCK = 4096
# Number of epochs, and of row visits in total; similarities to kernel anchors need more of both.
_MAX_EPOCHS, _MAX_VISITS = 12, 250_000
_MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS = 20, 400_000
# Mini-batch size, and the size used with many rows.
_ROWS_PER_STEP, _ROWS_PER_LARGE_STEP, _MANY_ROWS = 256, 512, 20_000
# If memory cannot hold all rows, a new sample per epoch is best. As each sample costs a pass over
# all rows, samples are reused for several epochs if more than this number would be needed.
_MAX_SAMPLES, _MAX_EPOCHS_PER_SAMPLE = 8, 4
# With more classes than this, weights are the codes of the class means, and a step scores only some
# of the classes.
_MAX_LEARNED_CLASSES = 2048
# Early stopping: refinement stops when the accuracy falls this many standard errors below the best,
# in the second half of the schedule.
_ERRORS_TO_STOP = 4.0
# Number of (row, class) pairs that the temperature is fitted on.
_MAX_CALIBRATION_PAIRS = 100_000_000
_SCORES_PER_BLOCK = 1 << 20  # over all threads

#: X (m, d), labels (m,), weights (m,) or None; no row has weight 0.
Batch = tuple[Features, NDArray[Any], NDArray[np.float64] | None]
#: JSON-serialisable facts about a refinement.
Facts = dict[str, Any]
#: Each call passes over all rows, in the same order.
Rows = Callable[[], Iterator[Batch]]
#: Computes a hash function and class weights (C, r) in closed form.
Start = Callable[[Coordinates], tuple[HashFunction, NDArray[np.int8]]]


@dataclass(frozen=True)
class Refined:
    """The result of refinement.

    Attributes
    ----------
    model : PackedModel
        The refined model, or the initial one if that is more accurate on the held-out rows, with
        short list and temperature chosen on these rows.
    facts : Facts
    """

    model: PackedModel
    facts: Facts

    @property
    def taken(self) -> bool:
        """Whether the model is the refined one."""
        return bool(self.facts["taken"])


def refine(
    settings: Settings,
    statistics: Statistics,
    rows: Rows,
    n_rows: int,
    start: Start,
    groups: NDArray[np.intp] | None = None,
) -> Refined | None:
    """Fit a model to sums over rows, and refine it on the rows.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    rows : callable that passes over the rows that were summed, or a sample of them
    n_rows : int, number of rows in a pass
    start : computes the initial model
    groups : (n_rows,) index of each row's group, or None; whole groups are held out

    Returns
    -------
    Refined, or None if too few rows can be held out
    """
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    split = Split(statistics, rows, n_rows, seed, settings.max_bytes // 4, groups)
    held_out = split.held_out
    if len(held_out) < 2:
        return None
    statistics.move_to_device_of(held_out.X)
    sums = statistics.sums()
    labels = sums.classes[held_out.y]
    out, _ = statistics.summed(held_out.X, labels, held_out.weights, held_out.rows)
    sums = sums.without(out)

    scatter = scatter_of(sums)
    alpha = settings.alpha
    if alpha is None:
        Z = sums.standardised_rows(held_out.X, np.arange(len(held_out)))
        alpha = best_alpha(scatter, Z, held_out.y, held_out.weights)
    coordinates = coordinates_to_refine(scatter, alpha, settings.n_bits)

    def evaluate(
        hash_function: HashFunction,
        weights: NDArray[np.int8],
        rescore: int | None = settings.rescore,
    ) -> Evaluated:
        with warnings.catch_warnings():  # this candidate may be rejected
            warnings.simplefilter("ignore", CodeWarning)
            weights = make_distinct(weights, weights, sums.classes)
        model = PackedModel(sums.classes, pack(weights), hash_function)
        return with_short_list(model, held_out, rescore)

    before = evaluate(*start(coordinates))
    best, about_epochs = _learn(settings, split, coordinates, before.model, seed)
    for Q, t, weights in best.candidates():
        hash_function = coordinates.hash_function(Q, t, settings.precision)
        after = evaluate(hash_function, weights)
        taken = after.accuracy >= before.accuracy
        if taken:
            make_distinct(weights, weights, sums.classes)  # this time with its warnings
            break
    # If the codes of class means are as good as the learned weights, `updated_model` uses them for
    # classes that gain rows.
    mean_weights = class_mean_weights(hash_function, sums)
    by_means = evaluate(hash_function, mean_weights, rescore=after.model.rescore)
    chosen = (after if taken else before).model
    chosen.temperature = fitted_temperature(chosen, held_out.X, held_out.y, held_out.weights)
    settings.print_line(
        f"refinement: {before.accuracy:.2%} before, {after.accuracy:.2%} after, on "
        f"{len(held_out)} held-out rows; {'kept' if taken else 'not kept'}; "
        f"short list of {chosen.rescore}"
    )
    facts = {
        "taken": taken,
        "held_out_rows": len(held_out),
        "accuracy_before": before.accuracy,
        "accuracy_after": after.accuracy,
        **about_epochs,
        "weights_follow_means": taken and by_means.accuracy >= after.accuracy,
        "alpha": alpha,
    }
    return Refined(chosen, facts)


# -------------------------------------------------------------------------------------------------
# Training rows and held-out rows
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A sample of the rows.

    Attributes
    ----------
    X : (m, d), untransformed or whitened
    y : (m,) index of each row's class
    weights : (m,)
    rows : (m,) row numbers, ascending
    """

    X: Array
    y: NDArray[np.intp]
    weights: NDArray[np.float64]
    rows: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.y)

    def mean(self, values: NDArray[Any]) -> float:
        """Weighted mean of one value per row."""
        return float(np.average(values, weights=self.weights))

    @property
    def effective_size(self) -> float:
        """Effective sample size, given the weights."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))

    def t_statistic(self, difference: NDArray[np.float64]) -> float:
        """Mean of a difference (m,), in units of its standard error."""
        mean = self.mean(difference)
        variance = max(self.mean(difference**2) - mean**2, 0.0)
        return mean / max(math.sqrt(variance / self.effective_size), 1e-12)


class Split:
    """Held-out rows, and samples of the remaining training rows.

    Parameters
    ----------
    statistics : Statistics, the sums over all rows
    rows : callable that passes over the rows that were summed, or over a sample of them
    n_rows : int, number of rows in a pass
    seed : int
    max_bytes : int, maximum size of a sample
    groups : (n_rows,) index of each row's group, optional
        Whole groups are held out.

    Attributes
    ----------
    held_out : Sample
    n_training, n_per_sample : int
        Number of rows that are not held out, and number of rows per sample of them.
    """

    def __init__(
        self,
        statistics: Statistics,
        rows: Rows,
        n_rows: int,
        seed: int,
        max_bytes: int,
        groups: NDArray[np.intp] | None = None,
    ) -> None:
        self._statistics, self._sums = statistics, statistics.sums()
        self._rows, self._seed, self._n_samples = rows, seed, 0
        max_rows = max(1024, max_bytes // (4 * len(statistics.shift)))
        if n_rows > max_rows:  # a sample briefly takes twice its memory
            max_rows = max(1024, max_rows // 2)
        n_rows = max(n_rows, 1)
        # With uneven weights more rows are held out, as fewer of them count.
        n_effective = n_rows * statistics.effective_rows / max(statistics.n_rows, 1)
        share = min(max(_HELD_OUT_SHARE, _MIN_HELD_OUT / n_effective), _MAX_HELD_OUT_SHARE)
        share = min(share, _MAX_HELD_OUT / n_rows)
        if groups is None:
            self.held_out, n_usable = self._hold_out(share)
        else:
            self.held_out, n_usable = self._hold_out_groups(groups, share * n_rows)
        self.n_training = max(n_usable - len(self.held_out), 0)
        self.n_per_sample = min(self.n_training, max_rows)

    @property
    def holds_all(self) -> bool:
        """Whether a sample contains all training rows."""
        return self.n_per_sample == self.n_training

    def _hold_out(self, share: float) -> tuple[Sample, int]:
        """Held-out rows, and the number of usable rows; classes keep at least half their weight."""
        found, n_usable = self._choose(lambda rows: uniform(rows, self._seed, 0) < share)
        y, available = found.y, self._sums.class_weights
        lost = np.bincount(y, weights=found.weights, minlength=len(available))
        stay = np.flatnonzero(_at_most_half(lost, available)[y])
        X, weights, rows = take(found.X, stay), found.weights[stay], found.rows[stay]
        return Sample(X, y[stay], weights, rows), n_usable

    def _hold_out_groups(self, groups: NDArray[np.intp], n_wanted: float) -> tuple[Sample, int]:
        """Hold out whole groups, in random order; classes keep at least half their weight.

        The first group may have any number of rows; others are added up to `n_wanted` rows.
        """
        batches = [
            (to_host(labels), np.ones(X.shape[0]) if weights is None else weights)
            for X, labels, weights in self._rows()
        ]
        labels, sample_weight = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        y = np.searchsorted(self._sums.classes, labels)
        available = np.bincount(y, weights=sample_weight, minlength=len(self._sums.classes))
        by_group = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
        lost, is_held_out = np.zeros(len(available)), np.zeros(len(groups), dtype=bool)
        n_held_out = 0
        for group in np.random.default_rng([self._seed, 2]).permutation(len(by_group)):
            rows = by_group[group]
            if n_held_out and n_held_out + len(rows) > n_wanted:
                continue
            classes, inverse = np.unique(y[rows], return_inverse=True)
            weights = lost[classes] + np.bincount(inverse, weights=sample_weight[rows])
            if _at_most_half(weights, available[classes]).all():
                lost[classes] = weights
                n_held_out += len(rows)
                is_held_out[rows] = True
        return self._choose(lambda rows: is_held_out[rows])

    def epochs(
        self, max_epochs: int, n_visits: int, transform: Callable[[Array], Array]
    ) -> Iterator[Sample]:
        """Yield the training rows of each epoch: all, or samples if they do not fit into memory.

        Parameters
        ----------
        max_epochs : int, maximum number of epochs if a sample contains all rows
        n_visits : int, number of row visits in total
        transform : function applied to blocks of rows (m, d) before they are stored
        """
        if self.holds_all:
            sample = self.training_sample(transform)
            for _ in range(max_epochs):
                yield sample
            return
        n_repeats = math.ceil(n_visits / self.n_per_sample / _MAX_SAMPLES)
        while True:
            sample = self.training_sample(transform)
            for _ in range(min(max(1, n_repeats), _MAX_EPOCHS_PER_SAMPLE)):
                yield sample
            del sample  # or two samples would be in memory at once

    def training_sample(self, transform: Callable[[Array], Array]) -> Sample:
        """Rows that are not held out: all, or a fresh sample if they do not fit into memory."""
        self._n_samples += 1
        salt, share = self._n_samples, self.n_per_sample / max(self.n_training, 1)

        def chosen(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            training = ~np.isin(rows, self.held_out.rows, assume_unique=True)
            if share == 1.0:
                return training
            return training & (uniform(rows, self._seed, salt) < share)

        return self._choose(chosen, transform)[0]

    def _choose(
        self,
        choose: Callable[[NDArray[np.intp]], NDArray[np.bool_]],
        transform: Callable[[Array], Array] = lambda X: X,
    ) -> tuple[Sample, int]:
        """Rows that `choose` selects by row number, and the number of usable rows.

        Usable are rows of classes in the sums, unless their weight is negligible.
        """
        classes, statistics = self._sums.classes, self._statistics
        min_weight = _MIN_WEIGHT * statistics.total_weight / max(statistics.n_rows, 1)
        parts, n_usable = [], 0

        def chosen_rows() -> Iterator[Array]:
            nonlocal n_usable
            first_row = 0
            for X, labels, weights in self._rows():
                rows, labels = np.arange(first_row, first_row + X.shape[0]), to_host(labels)
                first_row += X.shape[0]
                weights = np.ones(X.shape[0]) if weights is None else weights
                place = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
                # A class without rows in the sums is not in the model.
                usable = (classes[place] == labels) & (weights >= min_weight)
                n_usable += int(usable.sum())
                chosen = np.flatnonzero(choose(rows) & usable)
                parts.append((place[chosen], weights[chosen], rows[chosen]))
                step = max(len(chosen), 1) if is_foreign(X) else _ROWS_PER_BLOCK
                for start in range(0, len(chosen), step):
                    yield dense_rows(X, chosen[start : start + step])

        blocks = [transform(block) for block in _equal_blocks(chosen_rows())]
        if not parts:
            raise ValueError("batches must yield the rows each time it is called, found none")
        y, sample_weight, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        X = _concatenate(blocks, statistics.n_features)
        return Sample(X, y, sample_weight, numbers), n_usable


def _at_most_half(lost: NDArray[Any], available: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether `lost` is at most half of `available`, up to rounding of the sums."""
    return np.asarray(2.0 * lost <= (1.0 + 1e-9) * available)


def _equal_blocks(parts: Iterable[Array]) -> Iterator[Array]:
    """The rows in blocks of equal size, so that rounding does not depend on the batch size."""
    pending: list[Array] = []
    for X in parts:
        if is_foreign(X):  # these blocks would be too small for a device
            yield X
            continue
        room = _ROWS_PER_BLOCK - sum(map(len, pending))
        pending.append(X[:room])
        if len(X) >= room:
            yield pending[0] if len(pending) == 1 else np.concatenate(pending)
            pending = [X[room:]] if len(X) > room else []
    if pending:
        yield pending[0] if len(pending) == 1 else np.concatenate(pending)


def _concatenate(blocks: list[Array], n_features: int) -> Array:
    """Concatenate blocks of rows, releasing each block once it is copied."""
    if not blocks:
        return np.empty((0, n_features), dtype=np.float32)
    if is_foreign(blocks[0]):
        return namespace(blocks[0]).concat(blocks)
    shape = sum(map(len, blocks)), blocks[0].shape[1]
    rows, start = np.empty(shape, dtype=np.result_type(*blocks)), 0
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        rows[start : start + len(block)] = block
        start += len(block)
    return rows


def uniform(rows: NDArray[np.intp], seed: int, salt: int) -> NDArray[np.float64]:
    """Pseudo-random number in [0, 1) for each row number: the mixing function of SplitMix64."""
    start = (seed * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03) % 2**64
    mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


# -------------------------------------------------------------------------------------------------
# Training
# -------------------------------------------------------------------------------------------------


def _learn(
    settings: Settings,
    split: Split,
    coordinates: Coordinates,
    start: PackedModel,
    seed: int,
) -> tuple[BestEpoch, Facts]:
    """Run epochs over the training rows, evaluating each on the held-out rows.

    Returns
    -------
    best : BestEpoch
    facts : number of epochs, planned number of steps, and the reason for stopping early, if any
    """
    max_epochs, max_visits = _MAX_EPOCHS, _MAX_VISITS
    if coordinates.sums.anchors is not None:
        max_epochs, max_visits = _MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS
    n = split.n_per_sample
    n_per_step = min(n, _ROWS_PER_STEP if n < _MANY_ROWS else _ROWS_PER_LARGE_STEP)
    n_steps = max(1, min(max_epochs * split.n_training, max_visits) // n_per_step)
    n_planned = math.ceil(n_steps / max(1, n // n_per_step))
    if split.holds_all:
        n_planned = min(n_planned, max_epochs)
    random = np.random.default_rng([seed, 1])
    refinement = _start_refinement(coordinates, start, Schedule(n_steps), random)
    held_out, A_held_out = split.held_out, coordinates.rows(split.held_out.X)
    best = BestEpoch(held_out.effective_size)
    facts: Facts = {"epochs": 0, "steps": n_steps}
    samples = split.epochs(max_epochs, n_steps * n_per_step, coordinates.rows)
    for n_epochs, sample in enumerate(samples, start=1):
        _epoch(refinement, sample, n_per_step, random, settings)
        found = refinement.classify(A_held_out, rescored=settings.rescore != 0)
        accuracy = held_out.mean(found == held_out.y)
        best.offer(accuracy, refinement)
        facts["epochs"] = n_epochs
        settings.print_line(
            f"refinement: {accuracy:.2%} of the held-out rows after epoch {n_epochs}"
        )
        epoch = Epoch(n_epochs, max(n_planned, n_epochs), accuracy, refinement.mean_loss())
        if settings.callback is not None and settings.callback(epoch):
            facts["stopped"] = "callback"
        elif settings.out_of_time and not refinement.finished:
            facts["stopped"] = "max_time"
        behind = refinement.progress > 0.5 and best.far_exceeds(accuracy)
        if refinement.finished or behind or "stopped" in facts:
            break
    refinement.close()
    return best, facts


def _start_refinement(
    coordinates: Coordinates,
    start: PackedModel,
    schedule: Schedule,
    random: np.random.Generator,
) -> Refinement:
    """Set up the refinement of a model; with very many classes, weights follow the projection."""
    weights, refit = start.unpacked_weights(), None
    if len(weights) > _MAX_LEARNED_CLASSES:
        weights = class_mean_weights(start.hash_function, coordinates.sums)

        def refit(Q: Array, t: Array) -> Array:
            xp, means = namespace(Q), coordinates.means
            refitted = xp.empty(weights.shape, dtype=xp.int8, device=device(Q))
            for part in class_blocks(len(weights)):
                refitted[part, :] = signs(means[part, :] @ Q + t, xp.int8)
            return refitted

    Q, t = coordinates.projected(start.hash_function)
    score_deviation = target_deviation(coordinates.sums)
    return Refinement(
        Q,
        t,
        weights,
        coordinates.means,
        coordinates.column_length(Q, score_deviation),
        score_deviation,
        schedule,
        random,
        refit,
        score_all=refit is None,
    )


def _epoch(
    refinement: Refinement,
    sample: Sample,
    n_per_step: int,
    random: np.random.Generator,
    settings: Settings,
) -> None:
    """Steps over the rows of a sample, in a new random order: see `mini_batches`."""
    y, sample_weight = like(sample.y, sample.X), None
    if np.ptp(sample.weights) > 0:
        sample_weight = (sample.weights / sample.weights.mean()).astype(np.float32)
        sample_weight = like(sample_weight, sample.X)
    for rows in mini_batches(len(sample), n_per_step, random, sample.X):
        some = None if sample_weight is None else take(sample_weight, rows)
        refinement.step(take(sample.X, rows), take(y, rows), some)
        if refinement.finished or settings.out_of_time:
            return


@dataclass(frozen=True)
class Evaluated:
    """A model with a short list, and its accuracy on the held-out rows."""

    model: PackedModel
    accuracy: float


def with_short_list(model: PackedModel, held_out: Sample, rescore: int | None) -> Evaluated:
    """Choose the length of a model's short list, and evaluate it on held-out rows.

    The first of the candidate lengths is used unless another is clearly better: on nearly all data
    a short list improves accuracy, but by less than is significant on so few rows.
    """
    labels = model.classes[held_out.y]
    correct = {}
    for length in RESCORE_LENGTHS if rescore is None else (rescore,):
        model.rescore = length
        correct[length] = (to_host(model.predict(held_out.X)) == labels).astype(np.float64)
    chosen, *others = correct
    for length in others:
        if held_out.t_statistic(correct[length] - correct[chosen]) > 1.0:
            chosen = length
    model.rescore = chosen
    return Evaluated(model, held_out.mean(correct[chosen]))


#: Projection, intercept and weights.
_Candidate = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int8]]


class BestEpoch:
    """Keeps the parameters of the best epochs.

    Preferred is the last epoch within one standard error of the best accuracy: such differences are
    not significant, and the smaller steps towards the end generalise better. The epoch of the best
    accuracy is the second candidate, in case the first is slightly worse than the initial model.

    Parameters
    ----------
    n_rows : float, effective number of held-out rows
    """

    def __init__(self, n_rows: float) -> None:
        self._n_rows = n_rows
        self._accuracy = 0.0
        self._best: _Candidate | None = None
        self._last_good: _Candidate | None = None

    @property
    def _standard_error(self) -> float:
        return math.sqrt(self._accuracy * (1.0 - self._accuracy) / self._n_rows)

    def offer(self, accuracy: float, refinement: Refinement) -> None:
        """Record the result of an epoch."""
        Q, t = np.array(to_host(refinement.projection)), np.array(to_host(refinement.intercept))
        candidate = Q, t, refinement.weights
        if accuracy >= self._accuracy:
            self._accuracy, self._best = accuracy, candidate
        if accuracy >= self._accuracy - self._standard_error:
            self._last_good = candidate

    def far_exceeds(self, accuracy: float) -> bool:
        """Whether the best is so far above a later accuracy that refinement should stop."""
        return accuracy < self._accuracy - _ERRORS_TO_STOP * self._standard_error

    def candidates(self) -> list[_Candidate]:
        """Candidates, in order of preference."""
        if self._last_good is None or self._best is None:
            return []
        same = self._last_good is self._best
        return [self._last_good] if same else [self._last_good, self._best]


def class_mean_weights(hash_function: HashFunction, sums: Sums) -> NDArray[np.int8]:
    """Codes (C, r) of the class means, to be used as weights: ``sign(P'm_c + t)``."""
    # In standardised features, for which float32 is precise enough whatever their offset.
    projection = (sums.scale[:, None] * hash_function.projection).astype(np.float32)
    intercept = hash_function.intercept + sums.shift @ hash_function.projection
    weights = np.empty((len(sums.class_weights), len(intercept)), dtype=np.int8)
    xp = namespace(sums.gram)
    for part in class_blocks(len(weights)):
        means = sums.feature_sums[part, :] / like(sums.class_weights[part, None], sums.gram)
        scores = to_host(xp.astype(means, xp.float32) @ like(projection, means))
        weights[part] = sign(scores + intercept)
    return weights


def fitted_temperature(
    model: PackedModel,
    X: NDArray[Any],
    y: NDArray[np.intp],
    sample_weight: NDArray[np.float64] | None = None,
) -> float:
    """Temperature that calibrates the probabilities of the predicted classes.

    It minimises the cross-entropy between the probability of the predicted class and whether the
    prediction is correct. The likelihood of the labels would be dominated by rows whose true class
    is not on the short list, which makes predictions underconfident.

    Parameters
    ----------
    model : PackedModel
    X : (n, d) array or CSR matrix
    y : (n,) index of each row's class
    sample_weight : (n,), or None for ones
    """
    # The first rows may cover only a few classes.
    some = sample_rows(len(y), max(256, _MAX_CALIBRATION_PAIRS // len(model.classes)))
    X, y = take(X, some), y[some]
    sample_weight = None if sample_weight is None else sample_weight[some]
    if is_foreign(X):
        model, X = model.on_host(X)
    listed, counts, correct = _score_gaps(model, X, y)
    if listed.shape[1] == 1:
        counts[:, 0] -= 1.0  # the best class itself, which would be first on a short list
    steps = 2.0 * np.arange(counts.shape[1])
    # One half of an extra row counts as wrong: if all were correct, there would be no minimum.
    target = correct * (1.0 - 0.5 / (np.count_nonzero(correct) + 1.0))

    def cross_entropy(log_inverse: float) -> float:
        inverse = math.exp(log_inverse)
        others = counts @ np.exp(-inverse * steps) * np.exp(-inverse * listed[:, -1])
        others += np.exp(-inverse * listed[:, 1:-1]).sum(axis=1)
        # p = 1 / (1 + others); in terms of `others`, log(1 - p) does not lose precision.
        losses = np.log1p(others) - (1.0 - target) * np.log(np.maximum(others, 1e-300))
        return float(np.average(losses, weights=sample_weight))

    bounds = (math.log(1e-3), math.log(10.0))
    found = scipy.optimize.minimize_scalar(
        cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-6}
    )
    return 1.0 / math.exp(found.x)


def _score_gaps(
    model: PackedModel, X: NDArray[Any], y: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Gaps between the best score and all others, which determine the probabilities.

    Returns
    -------
    listed : (n, m + 1), gaps of the short list, and of the best class that is not on it
    counts : (n, r + 1), number of other classes 0, 2, 4, ... below that one
    correct : (n,) whether the true class is predicted
    """
    m, width = model.n_rescored, model.n_bits + 1
    n_rows = len(y)
    listed = np.zeros((n_rows, m + 1))
    counts = np.zeros((n_rows, width))
    correct = np.empty(n_rows, dtype=bool)
    n_threads = effective_threads(None)
    step = max(1, _SCORES_PER_BLOCK // (n_threads * len(model.classes)))

    def measure(begin: int) -> None:
        part = slice(begin, begin + step)
        with thread_limit(1):  # one kernel thread per thread of the pool
            gaps = model.scores(X[part])
        correct[part] = gaps.argmax(axis=1) == y[part]
        np.subtract(gaps.max(axis=1, keepdims=True), gaps, out=gaps)
        rows = np.arange(len(gaps))
        if m == len(model.classes):
            listed[part, :m] = np.sort(gaps, axis=1)
            return
        listed[part] = np.sort(np.partition(gaps, m, axis=1)[:, : m + 1], axis=1)
        below = np.rint((gaps - listed[part, m:]) / 2.0).astype(np.intp)
        others = gaps >= listed[part, m:]  # the short list is above all others
        bins = (below + width * rows[:, None])[others]
        counts[part] = np.bincount(bins, minlength=width * len(gaps)).reshape(-1, width)

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(measure, range(0, n_rows, step)))
    return listed, counts, correct
