"""Refinement of a learned model on the rows themselves: who is held out, how often rows come.

A slice of the rows is held out from the refinement and from the hash function that it starts from.
The refined model is taken only if it is at least as good on that slice; the temperature of the
probabilities is fitted there. Where rows are more than memory holds, each pass over them draws a
fresh sample.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass.codes import pack
from bitclass.drawing import Drawing, Replay, Sample
from bitclass.encoder import HashFunction, correlation, ridge
from bitclass.model import PackedModel
from bitclass.rows import Features
from bitclass.training import (
    CodeWarning,
    Refinement,
    Schedule,
    Statistics,
    batch_size,
    make_distinct,
)

__all__ = ["Refined", "fitted_temperature", "refine"]

# Added to the variance of each standardised feature before rows are whitened, in units of the
# regression's penalty: directions of less variance stay small, so that codes move little along
# them. What helps the regression to generalise helps here, some times over.
_WHITENING = 10.0
_LEAST_WHITENING = 1e-5  # for the rounding of float32
_MOST_EPOCHS = 20
_MOST_VISITS = 400_000
# Of rows that memory cannot hold, how often each of a sample is seen before the next is drawn.
_EPOCHS_A_SAMPLE = 4
_SCORES_AT_ONCE = 1 << 20
# Less of a feature's scatter than this is the rounding of sums of float32.
_ROUNDING = 1e-5
# Refinement ends early when it falls so many standard errors behind its best, once the steps are
# no longer at their largest.
_DOUBTS_TO_STOP = 4.0


@dataclass(frozen=True)
class Refined:
    """What refinement came to.

    Attributes
    ----------
    model : PackedModel
        The refined one, or the one before where that is better on the rows held out; with a
        temperature fitted on them.
    report : dict
        What there is to tell, in values that JSON can hold.
    """

    model: PackedModel
    report: dict[str, Any]


def refine(
    model: PackedModel,
    statistics: Statistics,
    replay: Replay,
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
    replay : passes over the rows that were summed, or a sample of them
    n_rows : int, how many rows pass
    alpha : float, penalty of the regression
    seed : int
    max_bytes : int, memory that a sample of rows may take
    report : called with each line of progress

    Returns
    -------
    Refined, or None where too few rows can be held out
    """
    drawing = Drawing(statistics, model.classes, n_rows, seed, max_bytes)
    held_out = drawing.held_out(replay)
    if len(held_out.own) < 2:
        return None
    weights = model.unpacked_weights()
    start, whitening = _start_without(held_out, statistics, weights, model.classes, alpha)
    before = _packed(model, weights, start)
    accuracy_before = _accuracy(before, held_out)

    n_rows -= len(held_out.own)
    n_drawn = min(n_rows, drawing.most_rows)
    visits = min(_MOST_EPOCHS * n_rows, _MOST_VISITS)
    rows_a_step = batch_size(n_drawn)
    n_steps = max(1, visits // rows_a_step)
    random = np.random.default_rng([seed, 1])
    projection, intercept = whitening.whitened(start)
    refinement = Refinement(projection, intercept, weights, Schedule(n_steps), random)
    Z_held_out = whitening.rows(statistics, held_out.X)
    # Kept is the last epoch that is not clearly worse than the best: differences within the
    # doubt of so few rows say nothing, and the steps become smaller and better towards the end.
    kept = start, weights
    best, n_epochs = 0.0, 0
    n_independent = _n_independent(held_out)
    sample = None
    while not refinement.finished:
        if sample is None or n_drawn < n_rows:
            sample = None  # or two of them would be held at once
            sample = drawing.sample(replay, n_drawn / max(n_rows, 1), whitening)
        if len(sample.own) == 0:
            break
        rounds = _EPOCHS_A_SAMPLE if n_drawn < n_rows else _MOST_EPOCHS
        for _ in range(rounds):
            _epoch(refinement, sample, rows_a_step, random)
            n_epochs += 1
            accuracy = _mean(refinement.classify(Z_held_out) == held_out.own, held_out)
            report(f"refinement: {accuracy:.2%} of the rows held out after epoch {n_epochs}")
            best = max(best, accuracy)
            doubt = math.sqrt(best * (1.0 - best) / n_independent)
            if accuracy >= best - doubt:
                kept = whitening.unwhitened(refinement, start), refinement.weights
            fell = refinement.progress > 0.5 and accuracy < best - _DOUBTS_TO_STOP * doubt
            if refinement.finished or fell:
                break
        else:
            continue
        break
    after = _packed(model, _distinct(kept[1], model.classes), kept[0])
    accuracy_after = _accuracy(after, held_out)
    taken = accuracy_after >= accuracy_before
    temperature = fitted_temperature(
        after if taken else before, held_out.X, held_out.own, held_out.weights
    )
    chosen = after if taken else model
    chosen.temperature = temperature
    report(
        f"refinement: {accuracy_before:.2%} before, {accuracy_after:.2%} after, on "
        f"{len(held_out.own)} rows held out; {'taken' if taken else 'not taken'}"
    )
    facts = {
        "taken": taken,
        "held_out_rows": len(held_out.own),
        "accuracy_before": accuracy_before,
        "accuracy_after": accuracy_after,
        "epochs": n_epochs,
        "steps": n_steps,
    }
    return Refined(chosen, facts)


@dataclass(frozen=True)
class _Whitening:
    """Coordinates in which features are nearly uncorrelated and of unit variance at most.

    Attributes
    ----------
    factor : (d, d) float32, lower triangular; rows are ``factor^-1 (z - mean) / deviation``
    mean, deviation : (d,) of the features as they are summed; that of constant features is
        infinite, so that no rounding is taken for a feature
    """

    factor: NDArray[np.float32]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def rows(self, statistics: Statistics, X: NDArray[Any]) -> NDArray[np.float32]:
        """Whitened rows, (n, d) float32, of dense rows as the estimator takes them."""
        Z = statistics.standardised_rows(X, np.arange(len(X))).astype(np.float32, copy=False)
        Z -= self.mean.astype(np.float32)
        Z /= self.deviation.astype(np.float32)
        solved = scipy.linalg.solve_triangular(
            self.factor, Z.T, lower=True, overwrite_b=True, check_finite=False
        )
        return np.asarray(solved.T, dtype=np.float32, order="C")

    def whitened(self, start: HashFunction) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Projection and intercept of a hash function for whitened rows."""
        projection = start.projection.astype(np.float64)
        intercept = start.intercept + start.centre.astype(np.float64) @ projection
        standardised = projection * start.scale[:, None]
        return self.factor.T.astype(np.float64) @ standardised, intercept

    def unwhitened(self, refinement: Refinement, start: HashFunction) -> HashFunction:
        """The hash function for rows as they are."""
        solved = scipy.linalg.solve_triangular(
            self.factor, refinement.projection, lower=True, trans="T", check_finite=False
        )
        projection = (solved.astype(np.float64) / start.scale[:, None]).astype(np.float32)
        centred = start.centre.astype(np.float64) @ projection.astype(np.float64)
        intercept = refinement.intercept.astype(np.float64) - centred
        return HashFunction(
            np.ascontiguousarray(projection),
            intercept,
            start.centre,
            start.scale,
            start.fit,
            start.alpha,
        )


def _start_without(
    held_out: Sample,
    statistics: Statistics,
    weights: NDArray[np.int8],
    classes: NDArray[Any],
    alpha: float,
) -> tuple[HashFunction, _Whitening]:
    """Hash function and whitening of all rows but those held out; codes are the class weights."""
    out = statistics.without_rows()
    out.add_classes(statistics.classes)
    out.add(held_out.X, classes[held_out.own], held_out.weights)
    gram = statistics.gram - out.gram
    seen = statistics.class_weights > 0
    feature_sums = (statistics.feature_sums - out.feature_sums)[seen]
    class_weights = (statistics.class_weights - out.class_weights)[seen]
    codes = weights.astype(np.float64)
    total, column_sums = float(class_weights.sum()), feature_sums.sum(axis=0)
    # What is left of a feature that only rows held out have is rounding: it becomes constant.
    scatter = np.diag(gram) - column_sums**2 / total
    gone = scatter <= _ROUNDING * np.diag(statistics.gram)
    gram[gone] = gram[:, gone] = 0.0
    feature_sums[:, gone] = column_sums[gone] = 0.0
    start = ridge(
        gram,
        column_sums,
        feature_sums.T @ codes,
        class_weights @ codes,
        total,
        statistics.n_rows - len(held_out.own),
        statistics.shift,
        statistics.scale,
        alpha,
    )
    features = correlation(gram, column_sums, total)
    matrix = features.matrix
    constant = np.diag(matrix) == 0.0
    added = max(_WHITENING * alpha, _LEAST_WHITENING)
    matrix[np.diag_indices_from(matrix)] += added
    factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
    factor /= math.sqrt(1.0 + added)
    deviation = np.where(constant, np.inf, start.scale.astype(np.float64) / statistics.scale)
    return start, _Whitening(factor.astype(np.float32), features.mean, deviation)


def _epoch(
    refinement: Refinement, sample: Sample, rows_a_step: int, random: np.random.Generator
) -> None:
    """Show all rows of a sample once, in another order each time."""
    order = random.permutation(len(sample.own))
    # There may be fewer than were expected, and without a step there would be no end.
    rows_a_step = min(rows_a_step, len(order))
    weights = None
    if sample.weights is not None:
        weights = (sample.weights / sample.weights.mean()).astype(np.float32)
    for start in range(0, len(order) - rows_a_step + 1, rows_a_step):
        rows = order[start : start + rows_a_step]
        of_rows = None if weights is None else weights[rows]
        refinement.step(sample.X[rows], sample.own[rows], of_rows)
        if refinement.finished:
            return


def _distinct(weights: NDArray[np.int8], classes: NDArray[Any]) -> NDArray[np.int8]:
    """The weights, no two of them equal; that some were has been told before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CodeWarning)
        return make_distinct(weights, weights.astype(np.float64), classes.tolist())


def _packed(
    model: PackedModel, weights: NDArray[np.int8], hash_function: HashFunction
) -> PackedModel:
    """A model like the given one, with other weights and another hash function."""
    return PackedModel(
        model.classes,
        pack(weights),
        hash_function.projection,
        hash_function.intercept,
        centre=hash_function.centre,
        scale=hash_function.scale,
        temperature=model.temperature,
        precision=model.precision,
        anchors=model.anchors,
    )


def _accuracy(model: PackedModel, held_out: Sample) -> float:
    return _mean(model.predict(held_out.X) == model.classes[held_out.own], held_out)


def _mean(right: NDArray[np.bool_], held_out: Sample) -> float:
    """Share of the rows held out that are right, by their weights, as in the learning itself."""
    return float(np.average(right, weights=held_out.weights))


def _n_independent(held_out: Sample) -> float:
    """How many rows of equal weight would leave as much doubt as those held out."""
    weights = held_out.weights
    return len(held_out.own) if weights is None else float(weights.sum() ** 2 / (weights @ weights))


def fitted_temperature(
    model: PackedModel,
    X: Features,
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
    counts, of_own = _ranks(model, X, own)
    ranks = 2.0 * np.arange(counts.shape[1])

    def surprise(log_inverse: float) -> float:
        inverse = math.exp(log_inverse)
        of_rows = np.log(counts @ np.exp(-inverse * ranks)) + 2.0 * inverse * of_own
        return float(np.average(of_rows, weights=weights))

    low, high = math.log(1e-3), math.log(10.0)
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(40):  # the surprise has one valley in the inverse temperature
        width = golden * (high - low)
        if surprise(high - width) < surprise(low + width):
            high = low + width
        else:
            low = high - width
    return 1.0 / math.exp((low + high) / 2.0)


def _ranks(
    model: PackedModel, X: Features, own: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """How many bits classes are farther away than the nearest one, which is all that counts.

    Returns
    -------
    counts : (n, r + 1), how many classes of each row are 0, 1, ... bits farther away
    of_own : (n,) bits of the own class
    """
    width = model.n_bits + 1
    counts = np.empty((X.shape[0], width))
    of_own = np.empty(X.shape[0], dtype=np.int64)
    step = max(1, _SCORES_AT_ONCE // len(model.classes))
    for begin in range(0, X.shape[0], step):
        part = slice(begin, begin + step)
        scores = model.scores(X[part])
        bits = (scores.max(axis=1, keepdims=True) - scores) // 2
        rows = np.arange(len(bits))
        of_own[part] = bits[rows, own[part]]
        places = (bits + width * rows[:, None]).ravel()
        counts[part] = np.bincount(places, minlength=width * len(bits)).reshape(-1, width)
    return counts, of_own
