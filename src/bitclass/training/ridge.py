"""P and t of the hash function h(x) = sign(P'x + t): a ridge regression of codes on features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import Precision
from bitclass.hash_function import HashFunction, RbfAnchors
from bitclass.training.statistics import Sums

__all__ = ["Ridge", "ridge"]

# The penalties that generalised cross-validation chooses from.
_PENALTIES = np.logspace(-6, 2, 33)


@dataclass(frozen=True)
class Ridge:
    """A ridge regression of codes on features.

    Attributes
    ----------
    hash_function : HashFunction
    explained : float
        Share of the variance of the codes that the regression explains, in [0, 1].
    alpha : float
        The penalty.
    """

    hash_function: HashFunction
    explained: float
    alpha: float


def ridge(
    sums: Sums,
    cross: NDArray[np.float64],
    code_sum: NDArray[np.float64],
    alpha: float | None,
    precision: Precision = "int8",
    anchors: RbfAnchors | None = None,
) -> Ridge:
    """Regress codes on features, with an intercept that is not penalised.

    The penalty is `alpha` times the variance of each feature, which is an ordinary ridge on
    standardised features: scaling a feature changes nothing. In the features as they are summed,
    ``z = (x - shift) / scale``, the paper's ``P = (X'X + alpha I)^-1 X'B`` is solved for their
    correlation matrix in the place of X'X. Discriminant codes, the default, need no regression.

    Parameters
    ----------
    sums : Sums
    cross : (d, r) ``sum weight z b'``
    code_sum : (r,) ``sum weight b``
    alpha : float, or None to choose it by generalised cross-validation
    precision, anchors : see `HashFunction`

    Returns
    -------
    Ridge
    """
    features = sums.correlation()
    column_sums, total_weight, scale = sums.column_sums, sums.total_weight, sums.scale
    constant = sums.constant
    code_mean = code_sum / total_weight
    cross = cross - np.outer(column_sums, code_mean)
    cross *= np.where(constant, 0.0, 1.0 / features.norms)[:, None]
    code_variance = float(np.sum(total_weight - code_sum * code_mean))
    if alpha is None:
        alpha, solution = _cross_validated(features.matrix, cross, code_variance, sums.count)
    else:
        features.matrix[np.diag_indices_from(features.matrix)] = 1.0 + alpha
        solution = _solve_positive(features.matrix, cross, alpha)
    explained = float(np.sum(solution * cross))
    solution = solution / features.norms[:, None]
    projection = (solution / scale[:, None]).astype(np.float32, order="C")

    # From the rounded projection, so that rounding does not move the codes of the mean.
    rounded = projection.astype(np.float64)
    centre = features.mean * scale + sums.shift
    intercept = code_mean - rounded.T @ centre
    share = min(max(explained / code_variance, 0.0), 1.0) if code_variance > 0 else 0.0
    deviation = scale * np.where(constant, 1.0, features.norms / np.sqrt(total_weight))
    hash_function = HashFunction(
        projection,
        intercept,
        centre=centre.astype(np.float32),
        scale=deviation.astype(np.float32),
        precision=precision,
        anchors=anchors,
    )
    return Ridge(hash_function, share, alpha)


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
