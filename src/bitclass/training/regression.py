"""The paper's method: from starting codes to a hash function.

Class weights and codes are optimised alternately (`alternation`), or in closed form for the hinge
loss. P and t of the hash function h(x) = sign(P'x + t) are a ridge regression of the codes on the
features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bitclass._native import Precision
from bitclass._warn import warn
from bitclass.codes import make_distinct, pack, unpack
from bitclass.hash_function import HashFunction, RbfAnchors
from bitclass.training.alternation import Groups, alternate, hinge_weights
from bitclass.training.discriminant import temperature_of_errors
from bitclass.training.refinement import Rows
from bitclass.training.settings import Settings
from bitclass.training.statistics import Statistics, Sums

__all__ = [
    "MAX_BQP_CLASSES",
    "PaperSolution",
    "RidgeSolution",
    "codes_times_features",
    "solve_class_ridge",
    "solve_paper",
    "solve_ridge",
]

# The program of one bit needs several C x C matrices: 1 GB for this many classes.
MAX_BQP_CLASSES = 4096
# The penalties that generalised cross-validation chooses from.
_PENALTIES = np.logspace(-6, 2, 33)
_ROWS_PER_BLOCK = 4096


@dataclass(frozen=True)
class PaperSolution:
    """The result of the paper's steps.

    Attributes
    ----------
    weights : (C, r) int8 in {-1, +1}, all distinct
    ridge : RidgeSolution
    code_sums : (C, r), weighted sums of the starting codes
    history : (m,) of `HISTORY_DTYPE`, or None for the closed forms of the hinge loss
    n_rounds : int, number of rounds of the alternation
    """

    weights: NDArray[np.int8]
    ridge: RidgeSolution
    code_sums: NDArray[np.float64]
    history: NDArray[np.void] | None = None
    n_rounds: int = 1

    @property
    def temperature(self) -> float:
        """Temperature of the probabilities, from how well the regression explains the codes.

        If bits were wrong independently of each other, each with probability e, the posterior of
        class c would be the softmax of ``w_c.h(x) * log((1 - e) / e) / 2``. The explained variance
        determines e if regression values are normally distributed around the bit.
        """
        explained = min(max(self.ridge.explained, 1e-6), 1.0 - 1e-6)
        error = 0.5 * math.erfc(math.sqrt(explained / (1.0 - explained) / 2.0))
        return temperature_of_errors(error, *self.weights.shape)


def solve_paper(settings: Settings, statistics: Statistics, rows: Rows | None) -> PaperSolution:
    """Learn weights and codes from starting codes, and fit a ridge regression of these codes.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    rows : callable that passes over all rows, or None to use the most common code of each class
    """
    sums = statistics.sums()
    code_sums = statistics.starting.code_sums(sums)
    weights = class_codes = hinge_weights(code_sums)  # and b_i = w_{y_i}
    groups, history, n_rounds = None, None, 1
    if settings.table is not None:
        found = alternate(
            _starting_groups(statistics, sums, code_sums, settings),
            weights,
            settings.table,
            settings.solver,
            settings.max_rounds,
            settings.print_line,
        )
        if not found.converged:
            warn(
                f"the alternation did not converge within max_iter={found.n_rounds} rounds; "
                "increase max_iter",
                ConvergenceWarning,
            )
        weights, history, n_rounds = found.weights, found.history, found.n_rounds
        class_codes = unpack(found.groups.most_frequent_codes(), settings.n_bits)
        groups = found.groups if statistics.keep_codes else None
    distinct = make_distinct(weights, code_sums, sums.classes)
    # If the weights of a class had to change, they become the code of its rows.
    moved = np.any(distinct != weights, axis=1)
    class_codes = np.where(moved[:, None], distinct, class_codes)
    if groups is not None:
        codes = np.where(moved[groups.labels, None], pack(class_codes)[groups.labels], groups.codes)
        groups = replace(groups, codes=codes)
    cross, code_sum = codes_times_features(statistics, class_codes, groups, rows)
    ridge = solve_ridge(sums, cross, code_sum, settings.alpha)
    settings.print_line(f"hash function: {ridge.explained:.1%} of the codes' variance explained")
    return PaperSolution(distinct, ridge, code_sums, history, n_rounds)


def _starting_groups(
    statistics: Statistics, sums: Sums, code_sums: NDArray[np.float64], settings: Settings
) -> Groups:
    """Rows grouped by starting code: one group per class, or from the kept codes.

    Labels are indices into the classes that have rows.
    """
    n_classes = len(sums.classes)
    if n_classes > MAX_BQP_CLASSES:
        raise ValueError(
            f"loss={settings.loss!r} compares all pairs of classes and supports at most "
            f"{MAX_BQP_CLASSES:,} classes, found {n_classes:,}; use loss='hinge'"
        )
    if not statistics.keep_codes:
        every = np.arange(n_classes)
        return Groups(every, pack(code_sums >= 0), sums.class_weights, every)
    place = np.cumsum(statistics.class_weights > 0) - 1
    labels, codes, sample_weight = statistics.kept_rows()
    return Groups.of_samples(place[labels], codes, sample_weight)


def codes_times_features(
    statistics: Statistics,
    class_codes: NDArray[np.int8],
    groups: Groups | None = None,
    rows: Rows | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """X'B and the sum of the codes, over all rows.

    Every row has the code of its class, unless the rows are available and have individual codes.

    Parameters
    ----------
    statistics : Statistics
    class_codes : (C, r), codes of the classes that have rows
    groups : Groups, the rows with their codes, or None
    rows : callable that passes over all rows, or None

    Returns
    -------
    cross : (d, r) ``sum weight z b'``
    code_sum : (r,) ``sum weight b``
    """
    sums = statistics.sums()
    cross, code_sum = _class_codes_times_features(sums, class_codes)
    if groups is None or rows is None:
        return cross, code_sum
    n_bits, sample_weight = len(code_sum), statistics.kept_rows().sample_weight
    differs = np.any(groups.codes != pack(class_codes)[groups.labels], axis=1)
    first_row = 0
    for X, _, _ in rows() if differs.any() else ():
        group_of_row = groups.inverse[first_row : first_row + X.shape[0]]
        chosen = np.flatnonzero(differs[group_of_row])
        for start in range(0, len(chosen), _ROWS_PER_BLOCK):
            part = chosen[start : start + _ROWS_PER_BLOCK]
            group = group_of_row[part]
            change = unpack(groups.codes[group], n_bits) - class_codes[groups.labels[group]]
            weighted = change * sample_weight[first_row + part, None]
            cross += sums.standardised_rows(X, part).astype(np.float64).T @ weighted
            code_sum += weighted.sum(axis=0)
        first_row += X.shape[0]
    return cross, code_sum


def _class_codes_times_features(
    sums: Sums, class_codes: NDArray[np.int8]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    signs = class_codes.astype(np.float64)
    return sums.feature_sums.T @ signs, sums.class_weights @ signs


@dataclass(frozen=True)
class RidgeSolution:
    """A ridge regression of codes on features.

    Attributes
    ----------
    projection : (d, r) float32
    intercept : (r,)
    centre, scale : (d,) float32, mean and standard deviation of each feature
    explained : float
        Share of the codes' variance explained by the regression, in [0, 1].
    alpha : float
        The penalty.
    anchors : RbfAnchors, if the features are similarities to anchors
    """

    projection: NDArray[np.float32]
    intercept: NDArray[np.float64]
    centre: NDArray[np.float32]
    scale: NDArray[np.float32]
    explained: float
    alpha: float
    anchors: RbfAnchors | None

    def hash_function(self, precision: Precision) -> HashFunction:
        """The hash function whose scores are the values of the regression."""
        return HashFunction(
            self.projection,
            self.intercept,
            centre=self.centre,
            scale=self.scale,
            precision=precision,
            anchors=self.anchors,
        )


def solve_ridge(
    sums: Sums,
    cross: NDArray[np.float64],
    code_sum: NDArray[np.float64],
    alpha: float | None,
) -> RidgeSolution:
    """Ridge regression of codes on features, with an unpenalised intercept.

    The penalty is `alpha` times the variance of each feature, i.e. an ordinary ridge regression on
    standardised features: scaling a feature has no effect. The paper's
    ``P = (X'X + alpha I)^-1 X'B`` is solved with the correlation matrix of the summed features,
    ``z = (x - shift) / scale``, in place of X'X.

    Parameters
    ----------
    sums : Sums
    cross : (d, r) ``sum weight z b'``
    code_sum : (r,) ``sum weight b``
    alpha : float, or None to choose it by generalised cross-validation

    Returns
    -------
    RidgeSolution
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

    # From the rounded projection, so that rounding does not shift the scores of the mean.
    rounded = projection.astype(np.float64)
    centre = features.mean * scale + sums.shift
    intercept = code_mean - rounded.T @ centre
    share = min(max(explained / code_variance, 0.0), 1.0) if code_variance > 0 else 0.0
    deviation = scale * np.where(constant, 1.0, features.norms / np.sqrt(total_weight))
    return RidgeSolution(
        projection,
        intercept,
        centre.astype(np.float32),
        deviation.astype(np.float32),
        share,
        alpha,
        sums.anchors,
    )


def solve_class_ridge(sums: Sums, weights: NDArray[np.int8], alpha: float | None) -> RidgeSolution:
    """Ridge regression in which each row's code is the weight vector of its class."""
    return solve_ridge(sums, *_class_codes_times_features(sums, weights), alpha)


def _cross_validated(
    matrix: NDArray[np.float64],
    cross: NDArray[np.float64],
    code_variance: float,
    count: float,
) -> tuple[float, NDArray[np.float64]]:
    """The penalty with the smallest generalised cross-validation error, and its solution.

    Let l be the eigenvalues of the correlation matrix and c the codes' coordinates along the
    eigenvectors. Compared to no penalty, a penalty a adds ``a^2 sum c^2 / l (l + a)^2`` to the
    unexplained variance and ``sum a / (l + a)`` to the residual degrees of freedom. Without a
    penalty both are 0 if there are as many features as rows.
    """
    values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
    values = np.maximum(values, 0.0)
    coordinates = vectors.T @ cross
    usable = values > len(values) * np.finfo(np.float64).eps * values[-1]
    eigenvalues, squares = values[usable], np.sum(coordinates[usable] ** 2, axis=1)
    freedom_left = max(count - 1.0 - len(eigenvalues), 0.0)
    unexplained = max(code_variance - float(np.sum(squares / eigenvalues)), 0.0)
    if freedom_left == 0.0:  # the difference is rounding error
        unexplained = 0.0
    errors = []
    for alpha in _PENALTIES:
        shrunk = eigenvalues + alpha
        left = unexplained + np.sum(squares / eigenvalues * (alpha / shrunk) ** 2)
        freedom = freedom_left + np.sum(alpha / shrunk)
        errors.append(left / freedom**2 if freedom > 0 else np.inf)
    best = float(_PENALTIES[int(np.argmin(errors))])
    return best, np.asarray(vectors @ (coordinates / (values + best)[:, None]))


def _solve_positive(
    matrix: NDArray[np.float64], right: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Solve a positive definite system; if rounding made it indefinite, on its positive part."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
        solution: NDArray[np.float64] = scipy.linalg.cho_solve(factor, right, check_finite=False)
        return solution
    except np.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
        kept = values > max(alpha / 2, len(values) * np.finfo(np.float32).eps)
        scaled = (vectors[:, kept].T @ right) / values[kept, None]
        return np.asarray(vectors[:, kept] @ scaled)
