"""Temperature of the probabilities: fitted on held-out rows, or estimated where there are none."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from bitclass._native import effective_threads, thread_limit
from bitclass.arrays import is_foreign, like, namespace, take, to_host
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.discriminant import Coordinates
from bitclass.training.statistics import Sums

__all__ = ["fitted_temperature", "temperature_of_means", "temperature_of_regression"]

# Pairs of a row and a class that the temperature is fitted on.
_MAX_CALIBRATION_PAIRS = 100_000_000
_SCORES_PER_BLOCK = 1 << 20  # on all threads together
_MAX_MEANS = 10_000  # that the temperature is estimated from


def fitted_temperature(
    model: PackedModel,
    X: NDArray[Any],
    own: NDArray[np.intp],
    sample_weight: NDArray[np.float64] | None = None,
) -> float:
    """Temperature that makes the probabilities of the predicted classes reliable.

    It minimises the cross-entropy between the probability of the predicted class and whether the
    prediction is right. The likelihood of all labels would depend most on rows whose class is not
    even on the short list, and leave predictions less confident than they are accurate.

    Parameters
    ----------
    model : PackedModel
    X : (n, d)
    own : (n,) index of each row's class
    sample_weight : (n,), or None for ones
    """
    n_rows = max(256, _MAX_CALIBRATION_PAIRS // len(model.classes))
    if is_foreign(X):
        model, X = model.on_host(X)
    X, own = X[:n_rows], own[:n_rows]
    sample_weight = None if sample_weight is None else sample_weight[:n_rows]
    listed, counts, right = _score_gaps(model, X, own)
    steps = 2.0 * np.arange(counts.shape[1])

    def cross_entropy(log_inverse: float) -> float:
        inverse = math.exp(log_inverse)
        totals = counts @ np.exp(-inverse * steps) * np.exp(-inverse * listed[:, -1])
        totals += np.exp(-inverse * listed[:, :-1]).sum(axis=1)
        confidence = np.clip(1.0 / totals, 1e-12, 1.0 - 1e-12)
        losses = -np.log(np.where(right, confidence, 1.0 - confidence))
        return float(np.average(losses, weights=sample_weight))

    bounds = (math.log(1e-3), math.log(10.0))
    found = scipy.optimize.minimize_scalar(
        cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-6}
    )
    return 1.0 / math.exp(found.x)


def _score_gaps(
    model: PackedModel, X: NDArray[Any], own: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """By how much scores are below the best one: all that probabilities need.

    Returns
    -------
    listed : (n, m + 1), gaps of the short list, and of the best class that is not on it
    counts : (n, r + 1), how many other classes are 0, 2, 4, ... below that one
    right : (n,) whether the own class is the predicted one
    """
    m, width = model.n_rescored, model.n_bits + 1
    listed = np.zeros((len(X), m + 1))
    counts = np.zeros((len(X), width))
    right = np.empty(len(X), dtype=bool)
    n_threads = effective_threads(None)
    step = max(1, _SCORES_PER_BLOCK // (n_threads * len(model.classes)))

    def measure(begin: int) -> None:
        part = slice(begin, begin + step)
        with thread_limit(1):  # each of several threads
            gaps = model.scores(X[part])
        right[part] = gaps.argmax(axis=1) == own[part]
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
        list(pool.map(measure, range(0, len(X), step)))
    return listed, counts, right


def temperature_of_means(
    hash_function: HashFunction,
    weights: NDArray[np.int8],
    coordinates: Coordinates,
    sums: Sums,
    rescored: bool,
) -> float:
    """Temperature of the probabilities, from how far class means lie from the thresholds.

    Scores of rows scatter about those of their class mean by the same deviation in every class.
    """
    Q, t = coordinates.projected(hash_function, sums)
    deviations = np.maximum(np.linalg.norm(Q, axis=0), 1e-12)
    means, n_classes = coordinates.means, len(weights)
    some = take(means, np.arange(0, n_classes, 1 + n_classes // _MAX_MEANS))
    values = to_host(namespace(means).astype(some, namespace(means).float64) @ like(Q, some)) + t
    distances = np.abs(values) / deviations
    error = float(np.mean(scipy.special.ndtr(-distances)))
    temperature = _temperature_of_errors(error, *weights.shape[::-1])
    if not rescored:
        return temperature
    # Scores of real-valued codes are smaller than those of their signs.
    return temperature * float(np.mean(np.abs(np.tanh(values))))


def temperature_of_regression(explained: float, n_bits: int, n_classes: int) -> float:
    """Temperature of the probabilities, from how well the regression explains the codes.

    If bits were hashed wrongly independently of each other, each with probability e, the posterior
    of class c would be the softmax of ``w_c.h(x) * log((1 - e) / e) / 2``. The share of explained
    variance gives e, for a bit whose regression value is normal around it. Bits are far from
    independent where they outnumber the C - 1 directions that tell C classes apart.
    """
    explained = min(max(explained, 1e-6), 1.0 - 1e-6)
    error = 0.5 * math.erfc(math.sqrt(explained / (1.0 - explained) / 2.0))
    return _temperature_of_errors(error, n_bits, n_classes)


def _temperature_of_errors(error: float, n_bits: int, n_classes: int) -> float:
    error = min(max(error, 1e-9), 0.49)
    log_odds = math.log1p(-error) - math.log(max(error, 1e-12))
    independent = min(1.0, (n_classes - 1) / n_bits)
    return 2.0 / (log_odds * independent)
