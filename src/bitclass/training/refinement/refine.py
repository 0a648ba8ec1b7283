"""Refinement of a learned model on the rows themselves.

A slice of the rows is held out from the refinement and from the model that it starts from. The
refined model is taken only if it is at least as good on that slice as what it started from; the
temperature of the probabilities is fitted there. Where rows are more than memory holds, each pass
over them draws a fresh sample. Rows are chosen by their numbers alone, so that batches and order of
reading do not matter.
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
    "Facts",
    "Judged",
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
# Rows of less weight than this share of the mean are summed, and no more: they would make steps
# many that learn from few rows, and would be held out to no end.
_MIN_WEIGHT = 0.01
_ROWS_PER_BLOCK = 4096
# Epochs, and rows shown in all; similarities to kernel anchors need more of both.
_MAX_EPOCHS, _MAX_VISITS = 12, 250_000
_MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS = 20, 400_000
# Rows of a mini-batch, the second number where there are many rows.
_ROWS_PER_STEP, _ROWS_PER_STEP_OF_MANY, _MANY_ROWS = 256, 512, 20_000
# Where memory cannot hold all rows, a sample of them is seen once: rows seen again help less than
# new ones. But a sample costs a pass over all rows, so where there would be more, it is seen again.
_MAX_SAMPLES, _MAX_EPOCHS_PER_SAMPLE = 8, 4
# With more classes than this, weights are the codes of the class means, and a step scores only some
# of the classes.
_MAX_LEARNED_CLASSES = 2048
# Refinement ends early when it falls so many standard errors behind its best, once the steps are
# no longer at their largest.
_ERRORS_TO_STOP = 4.0
# Pairs of a row and a class that the temperature is fitted on.
_MAX_CALIBRATION_PAIRS = 100_000_000
_SCORES_PER_BLOCK = 1 << 20  # on all threads together

#: X (m, d), labels (m,), weights (m,) or None; no row has weight 0.
Batch = tuple[Features, NDArray[Any], NDArray[np.float64] | None]
#: What is known about a refinement, in values that JSON can hold.
Facts = dict[str, Any]
#: Each call passes over all rows, in the same order.
Rows = Callable[[], Iterator[Batch]]
#: Learns a hash function and class weights (C, r) in closed form.
Start = Callable[[Coordinates], tuple[HashFunction, NDArray[np.int8]]]


@dataclass(frozen=True)
class Refined:
    """The result of refinement.

    Attributes
    ----------
    model : PackedModel
        The refined one, or the one that it started from where that is better on the held-out rows;
        with a short list and a temperature chosen on them.
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
    steepness: float,
    groups: NDArray[np.intp] | None = None,
) -> Refined | None:
    """Learn a model from sums over rows, and refine it on the rows.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    rows : passes over the rows that were summed, or a sample of them
    n_rows : int, how many rows pass
    start : learns the model to start from
    steepness : float, of the scores of the model to start from
    groups : (n_rows,) index of each row's group, none of which is held out in part, or None

    Returns
    -------
    Refined, or None where too few rows can be held out
    """
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    split = Split(statistics, rows, n_rows, seed, settings.max_bytes // 4, groups)
    held_out = split.held_out
    if len(held_out) < 2:
        return None
    statistics.move_beside(held_out.X)
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

    def judged(
        hash_function: HashFunction,
        weights: NDArray[np.int8],
        steepness: float = 1.0,
        rescore: int | None = settings.rescore,
    ) -> Judged:
        with warnings.catch_warnings():  # a candidate may not even be taken
            warnings.simplefilter("ignore", CodeWarning)
            weights = make_distinct(weights, weights, sums.classes)
        model = PackedModel(sums.classes, pack(weights), hash_function, steepness=steepness)
        return with_short_list(model, held_out, rescore)

    before = judged(*start(coordinates), steepness)
    best, about_epochs = _learn(settings, split, coordinates, before.model, seed)
    for Q, t, weights in best.candidates():
        hash_function = coordinates.hash_function(Q, t, settings.precision)
        after = judged(hash_function, weights)
        taken = after.accuracy >= before.accuracy
        if taken:
            make_distinct(weights, weights, sums.classes)  # which warns
            break
    # Whether class means give weights as good as the learned ones decides what classes get that
    # gain rows later on.
    of_means = class_mean_weights(hash_function, sums)
    by_means = judged(hash_function, of_means, rescore=after.model.rescore)
    chosen = (after if taken else before).model
    chosen.temperature = fitted_temperature(chosen, held_out.X, held_out.y, held_out.weights)
    settings.print_line(
        f"refinement: {before.accuracy:.2%} before, {after.accuracy:.2%} after, on "
        f"{len(held_out)} held-out rows; {'taken' if taken else 'not taken'}; "
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
# Rows to learn from, and rows held out
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Some rows.

    Attributes
    ----------
    X : (m, d), as they are or whitened
    y : (m,) index of each row's class
    weights : (m,)
    rows : (m,) numbers of the rows, ascending
    """

    X: Array
    y: NDArray[np.intp]
    weights: NDArray[np.float64]
    rows: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.y)

    def mean(self, values: NDArray[Any]) -> float:
        """Mean of one value per row, by the rows' weights."""
        return float(np.average(values, weights=self.weights))

    @property
    def effective_size(self) -> float:
        """How many rows of equal weight would leave as much uncertainty."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))

    def lead(self, difference: NDArray[np.float64]) -> float:
        """Mean of a difference (m,), in its standard errors."""
        lead = self.mean(difference)
        variance = max(self.mean(difference**2) - lead**2, 0.0)
        return lead / max(math.sqrt(variance / self.effective_size), 1e-12)


class Split:
    """Held-out rows, and samples of the rows that remain for training.

    Parameters
    ----------
    statistics : Statistics, the sums over all rows
    rows : passes over the rows that were summed, or over a sample of them
    n_rows : int, how many rows pass
    seed : int
    max_bytes : int, memory that a sample may take
    groups : (n_rows,) index of each row's group, optional
        Rows of one group are all held out or none.

    Attributes
    ----------
    held_out : Sample
    n_training, n_per_sample : int
        Rows that are not held out, and how many of them a sample has.
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
        if n_rows > max_rows:  # rows of a sample are held twice for a moment
            max_rows = max(1024, max_rows // 2)
        n_rows = max(n_rows, 1)
        # Of rows of uneven weights more are held out, so that they say enough.
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
        """Whether a sample has all training rows."""
        return self.n_per_sample == self.n_training

    def _hold_out(self, share: float) -> tuple[Sample, int]:
        """Rows to hold out, and how many can be used; no class loses more than half its weight."""
        found, n_usable = self._choose(lambda rows: uniform(rows, self._seed, 0) < share)
        y, available = found.y, self._sums.class_weights
        lost = np.bincount(y, weights=found.weights, minlength=len(available))
        stay = np.flatnonzero(_at_most_half(lost, available)[y])
        X, weights, rows = take(found.X, stay), found.weights[stay], found.rows[stay]
        return Sample(X, y[stay], weights, rows), n_usable

    def _hold_out_groups(self, groups: NDArray[np.intp], n_wanted: float) -> tuple[Sample, int]:
        """Whole groups, in random order; no class loses more than half of its weight to them.

        The first group may have any number of rows, and others join it up to `n_wanted` rows.
        """
        everything = [
            (to_host(labels), np.ones(X.shape[0]) if weights is None else weights)
            for X, labels, weights in self._rows()
        ]
        labels, sample_weight = (np.concatenate(parts) for parts in zip(*everything, strict=True))
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
        """Training rows, once per epoch: the same, or fresh samples where memory holds only some.

        Parameters
        ----------
        max_epochs : int, where a sample has all rows
        n_visits : int, rows that are shown in all
        transform : takes blocks of rows (m, d), and gives what is held of them
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
            del sample  # or two samples would be held at once

    def training_sample(self, transform: Callable[[Array], Array]) -> Sample:
        """Rows that are not held out: all, or others each time where memory holds only some."""
        self._n_samples += 1
        salt, share = self._n_samples, self.n_per_sample / max(self.n_training, 1)

        def chosen(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            free = ~np.isin(rows, self.held_out.rows, assume_unique=True)
            return free if share == 1.0 else free & (uniform(rows, self._seed, salt) < share)

        return self._choose(chosen, transform)[0]

    def _choose(
        self,
        choose: Callable[[NDArray[np.intp]], NDArray[np.bool_]],
        transform: Callable[[Array], Array] = lambda X: X,
    ) -> tuple[Sample, int]:
        """Rows that `choose` picks by their numbers, and how many it could pick from.

        These are the rows of classes that are in the sums, unless they have hardly any weight.
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
            raise ValueError("batches must give the rows each time it is called, found none")
        y, of_rows, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        X = _joined(blocks, statistics.n_features)
        return Sample(X, y, of_rows, numbers), n_usable


def _at_most_half(lost: NDArray[Any], available: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether weights are at most half of others; the slack is for the order of adding them up."""
    return np.asarray(2.0 * lost <= (1.0 + 1e-9) * available)


def _equal_blocks(parts: Iterable[Array]) -> Iterator[Array]:
    """The same rows in blocks of one size, so that batches of any size are rounded alike."""
    waiting: list[Array] = []
    for X in parts:
        if is_foreign(X):  # for which blocks of one size would be small ones
            yield X
            continue
        room = _ROWS_PER_BLOCK - sum(map(len, waiting))
        waiting.append(X[:room])
        if len(X) >= room:
            yield waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            waiting = [X[room:]] if len(X) > room else []
    if waiting:
        yield waiting[0] if len(waiting) == 1 else np.concatenate(waiting)


def _joined(blocks: list[Array], n_features: int) -> Array:
    """All rows; each block is released once it is copied."""
    if not blocks:
        return np.empty((0, n_features), dtype=np.float32)
    if is_foreign(blocks[0]):
        return namespace(blocks[0]).concat(blocks)
    shape = sum(map(len, blocks)), blocks[0].shape[1]
    found, at = np.empty(shape, dtype=np.result_type(*blocks)), 0
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        found[at : at + len(block)] = block
        at += len(block)
    return found


def uniform(rows: NDArray[np.intp], seed: int, salt: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each row number, as good as random: the mixing of SplitMix64."""
    start = (seed * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03) % 2**64
    mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


# -------------------------------------------------------------------------------------------------
# Learning
# -------------------------------------------------------------------------------------------------


def _learn(
    settings: Settings,
    split: Split,
    coordinates: Coordinates,
    start: PackedModel,
    seed: int,
) -> tuple[BestEpoch, Facts]:
    """Epochs of steps over the training rows, each judged on the held-out rows.

    Returns
    -------
    best : BestEpoch
    facts : number of epochs, number of steps planned, and why it stopped, if early
    """
    max_epochs, max_visits = _MAX_EPOCHS, _MAX_VISITS
    if coordinates.sums.anchors is not None:
        max_epochs, max_visits = _MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS
    n = split.n_per_sample
    n_per_step = min(n, _ROWS_PER_STEP if n < _MANY_ROWS else _ROWS_PER_STEP_OF_MANY)
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
    """Refinement of a model; weights of very many classes follow from the projection."""
    weights, refit = start.unpacked_weights(), None
    if len(weights) > _MAX_LEARNED_CLASSES:
        weights = class_mean_weights(start.hash_function, coordinates.sums)

        def refit(Q: Array, t: Array) -> Array:
            xp, means = namespace(Q), coordinates.means
            found = xp.empty(weights.shape, dtype=xp.int8, device=device(Q))
            for part in class_blocks(len(weights)):
                found[part, :] = signs(means[part, :] @ Q + t, xp.int8)
            return found

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
    """Steps over the rows of a sample, in another order each time; see `mini_batches`."""
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
class Judged:
    """A model with a short list, and its accuracy on the held-out rows."""

    model: PackedModel
    accuracy: float


def with_short_list(model: PackedModel, held_out: Sample, rescore: int | None) -> Judged:
    """Give a model a short list, and judge it on held-out rows.

    Of the lengths to choose from it is the first one, unless another is clearly better: on nearly
    all data a short list is better than none, by less than so few rows can tell.
    """
    labels = model.classes[held_out.y]
    right = {}
    for length in RESCORE_LENGTHS if rescore is None else (rescore,):
        model.rescore = length
        right[length] = (to_host(model.predict(held_out.X)) == labels).astype(np.float64)
    chosen, *others = right
    for length in others:
        if held_out.lead(right[length] - right[chosen]) > 1.0:
            chosen = length
    model.rescore = chosen
    return Judged(model, held_out.mean(right[chosen]))


#: Projection, intercept and weights.
_Candidate = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int8]]


class BestEpoch:
    """Which epoch to keep.

    That is the last epoch that is not clearly worse than the best: differences within the standard
    error are not significant, and the steps become smaller and better towards the end.
    Where that one is not as good as the start, by a few rows, the best one may be.

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
        """Consider the result of an epoch."""
        Q, t = np.array(to_host(refinement.projection)), np.array(to_host(refinement.intercept))
        candidate = Q, t, refinement.weights
        if accuracy >= self._accuracy:
            self._accuracy, self._best = accuracy, candidate
        if accuracy >= self._accuracy - self._standard_error:
            self._last_good = candidate

    def far_exceeds(self, accuracy: float) -> bool:
        """Whether the best is so far above a later accuracy that going on is of no use."""
        return accuracy < self._accuracy - _ERRORS_TO_STOP * self._standard_error

    def candidates(self) -> list[_Candidate]:
        """What to try, in this order."""
        if self._last_good is None or self._best is None:
            return []
        same = self._last_good is self._best
        return [self._last_good] if same else [self._last_good, self._best]


def class_mean_weights(hash_function: HashFunction, sums: Sums) -> NDArray[np.int8]:
    """Class weights (C, r) that are the codes of the class means: ``sign(P'm_c + t)``."""
    # Of the features as they are summed, which float32 can hold whatever their offset is.
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
    """Temperature that makes the probabilities of the predicted classes reliable.

    It minimises the cross-entropy between the probability of the predicted class and whether the
    prediction is right. The likelihood of all labels would depend most on rows whose class is not
    even on the short list, and leave predictions less confident than they are accurate.

    Parameters
    ----------
    model : PackedModel
    X : (n, d) array or CSR matrix
    y : (n,) index of each row's class
    sample_weight : (n,), or None for ones
    """
    # The first rows may be of a few classes only.
    some = sample_rows(len(y), max(256, _MAX_CALIBRATION_PAIRS // len(model.classes)))
    X, y = take(X, some), y[some]
    sample_weight = None if sample_weight is None else sample_weight[some]
    if is_foreign(X):
        model, X = model.on_host(X)
    listed, counts, right = _score_gaps(model, X, y)
    if listed.shape[1] == 1:
        counts[:, 0] -= 1.0  # the best class itself, which a short list has first
    steps = 2.0 * np.arange(counts.shape[1])
    # Half a row counts as wrong besides: were all right, no temperature would be too low.
    wanted = right * (1.0 - 0.5 / (np.count_nonzero(right) + 1.0))

    def cross_entropy(log_inverse: float) -> float:
        inverse = math.exp(log_inverse)
        others = counts @ np.exp(-inverse * steps) * np.exp(-inverse * listed[:, -1])
        others += np.exp(-inverse * listed[:, 1:-1]).sum(axis=1)
        # Of the probability 1 / (1 + others), and of 1 less it, which would round to 0.
        losses = np.log1p(others) - (1.0 - wanted) * np.log(np.maximum(others, 1e-300))
        return float(np.average(losses, weights=sample_weight))

    bounds = (math.log(1e-3), math.log(10.0))
    found = scipy.optimize.minimize_scalar(
        cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-6}
    )
    return 1.0 / math.exp(found.x)


def _score_gaps(
    model: PackedModel, X: NDArray[Any], y: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """By how much scores are below the best one: all that probabilities need.

    Returns
    -------
    listed : (n, m + 1), gaps of the short list, and of the best class that is not on it
    counts : (n, r + 1), how many other classes are 0, 2, 4, ... below that one
    right : (n,) whether the own class is the predicted one
    """
    m, width = model.n_rescored, model.n_bits + 1
    n_rows = len(y)
    listed = np.zeros((n_rows, m + 1))
    counts = np.zeros((n_rows, width))
    right = np.empty(n_rows, dtype=bool)
    n_threads = effective_threads(None)
    step = max(1, _SCORES_PER_BLOCK // (n_threads * len(model.classes)))

    def measure(begin: int) -> None:
        part = slice(begin, begin + step)
        with thread_limit(1):  # for the kernels, on each thread of the pool
            gaps = model.scores(X[part])
        right[part] = gaps.argmax(axis=1) == y[part]
        np.subtract(gaps.max(axis=1, keepdims=True), gaps, out=gaps)
        rows = np.arange(len(gaps))
        if m == len(model.classes):
            listed[part, :m] = np.sort(gaps, axis=1)
            return
        listed[part] = np.sort(np.partition(gaps, m, axis=1)[:, : m + 1], axis=1)
        below = np.rint((gaps - listed[part, m:]) / 2.0).astype(np.intp)
        others = gaps >= listed[part, m:]  # the short list is above all others
        places = (below + width * rows[:, None])[others]
        found = np.bincount(places, minlength=width * len(gaps))
        counts[part] = found.reshape(-1, width)

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(measure, range(0, n_rows, step)))
    return listed, counts, right
