"""The judge: how models score rows that they have not seen, what is better, and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from bitclass.arrays import sample_rows
from bitclass.codes import pack
from bitclass.model import PackedModel
from bitclass.training.candidate import RESCORE_LENGTHS, Candidate
from bitclass.training.closed_form import MAX_BIASED_CLASSES, best_temperature
from bitclass.training.sums import Sample

_TYPICALITY_QUANTILES = 256
_LEAST_PRIOR_TEMPERATURE = 0.5  # in units of that of drawn rows
# Number of (row, class) pairs that the temperature is fitted on.
_MAX_CALIBRATION_PAIRS = 100_000_000


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
        gaps = [_score_gaps(model, X, y, length) for model, X, y, _ in parts]
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
    return found


def _score_gaps(
    model: PackedModel, X: Any, y: NDArray[np.intp], length: int
) -> tuple[NDArray[Any], ...]:
    """Gaps of the classes on the short list, counts of the others, and what `Judged` says of rows.

    The list is that of the nearest class if none is rescored.
    """
    rows, index, n_classes = model._rows(X), model._index, len(model.classes)
    codes, m = model.hash_function.encode(rows), min(length, n_classes)
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


def loss(judged: Judged) -> float:
    """Mean negative log-likelihood of the judged rows, in nats."""
    likelihoods = judged.log_likelihoods(judged.temperature)
    return -float(np.average(likelihoods, weights=judged.weights))


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
