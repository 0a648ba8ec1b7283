"""The hash function h(x) = sign(P'x + t): a ridge regression of the codes on the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["HashFunction", "ridge"]


@dataclass(frozen=True)
class HashFunction:
    """A learned hash function.

    Attributes
    ----------
    projection : (d, r) float32
    intercept : (r,) float64
    centre, scale : (d,) float32
        Mean and standard deviation of the features, by which int8 encoding quantises rows.
    fit : float
        Share of the variance of the codes that the regression explains, in [0, 1].
    """

    projection: NDArray[np.float32]
    intercept: NDArray[np.float64]
    centre: NDArray[np.float32]
    scale: NDArray[np.float32]
    fit: float


def ridge(
    gram: NDArray[np.float64],
    column_sums: NDArray[np.float64],
    cross: NDArray[np.float64],
    code_sum: NDArray[np.float64],
    total_weight: float,
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    alpha: float,
) -> HashFunction:
    """Regress codes on features, with an intercept that is not penalised.

    Sums are of ``z = (x - shift) / scale``; the hash function takes x itself.

    The penalty is `alpha` times the variance of each feature, which is an ordinary ridge on
    standardised features: scaling a feature changes nothing.

    Parameters
    ----------
    gram : (d, d) ``sum weight z z'``
    column_sums : (d,) ``sum weight z``
    cross : (d, r) ``sum weight z b'``
    code_sum : (r,) ``sum weight b``
    total_weight : float
    shift, scale : (d,)
    alpha : float

    Returns
    -------
    HashFunction
    """
    mean = column_sums / total_weight
    code_mean = code_sum / total_weight
    cross = cross - np.outer(column_sums, code_mean)
    diagonal = np.diag(gram) - column_sums * mean
    # A constant feature has nothing to say; dividing by 1 leaves its weight at 0.
    constant = diagonal <= 1e-12 * np.maximum(np.diag(gram), np.finfo(np.float64).tiny)
    norms = np.sqrt(np.where(constant, 1.0, diagonal))
    usable = np.where(constant, 0.0, 1.0 / norms)

    correlation = gram - np.outer(column_sums, mean)
    correlation *= usable[:, None]
    correlation *= usable
    correlation[np.diag_indices_from(correlation)] = 1.0 + alpha
    solution = _solve_positive(correlation, cross * usable[:, None], alpha)
    solution *= usable[:, None]
    projection = (solution / scale[:, None]).astype(np.float32, order="C")

    # From the rounded projection, so that rounding does not move the codes of the mean.
    rounded = projection.astype(np.float64)
    centre = mean * scale + shift
    intercept = code_mean - rounded.T @ centre
    code_variance = np.sum(total_weight - code_sum * code_mean)
    explained = float(np.sum(solution * cross))
    fit = min(max(explained / code_variance, 0.0), 1.0) if code_variance > 0 else 0.0
    deviation = scale * np.where(constant, 1.0, norms / np.sqrt(total_weight))
    return HashFunction(
        projection, intercept, centre.astype(np.float32), deviation.astype(np.float32), fit
    )


def _solve_positive(
    matrix: NDArray[np.float64], right: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Solve for a positive matrix; where rounding has made it indefinite, in its positive part."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
        solution: NDArray[np.float64] = scipy.linalg.cho_solve(factor, right, check_finite=False)
        return solution
    except np.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
        kept = values > max(alpha / 2, len(values) * np.finfo(np.float32).eps)
        scaled = (vectors[:, kept].T @ right) / values[kept, None]
        return np.asarray(vectors[:, kept] @ scaled)
