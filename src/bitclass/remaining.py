"""What remains of the sums where rows are held out, and what refinement starts from there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass.codes import sign
from bitclass.drawing import Sample
from bitclass.encoder import HashFunction, correlation, ridge
from bitclass.training import GivenCodes, MeanCodes, Statistics, hinge_weights

__all__ = ["Remaining", "Whitening"]

# Added to the variance of each standardised feature before rows are whitened, in units of the
# regression's penalty: directions of less variance stay small, so that codes move little along
# them. What helps the regression to generalise helps here, some times over.
_WHITENING = 10.0
_LEAST_WHITENING = 1e-5  # for the rounding of float32
# Less of a feature's scatter than this is the rounding of sums of float32.
_ROUNDING = 1e-5
_CLASSES_A_BLOCK = 1 << 14


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
        Z = statistics.standardised_rows(X, np.arange(len(X))).astype(np.float32, copy=False)
        Z -= self.mean.astype(np.float32)
        Z /= self.deviation.astype(np.float32)
        solved = scipy.linalg.solve_triangular(
            self.factor, Z.T, lower=True, overwrite_b=True, check_finite=False
        )
        return np.asarray(solved.T, dtype=np.float32, order="C")

    def whitened(self, start: HashFunction) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Projection and intercept of a hash function for whitened rows."""
        projection = start.projection.astype(np.float64)
        intercept = start.intercept + start.centre.astype(np.float64) @ projection
        standardised = projection * start.scale[:, None]
        return self.factor.T.astype(np.float64) @ standardised, intercept

    def unwhitened(
        self, projection: NDArray[np.float32], intercept: NDArray[np.float32], start: HashFunction
    ) -> HashFunction:
        """The hash function for rows as they are, of one for whitened rows."""
        solved = scipy.linalg.solve_triangular(
            self.factor, projection, lower=True, trans="T", check_finite=False
        )
        scaled = (solved.astype(np.float64) / start.scale[:, None]).astype(np.float32)
        centred = start.centre.astype(np.float64) @ scaled.astype(np.float64)
        return HashFunction(
            np.ascontiguousarray(scaled),
            intercept.astype(np.float64) - centred,
            start.centre,
            start.scale,
            start.fit,
            start.alpha,
        )


class Remaining:
    """The sums over all rows but those held out, of the classes that have rows.

    Parameters
    ----------
    statistics : Statistics, the sums over all rows
    held_out : Sample
    classes : (C,) labels of the classes that have rows
    alpha : float, penalty of the regression
    """

    def __init__(
        self, statistics: Statistics, held_out: Sample, classes: NDArray[Any], alpha: float
    ) -> None:
        out = statistics.without_rows()
        out.add(held_out.X, classes[held_out.own], held_out.weights)
        seen, some = statistics.class_weights > 0, np.unique(held_out.own)
        self._gram = statistics.gram - out.gram
        self._feature_sums = statistics.feature_sums[seen]
        self._feature_sums[some] -= out.feature_sums
        self._class_weights = statistics.class_weights[seen]
        self._class_weights[some] -= out.class_weights
        self._code_sums_held_out = some, out.code_sums
        self._total = float(self._class_weights.sum())
        self._column_sums = self._feature_sums.sum(axis=0)
        # What is left of a feature that only rows held out have is rounding: it becomes constant.
        scatter = np.diag(self._gram) - self._column_sums**2 / self._total
        gone = scatter <= _ROUNDING * np.diag(statistics.gram)
        self._gram[gone] = self._gram[:, gone] = 0.0
        self._feature_sums[:, gone] = self._column_sums[gone] = 0.0
        self._n_rows = statistics.n_rows - len(held_out.own)
        self._statistics = statistics
        self._alpha = alpha

    def hash_function(self, weights: NDArray[np.int8]) -> HashFunction:
        """Regression of codes that are the class weights (C, r)."""
        codes = weights.astype(np.float64)
        return ridge(
            self._gram,
            self._column_sums,
            self._feature_sums.T @ codes,
            self._class_weights @ codes,
            self._total,
            self._n_rows,
            self._statistics.shift,
            self._statistics.scale,
            self._alpha,
        )

    def whitening(self, start: HashFunction) -> Whitening:
        """Whitening of the features, which a hash function knows the deviations of."""
        features = correlation(self._gram, self._column_sums, self._total)
        matrix = features.matrix
        constant = np.diag(matrix) == 0.0
        added = max(_WHITENING * self._alpha, _LEAST_WHITENING)
        matrix[np.diag_indices_from(matrix)] += added
        factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        factor /= math.sqrt(1.0 + added)
        deviation = start.scale.astype(np.float64) / self._statistics.scale
        deviation[constant] = np.inf
        return Whitening(factor.astype(np.float32), features.mean, deviation)

    def weights(self, weights: NDArray[np.int8]) -> NDArray[np.int8]:
        """Class weights (C, r) by the closed form, that know nothing of the rows held out.

        Where a class has few rows, its weights are near to the code of each of them: rows held out
        would look as easy as rows learned from. Of codes that were given nothing is known but the
        weights learned from them, which stay.
        """
        starting = self._statistics.starting
        if isinstance(starting, GivenCodes):
            return weights
        if isinstance(starting, MeanCodes):
            codes = starting.of_sums(self._gram, self._feature_sums, self._class_weights)
            return hinge_weights(codes * self._class_weights[:, None])
        sums = self._statistics.starting_sums()
        some, held_out = self._code_sums_held_out
        sums[some] -= held_out
        return hinge_weights(sums)

    def refitted_weights(self, start: HashFunction) -> NDArray[np.int8]:
        """Class weights (C, r) that are what the hash function makes of the class means."""
        statistics = self._statistics
        # Of the features as they are summed, which float32 can hold whatever their offset is.
        projection = (statistics.scale[:, None] * start.projection).astype(np.float32)
        intercept = start.intercept + statistics.shift @ start.projection
        weights = np.empty((len(self._class_weights), len(intercept)), dtype=np.int8)
        for begin in range(0, len(weights), _CLASSES_A_BLOCK):
            part = slice(begin, begin + _CLASSES_A_BLOCK)
            means = self._feature_sums[part] / self._class_weights[part, None]
            scores = means.astype(np.float32) @ projection
            weights[part] = sign(scores + intercept)
        return weights
