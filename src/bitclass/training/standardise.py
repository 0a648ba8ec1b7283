"""Centre and scale of the features, in which sums over rows lose no digits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bitclass.rows import Features, compute_dtype, dense_rows, row_blocks, sample_rows
from bitclass.training.statistics import MAX_DEVIATIONS

__all__ = ["standardisation"]

_SAMPLE_ROWS = 10_000
# A single row has all of the variance of a feature: it may hide all others.
_ALL_OF_VARIANCE = 0.9
# The projection is float32 and divides by the scale, so both must stay well within its range.
MIN_SCALE, MAX_SCALE = 1e-30, 1e30
# Deviations smaller than this, relative to the mean, are lost in float32 and in float64.
_FLOAT32_DIGITS, _FLOAT64_DIGITS = 1e-7, 1e-13


def standardisation(
    X: Features, weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and scale of the features, from all rows or 10,000 of them; float32 holds both.

    Parameters
    ----------
    X : (n, d)
    weights : (n,) sample weights

    Returns
    -------
    centre : (d,) weighted means
    scale : (d,) weighted standard deviations, 1 for constant features
    """
    chosen = sample_rows(X.shape[0], _SAMPLE_ROWS)
    sample, weights = X[chosen], weights[chosen]
    total = weights.sum()
    centre = np.zeros(X.shape[1])
    for rows, block in row_blocks(sample):
        centre += weights[rows] @ block.astype(np.float64)
    centre /= total
    variance = np.zeros(X.shape[1])
    largest = np.zeros(X.shape[1])
    for rows, block in row_blocks(sample):
        deviation = block - centre
        np.maximum(largest, np.abs(deviation).max(axis=0, initial=0.0), out=largest)
        variance += weights[rows] @ deviation**2
    variance /= total
    digits = _FLOAT32_DIGITS if compute_dtype(X) == np.float32 else _FLOAT64_DIGITS
    # Below this a column is constant, and what is left is the rounding of its values.
    constant = largest <= digits * np.abs(centre)
    scale = np.where(constant, 1.0, np.sqrt(variance))
    unfit = (scale < MIN_SCALE) | (scale > MAX_SCALE) | (np.abs(centre) > MAX_SCALE)
    unfit |= ~constant & (scale < _FLOAT32_DIGITS * np.abs(centre))
    for j in np.flatnonzero(largest > _ALL_OF_VARIANCE * math.sqrt(len(weights)) * scale):
        column = dense_rows(sample[:, [j]], slice(None))[:, 0].astype(np.float64)
        typical = float(np.quantile(np.abs(column - np.median(column)), 0.75))
        # Beside other features too: rare events and similarities may have one large value.
        if 0.0 < max(typical, float(np.median(scale))) < largest[j] / MAX_DEVIATIONS:
            raise ValueError(
                f"X must hold numbers that can be summed: feature {j} has one that is "
                f"{largest[j]:g} from the mean, where most are within {typical:g}"
            )
    if unfit.any():
        j = np.argmax(unfit)
        raise ValueError(
            f"X must have features that float32 can hold, found mean {centre[j]:g} and standard "
            f"deviation {largest[j] if scale[j] == 0 else scale[j]:g} in feature {j}: rescale it, "
            "with StandardScaler for instance"
        )
    return centre.astype(np.float32).astype(np.float64), scale.astype(np.float32).astype(np.float64)
