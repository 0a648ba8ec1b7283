"""Starting codes: section 3 supposes a code b_i "for original data x_i" without saying which.

Codes of samples are signs of random projections (LSH). One code per class, which all its samples
share, is a fixed point of both of the paper's losses: the alternation then changes nothing, and
they learn the same model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import class_sums
from bitclass.codes import pack, sign
from bitclass.hash_function import HashFunction
from bitclass.paper.ridge import Rows

#: Names of the starting codes.
STARTING_CODES = ("projection", "random", "means")

# Added to the variance of each standardised feature before decorrelating the features.
_MEANS_REGULARISATION = 0.03


def starting_codes(
    kind: str | NDArray[Any], rows: Rows, n_bits: int, random: np.random.RandomState
) -> NDArray[np.uint8]:
    """Packed starting codes (n, bytes) of the training rows.

    `kind` is one of `STARTING_CODES`, or codes (n, r) in {-1, +1}.
    """
    if not isinstance(kind, str):
        return pack(kind)
    if kind == "projection":
        n_features = rows.Z.shape[1]
        directions = random.standard_normal((n_features, n_bits)).astype(np.float32)
        return HashFunction(directions, np.zeros(n_bits)).encode(rows.Z)
    if kind == "random":
        n_classes = int(rows.labels.max()) + 1
        class_codes = sign(random.standard_normal((n_classes, n_bits)))
    else:
        class_codes = codes_of_means(rows, n_bits, random)
    return pack(class_codes)[rows.labels]


def codes_of_means(rows: Rows, n_bits: int, random: np.random.RandomState) -> NDArray[np.int8]:
    """Signs (C, r) of random projections of the class means, in decorrelated coordinates.

    In these coordinates, classes that are hard to separate have similar means and thus similar
    codes, and bits are easy to predict from the features.
    """
    correlations = rows.correlations()
    correlations[np.diag_indices_from(correlations)] += _MEANS_REGULARISATION
    factor = scipy.linalg.cholesky(correlations, lower=True, check_finite=False)
    drawn = random.standard_normal((len(factor), n_bits))
    directions = scipy.linalg.solve_triangular(factor, drawn, lower=True, trans="T")
    class_mass = np.bincount(rows.labels, rows.sample_weight)
    means = np.zeros((len(class_mass), len(factor)))
    class_sums(rows.Z, rows.labels, rows.sample_weight, means)
    means /= class_mass[:, None]
    return sign((means - means.mean(axis=0)) @ directions)
