"""The hash function h(x) = sign(P'x + t): a ridge regression of the codes on the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["Correlation", "HashFunction", "correlation", "ridge"]

# The penalties that generalised cross-validation chooses from.
_PENALTIES = np.logspace(-6, 2, 33)


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
    alpha : float
        The penalty.
    """

    projection: NDArray[np.float32]
    intercept: NDArray[np.float64]
    centre: NDArray[np.float32]
    scale: NDArray[np.float32]
    fit: float
    alpha: float


@dataclass(frozen=True)
class Correlation:
    """How the features of all rows go together.

    Attributes
    ----------
    matrix : (d, d) correlations; constant features have none, not even with themselves
    mean : (d,) of the features as they were summed
    norms : (d,) ``sqrt(sum weight (z - mean)^2)``, 1 for constant features
    """

    matrix: NDArray[np.float64]
    mean: NDArray[np.float64]
    norms: NDArray[np.float64]


def correlation(
    gram: NDArray[np.float64], column_sums: NDArray[np.float64], total_weight: float
) -> Correlation:
    """Correlations of features from ``sum weight z z'`` (d, d) and ``sum weight z`` (d,)."""
    mean = column_sums / total_weight
    diagonal = np.diag(gram) - column_sums * mean
    # A constant feature has nothing to say; dividing by 1 leaves its weight at 0.
    constant = diagonal <= 1e-12 * np.maximum(np.diag(gram), np.finfo(np.float64).tiny)
    norms = np.sqrt(np.where(constant, 1.0, diagonal))
    usable = np.where(constant, 0.0, 1.0 / norms)
    matrix = gram - np.outer(column_sums, mean)
    matrix *= usable[:, None]
    matrix *= usable
    matrix[np.diag_indices_from(matrix)] = np.where(constant, 0.0, 1.0)
    return Correlation(matrix, mean, norms)


def ridge(
    gram: NDArray[np.float64],
    column_sums: NDArray[np.float64],
    cross: NDArray[np.float64],
    code_sum: NDArray[np.float64],
    total_weight: float,
    n_rows: int,
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    alpha: float | None,
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
    n_rows : int
    shift, scale : (d,)
    alpha : float, or None to choose it by generalised cross-validation

    Returns
    -------
    HashFunction
    """
    features = correlation(gram, column_sums, total_weight)
    constant = np.diag(features.matrix) == 0.0
    code_mean = code_sum / total_weight
    cross = cross - np.outer(column_sums, code_mean)
    cross *= np.where(constant, 0.0, 1.0 / features.norms)[:, None]
    code_variance = float(np.sum(total_weight - code_sum * code_mean))
    if alpha is None:
        # Weights of 1 and more stand for rows; shares of a whole do not make the rows fewer.
        count = max(total_weight, n_rows)
        alpha, solution = _cross_validated(features.matrix, cross, code_variance, count)
    else:
        features.matrix[np.diag_indices_from(features.matrix)] = 1.0 + alpha
        solution = _solve_positive(features.matrix, cross, alpha)
    explained = float(np.sum(solution * cross))
    solution = solution / features.norms[:, None]
    projection = (solution / scale[:, None]).astype(np.float32, order="C")

    # From the rounded projection, so that rounding does not move the codes of the mean.
    rounded = projection.astype(np.float64)
    centre = features.mean * scale + shift
    intercept = code_mean - rounded.T @ centre
    fit = min(max(explained / code_variance, 0.0), 1.0) if code_variance > 0 else 0.0
    deviation = scale * np.where(constant, 1.0, features.norms / np.sqrt(total_weight))
    return HashFunction(
        projection, intercept, centre.astype(np.float32), deviation.astype(np.float32), fit, alpha
    )


def _cross_validated(
    matrix: NDArray[np.float64],
    cross: NDArray[np.float64],
    code_variance: float,
    count: float,
) -> tuple[float, NDArray[np.float64]]:
    """The penalty with the smallest generalised cross-validation error, and its solution.

    With the eigenvalues l of the correlations and the codes' coordinates c in their directions, a
    penalty a leaves ``a^2 sum c^2 / l (l + a)^2`` of the codes unexplained, and ``sum a / (l + a)``
    degrees of freedom, over what no penalty at all would leave of both: nothing, where features
    are as many as rows.

    Parameters
    ----------
    matrix : (d, d) correlations
    cross : (d, r) of the standardised features
    code_variance : float, the sum of squares of the centred codes
    count : float, the number of rows
    """
    values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
    values = np.maximum(values, 0.0)
    coordinates = vectors.T @ cross
    usable = values > len(values) * np.finfo(np.float64).eps * values[-1]
    lengths, strengths = values[usable], np.sum(coordinates[usable] ** 2, axis=1)
    freedom_left = max(count - 1.0 - len(lengths), 0.0)
    unexplained = max(code_variance - float(np.sum(strengths / lengths)), 0.0)
    if freedom_left == 0.0:  # the difference is rounding
        unexplained = 0.0
    errors = []
    for alpha in _PENALTIES:
        shrunk = lengths + alpha
        left = unexplained + np.sum(strengths / lengths * (alpha / shrunk) ** 2)
        freedom = freedom_left + np.sum(alpha / shrunk)
        errors.append(left / freedom**2 if freedom > 0 else np.inf)
    best = float(_PENALTIES[int(np.argmin(errors))])
    return best, np.asarray(vectors @ (coordinates / (values + best)[:, None]))


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
