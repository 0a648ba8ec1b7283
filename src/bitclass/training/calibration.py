"""Temperature of the probabilities where no rows were held out to fit it on."""

from __future__ import annotations

import math

import numpy as np
import scipy.special
from numpy.typing import NDArray

from bitclass.array_api import like, namespace, take, to_host
from bitclass.hash_function import HashFunction
from bitclass.training.discriminant import Coordinates
from bitclass.training.statistics import Sums

__all__ = ["temperature_of_means", "temperature_of_regression"]

_MAX_MEANS = 10_000  # that the temperature is estimated from


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
