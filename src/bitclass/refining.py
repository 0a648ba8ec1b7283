"""Refinement of a learned model on the rows themselves: who is held out, how often rows come.

A slice of the rows is held out from the refinement and from the hash function that it starts from.
The refined model is taken only if it is at least as good on that slice; the temperature of the
probabilities is fitted there. Where rows are more than memory holds, each pass over them draws a
fresh sample.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import Precision
from bitclass.codes import pack
from bitclass.encoder import HashFunction, correlation, ridge
from bitclass.model import PackedModel
from bitclass.rows import Features, dense_rows
from bitclass.training import (
    CodeWarning,
    Refinement,
    Schedule,
    Statistics,
    batch_size,
    make_distinct,
)

__all__ = ["Batch", "Refined", "Replay", "fitted_temperature", "refine", "uniform"]

#: Rows once more: the first row's number, X (m, d), labels (m,), weights (m,) or None.
Batch = tuple[int, Features, NDArray[Any], NDArray[np.float64] | None]
#: Each call passes over all rows, in the same order.
Replay = Callable[[], Iterator[Batch]]

# Added to the variance of each standardised feature before rows are whitened, in units of the
# regression's penalty: directions of less variance stay small, so that codes move little along
# them. What helps the regression to generalise helps here, some times over.
_WHITENING = 10.0
_LEAST_WHITENING = 1e-4  # for the rounding of float32
_MOST_EPOCHS = 20
_MOST_VISITS = 500_000
# Of rows that memory cannot hold, how often each of a sample is seen before the next is drawn.
_EPOCHS_A_SAMPLE = 4
_HELD_OUT_SHARE, _LARGEST_SHARE = 0.05, 0.2
_FEWEST_HELD_OUT, _MOST_HELD_OUT = 200, 4096
_ROWS_AT_ONCE = 4096
# Refinement ends early when it falls so many standard errors behind its best.
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
    drawing = _Drawing(statistics, model.classes, n_rows, seed, max_bytes)
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
    while not refinement.finished:
        sample = drawing.sample(replay, n_drawn / max(n_rows, 1), whitening)
        rounds = _EPOCHS_A_SAMPLE if n_drawn < n_rows else _MOST_EPOCHS
        for _ in range(rounds):
            _epoch(refinement, sample, rows_a_step, random)
            n_epochs += 1
            accuracy = float(np.mean(refinement.classify(Z_held_out) == held_out.own))
            report(f"refinement: {accuracy:.2%} of the rows held out after epoch {n_epochs}")
            best = max(best, accuracy)
            doubt = math.sqrt(best * (1.0 - best) / len(held_out.own))
            if accuracy >= best - doubt:
                kept = whitening.unwhitened(refinement, start), refinement.weights
            if refinement.finished or accuracy < best - _DOUBTS_TO_STOP * doubt:
                break
        else:
            continue
        break
    after = _packed(model, _distinct(kept[1], model.classes), kept[0])
    accuracy_after = _accuracy(after, held_out)
    taken = accuracy_after >= accuracy_before
    temperature = fitted_temperature(after if taken else before, held_out.X, held_out.own)
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
class _Sample:
    """Some rows: X or whitened rows, the index of each row's class, weights or None."""

    X: Features
    own: NDArray[np.intp]
    weights: NDArray[np.float64] | None


class _Drawing:
    """Draws rows by their numbers alone, so that batches and order of reading do not matter."""

    def __init__(
        self,
        statistics: Statistics,
        classes: NDArray[Any],
        n_rows: int,
        seed: int,
        max_bytes: int,
    ) -> None:
        self.statistics = statistics
        self.classes = classes
        self.seed = seed
        self.most_rows = max(1024, max_bytes // (4 * len(statistics.shift)))
        self._n_samples = 0
        n_rows = max(n_rows, 1)
        share = min(max(_HELD_OUT_SHARE, _FEWEST_HELD_OUT / n_rows), _LARGEST_SHARE)
        self.share = min(share, _MOST_HELD_OUT / n_rows)

    def held_out(self, replay: Replay) -> _Sample:
        """The rows held out; no class loses more than half of its weight to them."""
        found = self._drawn(replay, lambda rows: self._is_held_out(rows), _as_they_are)
        weights = np.ones(len(found.own)) if found.weights is None else found.weights
        lost = np.bincount(found.own, weights=weights, minlength=len(self.classes))
        there = self.statistics.class_weights
        there = there[there > 0]
        stay = np.flatnonzero(2.0 * lost[found.own] <= there[found.own])
        kept = None if found.weights is None else found.weights[stay]
        return _Sample(found.X[stay], found.own[stay], kept)

    def sample(self, replay: Replay, share: float, whitening: _Whitening) -> _Sample:
        """Whitened rows drawn from those that are not held out, others each time."""
        self._n_samples += 1
        salt = self._n_samples

        def chosen(rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
            drawn = uniform(rows, self.seed, salt) < share if share < 1.0 else True
            return np.asarray(~self._is_held_out(rows) & drawn)

        return self._drawn(replay, chosen, lambda X: whitening.rows(self.statistics, X))

    def _is_held_out(self, rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return np.asarray(uniform(rows, self.seed, 0) < self.share)

    def _drawn(
        self,
        replay: Replay,
        choose: Callable[[NDArray[np.uint64]], NDArray[np.bool_]],
        take: Callable[[Features], NDArray[Any]],
    ) -> _Sample:
        """Rows that `choose` picks by their numbers, as `take` gives them."""
        parts, own, weights = [], [], []
        for first_row, X, labels, of_rows in replay():
            numbers = np.arange(first_row, first_row + X.shape[0], dtype=np.uint64)
            place = np.minimum(np.searchsorted(self.classes, labels), len(self.classes) - 1)
            # Classes whose rows all have weight 0 are not in the model.
            chosen = np.flatnonzero(choose(numbers) & (self.classes[place] == labels))
            for start in range(0, len(chosen), _ROWS_AT_ONCE):
                rows = chosen[start : start + _ROWS_AT_ONCE]
                parts.append(take(dense_rows(X, rows)))
            own.append(place[chosen])
            if of_rows is not None:
                weights.append(of_rows[chosen])
        if not parts:
            parts = [np.empty((0, self.statistics.n_features), dtype=np.float32)]
        return _Sample(
            parts[0] if len(parts) == 1 else np.concatenate(parts),
            np.concatenate(own) if own else np.empty(0, dtype=np.intp),
            np.concatenate(weights) if weights else None,
        )


def _as_they_are(X: NDArray[Any]) -> NDArray[Any]:
    return X


def uniform(rows: NDArray[np.uint64], seed: int, salt: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each row number, as good as random: the mixing of SplitMix64."""
    start = (seed * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03) % 2**64
    mixed = rows * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


@dataclass(frozen=True)
class _Whitening:
    """Coordinates in which features are nearly uncorrelated and of unit variance at most.

    Attributes
    ----------
    factor : (d, d) float32, lower triangular; rows are ``factor^-1 (z - mean) / deviation``
    mean, deviation : (d,) of the features as they are summed
    """

    factor: NDArray[np.float32]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def rows(self, statistics: Statistics, X: NDArray[Any]) -> NDArray[np.float32]:
        """Whitened rows, (n, d) float32, of dense rows as the estimator takes them."""
        Z = statistics.standardised_rows(X, np.arange(len(X))).astype(np.float32, copy=False)
        Z -= self.mean.astype(np.float32)
        Z /= self.deviation.astype(np.float32)
        return self._solved(Z)

    def _solved(self, Z: NDArray[np.float32]) -> NDArray[np.float32]:
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
    held_out: _Sample,
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
    start = ridge(
        gram,
        column_sums,
        feature_sums.T @ codes,
        class_weights @ codes,
        total,
        statistics.shift,
        statistics.scale,
        alpha,
    )
    features = correlation(gram, column_sums, total)
    matrix = features.matrix
    added = max(_WHITENING * alpha, _LEAST_WHITENING)
    matrix[np.diag_indices_from(matrix)] += added
    factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
    factor /= math.sqrt(1.0 + added)
    deviation = start.scale.astype(np.float64) / statistics.scale
    return start, _Whitening(factor.astype(np.float32), features.mean, deviation)


def _epoch(
    refinement: Refinement, sample: _Sample, rows_a_step: int, random: np.random.Generator
) -> None:
    """Show all rows of a sample once, in another order each time."""
    order = random.permutation(len(sample.own))
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
    precision: Precision = model.precision
    return PackedModel(
        model.classes,
        pack(weights),
        hash_function.projection,
        hash_function.intercept,
        centre=hash_function.centre,
        scale=hash_function.scale,
        temperature=model.temperature,
        precision=precision,
        anchors=model.anchors,
    )


def _accuracy(model: PackedModel, held_out: _Sample) -> float:
    return float(np.mean(model.predict(held_out.X) == model.classes[held_out.own]))


def fitted_temperature(model: PackedModel, X: Features, own: NDArray[np.intp]) -> float:
    """Temperature that makes the labels of rows X (n, d) most likely; `own` (n,) class indices."""
    scores = model.scores(X).astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    of_own = scores[np.arange(len(own)), own]

    def surprise(log_inverse: float) -> float:
        inverse = math.exp(log_inverse)
        return float(np.mean(np.log(np.exp(scores * inverse).sum(axis=1)) - inverse * of_own))

    low, high = math.log(1e-3), math.log(10.0)
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(40):  # the surprise has one valley in the inverse temperature
        width = golden * (high - low)
        if surprise(high - width) < surprise(low + width):
            high = low + width
        else:
            low = high - width
    return 1.0 / math.exp((low + high) / 2.0)
