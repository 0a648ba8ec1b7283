"""Refinement of a learned model on the rows themselves.

A slice of the rows is held out from the refinement and from the model that it starts from. The
refined model is taken only if it is at least as good on that slice as what it started from; the
temperature of the probabilities is fitted there. Where rows are more than memory holds, each pass
over them draws a fresh sample.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from bitclass.codes import pack, sign
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.alternation import hinge_weights
from bitclass.training.distinct import CodeWarning, make_distinct
from bitclass.training.refinement.split import Rows, Sample, Split
from bitclass.training.refinement.steps import Refinement, Schedule, rows_per_step
from bitclass.training.refinement.whitening import whitening_of
from bitclass.training.ridge import ridge
from bitclass.training.statistics import Statistics, Sums

__all__ = ["Refined", "class_mean_weights", "fitted_temperature", "refine"]

_MAX_EPOCHS = 20
_MAX_VISITS = 400_000
# Of rows that memory cannot hold, how often each of a sample is seen before the next is drawn.
_EPOCHS_PER_SAMPLE = 4
# Where classes have fewer rows than this, their weights know the held-out rows too well.
_FEW_ROWS = 50
# With more classes than this their weights follow from the projection, and a step scores some.
_MAX_LEARNED_CLASSES = 2048
# Refinement ends early when it falls so many standard errors behind its best, once the steps are
# no longer at their largest.
_ERRORS_TO_STOP = 4.0
# Pairs of a row and a class that the temperature is fitted on.
_MAX_CALIBRATION_PAIRS = 100_000_000
_SCORES_PER_BLOCK = 1 << 20
_CLASSES_PER_BLOCK = 1 << 14


@dataclass(frozen=True)
class Refined:
    """The result of refinement.

    Attributes
    ----------
    model : PackedModel
        The refined one, or the one before where that is better on the held-out rows; with a
        temperature fitted on them.
    report : dict
        Facts about the run, in values that JSON can hold.
    """

    model: PackedModel
    report: dict[str, Any]


def refine(
    model: PackedModel,
    statistics: Statistics,
    rows: Rows,
    *,
    n_rows: int,
    alpha: float,
    seed: int,
    max_bytes: int,
    report: Callable[[str], None],
) -> Refined | None:
    """Refine a model that was learned from the sums over rows.

    Parameters
    ----------
    model : PackedModel, of the classes that have rows
    statistics : Statistics, the sums it was learned from
    rows : passes over the rows that were summed, or a sample of them
    n_rows : int, how many rows pass
    alpha : float, penalty of the regression
    seed : int
    max_bytes : int, memory that a sample of rows may take
    report : called with each line of progress

    Returns
    -------
    Refined, or None where too few rows can be held out
    """
    split = Split(statistics, rows, n_rows, seed, max_bytes)
    held_out = split.held_out
    if len(held_out) < 2:
        return None
    sums = statistics.sums()
    labels = sums.classes[held_out.own]
    out, _ = statistics.summed(held_out.X, labels, held_out.weights, held_out.rows)
    sums = sums.without(out)

    weights = model.unpacked_weights()
    if statistics.n_rows < _FEW_ROWS * len(weights):
        # Weights near to the code of each row make held-out rows look as easy as training rows.
        weights = _distinct(hinge_weights(statistics.starting.code_sums(sums)), sums.classes)
    start = _regression(sums, weights, alpha, model.hash_function)
    before = _with(model, weights, start)
    accuracy_before = _accuracy(before, held_out)

    whitening = whitening_of(sums, alpha)
    best = BestEpoch(held_out.effective_size, 0.0, (start, weights))
    refit = None
    if len(weights) > _MAX_LEARNED_CLASSES:
        weights = class_mean_weights(start, sums)
        start = _regression(sums, weights, alpha, model.hash_function)
        accuracy = _accuracy(_with(model, weights, start), held_out)
        best = BestEpoch(held_out.effective_size, accuracy, (start, weights))

        def refit(Q: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.int8]:
            return class_mean_weights(whitening.unwhitened(Q, t, start), sums)

    n_per_step = rows_per_step(split.n_per_sample)
    n_steps = max(1, min(_MAX_EPOCHS * split.n_training, _MAX_VISITS) // n_per_step)
    random = np.random.default_rng([seed, 1])
    Q, t = whitening.whitened(start)
    refinement = Refinement(Q, t, weights, Schedule(n_steps), random, refit)
    Z_held_out = whitening.rows(statistics, held_out.X)
    n_epochs = 0
    for Z, sample in _epochs(split, lambda X: whitening.rows(statistics, X)):
        _epoch(refinement, Z, sample, n_per_step, random)
        n_epochs += 1
        accuracy = held_out.mean(refinement.classify(Z_held_out) == held_out.own)
        report(f"refinement: {accuracy:.2%} of the held-out rows after epoch {n_epochs}")
        reached = whitening.unwhitened(refinement.projection, refinement.intercept, start)
        best.offer(accuracy, (reached, refinement.weights))
        if refinement.finished or (refinement.progress > 0.5 and best.is_far_above(accuracy)):
            break

    for hash_function, weights in best.candidates():
        after = _with(model, _distinct(weights, sums.classes), hash_function)
        accuracy_after = _accuracy(after, held_out)
        taken = accuracy_after >= accuracy_before
        if taken:
            break
    # Whether class means give weights as good as the learned ones decides what classes get that
    # gain rows later on.
    by_means = _with(model, class_mean_weights(hash_function, sums), hash_function)
    facts = {
        "taken": taken,
        "held_out_rows": len(held_out),
        "accuracy_before": accuracy_before,
        "accuracy_after": accuracy_after,
        "epochs": n_epochs,
        "steps": n_steps,
        "weights_follow_means": taken and _accuracy(by_means, held_out) >= accuracy_after,
    }
    chosen = after if taken else model
    chosen.temperature = fitted_temperature(
        after if taken else before, held_out.X, held_out.own, held_out.weights
    )
    report(
        f"refinement: {accuracy_before:.2%} before, {accuracy_after:.2%} after, on "
        f"{len(held_out)} held-out rows; {'taken' if taken else 'not taken'}"
    )
    return Refined(chosen, facts)


_Candidate = tuple[HashFunction, NDArray[np.int8]]


class BestEpoch:
    """Which epoch to keep.

    That is the last epoch that is not clearly worse than the best: differences within the standard
    error of so few rows say nothing, and the steps become smaller and better towards the end.
    Where that one is not as good as the start, by a few rows, the best one may be.

    Parameters
    ----------
    n_rows : float, effective number of held-out rows
    accuracy : float, of the start
    start : the hash function and weights to start from
    """

    def __init__(self, n_rows: float, accuracy: float, start: _Candidate) -> None:
        self._n_rows = n_rows
        self._accuracy = accuracy
        self._best = self._last_good = start

    @property
    def _standard_error(self) -> float:
        return math.sqrt(self._accuracy * (1.0 - self._accuracy) / self._n_rows)

    def offer(self, accuracy: float, candidate: _Candidate) -> None:
        """Consider the result of an epoch."""
        if accuracy >= self._accuracy:
            self._accuracy, self._best = accuracy, candidate
        if accuracy >= self._accuracy - self._standard_error:
            self._last_good = candidate

    def is_far_above(self, accuracy: float) -> bool:
        """Whether an accuracy has fallen so far that going on is of no use."""
        return accuracy < self._accuracy - _ERRORS_TO_STOP * self._standard_error

    def candidates(self) -> tuple[_Candidate, _Candidate]:
        """What to try, in this order."""
        return self._last_good, self._best


def _epochs(
    split: Split, whiten: Callable[[NDArray[Any]], NDArray[np.float32]]
) -> Iterator[tuple[NDArray[np.float32], Sample]]:
    """Whitened training rows, once per epoch: the same, or fresh samples of very many."""
    all_fit = split.n_per_sample == split.n_training
    n_epochs = 0
    while True:
        sample = split.training_sample()
        if len(sample) == 0:
            return
        Z = whiten(sample.X)
        sample = Sample(Z, sample.own, sample.weights, sample.rows)  # the rows as they are go
        for _ in range(_MAX_EPOCHS if all_fit else _EPOCHS_PER_SAMPLE):
            yield Z, sample
            n_epochs += 1
        if all_fit:
            return
        del Z, sample  # or two samples would be held at once


def _epoch(
    refinement: Refinement,
    Z: NDArray[np.float32],
    sample: Sample,
    n_per_step: int,
    random: np.random.Generator,
) -> None:
    """Show all rows of a sample once, in another order each time."""
    order = random.permutation(len(sample))
    # There may be fewer than were expected, and without a step there would be no end.
    n_per_step = min(n_per_step, len(order))
    weights = None
    if sample.weights is not None:
        weights = (sample.weights / sample.weights.mean()).astype(np.float32)
    for start in range(0, len(order) - n_per_step + 1, n_per_step):
        rows = order[start : start + n_per_step]
        refinement.step(Z[rows], sample.own[rows], None if weights is None else weights[rows])
        if refinement.finished:
            return


def class_mean_weights(hash_function: HashFunction, sums: Sums) -> NDArray[np.int8]:
    """Class weights (C, r) that are the codes of the class means: ``sign(P'm_c + t)``."""
    # Of the features as they are summed, which float32 can hold whatever their offset is.
    projection = (sums.scale[:, None] * hash_function.projection).astype(np.float32)
    intercept = hash_function.intercept + sums.shift @ hash_function.projection
    weights = np.empty((len(sums.class_weights), len(intercept)), dtype=np.int8)
    for begin in range(0, len(weights), _CLASSES_PER_BLOCK):
        part = slice(begin, begin + _CLASSES_PER_BLOCK)
        means = sums.feature_sums[part] / sums.class_weights[part, None]
        weights[part] = sign(means.astype(np.float32) @ projection + intercept)
    return weights


def _regression(
    sums: Sums, weights: NDArray[np.int8], alpha: float, like: HashFunction
) -> HashFunction:
    """Regression of codes that are the class weights (C, r)."""
    codes = weights.astype(np.float64)
    cross, code_sum = sums.feature_sums.T @ codes, sums.class_weights @ codes
    found = ridge(sums, cross, code_sum, alpha, precision=like.precision, anchors=like.anchors)
    return found.hash_function


def _distinct(weights: NDArray[np.int8], classes: NDArray[Any]) -> NDArray[np.int8]:
    """The weights, no two of them equal; a warning was given before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CodeWarning)
        return make_distinct(weights, weights.astype(np.float64), classes.tolist())


def _with(
    model: PackedModel, weights: NDArray[np.int8], hash_function: HashFunction
) -> PackedModel:
    """The model with other weights and another hash function."""
    return PackedModel(model.classes, pack(weights), hash_function, temperature=model.temperature)


def _accuracy(model: PackedModel, held_out: Sample) -> float:
    return held_out.mean(model.predict(held_out.X) == model.classes[held_out.own])


def fitted_temperature(
    model: PackedModel,
    X: NDArray[Any],
    own: NDArray[np.intp],
    weights: NDArray[np.float64] | None = None,
) -> float:
    """Temperature that makes the labels of rows X (n, d) most likely.

    Parameters
    ----------
    model : PackedModel
    X : (n, d)
    own : (n,) index of each row's class
    weights : (n,) of the rows, or None for ones
    """
    n_rows = max(256, _MAX_CALIBRATION_PAIRS // len(model.classes))
    X, own = X[:n_rows], own[:n_rows]
    weights = None if weights is None else weights[:n_rows]
    counts, of_own = _distance_counts(model, X, own)
    distances = 2.0 * np.arange(counts.shape[1])

    def negative_log_likelihood(log_inverse: float) -> float:
        inverse = math.exp(log_inverse)
        of_rows = np.log(counts @ np.exp(-inverse * distances)) + 2.0 * inverse * of_own
        return float(np.average(of_rows, weights=weights))

    # It has one valley in the inverse temperature.
    bounds = (math.log(1e-3), math.log(10.0))
    found = scipy.optimize.minimize_scalar(
        negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-6}
    )
    return 1.0 / math.exp(found.x)


def _distance_counts(
    model: PackedModel, X: NDArray[Any], own: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """How many bits classes are farther away than the nearest one: all that probabilities need.

    Returns
    -------
    counts : (n, r + 1), how many classes of each row are 0, 1, ... bits farther away
    of_own : (n,) bits of the own class
    """
    width = model.n_bits + 1
    counts = np.empty((len(X), width))
    of_own = np.empty(len(X), dtype=np.int64)
    step = max(1, _SCORES_PER_BLOCK // len(model.classes))
    for begin in range(0, len(X), step):
        part = slice(begin, begin + step)
        scores = model.scores(X[part])
        bits = (scores.max(axis=1, keepdims=True) - scores) // 2
        rows = np.arange(len(bits))
        of_own[part] = bits[rows, own[part]]
        places = (bits + width * rows[:, None]).ravel()
        counts[part] = np.bincount(places, minlength=width * len(bits)).reshape(-1, width)
    return counts, of_own
