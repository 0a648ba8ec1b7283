"""Discriminant codes: projection, intercept and class weights in closed form, from sums alone.

Rows are whitened by the scatter within classes, and the top directions of the class means are
rotated towards the corners of a cube (ITQ). Whitening, directions and rotation are P; the signs of
the class means are W. There is no regression on codes, which collapses where classes are many,
small or uneven.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass._native import Precision, effective_threads
from bitclass.codes import sign
from bitclass.hash_function import HashFunction, RbfAnchors
from bitclass.rows import dense_rows

if TYPE_CHECKING:
    from bitclass.training.statistics import Statistics, Sums

__all__ = [
    "FURTHER_COORDINATES",
    "Coordinates",
    "Scatter",
    "best_alpha",
    "coordinates_of",
    "coordinates_to_refine",
    "default_alpha",
    "discriminant_projection",
    "drawn_rows",
    "itq",
    "scatter_of",
    "target_deviation",
]

_ITQ_ROUNDS = 30
# In so few directions every start ends in the same few rotations: only the first block of bits has
# one that was learned.
_FEW_DIRECTIONS = 8
#: Coordinates beside one per bit: classes differ in the first, and the others still help.
FURTHER_COORDINATES = 384
# Class means that a rotation is learned on.
_MAX_ITQ_MEANS = 8192
# Penalties to choose from, and by how much their accuracy may fall short of the best: less with
# kernel anchors, whose directions of little variance still tell classes apart.
_ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
_ALPHA_SLACK, _KERNEL_ALPHA_SLACK = 0.02, 0.005
_MIN_ALPHA = 1e-9  # below the rounding of sums of float32
# Of the variance of all rows, where classes of one row each have none within.
_MIN_SHARE_WITHIN = 1e-6
_MAX_ALPHA_ROWS, _MAX_ALPHA_CLASSES = 2048, 4096
_ROWS_PER_BLOCK = 1024
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

        def transform_block(start: int) -> None:
            block = X[start : start + _ROWS_PER_BLOCK]
            Z = statistics.standardised(statistics.features(dense_rows(block, slice(None))))
            Z -= self.mean.astype(Z.dtype)
            Z = Z.astype(np.float32, copy=False)
            np.matmul(Z, transform, out=found[start : start + len(block)])

        with ThreadPoolExecutor(effective_threads(None)) as pool:
            list(pool.map(transform_block, range(0, len(X), _ROWS_PER_BLOCK)))
        return found

    def score_deviation(self, Q: NDArray[np.floating]) -> float:
        """Mean standard deviation of the scores of Q (k, r) over all rows."""
        return max(float(np.sqrt(self.deviation**2 @ Q**2).mean()), 1e-12)

    def column_length(self, Q: NDArray[np.floating], score_deviation: float) -> float:
        """Length of the columns of Q (k, r) at which scores have this standard deviation."""
        lengths = np.linalg.norm(Q, axis=0)
        lengths[lengths == 0] = 1.0
        unit = Q / lengths
        return score_deviation / max(float(np.sqrt(self.deviation**2 @ unit**2).mean()), 1e-9)

    def projected(
        self, hash_function: HashFunction, sums: Sums
    ) -> tuple[NDArray[Any], NDArray[Any]]:
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
        variance = np.diag(sums.gram) / sums.total_weight - self.mean**2
        deviation = np.sqrt(np.where(sums.constant, 1.0, variance)) * sums.scale
        return HashFunction(
            projection,
            intercept,
            centre=centre.astype(np.float32),
            scale=deviation.astype(np.float32),
            precision=precision,
            anchors=anchors,
        )


@dataclass(frozen=True)
class Scatter:
    """Scatter within classes, by its eigenvalues, and the class means about the mean of all rows.

    It is that of features of unit variance, whatever the units of the sums are.

    Attributes
    ----------
    mean : (d,) of the features z as they are summed
    values : (d,) eigenvalues, descending
    vectors : (d, d), columns that take z - mean to the eigenvectors
    inverse : (d, d), the inverse of `vectors`
    between : (d, d) scatter of the class means
    shares : (C,) of the classes in the total weight
    sums : Sums, of which the class means are
    mean_variance : float, within classes; a small share of that of all rows where it is 0
    """

    mean: NDArray[np.float64]
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    inverse: NDArray[np.float64]
    between: NDArray[np.float64]
    shares: NDArray[np.float64]
    sums: Sums
    mean_variance: float

    def centred(self, classes: slice | NDArray[np.intp]) -> NDArray[np.float64]:
        """Means (m, d) of some classes, less the mean; of all, they would be a second copy."""
        means = self.sums.feature_sums[classes] / self.sums.class_weights[classes, None]
        means -= self.mean
        return means

    def n_clear(self, alpha: float) -> int:
        """Number of directions whose variance within classes is above the penalty."""
        return int(np.count_nonzero(self.values > alpha * self.mean_variance))

    def lengths(self, alpha: float) -> NDArray[np.float64]:
        """Deviations within classes, with `alpha` mean variances added to each variance."""
        return np.sqrt(self.values + max(alpha, _MIN_ALPHA) * self.mean_variance)


def scatter_of(sums: Sums) -> Scatter:
    """Scatter within the classes of all rows."""
    total = sums.total_weight
    mean = sums.column_sums / total
    shares = sums.class_weights / total
    between = np.zeros_like(sums.gram)
    for part in _class_blocks(len(shares)):
        weighted = sums.feature_sums[part] / sums.class_weights[part, None] - mean
        weighted *= np.sqrt(shares[part])[:, None]
        between += weighted.T @ weighted
    scatter = sums.gram / total - np.outer(mean, mean)
    variances = np.diag(scatter)
    deviations = np.sqrt(np.where(sums.constant, 1.0, variances))
    scatter -= between
    scatter /= np.outer(deviations, deviations)
    overall = float(np.mean(variances / deviations**2)) or 1.0  # where no feature varies
    values, vectors = scipy.linalg.eigh(scatter, check_finite=False, overwrite_a=True)
    values = np.maximum(values[::-1], 0.0)
    mean_variance = max(float(values.mean()), _MIN_SHARE_WITHIN * overall)
    vectors = vectors[:, ::-1]
    inverse = vectors.T * deviations
    vectors = vectors / deviations[:, None]
    return Scatter(mean, values, vectors, inverse, between, shares, sums, mean_variance)


def _class_blocks(n_classes: int) -> Iterator[slice]:
    """Classes in blocks, so that what is computed of all of them is never held at once."""
    for start in range(0, n_classes, _CLASSES_PER_BLOCK):
        yield slice(start, min(start + _CLASSES_PER_BLOCK, n_classes))


def best_alpha(
    scatter: Scatter,
    Z: NDArray[np.floating],
    own: NDArray[np.intp],
    anchors: RbfAnchors | None = None,
    sample_weight: NDArray[np.float64] | None = None,
) -> float:
    """The largest penalty at which linear discriminant analysis is nearly at its best.

    Parameters
    ----------
    scatter : Scatter, without the rows Z
    Z : (n, d) held-out rows, as they are summed
    own : (n,) index of each row's class
    anchors : RbfAnchors, if Z are similarities to kernel anchors
    sample_weight : (n,), or None for ones
    """
    slack = _ALPHA_SLACK if anchors is None else _KERNEL_ALPHA_SLACK
    Z, own = Z[:_MAX_ALPHA_ROWS], own[:_MAX_ALPHA_ROWS]
    classes = np.arange(len(scatter.shares))
    if len(classes) > _MAX_ALPHA_CLASSES:  # the own classes, and as many others as fit
        classes = np.unique(np.concatenate([own, classes[:: len(classes) // _MAX_ALPHA_CLASSES]]))
    rows = ((Z - scatter.mean) @ scatter.vectors).astype(np.float32)
    means = (scatter.centred(classes) @ scatter.vectors).astype(np.float32)
    accuracies = {}
    for alpha in _ALPHAS:
        inverse = (1.0 / scatter.lengths(alpha)).astype(np.float32)
        white = means * inverse
        scores = (rows * inverse) @ white.T - 0.5 * np.einsum("cd,cd->c", white, white)
        right = classes[scores.argmax(axis=1)] == own
        weights = None if sample_weight is None else sample_weight[: len(own)]
        accuracies[alpha] = float(np.average(right, weights=weights))
    return max(
        alpha
        for alpha, accuracy in accuracies.items()
        if accuracy >= max(accuracies.values()) - slack
    )


def coordinates_to_refine(
    scatter: Scatter, alpha: float, n_bits: int, anchors: RbfAnchors | None
) -> Coordinates:
    """Coordinates that refinement works in: one per bit, and those beyond that still help."""
    n_directions = max(n_bits + FURTHER_COORDINATES, scatter.n_clear(alpha))
    if anchors is not None:  # of similarities even directions of little variance help
        n_directions = len(scatter.values)
    return coordinates_of(scatter, alpha, n_directions)


def coordinates_of(scatter: Scatter, alpha: float, n_directions: int) -> Coordinates:
    """Coordinates whitened by the scatter within classes, those that tell classes apart first.

    Parameters
    ----------
    scatter : Scatter
    alpha : float
        Added to the variances within classes, in units of their mean.
    n_directions : int
        Number of coordinates, unless there are fewer features.
    """
    lengths, vectors, d = scatter.lengths(alpha), scatter.vectors, len(scatter.values)
    k = min(n_directions, d)
    # Directions of the class means, in coordinates of unit variance within classes.
    white, n_classes = vectors / lengths, len(scatter.shares)
    between = white.T @ scatter.between @ white
    q = min(n_classes - 1, k)
    if n_classes < d:
        weighted = scatter.centred(slice(None)) * np.sqrt(scatter.shares)[:, None]
        basis = _directions_of_few(weighted @ white, q)
    else:
        _, basis = scipy.linalg.eigh(between, subset_by_index=(d - q, d - 1), check_finite=False)
        basis = basis[:, ::-1]
    if k > q:
        rest = np.zeros((d, k - q))
        rest[np.arange(k - q), np.arange(k - q)] = 1.0
        basis, _ = np.linalg.qr(np.concatenate([basis, rest], axis=1))
    transform = white @ basis
    inverse = (basis.T * lengths) @ scatter.inverse
    means = np.empty((n_classes, k), dtype=np.float32)
    for part in _class_blocks(n_classes):
        means[part] = scatter.centred(part) @ transform
    variance = (basis**2).T @ (scatter.values / lengths**2)
    variance += np.maximum(np.einsum("dk,dk->k", basis, between @ basis), 0.0)
    return Coordinates(scatter.mean, transform, inverse, q, means, np.sqrt(variance))


def _directions_of_few(rows: NDArray[np.float64], q: int) -> NDArray[np.float64]:
    """The q leading right singular vectors (d, q) of less than d rows (C, d)."""
    values, vectors = scipy.linalg.eigh(rows @ rows.T, check_finite=False)
    left, sizes = vectors[:, ::-1][:, :q], np.sqrt(np.maximum(values[::-1][:q], 0.0))
    found = rows.T @ left / np.maximum(sizes, 1e-12 * max(sizes[0], 1e-300))
    return np.asarray(np.linalg.qr(found)[0])


def discriminant_projection(
    coordinates: Coordinates, shares: NDArray[np.float64], n_bits: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]:
    """Rotate the directions that tell classes apart towards the corners of a cube.

    Where bits outnumber the directions, each further block of bits has a rotation of its own.

    Parameters
    ----------
    coordinates : Coordinates
    shares : (C,) of the classes in the total weight
    n_bits : int
    seed : int

    Returns
    -------
    Q : (k, r), of these coordinates
    t : (r,)
    weights : (C, r) int8, signs of the class means
    """
    k = min(n_bits, coordinates.n_discriminant)
    means = coordinates.means[:, :k]
    blocks_of_classes = list(_class_blocks(len(means)))
    centre = np.sum([shares[part] @ means[part] for part in blocks_of_classes], axis=0)
    random = np.random.default_rng(seed)
    chosen = means
    if len(means) > _MAX_ITQ_MEANS:
        chosen = means[np.sort(random.choice(len(means), _MAX_ITQ_MEANS, replace=False))]
    chosen = chosen - centre
    # What is drawn is tied to the classes, and not to the axes, whose signs and order may depend on
    # rounding.
    left, _, right = scipy.linalg.svd(chosen, full_matrices=False, check_finite=False)
    axes = (left @ right).T
    blocks: list[NDArray[np.float64]] = []
    while len(blocks) * k < n_bits:
        n_rounds = 0 if blocks and k <= _FEW_DIRECTIONS else _ITQ_ROUNDS
        start = _nearest_rotation(axes @ random.standard_normal(chosen.shape))
        blocks.append(itq(chosen.astype(np.float32), start, n_rounds))
    rotation = np.concatenate(blocks, axis=1)[:, :n_bits]
    Q = np.zeros((coordinates.means.shape[1], n_bits))
    Q[:k] = rotation
    weights = np.empty((len(means), n_bits), dtype=np.int8)
    for part in blocks_of_classes:
        weights[part] = sign((means[part] - centre) @ rotation)
    return Q, -(centre @ rotation), weights


def drawn_rows(
    coordinates: Coordinates,
    scatter: Scatter,
    alpha: float,
    own: NDArray[np.intp],
    random: np.random.Generator,
) -> NDArray[np.float32]:
    """Rows (m, k) as the sums describe them: normal about the mean of their class `own` (m,)."""
    lengths = scatter.lengths(alpha)
    # In the directions of the scatter coordinates are independent of each other.
    basis = (coordinates.inverse @ scatter.vectors / lengths).T.astype(np.float32)
    deviations = (np.sqrt(scatter.values) / lengths).astype(np.float32)
    noise = random.standard_normal((len(own), len(deviations)), dtype=np.float32) * deviations
    return np.asarray(coordinates.means[own] + noise @ basis, dtype=np.float32)


def default_alpha(sums: Sums) -> float:
    """Penalty where no rows can be held out to choose one: the fewer rows per feature, the more."""
    n_within = max(sums.count - len(sums.classes), 1.0)
    return float(np.clip(len(sums.gram) / n_within, 1e-4, 1.0))


def target_deviation(sums: Sums) -> float:
    """Standard deviation that scores F should have: with more rows per class tanh may saturate."""
    rows_per_class = sums.count / len(sums.classes)
    return float(np.clip((rows_per_class / 100.0) ** (1.0 / 6.0), 0.6, 1.6))


def itq(rows: NDArray[Any], rotation: NDArray[np.float64], n_rounds: int) -> NDArray[np.float64]:
    """Iterative quantisation: rotate rows near to their own signs.

    Parameters
    ----------
    rows : (n, k)
    rotation : (k, r), k <= r, with orthonormal rows, to start from
    n_rounds : int

    Returns
    -------
    (k, r), with orthonormal rows
    """
    for _ in range(n_rounds):
        rotated = rows @ rotation.astype(rows.dtype)
        signs = np.where(rotated >= 0, rotated.dtype.type(1), rotated.dtype.type(-1))
        rotation = _nearest_rotation(np.asarray(rows.T @ signs, np.float64))
    return rotation


def _nearest_rotation(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    left, _, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    return np.asarray(left @ right)
