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
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass.arrays import Array, device, like, namespace, take, to_host
from bitclass.codes import pack, sign
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.alternation import CodeWarning, make_distinct
from bitclass.training.calibration import fitted_temperature
from bitclass.training.discriminant import (
    Coordinates,
    best_alpha,
    coordinates_to_refine,
    scatter_of,
    target_deviation,
)
from bitclass.training.refinement.split import Rows, Sample, Split
from bitclass.training.refinement.steps import (
    Refinement,
    Schedule,
    mini_batches,
    rows_per_step,
)
from bitclass.training.settings import Epoch, Settings
from bitclass.training.statistics import Statistics, Sums

__all__ = [
    "RESCORE_LENGTHS",
    "Refined",
    "Start",
    "class_mean_weights",
    "epochs_per_sample",
    "refine",
]

#: Lengths of the short list that ``rescore="auto"`` chooses from; the first where nothing is known.
RESCORE_LENGTHS = (16, 0, 64)

# Epochs, and rows shown in all; similarities to kernel anchors need more of both.
_MAX_EPOCHS, _MAX_VISITS = 12, 250_000
_MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS = 20, 400_000
# Where memory cannot hold all rows, a sample of them is seen once: rows seen again help less than
# new ones. But a sample costs a pass over all rows, so where there would be more, it is seen again.
_MAX_SAMPLES, _MAX_EPOCHS_PER_SAMPLE = 8, 4
# With more classes than this, weights are the codes of the class means, and a step scores only some
# of the classes.
_MAX_LEARNED_CLASSES = 2048
# Refinement ends early when it falls so many standard errors behind its best, once the steps are
# no longer at their largest.
_ERRORS_TO_STOP = 4.0
# Another start than the first is taken if it leads by more standard errors than this.
_ERRORS_TO_SWITCH = 3.0
_CLASSES_PER_BLOCK = 1 << 14

#: Learns hash functions and class weights (C, r) from sums, in closed form, to choose from.
Start = Callable[[Sums, Coordinates], list[tuple[HashFunction, NDArray[np.int8]]]]


@dataclass(frozen=True)
class Refined:
    """The result of refinement.

    Attributes
    ----------
    model : PackedModel
        The refined one, or the one that it started from where that is better on the held-out rows;
        with a short list and a temperature chosen on them.
    alpha : float
        Penalty of the scatter within classes.
    report : dict
        Facts about the run, in values that JSON can hold.
    """

    model: PackedModel
    alpha: float
    report: dict[str, Any]

    @property
    def taken(self) -> bool:
        """Whether the model is the refined one."""
        return bool(self.report["taken"])


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
    labels = sums.classes[held_out.own]
    out, _ = statistics.summed(held_out.X, labels, held_out.weights, held_out.rows)
    sums = sums.without(out)

    scatter = scatter_of(sums)
    alpha = settings.alpha
    if alpha is None:
        Z = statistics.standardised_rows(held_out.X, np.arange(len(held_out)))
        alpha = best_alpha(scatter, Z, held_out.own, statistics.anchors, held_out.weights)
    coordinates = coordinates_to_refine(scatter, alpha, settings.n_bits, statistics.anchors)
    before = None
    for hash_function, weights in start(sums, coordinates):
        model = _model(sums, hash_function, weights)
        model.steepness = steepness
        judged = _rescored(model, held_out, settings.rescore)
        if before is None or _lead(judged.right - before.right, held_out) > _ERRORS_TO_SWITCH:
            before = judged
    assert before is not None

    best, facts = _learn(settings, statistics, split, sums, coordinates, before.model, seed)
    for Q, t, weights in best.candidates():
        hash_function = coordinates.hash_function(
            Q, t, sums, settings.precision, statistics.anchors
        )
        after = _rescored(_model(sums, hash_function, weights), held_out, settings.rescore)
        taken = after.accuracy >= before.accuracy
        if taken:
            break
    # Whether class means give weights as good as the learned ones decides what classes get that
    # gain rows later on.
    by_means = _model(sums, hash_function, class_mean_weights(hash_function, sums))
    by_means.rescore = after.model.rescore
    follow = held_out.mean(to_host(by_means.predict(held_out.X)) == labels) >= after.accuracy
    chosen = (after if taken else before).model
    chosen.temperature = fitted_temperature(chosen, held_out.X, held_out.own, held_out.weights)
    settings.report(
        f"refinement: {before.accuracy:.2%} before, {after.accuracy:.2%} after, on "
        f"{len(held_out)} held-out rows; {'taken' if taken else 'not taken'}; "
        f"short list of {chosen.rescore}"
    )
    report = {
        "taken": taken,
        "held_out_rows": len(held_out),
        "accuracy_before": before.accuracy,
        "accuracy_after": after.accuracy,
        **facts,
        "weights_follow_means": bool(taken and follow),
        "alpha": alpha,
    }
    return Refined(chosen, alpha, report)


def _learn(
    settings: Settings,
    statistics: Statistics,
    split: Split,
    sums: Sums,
    coordinates: Coordinates,
    start: PackedModel,
    seed: int,
) -> tuple[BestEpoch, dict[str, Any]]:
    """Epochs of steps over the training rows, each judged on the held-out rows.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    split : Split
    sums : Sums, without the held-out rows
    coordinates : Coordinates, of these sums
    start : PackedModel
    seed : int

    Returns
    -------
    best : BestEpoch
    facts : number of epochs, number of steps planned, and why it stopped, if early
    """
    max_epochs, max_visits = _MAX_EPOCHS, _MAX_VISITS
    if statistics.anchors is not None:
        max_epochs, max_visits = _MAX_KERNEL_EPOCHS, _MAX_KERNEL_VISITS
    n_per_step = rows_per_step(split.n_per_sample)
    n_steps = max(1, min(max_epochs * split.n_training, max_visits) // n_per_step)
    n_planned = math.ceil(n_steps / max(1, split.n_per_sample // n_per_step))
    if split.holds_all:
        n_planned = min(n_planned, max_epochs)
    random = np.random.default_rng([seed, 1])
    refinement = _started(sums, coordinates, start, Schedule(n_steps), random)
    held_out, A_held_out = split.held_out, coordinates.rows(statistics, split.held_out.X)
    best = BestEpoch(held_out.effective_size)
    facts: dict[str, Any] = {"epochs": 0, "steps": n_steps}
    n_repeats = max_epochs
    if not split.holds_all:
        n_repeats = epochs_per_sample(n_steps * n_per_step, split.n_per_sample)
    for sample in _epochs(split, n_repeats, lambda X: coordinates.rows(statistics, X)):
        _epoch(refinement, sample, n_per_step, random, settings)
        found = refinement.classify(A_held_out, rescored=settings.rescore != 0)
        accuracy = held_out.mean(found == held_out.own)
        best.offer(accuracy, refinement)
        facts["epochs"] += 1
        n_epochs = facts["epochs"]
        settings.report(f"refinement: {accuracy:.2%} of the held-out rows after epoch {n_epochs}")
        epoch = Epoch(n_epochs, max(n_planned, n_epochs), accuracy, refinement.mean_loss())
        if settings.callback is not None and settings.callback(epoch):
            facts["stopped"] = "callback"
        elif settings.out_of_time and not refinement.finished:
            facts["stopped"] = "max_time"
        behind = refinement.progress > 0.5 and best.is_far_above(accuracy)
        if refinement.finished or behind or "stopped" in facts:
            break
    refinement.close()
    return best, facts


def _started(
    sums: Sums,
    coordinates: Coordinates,
    start: PackedModel,
    schedule: Schedule,
    random: np.random.Generator,
) -> Refinement:
    """Refinement of a model; weights of very many classes follow from the projection."""
    weights, refit = start.unpacked_weights(), None
    if len(weights) > _MAX_LEARNED_CLASSES:
        weights = class_mean_weights(start.hash_function, sums)

        def refit(Q: Array, t: Array) -> Array:
            xp, means = namespace(Q), coordinates.means
            found = xp.empty(weights.shape, dtype=xp.int8, device=device(Q))
            for begin in range(0, len(weights), _CLASSES_PER_BLOCK):
                part = slice(begin, min(begin + _CLASSES_PER_BLOCK, len(weights))), slice(None)
                found[part] = xp.astype(means[part] @ Q + t >= 0, xp.int8) * 2 - 1
            return found

    Q, t = coordinates.projected(start.hash_function, sums)
    score_deviation = target_deviation(sums)
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


@dataclass(frozen=True)
class _Judged:
    """A model with a short list, its accuracy on the held-out rows, and which (n,) are right."""

    model: PackedModel
    accuracy: float
    right: NDArray[np.float64]


def _rescored(model: PackedModel, held_out: Sample, rescore: int | None) -> _Judged:
    """Give a model a short list, and judge it on held-out rows.

    Of the lengths to choose from it is the first one, unless another is clearly better: on nearly
    all data a short list is better than none, by less than so few rows can tell.
    """
    labels = model.classes[held_out.own]
    right = {}
    for length in RESCORE_LENGTHS if rescore is None else (rescore,):
        model.rescore = length
        right[length] = (to_host(model.predict(held_out.X)) == labels).astype(np.float64)
    chosen, *others = right
    for length in others:
        if _lead(right[length] - right[chosen], held_out) > 1.0:
            chosen = length
    model.rescore = chosen
    return _Judged(model, held_out.mean(right[chosen]), right[chosen])


def _lead(difference: NDArray[np.float64], held_out: Sample) -> float:
    """Mean of a difference (n,) over held-out rows, in its standard errors."""
    lead = held_out.mean(difference)
    variance = max(held_out.mean(difference**2) - lead**2, 0.0)
    return lead / max(math.sqrt(variance / held_out.effective_size), 1e-12)


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

    def is_far_above(self, accuracy: float) -> bool:
        """Whether an accuracy has fallen so far that going on is of no use."""
        return accuracy < self._accuracy - _ERRORS_TO_STOP * self._standard_error

    def candidates(self) -> list[_Candidate]:
        """What to try, in this order."""
        return [found for found in (self._last_good, self._best) if found is not None]


def epochs_per_sample(n_visits: int, n_per_sample: int) -> int:
    """How often to show a sample of `n_per_sample` rows, where `n_visits` rows are shown in all."""
    n_samples = n_visits / n_per_sample
    return min(max(1, math.ceil(n_samples / _MAX_SAMPLES)), _MAX_EPOCHS_PER_SAMPLE)


def _epochs(
    split: Split, n_repeats: int, transform: Callable[[NDArray[Any]], NDArray[np.float32]]
) -> Iterator[Sample]:
    """Coordinates of the training rows, once per epoch: the same, or fresh samples of very many."""
    while True:
        sample = split.training_sample(transform)
        if len(sample) == 0:
            return
        for _ in range(n_repeats):
            yield sample
        if split.holds_all:
            return
        del sample  # or two samples would be held at once


def _epoch(
    refinement: Refinement,
    sample: Sample,
    n_per_step: int,
    random: np.random.Generator,
    settings: Settings,
) -> None:
    """Show all rows of a sample once, in another order each time."""
    own, sample_weight = like(sample.own, sample.X), None
    if sample.weights is not None:
        sample_weight = (sample.weights / sample.weights.mean()).astype(np.float32)
        sample_weight = like(sample_weight, sample.X)
    for rows in mini_batches(len(sample), n_per_step, random, sample.X):
        some = None if sample_weight is None else take(sample_weight, rows)
        refinement.step(take(sample.X, rows), take(own, rows), some)
        if refinement.finished or settings.out_of_time:
            return


def class_mean_weights(hash_function: HashFunction, sums: Sums) -> NDArray[np.int8]:
    """Class weights (C, r) that are the codes of the class means: ``sign(P'm_c + t)``."""
    # Of the features as they are summed, which float32 can hold whatever their offset is.
    projection = (sums.scale[:, None] * hash_function.projection).astype(np.float32)
    intercept = hash_function.intercept + sums.shift @ hash_function.projection
    weights = np.empty((len(sums.class_weights), len(intercept)), dtype=np.int8)
    for begin in range(0, len(weights), _CLASSES_PER_BLOCK):
        part, xp = slice(begin, min(begin + _CLASSES_PER_BLOCK, len(weights))), namespace(sums.gram)
        means = sums.feature_sums[part, :] / like(sums.class_weights[part, None], sums.gram)
        scores = to_host(xp.astype(means, xp.float32) @ like(projection, means))
        weights[part] = sign(scores + intercept)
    return weights


def _distinct(weights: NDArray[np.int8], classes: NDArray[Any]) -> NDArray[np.int8]:
    """The weights, no two of them equal; a warning was given before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CodeWarning)
        return make_distinct(weights, weights, classes)


def _model(sums: Sums, hash_function: HashFunction, weights: NDArray[np.int8]) -> PackedModel:
    return PackedModel(sums.classes, pack(_distinct(weights, sums.classes)), hash_function)
