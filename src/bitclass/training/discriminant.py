"""Discriminant codes: projection, intercept and class weights in closed form, from sums alone.

Rows are whitened by the scatter within classes, and the top directions of the class means are
rotated towards the corners of a cube (ITQ). Whitening, directions and rotation are P; the signs of
the class means are W. This needs no regression on codes, which is worse where classes are many or
small.
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
    "FURTHER_COORDINATES",
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
# In so few directions every start ends in the same few rotations: only the first block of bits has
# one that was learned.
_FEW_DIRECTIONS = 8
# Where the most frequent class has so many times the mean share, thresholds move away from frequent
# classes, these at most, by as much as leaves the fewest wrong bits; but the more directions there
# are, the more bits count the same frequencies again.
_UNEVEN, _MAX_FREQUENT = 1.25, 1024
_SHARE_OF_SHIFT = 4.0
_SHIFTS = np.array(sorted(np.linspace(-2.0, 2.0, 33), key=abs))
#: Coordinates beside one per bit: classes differ in the first, and the others still help.
FURTHER_COORDINATES = 384
# Class means that a rotation is learned on.
_MAX_ITQ_MEANS = 8192
_MAX_MEANS = 10_000  # that the temperature is estimated from
# Penalties to choose from, and by how much their accuracy may fall short of the best: less with
# kernel anchors, whose directions of little variance still tell classes apart.
_ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
_ALPHA_SLACK, _KERNEL_ALPHA_SLACK = 0.02, 0.005
_MIN_ALPHA = 1e-9  # below the rounding of sums of float32
# Of the variance of all rows, where classes of one row each have none within.
_MIN_SHARE_WITHIN = 1e-6
_MAX_ALPHA_ROWS, _MAX_ALPHA_CLASSES = 2048, 4096
_ROWS_PER_BLOCK = 1024
# Of squared singular values: what is below the largest by more has no direction that is known.
_MIN_SQUARE = 1e-10
# Penalties that a Cholesky factor may take in, as if it were variance within classes.
_MAX_ALPHA_OF_CHOLESKY = 0.01


@dataclass(frozen=True)
class Coordinates:
    """Coordinates ``a = A'(z - mean)`` in which rows of every class scatter alike.

    The first `n_discriminant` of them tell the classes apart; the others are those of the largest
    variance. Q (k, r) and t (r,) are a projection and an intercept of these coordinates.

    Attributes
    ----------
    scatter : Scatter, that the coordinates were found from
    alpha : float, the penalty that was added to it
    transform : (d, k) float64, the matrix A
    inverse : (k, d) float64, ``inverse @ A`` is the identity
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
        """The sums that the coordinates were found from."""
        return self.scatter.sums

    @property
    def _centre(self) -> NDArray[np.float64]:
        """Mean of the rows as they are, (d,)."""
        return self.sums.shift + self.scatter.mean * self.sums.scale

    def rows(self, X: Array) -> Array:
        """Coordinates (n, k) float32 of dense rows as the estimator takes them."""
        xp = namespace(X)
        mean, transform = like(self.scatter.mean, X), xp.astype(self.transform, xp.float32)

        def centred(block: Array) -> Array:
            Z = self.sums.standardised_rows(block, slice(None))
            Z -= xp.astype(mean, Z.dtype)
            return xp.astype(Z, xp.float32, copy=False)

        if is_foreign(X):
            return centred(X) @ transform
        found = np.empty((len(X), transform.shape[1]), dtype=np.float32)

        def transform_block(start: int) -> None:
            rows = slice(start, start + _ROWS_PER_BLOCK)
            np.matmul(centred(X[rows]), transform, out=found[rows])

        with ThreadPoolExecutor(effective_threads(None)) as pool:
            list(pool.map(transform_block, range(0, len(X), _ROWS_PER_BLOCK)))
        return found

    def score_deviation(self, Q: NDArray[np.floating]) -> float:
        """Mean standard deviation of the scores of Q over all rows."""
        return max(float(np.sqrt(self.deviation**2 @ Q**2).mean()), 1e-12)

    def column_length(self, Q: NDArray[np.floating], score_deviation: float) -> float:
        """Length of the columns of Q at which scores have this standard deviation."""
        lengths = np.linalg.norm(Q, axis=0)
        lengths[lengths == 0] = 1.0
        return score_deviation / self.score_deviation(Q / lengths)

    def projected(self, hash_function: HashFunction) -> tuple[NDArray[Any], NDArray[Any]]:
        """Q and t of a hash function of rows as they are."""
        projection = hash_function.projection.astype(np.float64)
        Q = self.inverse @ like(projection * self.sums.scale[:, None], self.inverse)
        return to_host(Q), hash_function.intercept + self._centre @ projection

    def hash_function(self, Q: NDArray[Any], t: NDArray[Any], precision: Precision) -> HashFunction:
        """The hash function of rows as they are that Q and t give."""
        sums, centre = self.sums, self._centre
        P = to_host(self.transform @ like(Q.astype(np.float64), self.transform))
        P = P / sums.scale[:, None]
        projection = np.ascontiguousarray(P, dtype=np.float32)
        # From the rounded projection, so that rounding does not move the codes of the mean.
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

    def drawn_rows(self, y: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.float32]:
        """Rows (m, k) as the sums describe them: normal about the means of their classes `y`."""
        scatter, lengths = self.scatter, self.scatter.lengths(self.alpha)
        # In the directions of the scatter coordinates are independent of each other.
        basis = (self.inverse @ scatter.vectors / lengths).T.astype(np.float32)
        deviations = (np.sqrt(scatter.values) / lengths).astype(np.float32)
        noise = random.standard_normal((len(y), len(deviations)), dtype=np.float32) * deviations
        return np.asarray(self.means[y] + noise @ basis, dtype=np.float32)


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
        return _centred(self.sums, self.mean, classes)

    def n_clear(self, alpha: float) -> int:
        """Number of directions whose variance within classes is above the penalty."""
        return int(np.count_nonzero(self.values > alpha * self.mean_variance))

    def lengths(self, alpha: float) -> NDArray[np.float64]:
        """Deviations within classes, with `alpha` mean variances added to each variance."""
        return np.sqrt(self.values + max(alpha, _MIN_ALPHA) * self.mean_variance)


def _centred(sums: Sums, mean: NDArray[np.float64], classes: slice | NDArray[np.intp]) -> Array:
    chosen = sums.feature_sums
    chosen = chosen[classes, :] if isinstance(classes, slice) else take(chosen, classes)
    means = chosen / like(sums.class_weights[classes, None], chosen)
    means -= like(mean, chosen)
    return means


def scatter_of(sums: Sums, alpha: float | None = None) -> Scatter:
    """Scatter within the classes of all rows; on a device, for one penalty if that is known.

    A Cholesky factor takes a fraction of the time of eigenvectors, and whitens as well.
    """
    total, xp = sums.total_weight, namespace(sums.gram)
    mean = sums.column_sums / total
    shares = sums.class_weights / total
    between = xp.zeros_like(sums.gram)
    for part in class_blocks(len(shares)):
        weighted = _centred(sums, mean, part)
        weighted *= like(np.sqrt(shares[part])[:, None], weighted)
        between += weighted.T @ weighted
    there = like(mean, between)
    scatter = sums.gram / total - there[:, None] * there
    variances = np.array(to_host(xp.linalg.diagonal(scatter)))
    deviations = np.sqrt(np.where(sums.constant, 1.0, variances))
    scatter -= between
    there = like(deviations, between)
    scatter /= there[:, None] * there
    overall = float(np.mean(variances / deviations**2)) or 1.0  # where no feature varies
    on_gpu = getattr(scatter, "is_cuda", False)
    if alpha is not None and alpha <= _MAX_ALPHA_OF_CHOLESKY and on_gpu:
        variance = max(float(xp.mean(xp.linalg.diagonal(scatter))), _MIN_SHARE_WITHIN * overall)
        penalty = max(alpha, _MIN_ALPHA) * variance * xp.eye(len(mean), device=device(scatter))
        factors = _cholesky(scatter + penalty)
        if factors is not None:
            factor, inverse = factors
            white, values = inverse.T / there[:, None], np.ones(len(mean))
            return Scatter(mean, values, white, factor.T * there, between, shares, sums, 0.0)
    values, vectors = _eigh(scatter)
    values = np.maximum(to_host(values)[::-1], 0.0)
    mean_variance = max(float(values.mean()), _MIN_SHARE_WITHIN * overall)
    vectors = xp.flip(vectors, axis=1)
    inverse = vectors.T * there
    vectors = vectors / there[:, None]
    return Scatter(mean, values, vectors, inverse, between, shares, sums, mean_variance)


def _cholesky(matrix: Array) -> tuple[Array, Array] | None:
    """Lower Cholesky factor of a torch tensor, and its inverse.

    None where the matrix is not positive: the rounding of the sums may exceed the penalty.
    """
    linalg = namespace(matrix).linalg
    try:
        factor = linalg.cholesky(matrix)
        return factor, linalg.inv(factor)
    except RuntimeError as error:  # which torch's errors of memory are as well
        if "LinAlgError" not in type(error).__name__:
            raise
        return None


def _eigh(matrix: Array, q: int | None = None) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of a matrix: the q leading ones, or all.

    The matrix is overwritten where all are wanted.
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
    """The largest penalty at which linear discriminant analysis is nearly at its best.

    Parameters
    ----------
    scatter : Scatter, without the rows Z
    Z : (n, d) held-out rows, as they are summed
    y : (n,) index of each row's class
    sample_weight : (n,), or None for ones
    """
    slack = _ALPHA_SLACK if scatter.sums.anchors is None else _KERNEL_ALPHA_SLACK
    some = sample_rows(len(y), _MAX_ALPHA_ROWS)  # the first ones may be of a few classes only
    xp, Z, y = namespace(Z), take(Z, some), y[some]
    weights = None if sample_weight is None else sample_weight[some]
    classes = np.arange(len(scatter.shares))
    if len(classes) > _MAX_ALPHA_CLASSES:  # the own classes, and as many others as fit
        classes = np.unique(np.concatenate([y, classes[:: len(classes) // _MAX_ALPHA_CLASSES]]))
    centred = xp.astype(Z, xp.float64, copy=False) - like(scatter.mean, Z)
    rows = xp.astype(centred @ scatter.vectors, xp.float32)
    means = xp.astype(scatter.centred(classes) @ scatter.vectors, xp.float32)
    accuracies = {}
    for alpha in _ALPHAS:
        inverse = like((1.0 / scatter.lengths(alpha)).astype(np.float32), Z)
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
    """Coordinates that refinement works in: one per bit, and those beyond that still help."""
    n_directions = max(n_bits + FURTHER_COORDINATES, scatter.n_clear(alpha))
    if scatter.sums.anchors is not None:  # of similarities even directions of little variance help
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
    k, xp, n_classes = min(n_directions, d), namespace(vectors), len(scatter.shares)
    # Directions of the class means, in coordinates of unit variance within classes.
    white = vectors / like(lengths, vectors)
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
    inverse = (basis.T * like(lengths, basis)) @ scatter.inverse
    means = xp.empty((n_classes, k), dtype=xp.float32, device=device(basis))
    for part in class_blocks(n_classes):
        means[part, :] = xp.astype(scatter.centred(part) @ transform, xp.float32)
    variance = to_host((basis**2).T @ like(scatter.values / lengths**2, basis))
    between_basis = to_host(between @ basis)
    variance += np.maximum(np.einsum("dk,dk->k", to_host(basis), between_basis), 0.0)
    return Coordinates(scatter, alpha, transform, inverse, q, means, np.sqrt(variance))


def _directions_of_few(rows: NDArray[np.float64], q: int) -> NDArray[np.float64]:
    """The q leading right singular vectors (d, q) of less than d rows (C, d)."""
    xp = namespace(rows)
    values, vectors = _eigh(rows @ rows.T)
    left, sizes = xp.flip(vectors, axis=1)[:, :q], np.sqrt(np.maximum(to_host(values), 0.0))
    sizes = np.maximum(sizes[::-1][:q], 1e-12 * max(sizes[-1], 1e-300))
    return xp.linalg.qr(rows.T @ left / like(sizes, rows))[0]


def discriminant_projection(
    coordinates: Coordinates, n_bits: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]]:
    """Rotate the directions that tell classes apart towards the corners of a cube.

    Where bits outnumber the directions, each further block of bits has a rotation of its own.
    Thresholds are at the mean of the class means, however frequent the classes are: one near to a
    frequent class would cut it in two. In few directions, those of further blocks lie between two
    neighbours: hyperplanes through one point do not tell apart classes that lie behind one another.

    Parameters
    ----------
    coordinates : Coordinates
    n_bits : int
    seed : int

    Returns
    -------
    Q : (k, r), of these coordinates
    t : (r,)
    weights : (C, r) int8, signs of the class means
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
    # What is drawn is tied to the classes, and not to the axes, whose signs and order may depend on
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
        often = np.argsort(-shares, kind="stable")[:_MAX_FREQUENT]
        scores = to_host(take(means, often)) @ Q[:k] + t
        t -= min(1.0, _SHARE_OF_SHIFT / k) * _shift_to_rare(scores, shares[often])
    return Q, t, weights


def _shift_to_rare(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much each threshold (r,) must move for the fewest wrong bits.

    Rows are normal of variance 1 about the scores (C, r) of their classes, whose signs are right.
    """
    errors = [shares @ scipy.special.ndtr(-np.sign(scores) * (scores - shift)) for shift in _SHIFTS]
    return _SHIFTS[np.argmin(errors, axis=0)]


def default_alpha(sums: Sums) -> float:
    """Penalty where no rows can be held out to choose one: the fewer rows per feature, the more."""
    n_within = max(sums.count - len(sums.classes), 1.0)
    return float(np.clip(len(sums.shift) / n_within, 1e-4, 1.0))


def target_deviation(sums: Sums) -> float:
    """Standard deviation that scores F should have: with more rows per class tanh may saturate."""
    rows_per_class = sums.count / len(sums.classes)
    return float(np.clip((rows_per_class / 100.0) ** (1.0 / 6.0), 0.6, 1.6))


def temperature_of_means(
    hash_function: HashFunction,
    weights: NDArray[np.int8],
    coordinates: Coordinates,
    rescored: bool,
) -> float:
    """Temperature of the probabilities, from how far class means lie from the thresholds.

    Scores of rows scatter about those of their class mean by the same deviation in every class.
    """
    Q, t = coordinates.projected(hash_function)
    deviations = np.maximum(np.linalg.norm(Q, axis=0), 1e-12)
    means, n_classes = coordinates.means, len(weights)
    some = take(means, np.arange(0, n_classes, 1 + n_classes // _MAX_MEANS))
    values = to_host(namespace(means).astype(some, namespace(means).float64) @ like(Q, some)) + t
    distances = np.abs(values) / deviations
    errors = np.clip(scipy.special.ndtr(-distances), 1e-9, 0.49)
    error = float(np.mean(errors))
    if n_classes - 1 <= _FEW_DIRECTIONS:
        # Bits that lie between few classes differ much in how sure they are: their log-odds count.
        error = float(scipy.special.expit(np.mean(scipy.special.logit(errors))))
    temperature = temperature_of_errors(error, *weights.shape)
    if not rescored:
        return temperature
    # Scores of real-valued codes are smaller than those of their signs.
    return temperature * float(np.mean(np.abs(np.tanh(values))))


def temperature_of_errors(error: float, n_classes: int, n_bits: int) -> float:
    """Temperature of the probabilities where bits are hashed wrongly with probability `error`.

    Bits are far from independent where they outnumber the C - 1 directions that tell C classes
    apart.
    """
    error = min(max(error, 1e-9), 0.49)
    log_odds = math.log1p(-error) - math.log(error)
    independent = min(1.0, (n_classes - 1) / n_bits)
    return 2.0 / (log_odds * independent)


def itq(rows: Array, rotation: Array, n_rounds: int) -> Array:
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
    xp = namespace(rows)
    for _ in range(n_rounds):
        corners = signs(rows @ xp.astype(rotation, rows.dtype))
        rotation = _nearest_rotation(xp.astype(rows.T @ corners, xp.float64))
    return rotation


def _nearest_rotation(matrix: Array) -> Array:
    if is_foreign(matrix):
        # Eigenvectors take a fraction of the time, and do where no direction is missing.
        xp = namespace(matrix)
        values, vectors = xp.linalg.eigh(matrix.T @ matrix)
        if float(values[0]) > _MIN_SQUARE * float(values[-1]):
            return matrix @ (vectors / xp.sqrt(values)) @ vectors.T
        return like(_nearest_rotation(to_host(matrix)), matrix)
    left, _, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    return np.asarray(left @ right)
