"""The hash function (1) of section 3.3: a ridge regression of the codes B on the rows X.

The paper solves ``P = (X'X)^-1 X'B``. Here every feature is standardised, there is an intercept t,
and `alpha` is added to the diagonal of the correlation matrix:
``h(x) = sign(P'x + t)`` has the scores of ``P = (Z'Z + alpha I)^-1 Z'B``. Shifting or scaling a
feature then has no effect, and the features may be linearly dependent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import add_gram, class_sums
from bitclass.codes import unpack
from bitclass.hash_function import HashFunction
from bitclass.paper.alternation import Groups

_ROWS_PER_BLOCK = 4096
# A variance below this fraction of the squared mean is rounding error of a constant.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class Rows:
    """The training rows, in memory: standardised features, classes and weights."""

    Z: NDArray[np.float32]  # (n, d) of weighted mean 0 and variance 1; constant features are 0
    centre: NDArray[np.float64]  # (d,) mean of each feature
    scale: NDArray[np.float64]  # (d,) its standard deviation, 1 for constants
    labels: NDArray[np.intp]  # (n,) class index of each row
    sample_weight: NDArray[np.float64]  # (n,) positive

    def correlations(self) -> NDArray[np.float64]:
        """Correlation matrix of the features, (d, d)."""
        gram = np.zeros((self.Z.shape[1], self.Z.shape[1]))
        root = np.sqrt(self.sample_weight / self.sample_weight.sum()).astype(np.float32)[:, None]
        for rows in blocks(len(self.Z)):
            add_gram(self.Z[rows] * root[rows], gram)
        return gram


def standardise(X: Any, labels: NDArray[np.intp], sample_weight: NDArray[np.float64]) -> Rows:
    """Standardise rows X (n, d), dense or CSR: see `Rows`."""
    n, d = X.shape
    share = sample_weight / sample_weight.sum()

    def dense(rows: slice) -> NDArray[np.float64]:
        block = X[rows]
        block = block if isinstance(block, np.ndarray) else block.toarray()
        return np.asarray(block, dtype=np.float64)

    centre, variance = np.zeros(d), np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in blocks(n):
            centre += share[rows] @ dense(rows)
        for rows in blocks(n):
            variance += share[rows] @ (dense(rows) - centre) ** 2
    if not np.isfinite(variance).all():
        feature = int(np.argmin(np.isfinite(variance)))
        raise ValueError(f"X: the values of feature {feature} are too large to compute a variance")
    is_constant = variance <= _ROUNDING * centre**2
    is_constant |= variance < np.finfo(np.float32).tiny
    scale = np.sqrt(np.where(is_constant, 1.0, variance))
    Z = np.empty((n, d), dtype=np.float32)
    for rows in blocks(n):
        Z[rows] = (dense(rows) - centre) / scale
    Z[:, is_constant] = 0.0
    return Rows(Z, centre, scale, labels, sample_weight)


def blocks(n: int) -> Iterator[slice]:
    """Slices of n rows: sums within a block may be in float32, those of blocks are in float64."""
    return (slice(start, start + _ROWS_PER_BLOCK) for start in range(0, n, _ROWS_PER_BLOCK))


def solve_ridge(
    rows: Rows, groups: Groups, n_bits: int, alpha: float
) -> tuple[HashFunction, float]:
    """Ridge regression of the codes of the groups on the rows.

    Returns the hash function, whose scores are the values of the regression, and the share of the
    codes' variance that the regression explains.
    """
    cross = _features_times_codes(rows, groups, n_bits)
    mean = groups.sample_weight @ unpack(groups.codes, n_bits) / groups.sample_weight.sum()
    matrix = rows.correlations()
    matrix[np.diag_indices_from(matrix)] += alpha
    solution = _solve_positive(matrix, cross, alpha)

    projection = (solution / rows.scale[:, None]).astype(np.float32, order="C")
    # From the rounded projection, so that rounding does not shift the scores of the mean.
    intercept = mean - projection.astype(np.float64).T @ rows.centre
    hash_function = HashFunction(
        projection,
        intercept,
        centre=rows.centre.astype(np.float32),
        scale=rows.scale.astype(np.float32),
    )
    variance = float(np.sum(1.0 - mean**2))
    explained = float(np.sum(solution * cross)) / variance if variance > 0 else 0.0
    return hash_function, min(max(explained, 0.0), 1.0)


def _features_times_codes(rows: Rows, groups: Groups, n_bits: int) -> NDArray[np.float64]:
    """Weighted mean (d, r) of z b' over all rows: Z'B of the paper's formula."""
    share = rows.sample_weight / rows.sample_weight.sum()
    n_groups, (n, d) = len(groups.labels), rows.Z.shape
    if n_groups < n // 8:  # rows with the same code are summed first
        sums = np.zeros((n_groups, d))
        class_sums(rows.Z, groups.inverse, share, sums)
        return np.asarray(sums.T @ unpack(groups.codes, n_bits))
    cross = np.zeros((d, n_bits))
    for part in blocks(n):
        B = unpack(groups.codes[groups.inverse[part]], n_bits) * share[part, None]
        cross += rows.Z[part].T @ B.astype(np.float32)
    return cross


def _solve_positive(
    matrix: NDArray[np.float64], right: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Solve a positive definite system; if rounding made it indefinite, on its positive part."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
        return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))
    except np.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(matrix, check_finite=False)
        kept = values > max(alpha / 2, len(values) * np.finfo(np.float32).eps)
        scaled = (vectors[:, kept].T @ right) / values[kept, None]
        return np.asarray(vectors[:, kept] @ scaled)


def temperature(explained: float, n_classes: int, n_bits: int) -> float:
    """Temperature of the probabilities, from how well the regression explains the codes.

    If bits were wrong independently of each other, each with probability e, the posterior of class
    c would be the softmax of ``w_c.h(x) * log((1 - e) / e) / 2``. The explained variance determines
    e if regression values are normally distributed around the bit. Bits are far from independent
    if they outnumber the C - 1 directions that separate C classes.
    """
    explained = min(max(explained, 1e-6), 1.0 - 1e-6)
    error = 0.5 * math.erfc(math.sqrt(explained / (1.0 - explained) / 2.0))
    error = min(max(error, 1e-9), 0.49)
    log_odds = math.log1p(-error) - math.log(error)
    return 2.0 / (log_odds * min(1.0, (n_classes - 1) / n_bits))
