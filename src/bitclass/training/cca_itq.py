"""CCA-ITQ: canonical directions of features and labels, rotated towards the corners of a cube."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import class_sums

__all__ = ["canonical_directions", "cca_itq_projection", "quantising_rotation"]

_REGULARISATION = 1e-4  # of the trace of the covariance, as CCA-ITQ is published with
_N_ROTATIONS = 50


def canonical_directions(
    Z: NDArray[Any], labels: NDArray[np.intp], weights: NDArray[np.float64], n_most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions of regularised canonical correlation between features and class membership.

    Parameters
    ----------
    Z : (n, d) centred features
    labels : (n,) class indices
    weights : (n,) sample weights
    n_most : int

    Returns
    -------
    directions : (d, k), with k the number of correlations above rounding, at most `n_most`
    correlations : (k,) descending
    """
    total = weights.sum()
    covariance = np.asarray(Z.T @ (Z * weights[:, None].astype(Z.dtype)), np.float64) / total
    covariance[np.diag_indices_from(covariance)] += _REGULARISATION * max(
        np.trace(covariance), np.finfo(np.float64).tiny
    )
    factor = scipy.linalg.cholesky(covariance, lower=True)
    sums = np.zeros((int(labels.max()) + 1, Z.shape[1]))
    class_sums(Z, labels, weights, sums)
    class_weights = np.bincount(labels, weights=weights, minlength=len(sums))
    seen = class_weights > 0
    between = sums[seen] / np.sqrt(class_weights[seen] * total)[:, None]
    whitened = scipy.linalg.solve_triangular(factor, between.T, lower=True)
    left, correlations, _ = scipy.linalg.svd(whitened, full_matrices=False)
    k = int(np.count_nonzero(correlations[:n_most] > 1e-6 * correlations[0]))
    directions = scipy.linalg.solve_triangular(factor, left[:, :k], lower=True, trans="T")
    return directions, correlations[:k]


def quantising_rotation(
    V: NDArray[Any], n_bits: int, n_rotations: int, random: np.random.RandomState
) -> tuple[NDArray[np.float64], list[float]]:
    """ITQ: a map R with orthonormal rows that brings V R near its own signs.

    Parameters
    ----------
    V : (n, k) with k <= n_bits
    n_bits : int
    n_rotations : int
    random : source of randomness

    Returns
    -------
    rotation : (k, n_bits)
    errors : ``|sign(V R) - V R|^2`` before each rotation
    """
    start, _ = np.linalg.qr(random.standard_normal((n_bits, n_bits)))
    rotation = start[: V.shape[1]]
    errors = []
    for _ in range(n_rotations):
        rotated = V @ rotation.astype(V.dtype)
        signs = np.where(rotated >= 0, rotated.dtype.type(1), rotated.dtype.type(-1))
        errors.append(float(np.sum((signs - rotated) ** 2, dtype=np.float64)))
        left, _, right = scipy.linalg.svd(np.asarray(V.T @ signs, np.float64), full_matrices=False)
        rotation = left @ right
    return rotation, errors


def cca_itq_projection(
    Z: NDArray[Any],
    labels: NDArray[np.intp],
    weights: NDArray[np.float64],
    n_bits: int,
    random: np.random.RandomState,
) -> NDArray[np.float64]:
    """Linear map (d, n_bits) of standardised features whose signs are the CCA-ITQ codes.

    Parameters
    ----------
    Z : (n, d) standardised features
    labels : (n,) class indices
    weights : (n,) sample weights
    n_bits : int
    random : source of randomness
    """
    directions, correlations = canonical_directions(Z, labels, weights, n_bits)
    # As published, each direction counts by its correlation.
    directions = directions * correlations
    rotation, _ = quantising_rotation(Z @ directions.astype(Z.dtype), n_bits, _N_ROTATIONS, random)
    return np.asarray(directions @ rotation)
