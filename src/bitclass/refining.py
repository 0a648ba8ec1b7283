"""Refinement of a learned model on the rows themselves: who is held out, how often rows come.

A slice of the rows is held out from the refinement and from the hash function that it starts from,
and where classes have few rows from the weights as well. The refined model is taken only if it is
at least as good on that slice as what it started from; the temperature of the probabilities is
fitted there. Where rows are more than memory holds, each pass over them draws a fresh sample.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.codes import pack
from bitclass.drawing import Drawing, Replay, Sample
from bitclass.encoder import HashFunction
from bitclass.model import PackedModel
from bitclass.remaining import Remaining
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

_MOST_EPOCHS = 20
_MOST_VISITS = 400_000
# Of rows that memory cannot hold, how often each of a sample is seen before the next is drawn.
_EPOCHS_A_SAMPLE = 4
_SCORES_AT_ONCE = 1 << 20
# Where classes have fewer rows than this, their weights know those held out too well.
_FEW_ROWS = 50
# With more classes than this their weights follow from the projection, and a step scores some.
_CLASSES_AT_ONCE = 2048
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
    remaining = Remaining(statistics, held_out, model.classes, alpha)
    if statistics.n_rows < _FEW_ROWS * len(weights):
        weights = _distinct(remaining.weights(weights), model.classes)
    start = remaining.hash_function(weights)
    whitening = remaining.whitening(start)
    before = _packed(model, weights, start)
    accuracy_before, best = _accuracy(before, held_out), 0.0

    refit = None
    if len(weights) > _CLASSES_AT_ONCE:

        def refit(Q: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.int8]:
            return remaining.refitted_weights(whitening.unwhitened(Q, t, start))

        weights = remaining.refitted_weights(start)
        start = remaining.hash_function(weights)
        best = _accuracy(_packed(model, weights, start), held_out)

    n_rows -= len(held_out.own)
    n_drawn = min(n_rows, drawing.most_rows)
    visits = min(_MOST_EPOCHS * n_rows, _MOST_VISITS)
    rows_a_step = batch_size(n_drawn)
    n_steps = max(1, visits // rows_a_step)
    random = np.random.default_rng([seed, 1])
    projection, intercept = whitening.whitened(start)
    refinement = Refinement(projection, intercept, weights, Schedule(n_steps), random, refit)
    Z_held_out = whitening.rows(statistics, held_out.X)
    # Kept is the last epoch that is not clearly worse than the best: differences within the
    # doubt of so few rows say nothing, and the steps become smaller and better towards the end.
    # Where that is not as good as the start, by a few rows of them, the best one may be.
    kept = top = start, weights
    n_epochs = 0
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
            reached = refinement.projection, refinement.intercept
            candidate = whitening.unwhitened(*reached, start), refinement.weights
            if accuracy >= best:
                best, top = accuracy, candidate
            doubt = math.sqrt(best * (1.0 - best) / n_independent)
            if accuracy >= best - doubt:
                kept = candidate
            fell = refinement.progress > 0.5 and accuracy < best - _DOUBTS_TO_STOP * doubt
            if refinement.finished or fell:
                break
        else:
            continue
        break
    for hash_function, weights in (kept, top):
        after = _packed(model, _distinct(weights, model.classes), hash_function)
        accuracy_after = _accuracy(after, held_out)
        taken = accuracy_after >= accuracy_before
        if taken:
            break
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
