"""Discriminant codes: projection, intercept and class weights in closed form, from sums alone.

Rows are whitened by the within-class scatter, and the leading directions of the class means are
rotated towards the corners of a cube (ITQ). Whitening, directions and rotation together are P; the
signs of the class means are W. This needs no regression on codes, which is less accurate if classes
are many or small.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from bitclass._native import Precision, effective_threads
from bitclass.arrays import (
    Array,
    class_blocks,
    device,
    is_foreign,
    like,
    namespace,
    sample_rows,
    signs,
    take,
    to_host,
)
from bitclass.hash_function import HashFunction

if TYPE_CHECKING:
    from bitclass.training.statistics import Sums

__all__ = [
    "Coordinates",
    "Scatter",
    "best_alpha",
    "coordinates_of",
    "coordinates_to_refine",
    "default_alpha",
    "discriminant_projection",
    "itq",
    "scatter_of",
    "target_deviation",
    "temperature_of_errors",
    "temperature_of_means",
]

_ITQ_ROUNDS = 30
# With more bits, the number of rounds is reduced in proportion: all of them would take minutes at
# 1,000 classes, for the same accuracy.
_BITS_OF_ALL_ROUNDS = 512
# In so few directions all starts converge to the same few rotations, so only the first block of
# bits uses ITQ.
_FEW_DIRECTIONS = 8
# If the largest class share exceeds the mean share by this factor, thresholds are shifted away from
# frequent classes (at most so many) to minimise the number of wrong bits. The shift shrinks with
# the number of directions, because more bits then repeat the same correction.
_UNEVEN, _MAX_FREQUENT = 1.25, 1024
_SHARE_OF_SHIFT = 4.0
_SHIFTS = np.array(sorted(np.linspace(-2.0, 2.0, 33), key=abs))
# Number of coordinates beyond one per bit that refinement works in.
_EXTRA_COORDINATES = 384
# Class means that ITQ is run on, and that the temperature is estimated from.
_MAX_ITQ_MEANS = 8192
_MAX_TEMPERATURE_MEANS = 10_000
# Penalties to choose from, and by how much their accuracy may fall short of the best: less with
# kernel anchors, for which even directions of low variance separate classes.
_ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
_ALPHA_SLACK, _KERNEL_ALPHA_SLACK = 0.02, 0.005
_MIN_ALPHA = 1e-9  # below the rounding error of float32 sums
# Lower bound of the within-class variance, relative to that of all rows: it is 0 if every class has
# a single row.
_MIN_SHARE_WITHIN = 1e-6
_MAX_ALPHA_ROWS, _MAX_ALPHA_CLASSES = 2048, 4096
_ROWS_PER_BLOCK = 1024
# Squared singular values below this, relative to the largest, have no well-defined direction.
_MIN_SQUARE = 1e-10
# Largest penalty for which the scatter may be whitened with a Cholesky factor that includes it.
_MAX_ALPHA_OF_CHOLESKY = 0.01


@dataclass(frozen=True)
class Coordinates:
    """Coordinates ``a = A'(z - mean)`` in which the within-class covariance is nearly the identity.

    The first `n_discriminant` of them separate the classes; the others are those of the largest
    variance. Q (k, r) and t (r,) denote a projection and an intercept in these coordinates.

    Attributes
    ----------
    scatter : Scatter, from which the coordinates were computed
    alpha : float, the penalty that was added to it
    transform : (d, k) float64, the matrix A
    inverse : (k, d) float64, such that ``inverse @ A`` is the identity
    n_discriminant : int
    means : (C, k) float32, the class means in these coordinates
    deviation : (k,) standard deviation of each coordinate over all rows
    """

    scatter: Scatter
    alpha: float
    transform: NDArray[np.float64]
    inverse: NDArray[np.float64]
    n_discriminant: int
    means: NDArray[np.float32]
    deviation: NDArray[np.float64]

    @property
    def sums(self) -> Sums:
        """The sums from which the coordinates were computed."""
        return self.scatter.sums

    @property
    def _centre(self) -> NDArray[np.float64]:
        """Mean of the untransformed rows, (d,)."""
        return self.sums.shift + self.scatter.mean * self.sums.scale

    def rows(self, X: Array) -> Array:
        """Coordinates (n, k) float32 of untransformed dense rows."""
        xp = namespace(X)
        mean, transform = like(self.scatter.mean, X), xp.astype(self.transform, xp.float32)

        def centred(block: Array) -> Array:
            Z = self.sums.standardised_rows(block, slice(None))
            Z -= xp.astype(mean, Z.dtype)
            return xp.astype(Z, xp.float32, copy=False)

        if is_foreign(X):
            return centred(X) @ transform
        A = np.empty((len(X), transform.shape[1]), dtype=np.float32)

        def transform_block(start: int) -> None:
            rows = slice(start, start + _ROWS_PER_BLOCK)
            np.matmul(centred(X[rows]), transform, out=A[rows])

        with ThreadPoolExecutor(effective_threads(None)) as pool:
            list(pool.map(transform_block, range(0, len(X), _ROWS_PER_BLOCK)))
        return A

    def score_deviation(self, Q: NDArray[np.floating]) -> float:
        """Mean over the bits of the standard deviation of the scores A @ Q over all rows."""
        return max(float(np.sqrt(self.deviation**2 @ Q**2).mean()), 1e-12)

    def column_length(self, Q: NDArray[np.floating], score_deviation: float) -> float:
        """Length of the columns of Q for which scores have this standard deviation."""
        lengths = np.linalg.norm(Q, axis=0)
        lengths[lengths == 0] = 1.0
        return score_deviation / self.score_deviation(Q / lengths)

    def projected(self, hash_function: HashFunction) -> tuple[NDArray[Any], NDArray[Any]]:
        """Q and t of a hash function of untransformed rows."""
        projection = hash_function.projection.astype(np.float64)
        Q = self.inverse @ like(projection * self.sums.scale[:, None], self.inverse)
        return to_host(Q), hash_function.intercept + self._centre @ projection

    def hash_function(self, Q: NDArray[Any], t: NDArray[Any], precision: Precision) -> HashFunction:
        """The hash function of untransformed rows that is equivalent to Q and t."""
        sums, centre = self.sums, self._centre
        P = to_host(self.transform @ like(Q.astype(np.float64), self.transform))
        P = P / sums.scale[:, None]
        projection = np.ascontiguousarray(P, dtype=np.float32)
        # From the rounded projection, so that rounding does not shift the scores of the mean.
        intercept = t.astype(np.float64) - centre @ projection.astype(np.float64)
        variance = sums.diagonal / sums.total_weight - self.scatter.mean**2
        deviation = np.sqrt(np.where(sums.constant, 1.0, variance)) * sums.scale
        return HashFunction(
            projection,
            intercept,
            centre=centre.astype(np.float32),
            scale=deviation.astype(np.float32),
            precision=precision,
            anchors=sums.anchors,
        )

    def synthetic_rows(
        self, y: NDArray[np.intp], random: np.random.Generator
    ) -> NDArray[np.float32]:
        """Random rows (m, k) of the classes `y`: normal with the means and scatter of the sums."""
        scatter, scale = self.scatter, self.scatter.deviations(self.alpha)
        # Coordinates along the eigenvectors of the scatter are independent of each other.
        basis = (self.inverse @ scatter.vectors / scale).T.astype(np.float32)
        deviations = (np.sqrt(scatter.values) / scale).astype(np.float32)
        noise = random.standard_normal((len(y), len(deviations)), dtype=np.float32) * deviations
        return np.asarray(self.means[y] + noise @ basis, dtype=np.float32)


@dataclass(frozen=True)
class Scatter:
    """Eigendecomposition of the within-class scatter, and the scatter of the class means.

    Both are those of features scaled to unit variance, whatever the units of the sums.

    Attributes
    ----------
    mean : (d,) mean of the summed features z
    values : (d,) eigenvalues, descending
    vectors : (d, d), columns that project z - mean onto the eigenvectors
    inverse : (d, d), the inverse of `vectors`
    between : (d, d) scatter of the class means
    shares : (C,) shares of the classes in the total weight
    sums : Sums, which also hold the class means
    mean_variance : float, mean within-class variance, bounded below by a small share of the total
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
        """Centred means (m, d) of some classes; computed per call, as all would be a large copy."""
        return _centred(self.sums, self.mean, classes)

    def n_above(self, alpha: float) -> int:
        """Number of directions whose within-class variance exceeds the penalty."""
        return int(np.count_nonzero(self.values > alpha * self.mean_variance))

    def deviations(self, alpha: float) -> NDArray[np.float64]:
        """Within-class standard deviations, with `alpha` mean variances added to each variance."""
        return np.sqrt(self.values + max(alpha, _MIN_ALPHA) * self.mean_variance)


def _centred(sums: Sums, mean: NDArray[np.float64], classes: slice | NDArray[np.intp]) -> Array:
    chosen = sums.feature_sums
    chosen = chosen[classes, :] if isinstance(classes, slice) else take(chosen, classes)
    means = chosen / like(sums.class_weights[classes, None], chosen)
    means -= like(mean, chosen)
    return means


def scatter_of(sums: Sums, alpha: float | None = None) -> Scatter:
    """Within-class scatter of all rows.

    On a GPU, if the penalty is known, a Cholesky factor replaces the eigenvectors: it whitens
    equally well in a fraction of the time.
    """
    total, xp = sums.total_weight, namespace(sums.gram)
    mean = sums.column_sums / total
    shares = sums.class_weights / total
    between = xp.zeros_like(sums.gram)
    for part in class_blocks(len(shares)):
        weighted = _centred(sums, mean, part)
        weighted *= like(np.sqrt(shares[part])[:, None], weighted)
        between += weighted.T @ weighted
    device_mean = like(mean, between)
    scatter = sums.gram / total - device_mean[:, None] * device_mean
    variances = np.array(to_host(xp.linalg.diagonal(scatter)))
    deviations = np.sqrt(np.where(sums.constant, 1.0, variances))
    scatter -= between
    scale = like(deviations, between)
    scatter /= scale[:, None] * scale
    overall = float(np.mean(variances / deviations**2)) or 1.0  # 1 if all features are constant
    on_gpu = getattr(scatter, "is_cuda", False)
    if alpha is not None and alpha <= _MAX_ALPHA_OF_CHOLESKY and on_gpu:
        variance = max(float(xp.mean(xp.linalg.diagonal(scatter))), _MIN_SHARE_WITHIN * overall)
        penalty = max(alpha, _MIN_ALPHA) * variance * xp.eye(len(mean), device=device(scatter))
        factors = _cholesky(scatter + penalty)
        if factors is not None:
            factor, inverse = factors
            white, values = inverse.T / scale[:, None], np.ones(len(mean))
            return Scatter(mean, values, white, factor.T * scale, between, shares, sums, 0.0)
    values, vectors = _eigh(scatter)
    values = np.maximum(to_host(values)[::-1], 0.0)
    mean_variance = max(float(values.mean()), _MIN_SHARE_WITHIN * overall)
    vectors = xp.flip(vectors, axis=1)
    inverse = vectors.T * scale
    vectors = vectors / scale[:, None]
    return Scatter(mean, values, vectors, inverse, between, shares, sums, mean_variance)


def _cholesky(matrix: Array) -> tuple[Array, Array] | None:
    """Lower Cholesky factor of a torch tensor, and its inverse.

    None if the matrix is not positive definite: rounding of the sums may exceed the penalty.
    """
    linalg = namespace(matrix).linalg
    try:
        factor = linalg.cholesky(matrix)
        return factor, linalg.inv(factor)
    except RuntimeError as error:  # torch's out-of-memory errors are RuntimeErrors, too
        if "LinAlgError" not in type(error).__name__:
            raise
        return None


def _eigh(matrix: Array, q: int | None = None) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of a matrix: the q leading ones, or all.

    If all are computed, the matrix is overwritten.
    """
    d = matrix.shape[0]
    if is_foreign(matrix):
        values, vectors = namespace(matrix).linalg.eigh(matrix)
        return values, vectors if q is None else vectors[:, d - q :]
    subset = None if q is None else (d - q, d - 1)
    return scipy.linalg.eigh(
        matrix, subset_by_index=subset, check_finite=False, overwrite_a=q is None
    )


def best_alpha(
    scatter: Scatter,
    Z: NDArray[np.floating],
    y: NDArray[np.intp],
    sample_weight: NDArray[np.float64] | None = None,
) -> float:
    """The largest penalty at which linear discriminant analysis is nearly as accurate as its best.

    Parameters
    ----------
    scatter : Scatter, computed without the rows Z
    Z : (n, d) held-out rows, standardised as in the sums
    y : (n,) index of each row's class
    sample_weight : (n,), or None for ones
    """
    slack = _ALPHA_SLACK if scatter.sums.anchors is None else _KERNEL_ALPHA_SLACK
    some = sample_rows(len(y), _MAX_ALPHA_ROWS)  # the first rows may cover few classes
    xp, Z, y = namespace(Z), take(Z, some), y[some]
    weights = None if sample_weight is None else sample_weight[some]
    classes = np.arange(len(scatter.shares))
    if len(classes) > _MAX_ALPHA_CLASSES:  # the true classes, and a sample of the others
        classes = np.unique(np.concatenate([y, classes[:: len(classes) // _MAX_ALPHA_CLASSES]]))
    centred = xp.astype(Z, xp.float64, copy=False) - like(scatter.mean, Z)
    rows = xp.astype(centred @ scatter.vectors, xp.float32)
    means = xp.astype(scatter.centred(classes) @ scatter.vectors, xp.float32)
    accuracies = {}
    for alpha in _ALPHAS:
        inverse = like((1.0 / scatter.deviations(alpha)).astype(np.float32), Z)
        white = means * inverse
        scores = (rows * inverse) @ white.T - 0.5 * xp.linalg.vecdot(white, white)
        right = classes[to_host(xp.argmax(scores, axis=1))] == y
        accuracies[alpha] = float(np.average(right, weights=weights))
    return max(
        alpha
        for alpha, accuracy in accuracies.items()
        if accuracy >= max(accuracies.values()) - slack
    )


def coordinates_to_refine(scatter: Scatter, alpha: float, n_bits: int) -> Coordinates:
    """Coordinates that refinement works in: one per bit, and more that still improve accuracy."""
    n_directions = max(n_bits + _EXTRA_COORDINATES, scatter.n_above(alpha))
    if scatter.sums.anchors is not None:  # with anchors, even directions of low variance help
        n_directions = len(scatter.values)
    return coordinates_of(scatter, alpha, n_directions)


def coordinates_of(scatter: Scatter, alpha: float, n_directions: int) -> Coordinates:
    """Coordinates whitened by the within-class scatter, those that separate classes first.

    Parameters
    ----------
    scatter : Scatter
    alpha : float
        Added to the within-class variances, in units of their mean.
    n_directions : int
        Maximum number of coordinates; there are no more than features.
    """
    deviations, vectors, d = scatter.deviations(alpha), scatter.vectors, len(scatter.values)
    k, xp, n_classes = min(n_directions, d), namespace(vectors), len(scatter.shares)
    # Directions of the class means, in coordinates of unit within-class variance.
    white = vectors / like(deviations, vectors)
    between = white.T @ scatter.between @ white
    q = min(n_classes - 1, k)
    if n_classes < d:
        weighted = scatter.centred(slice(None)) * like(np.sqrt(scatter.shares)[:, None], vectors)
        basis = _directions_of_few(weighted @ white, q)
    else:
        basis = xp.flip(_eigh(between, q)[1], axis=1)
    if k > q:
        rest = np.zeros((d, k - q))
        rest[np.arange(k - q), np.arange(k - q)] = 1.0
        basis, _ = xp.linalg.qr(xp.concat([basis, like(rest, basis)], axis=1))
    transform = white @ basis
    inverse = (basis.T * like(deviations, basis)) @ scatter.inverse
    means = xp.empty((n_classes, k), dtype=xp.float32, device=device(basis))
    for part in class_blocks(n_classes):
        means[part, :] = xp.astype(scatter.centred(part) @ transform, xp.float32)
    variance = to_host((basis**2).T @ like(scatter.values / deviations**2, basis))
    between_basis = to_host(between @ basis)
    variance += np.maximum(np.einsum("dk,dk->k", to_host(basis), between_basis), 0.0)
    return Coordinates(scatter, alpha, transform, inverse, q, means, np.sqrt(variance))


def _directions_of_few(rows: NDArray[np.float64], q: int) -> NDArray[np.float64]:
    """The q leading right singular vectors (d, q) of a matrix with fewer rows than columns."""
    xp = namespace(rows)
    values, vectors = _eigh(rows @ rows.T)
    left, sizes = xp.flip(vectors, axis=1)[:, :q], np.sqrt(np.maximum(to_host(values), 0.0))
    sizes = np.maximum(sizes[::-1][:q], 1e-12 * max(sizes[-1], 1e-300))
    return xp.linalg.qr(rows.T @ left / like(sizes, rows))[0]


def discriminant_projection(
    coordinates: Coordinates, n_bits: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]:
    """Rotate the directions that separate classes towards the corners of a cube.

    `Coordinates.hash_function` makes the projection P of the features from Q and t. If there are
    more bits than directions, each further block of bits has its own rotation. Thresholds are at
    the unweighted mean of the class means, because a threshold close to a frequent class would cut
    it in two. In few directions, thresholds of further blocks lie between two neighbouring class
    means: hyperplanes through a single point do not separate classes that lie on the same ray.

    Parameters
    ----------
    coordinates : Coordinates
    n_bits : int
    seed : int

    Returns
    -------
    Q : (k, r), projection in these coordinates
    t : (r,)
    weights : (C, r) int8, signs of the class means' scores
    """
    k, shares = min(n_bits, coordinates.n_discriminant), coordinates.scatter.shares
    xp, n_classes, means = namespace(coordinates.means), len(shares), coordinates.means[:, :k]
    centre = sum(
        xp.sum(means[part, :], axis=0, dtype=xp.float64) for part in class_blocks(n_classes)
    )
    centre = centre / n_classes
    random = np.random.default_rng(seed)
    chosen = means
    if n_classes > _MAX_ITQ_MEANS:
        chosen = take(means, np.sort(random.choice(n_classes, _MAX_ITQ_MEANS, replace=False)))
    chosen = xp.astype(chosen, xp.float64) - centre
    # Random numbers are assigned to classes, not to axes, whose signs and order may depend on
    # rounding.
    axes = _nearest_rotation(chosen).T
    blocks: list[Array] = []
    while len(blocks) * k < n_bits:
        n_rounds = _ITQ_ROUNDS * _BITS_OF_ALL_ROUNDS // max(n_bits, _BITS_OF_ALL_ROUNDS)
        if blocks and k <= _FEW_DIRECTIONS:
            n_rounds = 0
        start = _nearest_rotation(axes @ like(random.standard_normal(chosen.shape), means))
        blocks.append(itq(xp.astype(chosen, xp.float32), start, n_rounds))
    rotation = xp.concat(blocks, axis=1)[:, :n_bits]
    threshold = centre @ rotation
    if k <= _FEW_DIRECTIONS and n_bits > k:
        along = np.sort(to_host(chosen @ rotation[:, k:]), axis=0)
        lower, bit = random.integers(len(along) - 1, size=n_bits - k), np.arange(n_bits - k)
        threshold[k:] += like((along[lower, bit] + along[lower + 1, bit]) / 2, threshold)
    weights = np.empty((n_classes, n_bits), dtype=np.int8)
    for part in class_blocks(n_classes):
        scores = xp.astype(means[part, :], xp.float64) @ rotation - threshold
        weights[part] = to_host(signs(scores, xp.int8))
    Q = np.zeros((coordinates.means.shape[1], n_bits))
    Q[:k] = to_host(rotation)
    t = -to_host(threshold)
    if n_classes * shares.max() > _UNEVEN:
        frequent = np.argsort(-shares, kind="stable")[:_MAX_FREQUENT]
        scores = to_host(take(means, frequent)) @ Q[:k] + t
        t -= min(1.0, _SHARE_OF_SHIFT / k) * _best_shift(scores, shares[frequent])
    return Q, t, weights


def _best_shift(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift of each threshold (r,) that minimises the expected number of wrong bits.

    Scores of rows are assumed normal with variance 1 around the scores (C, r) of their class means,
    whose signs are the correct bits.
    """
    errors = [shares @ scipy.special.ndtr(-np.sign(scores) * (scores - shift)) for shift in _SHIFTS]
    return _SHIFTS[np.argmin(errors, axis=0)]


def default_alpha(sums: Sums) -> float:
    """Penalty if no rows are held out to choose one: larger with fewer rows per feature."""
    n_within = max(sums.count - len(sums.classes), 1.0)
    return float(np.clip(len(sums.shift) / n_within, 1e-4, 1.0))


def target_deviation(sums: Sums) -> float:
    """Target standard deviation of the scores F; it grows with the number of rows per class."""
    rows_per_class = sums.count / len(sums.classes)
    return float(np.clip((rows_per_class / 100.0) ** (1.0 / 6.0), 0.6, 1.6))


def temperature_of_means(
    hash_function: HashFunction,
    weights: NDArray[np.int8],
    coordinates: Coordinates,
    rescored: bool,
) -> float:
    """Temperature of the probabilities, from the distances of the class means to the thresholds.

    Rows of every class are assumed to have the same standard deviation around the class mean.
    """
    Q, t = coordinates.projected(hash_function)
    deviations = np.maximum(np.linalg.norm(Q, axis=0), 1e-12)
    means, n_classes = coordinates.means, len(weights)
    some = take(means, np.arange(0, n_classes, 1 + n_classes // _MAX_TEMPERATURE_MEANS))
    values = to_host(namespace(means).astype(some, namespace(means).float64) @ like(Q, some)) + t
    distances = np.abs(values) / deviations
    errors = np.clip(scipy.special.ndtr(-distances), 1e-9, 0.49)
    error = float(np.mean(errors))
    if n_classes - 1 <= _FEW_DIRECTIONS:
        # With few classes, bits differ widely in certainty, so the log-odds are averaged.
        error = float(scipy.special.expit(np.mean(scipy.special.logit(errors))))
    temperature = temperature_of_errors(error, *weights.shape)
    if not rescored:
        return temperature
    # Scores of real-valued codes are smaller than those of their signs.
    return temperature * float(np.mean(np.abs(np.tanh(values))))


def temperature_of_errors(error: float, n_classes: int, n_bits: int) -> float:
    """Temperature of the probabilities if bits are wrong with probability `error`.

    Bits are far from independent if they outnumber the C - 1 directions that separate C classes.
    """
    error = min(max(error, 1e-9), 0.49)
    log_odds = math.log1p(-error) - math.log(error)
    independent = min(1.0, (n_classes - 1) / n_bits)
    return 2.0 / (log_odds * independent)


def itq(rows: Array, rotation: Array, n_rounds: int) -> Array:
    """Iterative quantisation: rotate rows close to their signs.

    Parameters
    ----------
    rows : (n, k)
    rotation : (k, r), k <= r, initial rotation, with orthonormal rows
    n_rounds : int

    Returns
    -------
    (k, r), with orthonormal rows
    """
    xp = namespace(rows)
    for _ in range(n_rounds):
        corners = signs(rows @ xp.astype(rotation, rows.dtype))
        rotation = _nearest_rotation(xp.astype(rows.T @ corners, xp.float64))
    return rotation


def _nearest_rotation(matrix: Array) -> Array:
    if is_foreign(matrix):
        # Eigenvectors take a fraction of the time of an SVD, and suffice if the rank is full.
        xp = namespace(matrix)
        values, vectors = xp.linalg.eigh(matrix.T @ matrix)
        if float(values[0]) > _MIN_SQUARE * float(values[-1]):
            return matrix @ (vectors / xp.sqrt(values)) @ vectors.T
        return like(_nearest_rotation(to_host(matrix)), matrix)
    left, _, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    return np.asarray(left @ right)
