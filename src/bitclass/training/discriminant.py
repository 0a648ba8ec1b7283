"""Discriminant codes: projection, intercept and class weights in closed form, from sums alone.

Rows are whitened by the scatter within classes, and the top directions of the class means are
rotated towards the corners of a cube (ITQ). Whitening, directions and rotation are P; the signs of
the class means are W. There is no regression on codes, which collapses where classes are many,
small or uneven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import Precision
from bitclass.codes import sign
from bitclass.hash_function import HashFunction, RbfAnchors
from bitclass.training.statistics import Statistics, Sums

__all__ = ["Coordinates", "coordinates_of", "discriminant_projection"]

_ITQ_ROUNDS = 30
# Class means that a rotation is learned on.
_MAX_ITQ_MEANS = 8192
_ROWS_PER_BLOCK = 4096
_CLASSES_PER_BLOCK = 1 << 14


@dataclass(frozen=True)
class Coordinates:
    """Coordinates ``a = A'(z - mean)`` in which rows of every class scatter alike.

    The first `n_discriminant` of them tell the classes apart; the others are those of the largest
    variance.

    Attributes
    ----------
    mean : (d,) of the features z as they are summed
    transform : (d, k) float64, the matrix A
    inverse : (k, d) float64, ``inverse @ A`` is the identity
    n_discriminant : int
    means : (C, k) float32, the class means in these coordinates
    deviation : (k,) standard deviation of each coordinate over all rows
    """

    mean: NDArray[np.float64]
    transform: NDArray[np.float64]
    inverse: NDArray[np.float64]
    n_discriminant: int
    means: NDArray[np.float32]
    deviation: NDArray[np.float64]

    def rows(self, statistics: Statistics, X: NDArray[Any]) -> NDArray[np.float32]:
        """Coordinates (n, k) float32 of dense rows as the estimator takes them."""
        transform = self.transform.astype(np.float32)
        found = np.empty((len(X), transform.shape[1]), dtype=np.float32)
        for start in range(0, len(X), _ROWS_PER_BLOCK):
            block = X[start : start + _ROWS_PER_BLOCK]
            Z = statistics.standardised_rows(block, np.arange(len(block)))
            Z = (Z - self.mean.astype(Z.dtype)).astype(np.float32, copy=False)
            np.matmul(Z, transform, out=found[start : start + len(block)])
        return found

    def projected(self, hash_function: HashFunction, sums: Sums) -> tuple[NDArray[Any], NDArray[Any]]:
        """Projection Q (k, r) and intercept (r,) of a hash function, for these coordinates."""
        P = hash_function.projection.astype(np.float64) * sums.scale[:, None]
        t = hash_function.intercept + (sums.shift + self.mean * sums.scale) @ (
            hash_function.projection.astype(np.float64)
        )
        return self.inverse @ P, t

    def hash_function(
        self,
        Q: NDArray[Any],
        t: NDArray[Any],
        sums: Sums,
        precision: Precision,
        anchors: RbfAnchors | None,
    ) -> HashFunction:
        """The hash function for rows as they are, of Q (k, r) and t (r,) for these coordinates."""
        P = (self.transform @ Q.astype(np.float64)) / sums.scale[:, None]
        projection = np.ascontiguousarray(P, dtype=np.float32)
        centre = sums.shift + self.mean * sums.scale
        # From the rounded projection, so that rounding does not move the codes of the mean.
        intercept = t.astype(np.float64) - centre @ projection.astype(np.float64)
        total = sums.total_weight
        variance = np.diag(sums.gram) / total - self.mean**2
        deviation = np.sqrt(np.where(variance > 1e-12, variance, 1.0)) * sums.scale
        return HashFunction(
            projection,
            intercept,
            centre=centre.astype(np.float32),
            scale=deviation.astype(np.float32),
            precision=precision,
            anchors=anchors,
        )


def coordinates_of(sums: Sums, alpha: float, max_directions: int) -> Coordinates:
    """Coordinates whitened by the scatter within classes, those that tell classes apart first.

    Parameters
    ----------
    sums : Sums
    alpha : float
        Added to the variances within classes, in units of their mean.
    max_directions : int
        Number of coordinates, unless there are fewer features.
    """
    total = sums.total_weight
    mean = sums.column_sums / total
    roots = np.sqrt(sums.class_weights / total)
    centred = sums.feature_sums / sums.class_weights[:, None] - mean
    weighted = centred * roots[:, None]
    between = weighted.T @ weighted
    within = sums.gram / total - np.outer(mean, mean) - between
    spread = max(float(np.trace(within)) / len(within), np.finfo(np.float64).tiny)
    values, vectors = scipy.linalg.eigh(within, check_finite=False, overwrite_a=True)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    lengths = np.sqrt(values + alpha * spread)

    d, k = len(within), min(max_directions, len(within))
    # Directions of the class means, in coordinates of unit variance within classes.
    in_white = weighted @ (vectors / lengths)
    q = min(len(sums.classes) - 1, d, k)
    basis = _leading_directions(in_white, q)
    if k > q:
        rest = np.zeros((d, k - q))
        rest[np.arange(k - q), np.arange(k - q)] = 1.0
        basis, _ = np.linalg.qr(np.concatenate([basis, rest], axis=1))
    transform = (vectors / lengths) @ basis
    inverse = (basis.T * lengths) @ vectors.T
    means = np.empty((len(centred), k), dtype=np.float32)
    for start in range(0, len(centred), _CLASSES_PER_BLOCK):
        part = slice(start, start + _CLASSES_PER_BLOCK)
        means[part] = centred[part] @ transform
    covariance = basis.T * (values / lengths**2) @ basis
    variance = np.diag(covariance) + np.sum((in_white @ basis) ** 2, axis=0)
    return Coordinates(mean, transform, inverse, q, means, np.sqrt(variance))


def _leading_directions(rows: NDArray[np.float64], q: int) -> NDArray[np.float64]:
    """The q leading right singular vectors (d, q) of rows (C, d)."""
    n, d = rows.shape
    if n < d:
        values, vectors = scipy.linalg.eigh(rows @ rows.T, check_finite=False)
        left, sizes = vectors[:, ::-1][:, :q], np.sqrt(np.maximum(values[::-1][:q], 0.0))
        found = rows.T @ left / np.maximum(sizes, 1e-12 * max(sizes[0], 1e-300))
        return np.linalg.qr(found)[0]
    _, vectors = scipy.linalg.eigh(
        rows.T @ rows, subset_by_index=(d - q, d - 1), check_finite=False
    )
    return vectors[:, ::-1]


def discriminant_projection(
    coordinates: Coordinates, class_weights: NDArray[np.float64], n_bits: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]:
    """Rotate the directions that tell classes apart towards the corners of a cube.

    Where bits outnumber the directions, each further block of bits has a rotation of its own.

    Parameters
    ----------
    coordinates : Coordinates
    class_weights : (C,)
    n_bits : int
    seed : int

    Returns
    -------
    Q : (k, r), of these coordinates
    t : (r,)
    weights : (C, r) int8, signs of the class means
    """
    k = min(n_bits, coordinates.n_discriminant)
    means = coordinates.means[:, :k].astype(np.float64)
    centre = class_weights @ means / class_weights.sum()
    means = means - centre
    random = np.random.default_rng(seed)
    chosen = means
    if len(means) > _MAX_ITQ_MEANS:
        chosen = means[np.sort(random.choice(len(means), _MAX_ITQ_MEANS, replace=False))]
    blocks = [_itq(chosen, random) for _ in range(-(-n_bits // k))]
    rotation = np.concatenate(blocks, axis=1)[:, :n_bits]
    Q = np.zeros((coordinates.means.shape[1], n_bits))
    Q[:k] = rotation
    return Q, -(centre @ rotation), sign(means @ rotation)


def _itq(means: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """A rotation (k, k) that brings rows (C, k) near their own signs."""
    k = means.shape[1]
    rotation, _ = np.linalg.qr(random.standard_normal((k, k)))
    rows = means.astype(np.float32)
    for _ in range(_ITQ_ROUNDS):
        signs = np.where(rows @ rotation.astype(np.float32) >= 0, np.float32(1), np.float32(-1))
        left, _, right = scipy.linalg.svd((rows.T @ signs).astype(np.float64), check_finite=False)
        rotation = left @ right
    return rotation
