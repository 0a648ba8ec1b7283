"""Whitening: coordinates in which one step size suits all directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass.hash_function import HashFunction
from bitclass.training.ridge import correlation
from bitclass.training.statistics import Statistics, Sums

__all__ = ["Whitening", "whitening_of"]

# Added to the variance of each standardised feature before rows are whitened, in units of the
# regression's penalty: directions of less variance stay small, so that codes move little along
# them. What helps the regression to generalise helps here, some times over.
_PENALTIES_ADDED = 10.0
_MIN_ADDED = 1e-5  # for the rounding of float32
_ROWS_PER_BLOCK = 4096


@dataclass(frozen=True)
class Whitening:
    """Coordinates in which features are nearly uncorrelated and of unit variance at most.

    Attributes
    ----------
    factor : (d, d) float32, lower triangular; rows are ``factor^-1 (z - mean) / deviation``
    mean, deviation : (d,) of the features as they are summed; that of constant features is
        infinite, so that no rounding is taken for a feature
    """

    factor: NDArray[np.float32]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def rows(self, statistics: Statistics, X: NDArray[Any]) -> NDArray[np.float32]:
        """Whitened rows, (n, d) float32, of dense rows as the estimator takes them."""
        whitened = np.empty((len(X), len(self.factor)), dtype=np.float32)
        for start in range(0, len(X), _ROWS_PER_BLOCK):
            part = slice(start, start + _ROWS_PER_BLOCK)
            block = X[part]
            Z = statistics.standardised_rows(block, np.arange(len(block)))
            Z = Z.astype(np.float32, copy=False)
            Z -= self.mean.astype(np.float32)
            Z /= self.deviation.astype(np.float32)
            whitened[part] = scipy.linalg.solve_triangular(
                self.factor, Z.T, lower=True, overwrite_b=True, check_finite=False
            ).T
        return whitened

    def whitened(self, start: HashFunction) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Projection Q and intercept of a hash function, for whitened rows."""
        assert start.centre is not None
        assert start.scale is not None
        projection = start.projection.astype(np.float64)
        intercept = start.intercept + start.centre.astype(np.float64) @ projection
        standardised = projection * start.scale[:, None]
        return self.factor.T.astype(np.float64) @ standardised, intercept

    def unwhitened(
        self, projection: NDArray[np.float32], intercept: NDArray[np.float32], start: HashFunction
    ) -> HashFunction:
        """The hash function for rows as they are, of projection and intercept for whitened rows."""
        assert start.centre is not None
        assert start.scale is not None
        solved = scipy.linalg.solve_triangular(
            self.factor, projection, lower=True, trans="T", check_finite=False
        )
        scaled = (solved.astype(np.float64) / start.scale[:, None]).astype(np.float32)
        centred = start.centre.astype(np.float64) @ scaled.astype(np.float64)
        return HashFunction(
            np.ascontiguousarray(scaled),
            intercept.astype(np.float64) - centred,
            centre=start.centre,
            scale=start.scale,
            precision=start.precision,
            anchors=start.anchors,
        )


def whitening_of(sums: Sums, alpha: float) -> Whitening:
    """Whitening of the features by their correlations over all rows.

    Parameters
    ----------
    sums : Sums
    alpha : float, penalty of the regression
    """
    features = correlation(sums)
    matrix = features.matrix
    constant = np.diag(matrix) == 0.0
    added = max(_PENALTIES_ADDED * alpha, _MIN_ADDED)
    matrix[np.diag_indices_from(matrix)] += added
    factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
    factor /= math.sqrt(1.0 + added)
    deviation = np.where(constant, np.inf, features.norms / math.sqrt(sums.total_weight))
    return Whitening(factor.astype(np.float32), features.mean, deviation)
