"""Centre and scale of the features, in which sums over rows lose no digits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitclass.rows import Features, row_blocks, sample_rows

__all__ = ["standardisation"]

_SAMPLE_ROWS = 10_000
# The projection is float32 and divides by the scale, so both must stay well within its range.
_SMALLEST, _LARGEST = 1e-30, 1e30


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
    for rows, block in row_blocks(sample):
        variance += weights[rows] @ (block - centre) ** 2
    variance /= total
    # Below this a column is constant, and what is left is the rounding of its values.
    constant = variance <= (1e-7 * np.abs(centre)) ** 2
    scale = np.sqrt(np.where(constant, 1.0, variance))
    strange = np.flatnonzero((scale < _SMALLEST) | (scale > _LARGEST) | (np.abs(centre) > _LARGEST))
    if strange.size:
        j = strange[0]
        raise ValueError(
            f"X must have features that float32 can hold, found mean {centre[j]:g} and standard "
            f"deviation {scale[j]:g} in feature {j}: rescale it"
        )
    return centre.astype(np.float32).astype(np.float64), scale.astype(np.float32).astype(np.float64)
