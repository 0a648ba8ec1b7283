"""The closed form: projection, intercept and weights from sums.

Whiten by the scatter within classes, take the directions in which the class means differ, place
hyperplanes among the means, and take signs. Whitening, directions and hyperplanes together are P
and t; the signs of the class means are W. Dense rows are whitened by a Cholesky factor of the
scatter, wide rows by its diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass._native import (
    SparseRows,
    add_gram,
    cholesky,
    class_sums,
    log_probabilities,
    product,
    solve_triangular,
)
from bitclass.arrays import Features, class_blocks, sample_rows, signs
from bitclass.codes import sign
from bitclass.hash_function import HashFunction
from bitclass.training.settings import Settings
from bitclass.training.sums import Sample, Sums

__all__ = [
    "ENTRIES_LEFT",
    "FIRST_ALPHA",
    "MAX_BIASED_CLASSES",
    "MIN_GAIN",
    "ClosedForm",
    "DenseWhitening",
    "Kind",
    "Penalties",
    "Whitening",
    "Whitenings",
    "WideWhitening",
    "best_temperature",
    "closed_form",
]

#: Penalties that leave-one-out chooses from, uphill from 1, or with kernel anchors, whose
#: similarities are nearly collinear, from a small one.
ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)
FIRST_ALPHA, _FIRST_KERNEL_ALPHA = 1.0, 1e-4
# Of wide rows, in units of the mean variance of columns divided by their sizes. Leave-one-out of
# the diagonal model chose no better: after refinement 0.3 points more to 4 less, on six problems.
_WIDE_ALPHA = 10.0
#: Nats by which another penalty, unit or start must be better: very small penalties are all alike,
#: and where all rows are right, likelihoods differ in their last digits.
MIN_GAIN = 1e-3
# Rows and classes that leave-one-out is computed on: its cost is one product of this size per
# penalty, and its standard error is then about 1 point. Penalties are compared along the leading
# directions.
_LEAVE_ONE_OUT_ROWS, _LEAVE_ONE_OUT_CLASSES, _LEAVE_ONE_OUT_DIRECTIONS = 1024, 2048, 512
# Least penalty at which rows are whitened in float32, as products of the sums are: the condition
# number of the scatter is then at most ten times the number of features.
_FLOAT32_ALPHA = 0.1
# Ratio of penalties in either units, over the features, below which only one is tried: features
# that were standardised.
_UNITS_ALIKE = 1.25
_NOISE_ROWS = 256  # by which the number of noisy directions is estimated
# Directions beyond those of the class means, in which rows vary most: with many rows, refinement
# finds classes separated there, too. One per so many rows, so that they are known.
_EXTRA_DIRECTIONS, _ROWS_PER_EXTRA_DIRECTION = 384, 4
# Accuracy by leave-one-out, below the best, at which a larger penalty is still good for refinement:
# less with kernel anchors, where even directions of low variance separate classes.
_ACCURACY_SLACK, _KERNEL_ACCURACY_SLACK = 0.02, 0.005
# With one row per class nothing tells the scatter within classes from that of all rows. Penalty in
# units of the one by which Ledoit and Wolf estimate the latter best: 10 to 100 times that are
# nearly as accurate, on held-out training rows of five data sets.
_SINGLE_ROW_FACTOR, _LEDOIT_WOLF_ROWS = 30.0, 4096
# Least penalty on wide rows: a column may vary between classes only.
_MIN_ALPHA = 1e-6
# Lower bound of the variance of class means along a direction, relative to the observed one.
_MIN_BETWEEN = 1e-3
_ITQ_ROUNDS, _ITQ_BITS = 30, 512  # fewer rounds with more bits: same accuracy, in seconds
# Share of the previous rotation in the next one, which matters only where codes do not determine
# it: if two bits are equal for all classes, one direction would be chosen by rounding.
_ITQ_INERTIA = 1e-3
_MAX_ITQ_MEANS = 8192
_NEAREST_MEANS = 16  # among which neighbours are sought
_MAX_EXACT_DIRECTIONS = 512  # above, the leading directions are found by subspace iteration
# Rows drawn from the sums, by which the kinds of hyperplanes are compared.
_DRAWN_ROWS = 2000
# Root mean square of the scores F where these are fitted to the discriminant: the smaller, the more
# linear is tanh, and the coarser the scores become in 8 bits.
_SPREAD = 0.25
_LEAST_SQUARES_PENALTY = 1e-4
# Nats by which models differ by chance: the first one is taken, so that rounding seldom decides.
_LIKELIHOOD_TOLERANCE = 0.01
_TOWARDS_LARGER = 1e-3  # nats that a temperature e times as high may cost
_NO_INFORMATION = 1e4  # temperature of scores that are all equal, more than any number of bits
#: With more classes than this, closed forms have no biases, and the prior no temperature.
MAX_BIASED_CLASSES = 1024
_PRIOR_COUNT = 10.0
#: Entries per row that must be left where rare columns are dropped.
ENTRIES_LEFT = 8
# Wide rows that stand for unseen ones.
_MAX_UNSEEN = 8192
_MAX_COMPARED_CLASSES = 2048


class Whitening(Protocol):
    """Coordinates in which the scatter within classes is at most the identity.

    Attributes
    ----------
    sums : Sums
    alpha : float, the penalty
    means : (C, k) float32, class means, shrunken by how few rows they come from
    within : (k,) standard deviation within classes along each coordinate
    between : (k,) variance of the class means along each coordinate
    noise : (k,) variance of the mean of one row along each coordinate
    unknown : (C,) share of the variance of a class mean that its rows do not determine
    temperature : float, variance within classes of rows that were not seen
    """

    sums: Sums
    temperature: float
    alpha: float
    means: NDArray[np.float32]
    within: NDArray[np.float64]
    between: NDArray[np.float64]
    noise: NDArray[np.float64]
    unknown: NDArray[np.float64]

    def draw(
        self, y: NDArray[np.intp], random: np.random.Generator, *, unseen: bool = False
    ) -> NDArray[np.float32]:
        """Rows (m, k) of the classes `y`, normal with the class means and the scatter within.

        If they are to be like `unseen` rows, the class means vary as much as they are unknown.
        """

    def hash_function(self, Q: NDArray[Any], t: NDArray[Any]) -> HashFunction:
        """The hash function of untransformed rows for a projection Q (k, r) of the coordinates."""


# -------------------------------------------------------------------------------------------------
# Whitening
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Penalty:
    """A penalty on the scatter within classes.

    Attributes
    ----------
    alpha : float, in units of the mean variance
    own_units : bool, whether it is added in the features' own units, or to standardised features
    likelihood, accuracy : float, of rows that were left out one by one
    temperature : float, variance of such rows within classes
    noise : variance of a whitened row, and in how many directions
    """

    alpha: float
    own_units: bool
    likelihood: float = -math.inf
    accuracy: float = 0.0
    temperature: float = 1.0
    noise: tuple[float, float] = (1.0, 1.0)


class _Scatter:
    """Scatter within classes of dense rows, and the class means.

    Attributes
    ----------
    within : (d, d) covariance within classes, in the units of the sums
    mass_within : float, mass of the rows less what determines the class means
    means : (C, d) class means, less their average
    centre : (d,) average of the class means
    """

    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        n_classes, total = len(sums.classes), sums.total
        means = sums.feature_sums / sums.mass[:, None]
        self.centre = means.mean(axis=0)
        # From centred sums, in which fewer digits cancel.
        shift = sums.mean
        self.variances = np.maximum(np.diag(sums.gram) / total - shift**2, 1e-30)
        # A mean of n rows takes 1 / n of their scatter.
        self.mass_within = float(sums.mass @ (1.0 - 1.0 / np.maximum(sums.rows_per_class, 1.0)))
        between = math.sqrt(total) * shift[None]
        within = np.zeros_like(sums.gram)
        if self.mass_within < 0.5 * total / n_classes:
            # With one row per class there is no scatter within: that of all rows takes its place.
            self.mass_within = total
        else:
            for part in class_blocks(n_classes):
                of_means = (means[part] - shift) * np.sqrt(sums.mass[part])[:, None]
                add_gram(np.concatenate([between, of_means]), within)
                between = between[:0]
        add_gram(between, within)
        np.subtract(sums.gram, within, out=within)
        within /= self.mass_within
        constant = sums.constant
        within[constant] = 0.0
        within[:, constant] = 0.0
        np.fill_diagonal(within, np.maximum(np.diag(within), 1e-9 * self.variances))
        self.within, self.constant = within, constant
        means -= self.centre
        means[:, constant] = 0.0
        self.means = means

    def penalties(self, own_units: bool) -> NDArray[np.float64]:
        """Penalty (d,) on each feature for alpha = 1.

        It is the mean variance within classes, in the features' own units or relative to the
        variance of each feature.
        """
        units = self.sums.scale**2 if own_units else 1.0 / self.variances
        usable = ~self.constant
        if not usable.any():
            return np.ones(len(units))
        units = units / units[usable].max()  # their squares may be very small numbers
        n_features = self.sums.span_of or np.count_nonzero(usable)
        mean = float((np.diag(self.within) * units)[usable].sum() / n_features)
        return np.where(usable, max(mean, 1e-30) / units, 1.0)

    @cached_property
    def between(self) -> NDArray[np.float64]:
        """Scatter (d, d) of the class means, each of which counts as much."""
        return _square(self.means)

    def factor(self, alpha: float, own_units: bool) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Lower Cholesky factor L of the penalised scatter, and the penalty D (d,) on its diagonal.

        The scatter within classes of whitened rows is then I - L^-1 D L^-T. The factor is float32,
        as is all that is computed with it, unless the penalty is small or products of features in
        very different units exceed that.
        """
        penalty = self.penalties(own_units)
        sizes = np.diag(self.within) + alpha * penalty
        in_float32 = alpha >= _FLOAT32_ALPHA and sizes.min() > 1e-15 and sizes.max() < 1e15
        dtype = np.float32 if in_float32 else np.float64
        for _ in range(8):  # rounding of the sums may exceed a small penalty
            penalised = self.within.astype(dtype)
            np.fill_diagonal(penalised, np.diag(self.within) + alpha * penalty)
            try:
                return cholesky(penalised, overwrite=True), alpha * penalty
            except np.linalg.LinAlgError:
                alpha = 10.0 * max(alpha, 1e-8)
        raise ValueError("X: the sums over the rows are not those of real numbers")


class DenseWhitening:
    """Whitening of dense rows: ``a = A'(z - centre)``; see `Whitening`.

    Attributes
    ----------
    transform : (d, k) float64, the matrix A
    centre : (d,)
    """

    def __init__(
        self,
        scatter: _Scatter,
        penalty: Penalty,
        n_directions: int,
        n_extra: int,
    ) -> None:
        sums = self.sums = scatter.sums
        self.temperature, self.centre = penalty.temperature, scatter.centre
        self.alpha, self.own_units = penalty.alpha, penalty.own_units
        factor, added = scatter.factor(penalty.alpha, penalty.own_units)
        basis = _directions(scatter, factor, n_directions)
        q = basis.shape[1]
        if n_extra:
            basis = _with_extra(basis, factor, added, n_extra)
        transform = solve_triangular(factor, basis, transposed=True)
        self.covariance = _whitened_scatter(basis, transform, added).astype(np.float64)
        transform[scatter.constant] = 0.0
        self.within = np.sqrt(np.maximum(np.diag(self.covariance), 1e-12))
        means = product(scatter.means.astype(factor.dtype, copy=False), transform[:, :q])
        self.transform, means = transform.astype(np.float64), means.astype(np.float64)
        signs_of_axes = _signs_of_axes(means)
        means *= signs_of_axes
        self.transform[:, :q] *= signs_of_axes
        self.covariance[:q] *= signs_of_axes[:, None]
        self.covariance[:, :q] *= signs_of_axes
        k = basis.shape[1]
        self.between, self.noise = np.zeros(k), np.ones(k)
        self.means = np.zeros((len(means), k), dtype=np.float32)
        self.noise[:q] = _noise_along_means(len(means), *penalty.noise, q)
        self.between[:q], self.means[:, :q], self.unknown = _shrunken_means(
            means, sums.rows_per_class, self.noise[:q]
        )

    @cached_property
    def _transform32(self) -> NDArray[np.float32]:
        return np.asarray(self.transform, dtype=np.float32)

    @cached_property
    def _root(self) -> NDArray[np.float32]:
        return np.asarray(_root(self.covariance).T, dtype=np.float32)

    def rows(self, X: Features, chosen: slice | NDArray[np.intp]) -> NDArray[np.float32]:
        """Coordinates (m, k) float32 of some rows of X."""
        Z = self.sums.features(X, chosen)
        Z -= self.centre.astype(Z.dtype)
        return product(Z.astype(np.float32, copy=False), self._transform32)

    def draw(
        self, y: NDArray[np.intp], random: np.random.Generator, *, unseen: bool = False
    ) -> NDArray[np.float32]:
        """Rows (m, k) of the classes `y`, normal with the class means and the scatter within."""
        return _around_means(self, self.draw_noise(len(y), random), y, random, unseen)

    def draw_noise(self, m: int, random: np.random.Generator) -> NDArray[np.float32]:
        """Normal rows (m, k) of mean 0 with the scatter within classes."""
        root = self._root
        return product(random.standard_normal((m, len(root)), dtype=np.float32), root)

    def hash_function(self, Q: NDArray[Any], t: NDArray[Any]) -> HashFunction:
        """The hash function of untransformed rows for a projection Q (k, r) of the coordinates."""
        sums = self.sums
        P = (self.transform @ Q.astype(np.float64)) / sums.scale[:, None]
        P[sums.constant] = 0.0
        projection = np.ascontiguousarray(P, dtype=np.float32)
        centre = sums.shift + self.centre * sums.scale
        # From the rounded projection, so that rounding does not shift the scores of the mean.
        intercept = t.astype(np.float64) - centre @ projection.astype(np.float64)
        mean = sums.shift + sums.mean * sums.scale
        variance = np.diag(sums.gram) / sums.total - sums.mean**2
        deviation = np.sqrt(np.where(sums.constant, 1.0, variance)) * sums.scale
        return HashFunction(
            projection,
            intercept,
            centre=mean.astype(np.float32),
            scale=deviation.astype(np.float32),
            # Coordinates of a span are not rounded where its model is used.
            precision="int8" if sums.anchors is None and sums.span_of is None else "float32",
            anchors=sums.anchors,
        )


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lower Cholesky factor of a covariance, which may be singular up to rounding."""
    floor = 1e-7 * float(np.mean(np.diag(covariance))) + 1e-30
    for _ in range(8):
        floored = covariance.copy()
        floored[np.diag_indices_from(floored)] += floor
        try:
            return cholesky(floored)
        except np.linalg.LinAlgError:
            floor *= 10.0
    return np.diag(np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def _signs_of_axes(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Signs (q,) with which the first of the outermost class means (C, q) is positive on each axis.

    Those of eigenvectors depend on rounding and on the order of the features; the random numbers of
    drawn rows are assigned to axes.
    """
    means = means[:_MAX_COMPARED_CLASSES]
    sizes = np.abs(means)
    outermost = np.argmax(sizes >= 0.999 * sizes.max(axis=0), axis=0)
    return np.where(means[outermost, np.arange(means.shape[1])] < 0, -1.0, 1.0)


def _whitened_scatter(
    basis: NDArray[Any], along: NDArray[Any], added: NDArray[np.float64]
) -> NDArray[Any]:
    """Scatter within classes (k, k) along whitened directions (d, k); see `_Scatter.factor`."""
    return product(basis.T, basis) - product(along.T, along * added.astype(along.dtype)[:, None])


def _directions(scatter: _Scatter, factor: NDArray[Any], q: int) -> NDArray[Any]:
    """Orthonormal basis (d, q) of the directions in which whitened class means vary most.

    Parameters
    ----------
    scatter : _Scatter
    factor : (d, d), see `_Scatter.factor`
    q : int, number of directions; there are as many as features and one less than classes at most
    """
    n_classes, d = scatter.means.shape
    q = min(q, n_classes - 1, d)
    if n_classes > d:
        between = solve_triangular(factor, scatter.between)
        return _leading(solve_triangular(factor, between.T), q)[1]
    white = solve_triangular(factor, scatter.means.T).T
    vectors, sizes = _axes_of_means(white, q)
    return _orthonormal(product(white.T, vectors / sizes))


def _axes_of_means(white: NDArray[Any], q: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Leading left singular vectors (C, q) and singular values (q,) of whitened class means."""
    values, vectors = _leading(product(white, white.T), q)
    # Up to rounding, and 0 where means do not vary.
    return vectors, np.sqrt(np.maximum(values, np.finfo(values.dtype).eps * values[:1] + 1e-30))


def _leading(matrix: NDArray[Any], q: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Largest eigenvalues (q,), and eigenvectors (k, q), of a symmetric matrix (k, k)."""
    k = len(matrix)
    if k > _MAX_EXACT_DIRECTIONS and 4 * q < 3 * k:
        random = np.random.default_rng(0)
        found = random.standard_normal((k, q + 16)).astype(matrix.dtype)
        for _ in range(3):
            found = _orthonormal(product(matrix, found))
        values, vectors = _leading(product(found.T, product(matrix, found)), q)
        return values, product(found, vectors)
    if 3 * q < k:
        values, vectors = scipy.linalg.eigh(
            matrix, subset_by_index=(k - q, k - 1), check_finite=False
        )
    else:  # all are found sooner than most
        values, vectors = scipy.linalg.eigh(matrix, driver="evd", check_finite=False)
    return values[::-1][:q], vectors[:, ::-1][:, :q]


def _square(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    square = np.zeros((matrix.shape[1], matrix.shape[1]))
    add_gram(matrix, square)
    return square


def _orthonormal(matrix: NDArray[Any]) -> NDArray[Any]:
    """Orthonormal basis of the columns of a matrix (d, k)."""
    try:
        for _ in range(2):  # twice, since the square of a matrix has half of its digits
            matrix = solve_triangular(cholesky(product(matrix.T, matrix)), matrix.T).T
    except np.linalg.LinAlgError:  # nearly dependent columns
        matrix = scipy.linalg.qr(matrix, mode="economic", check_finite=False)[0]
    return np.asarray(matrix)


def _with_extra(
    basis: NDArray[Any],
    factor: NDArray[Any],
    added: NDArray[np.float64],
    n_extra: int,
) -> NDArray[Any]:
    """Basis extended by the directions of largest variance, found by subspace iteration."""
    d, q = basis.shape
    n_extra = min(n_extra, d - q)
    if n_extra <= 0:
        return basis
    if q + n_extra == d:
        found: Any = np.random.default_rng(0).standard_normal((d, n_extra))
    else:
        found = np.random.default_rng(0).standard_normal((d, min(n_extra + 16, d - q)))
        # Rough directions need no more digits.
        basis32, factor32 = (part.astype(np.float32, copy=False) for part in (basis, factor))
        found, added32 = found.astype(np.float32), added.astype(np.float32)[:, None]
        for _ in range(3):
            found -= product(basis32, product(basis32.T, found))
            along = solve_triangular(factor32, found, transposed=True)
            found = _orthonormal(found - solve_triangular(factor32, along * added32))
    found = found.astype(basis.dtype)
    found -= product(basis, product(basis.T, found))
    found = _orthonormal(found)
    along = solve_triangular(factor, found, transposed=True)
    _, vectors = scipy.linalg.eigh(_whitened_scatter(found, along, added), check_finite=False)
    return np.concatenate([basis, product(found, vectors[:, ::-1][:, :n_extra])], axis=1)


def _noise_along_means(
    n_classes: int, variance: float, n_noisy: float, q: int
) -> NDArray[np.float64]:
    """Variance of noise along the leading directions (q,) of class means.

    The directions are those in which the means vary most, and so does their noise: that of all
    dimensions is found in C - 1 directions, unevenly. With noise in D dimensions the variances
    along them follow the law of Marchenko and Pastur for the ratio D / (C - 1).
    """
    n = max(n_classes - 1, 1)
    ratio = n_noisy / n
    angles = np.pi * (np.arange(1024) + 0.5) / 1024
    values = 1.0 + ratio + 2.0 * math.sqrt(ratio) * np.cos(angles)  # from the largest
    mass = np.cumsum(np.sin(angles) ** 2 / np.maximum(values, 1e-12))
    places = (np.arange(q) + 0.5) / min(n, n_noisy)
    return variance * np.interp(places, mass / mass[-1], values)


def _shrunken_means(
    means: NDArray[np.float64], n: NDArray[np.float64], noise: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float64]]:
    """Class means (C, q) shrunken by empirical Bayes, as in probabilistic LDA.

    Along direction j the means of classes vary by b_j, the observed variance less the noise
    ``noise_j / n_c`` of a mean of n_c rows. Such a mean is multiplied by
    ``n_c b_j / (noise_j + n_c b_j)``.

    Returns
    -------
    between : (q,) the variances b_j
    shrunken : (C, q)
    unknown : (C,) share of the variance of each class mean that its rows do not determine
    """
    n_classes = len(means)
    observed = np.einsum("cq,cq->q", means, means) / max(n_classes - 1, 1)
    counts = np.maximum(n, 1e-9)
    if n.max() <= 1.0 + 1e-9:  # one row per class: the scatter includes that of the means
        observed = np.maximum(observed, 1e-30)
        return observed, means.astype(np.float32), np.full(n_classes, 0.5)
    lowest = np.maximum(_MIN_BETWEEN * observed, 1e-30)
    # Classes with as many rows are as well known: their squares are added up once.
    counts, which, n_equal = np.unique(counts, return_inverse=True, return_counts=True)
    n, n_equal = counts[:, None], n_equal[:, None]
    squares = np.zeros((len(counts), len(observed)))
    for part in class_blocks(n_classes):
        class_sums(means[part] ** 2, which[part], None, squares)
    between = observed
    for _ in range(3):  # each class counts by how well its mean is known
        share = n / (noise + n * between)
        found = np.einsum("cq,cq->q", share, squares - n_equal * noise / n)
        found /= (n_equal * share).sum(axis=0)
        between = np.maximum(found * (n_classes / max(n_classes - 1, 1)), lowest)
    known = n * between / (noise + n * between)
    shrunken = np.empty(means.shape, dtype=np.float32)
    for part in class_blocks(n_classes):
        shrunken[part] = means[part] * known[which[part]]
    unknown = (1.0 - known @ between / between.sum())[which]
    return between, shrunken, unknown


def _around_means(
    whitening: Whitening,
    noise: NDArray[np.float32],
    y: NDArray[np.intp],
    random: np.random.Generator,
    unseen: bool,
) -> NDArray[np.float32]:
    """Class means plus noise (m, k), and the variance of the means that rows do not determine."""
    if unseen:  # rows that were not seen scatter more
        scatter = _scatter_along_means(whitening)
        noise *= np.float32(math.sqrt(max(whitening.temperature / scatter, 1.0)))
    noise += whitening.means[y]
    if unseen:
        n, between = whitening.sums.rows_per_class[y, None], whitening.between
        variance = between * whitening.noise / (whitening.noise + n * between)
        drawn = random.standard_normal(noise.shape, dtype=np.float32)
        noise += drawn * np.sqrt(variance).astype(np.float32)
    return noise


def _scatter_along_means(whitening: Whitening) -> float:
    """Variance of rows within classes, on average over the directions in which means differ."""
    between, within = whitening.between, whitening.within**2
    return float(np.average(within, weights=between / (between + within) + 1e-30))


class Whitenings:
    """Whitening by the scatter of the sums, for the closed form and for refinement.

    Each is computed when it is first asked for: often only one is.

    Parameters
    ----------
    sums : Sums, every class of which has rows
    rows : Sample of the summed rows
    settings : Settings
    penalties : of both, chosen by leave-one-out if they are not given
    """

    def __init__(
        self, sums: Sums, rows: Sample, settings: Settings, penalties: Penalties | None = None
    ) -> None:
        self._sums, self._rows, self._settings = sums, rows, settings
        self._given = penalties
        self._n_directions = settings.n_bits + _EXTRA_DIRECTIONS

    @cached_property
    def _scatter(self) -> _Scatter:
        return _Scatter(self._sums)

    @cached_property
    def penalties(self) -> Penalties:
        """Penalties for the closed form and for refinement."""
        if self._given is not None:
            return self._given
        alpha = self._settings.alpha
        if self._sums.wide:
            penalty = Penalty(_WIDE_ALPHA if alpha is None else alpha, own_units=False)
            return penalty, penalty
        is_refined = bool(self._settings.refine) and self._n_extra > 0
        return _choose_penalties(self._scatter, self._rows, alpha, is_refined)

    @cached_property
    def closed(self) -> Whitening:
        """For the closed form."""
        if self._sums.wide:
            alpha = self.penalties[0].alpha
            return WideWhitening(self._sums, alpha, self._rows, self._settings.n_bits)
        return DenseWhitening(self._scatter, self.penalties[0], self._n_directions, 0)

    @cached_property
    def start(self) -> Whitening:
        """For refinement: with directions beyond those of the class means, if rows tell them."""
        if self._n_extra == 0:
            return self.closed
        return DenseWhitening(self._scatter, self.penalties[1], self._n_directions, self._n_extra)

    @cached_property
    def _n_extra(self) -> int:
        """Number of directions for refinement beyond those of the class means."""
        sums, has_anchors = self._sums, self._settings.kernel
        # Means of very many classes vary in all directions: none is left to add.
        if sums.wide or (len(sums.classes) > _MAX_COMPARED_CLASSES and not has_anchors):
            return 0
        if has_anchors:
            return len(sums.shift)
        n_left = self._n_directions - min(len(sums.classes) - 1, len(sums.shift))
        n_within = sums.effective_rows * self._scatter.mass_within / sums.total
        return max(0, min(n_left, int(n_within) // _ROWS_PER_EXTRA_DIRECTION))


#: Penalties for the closed form and for refinement.
Penalties = tuple[Penalty, Penalty]


def _choose_penalties(
    scatter: _Scatter, rows: Sample, alpha: float | None, is_refined: bool
) -> Penalties:
    """Penalties that leave-one-out prefers.

    The closed form wants the one of the highest likelihood. Refinement makes up for a larger one,
    and works better in coordinates that noise does not fill: it gets the largest one that is nearly
    as accurate.

    Parameters
    ----------
    scatter : _Scatter
    rows : Sample of the summed rows
    alpha : float, or None to choose it
    is_refined : bool, whether the second penalty is wanted
    """
    sums = scatter.sums
    y = np.searchsorted(sums.classes, rows.labels)
    usable = np.flatnonzero(sums.rows_per_class[y] > 1.0 + 1e-9)
    if len(usable) < 2:  # one row per class
        if alpha is None:
            some = np.arange(len(rows))[:_LEDOIT_WOLF_ROWS]
            Z = sums.features(rows.X, some if rows.rows is None else rows.rows[some])
            n_features = sums.span_of or len(sums.shift)
            alpha = _SINGLE_ROW_FACTOR * _ledoit_wolf((Z - sums.mean) * sums.scale, n_features)
        fixed = Penalty(alpha, own_units=True)
        return fixed, fixed
    some = usable[sample_rows(len(usable), _LEAVE_ONE_OUT_ROWS)]
    Z = sums.features(rows.X, some if rows.rows is None else rows.rows[some])
    Z = Z.astype(np.float64) - scatter.centre
    Z[:, scatter.constant] = 0.0
    weights = rows.weights[some]
    tried: dict[tuple[float, bool], Penalty] = {}

    def attempt(alpha: float, own_units: bool) -> Penalty:
        key = alpha, own_units
        if key not in tried:
            tried[key] = leave_one_out(scatter, *key, Z, y[some], weights)
        return tried[key]

    first = FIRST_ALPHA if sums.anchors is None else _FIRST_KERNEL_ALPHA
    first = first if alpha is None else alpha
    ratios = (scatter.penalties(True) / scatter.penalties(False))[~scatter.constant]
    is_alike = len(ratios) == 0 or ratios.max() < _UNITS_ALIKE * ratios.min()
    units = (True,) if sums.span_of is not None or is_alike else (True, False)
    chosen, *others = [attempt(first, own) for own in units]
    for other in others:
        chosen = _likelier(chosen, other)
    if alpha is not None:
        return chosen, chosen
    for step in (1, -1):  # uphill from there
        before, place = chosen, ALPHAS.index(chosen.alpha) + step
        while 0 <= place < len(ALPHAS):
            other = attempt(ALPHAS[place], chosen.own_units)
            if _likelier(chosen, other) is chosen:
                break
            chosen, place = other, place + step
        if chosen is not before:  # the other way is downhill
            break
    largest = chosen
    slack = _ACCURACY_SLACK if sums.anchors is None else _KERNEL_ACCURACY_SLACK
    for candidate in ALPHAS[ALPHAS.index(chosen.alpha) + 1 :] if is_refined else ():
        more = attempt(candidate, chosen.own_units)
        if more.accuracy < chosen.accuracy - slack:
            break
        largest = more
    return chosen, largest


def _likelier(one: Penalty, other: Penalty) -> Penalty:
    """The other penalty if it is clearly better."""
    return other if other.likelihood > one.likelihood + MIN_GAIN else one


def _ledoit_wolf(X: NDArray[Any], n_features: int) -> float:
    """Penalty that estimates the covariance of rows best, in units of the mean variance.

    Parameters
    ----------
    X : (n, d) centred rows
    n_features : int, number of features, of which these may be coordinates of a subspace
    """
    X = X.astype(np.float64)
    squares = np.einsum("nd,nd->n", X, X)
    n, trace = len(X), float(squares.mean())
    of_covariance = float(np.sum(product(X, X.T) ** 2)) / n**2
    error = (float(np.mean(squares**2)) - of_covariance) / n
    distance = max(of_covariance - trace**2 / n_features, 1e-12 * of_covariance, 1e-300)
    share = min(error / distance, 0.99)
    return share / (1.0 - share)


def leave_one_out(
    scatter: _Scatter,
    alpha: float,
    own_units: bool,
    Z: NDArray[np.float64],
    y: NDArray[np.intp],
    weights: NDArray[np.float64],
) -> Penalty:
    """Likelihood of rows, each scored by the discriminant that has not seen it.

    Without row i, whose deviation from its class mean is r, the scatter changes by a matrix of rank
    one and the class mean by ``-r w / (mass - w)``: the exact scores cost one product. The
    likelihood is that at the best temperature, the factor by which unseen rows scatter more. Class
    means are shrunken as in `_shrunken_means`, with variances b_j that include the row.

    Parameters
    ----------
    scatter : _Scatter, of all rows
    alpha : float
    own_units : bool
    Z : (m, d) rows, centred
    y : (m,) index of each row's class
    weights : (m,) sample weights
    """
    n = scatter.sums.rows_per_class
    classes = np.arange(len(n))
    if len(classes) > max(_LEAVE_ONE_OUT_CLASSES, Z.shape[1]):
        # The true classes, and a sample of the others.
        step = len(classes) // _LEAVE_ONE_OUT_CLASSES
        classes = np.unique(np.concatenate([y, classes[::step]]))
    factor, _ = scatter.factor(alpha, own_units)
    white = solve_triangular(factor, scatter.means[classes].T).T
    A = solve_triangular(factor, Z.T).T
    place = np.searchsorted(classes, y)
    r = A - white[place]
    rr = np.einsum("md,md->m", r, r).astype(np.float64)
    ar = np.einsum("md,md->m", A, r).astype(np.float64)
    level, n_noisy = _noise_of_rows(r, rr, y, n[y])
    means, Aq = _along_means(scatter, factor, white, A)
    n_y, n = n[y], n[classes]
    noise = _noise_along_means(len(scatter.means), level, n_noisy, means.shape[1])
    between, shrunken, _ = _shrunken_means(means.astype(np.float64), n, noise)
    sums, mass = scatter.sums, scatter.sums.mass[y]
    change = weights / np.maximum(mass - weights, 1e-9 * mass)
    left = np.maximum(n_y * (1.0 - weights / mass), 1e-9)
    w = change * mass / scatter.mass_within
    gain = w / np.maximum(1.0 - w * rr, 1e-9)
    rq = Aq - means[place]
    M = shrunken.astype(factor.dtype)
    # Scores (m, C), and what the row's own share of the scatter changes in them.
    scores, across = product(Aq, M.T), product(rq, M.T)
    scores -= 0.5 * np.einsum("cq,cq->c", M, M)
    changes = across * factor.dtype.type(-0.5)
    changes += ar[:, None].astype(factor.dtype)
    changes *= across
    changes *= gain[:, None].astype(factor.dtype)
    scores += changes
    # The mean of the row's own class, without the row. Part of it lies outside the directions of
    # the class means; it is noise, and shrunken like that along an average direction.
    Aq, rq = Aq.astype(np.float64), rq.astype(np.float64)
    known = left[:, None] * between
    known /= noise + known
    mine = (means[place] - rq * change[:, None]) * known
    outside = np.maximum(rr - np.einsum("mq,mq->m", rq, rq), 0.0)
    rest = -known.mean(axis=1) * change
    am = np.einsum("mq,mq->m", Aq, mine) + rest * outside
    mm = np.einsum("mq,mq->m", mine, mine) + rest**2 * outside
    mr = np.einsum("mq,mq->m", mine, rq) + rest * outside
    scores[np.arange(len(y)), place] = am - 0.5 * mm + gain * (ar * mr - 0.5 * mr**2)
    log_shares = np.log(sums.mass[classes] / sums.total)
    temperature, likelihood, accuracy = best_temperature(scores, place, weights, log_shares)
    return Penalty(alpha, own_units, likelihood, accuracy, temperature, (level, n_noisy))


def _along_means(
    scatter: _Scatter, factor: NDArray[Any], white: NDArray[Any], A: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Whitened class means and rows A (m, d) along the leading directions of the means."""
    n_classes, d = scatter.means.shape
    if n_classes > d:
        basis = _directions(scatter, factor, _LEAVE_ONE_OUT_DIRECTIONS)
        return product(white, basis), product(A, basis)
    # From products with the means, without a basis of the directions.
    vectors, sizes = _axes_of_means(white, min(_LEAVE_ONE_OUT_DIRECTIONS, n_classes - 1))
    return vectors * sizes, product(product(A, white.T), vectors / sizes)


def _noise_of_rows(
    r: NDArray[np.float64], rr: NDArray[np.float64], y: NDArray[np.intp], n: NDArray[np.float64]
) -> tuple[float, float]:
    """Variance of whitened rows about their class means, and in how many directions.

    Parameters
    ----------
    r : (m, d), the differences, and `rr` their squared lengths
    y, n : (m,) the class of each row, and how many rows it has
    """
    unbiased = n / np.maximum(n - 1.0, 0.5)  # a mean is near its own rows
    trace = max(float(np.mean(rr * unbiased)), 1e-30)
    others = r[:_NOISE_ROWS]
    products = product(r, others.T)[y[:, None] != y[: len(others)]]
    squares = float(np.mean(products**2)) * float(np.mean(unbiased)) ** 2 if len(products) else 0.0
    n_noisy = float(np.clip(trace**2 / max(squares, 1e-300), 1.0, r.shape[1]))
    return trace / n_noisy, n_noisy


def best_temperature(
    scores: NDArray[Any],
    y: NDArray[np.intp],
    weights: NDArray[np.float64] | None = None,
    log_shares: NDArray[np.float64] | float = 0.0,
    least: float = 0.0,
) -> tuple[float, float, float]:
    """Temperature at which rows are most likely, their mean log-likelihood, and their accuracy.

    Parameters
    ----------
    scores : (m, C)
    y : (m,) index of each row's class
    weights : (m,), optional
    log_shares : (C,), optional, logarithms of the shares of the classes
    least : float, lower bound
    """
    gaps = (scores - scores.max(axis=1, keepdims=True)).astype(np.float32, copy=False)
    shares = np.zeros(scores.shape[1], np.float32)
    shares += np.float32(log_shares)
    unit = max(-float(gaps.mean()), 1e-30)

    def loss(log_temperature: float) -> float:
        inverse = math.exp(-log_temperature) / unit
        found = log_probabilities(gaps, y, shares, inverse)
        return -float(np.average(found.astype(np.float64), weights=weights))

    low = max(-24.0, math.log(max(least / unit, 1e-30)))
    # Rows that are all right have no most likely temperature: the largest one that is as likely.
    best = scipy.optimize.minimize_scalar(
        lambda x: loss(x) - _TOWARDS_LARGER * x,
        bounds=(low, max(low + 1.0, 5.0)),
        method="bounded",
        options={"xatol": 0.05},
    )
    likelihood = -loss(float(best.x))
    gaps *= np.float32(math.exp(-float(best.x)) / unit)
    gaps += shares
    accuracy = np.average(gaps.argmax(axis=1) == y, weights=weights)
    temperature = unit * math.exp(float(best.x))
    if unit < 1e-12:  # the scores say nothing: the shares decide
        temperature = _NO_INFORMATION
    return temperature, likelihood, float(accuracy)


class WideWhitening:
    """Whitening of wide rows by the diagonal of the scatter within classes; see `Whitening`.

    Its coordinates are the leading directions of the sparse class means. Refinement works on the
    columns themselves, each divided by its size where it occurs: steps are then of the same size
    for rare and for frequent columns.

    Attributes
    ----------
    columns : (k,) int32, columns that are kept
    sizes : (k,) float32, root mean square of each column over the rows in which it is not 0
    basis : (k, q) float32, directions, for columns divided by their sizes
    centre : (q,), coordinates of the average of the class means
    sparse : bool, whether rows are sparse; refinement of dense ones works on the coordinates
    """

    def __init__(self, sums: Sums, alpha: float, rows: Sample, n_bits: int) -> None:
        self.sums, self.alpha, self.temperature = sums, alpha, 1.0
        self.sparse = not isinstance(rows.X, np.ndarray)
        columns = self.columns = _kept_columns(sums)
        n, total, n_rows = sums.rows_per_class, sums.total, sums.effective_rows
        of_classes = sp.csr_array(sums.feature_sums)[:, columns]
        means = sp.csr_array(sp.diags_array(1.0 / sums.mass) @ of_classes)
        squares = sums.squares[columns] / total
        between = np.asarray(means.multiply(of_classes).sum(axis=0)).ravel() / total
        within = np.maximum(squares - between, 0.0) * n_rows / max(n_rows - len(n), 1.0)
        if sums.has_single_rows:
            # With one row per class there is no scatter within: that of all rows takes its place.
            within = squares
        present = np.maximum(sums.counts[columns], 1.0) / max(sums.n_rows, 1)
        sizes = np.sqrt(np.where(squares > 0, squares / present, 1.0))
        relative = float(np.mean(within / sizes**2)) or 1.0
        factors = 1.0 / np.sqrt(within + max(alpha, _MIN_ALPHA) * relative * sizes**2)
        self.sizes = sizes.astype(np.float32)
        means = sp.csr_array(means @ sp.diags_array(factors))
        q = min(len(sums.classes) - 1, len(self.columns), n_bits)
        basis = _sparse_directions(means, q)
        coordinates = means @ basis
        centre = coordinates.mean(axis=0)
        coordinates -= centre
        self._residuals, self._starts = self._unseen(means, factors, basis, coordinates, rows)
        variance = (
            np.mean(self._residuals**2, axis=0)
            if len(self._residuals)
            else np.var(coordinates, axis=0)
        )
        variance = variance.astype(np.float64) + 1e-12
        self.between, self.means, self.unknown = _shrunken_means(coordinates, n, variance)
        self.within, self.noise = np.sqrt(variance), variance
        self.basis = basis * (factors * sizes)[:, None].astype(np.float32)
        self.centre = centre

    def _unseen(
        self,
        class_means: sp.csr_array,
        factors: NDArray[np.float64],
        basis: NDArray[np.float32],
        means: NDArray[np.float64],
        rows: Sample,
    ) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """Deviations (m, q) of rows from their class means as if they had not been summed.

        With more columns than rows, a row is close to its class mean for the most part because it
        is part of it: with n rows, ``|a|^2 / n`` of the product of row and mean is its own. That is
        taken away along the direction in which only this class mean lies.

        Returns
        -------
        deviations : (m, q) sorted by class
        starts : (C + 1,) index of the first one of each class
        """
        sums = self.sums
        y = np.searchsorted(sums.classes, rows.labels)
        n_of = sums.rows_per_class
        usable = np.flatnonzero(n_of[y] > 1.0 + 1e-9)
        some = usable[sample_rows(len(usable), _MAX_UNSEEN)]
        some = some[np.argsort(y[some], kind="stable")]
        X = sp.csr_array(rows.features(some)[:, self.columns], dtype=np.float64)
        y, X = y[some], X @ sp.diags_array(factors)
        centre = np.asarray(class_means.mean(axis=0)).ravel()
        A = X @ basis - centre @ basis
        w = rows.weights[some] * (n_of / sums.mass)[y]
        squares = (
            np.asarray(X.multiply(X).sum(axis=1)).ravel() - 2.0 * (X @ centre) + centre @ centre
        )
        excess = w * (squares - np.einsum("mq,mq->m", A, means[y])) / np.maximum(n_of[y] - w, 1e-9)
        gram = means.T @ means
        gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram) + 1e-30
        A -= excess[:, None] * scipy.linalg.solve(gram, means[y].T, assume_a="pos").T
        A -= means[y]
        return A.astype(np.float32), np.searchsorted(y, np.arange(len(n_of) + 1))

    def draw(
        self, y: NDArray[np.intp], random: np.random.Generator, *, unseen: bool = False
    ) -> NDArray[np.float32]:
        """Rows (m, k) of the classes `y`: class means, plus deviations of rows of the classes."""
        n_all = len(self._residuals)
        if n_all == 0:
            noise = random.standard_normal((len(y), len(self.within)), dtype=np.float32)
            return _around_means(self, noise * self.within.astype(np.float32), y, random, unseen)
        first, n_own = self._starts[y], np.diff(self._starts)[y]
        any_row = random.integers(n_all, size=len(y))
        chosen = np.where(n_own > 0, first + any_row % np.maximum(n_own, 1), any_row)
        return np.asarray(self.means[y] + self._residuals[chosen])

    def rows(self, X: Features, chosen: slice | NDArray[np.intp]) -> NDArray[np.float32]:
        """Coordinates (m, q) float32 of some rows of X."""
        found: NDArray[np.float32] = (X[chosen][:, self.columns] / self.sizes) @ self.basis
        found -= self.centre.astype(np.float32)
        return found.astype(np.float32, copy=False)

    def class_rows(self) -> SparseRows:
        """Class means (C, k) as rows for refinement."""
        of_classes = sp.csr_array(self.sums.feature_sums)[:, self.columns]
        means = sp.diags_array(1.0 / self.sums.mass) @ of_classes @ sp.diags_array(1.0 / self.sizes)
        return SparseRows.of(sp.csr_array(means, dtype=np.float32))

    def projection(self, Q: NDArray[Any]) -> NDArray[np.float32]:
        """Projection (k, r) of the columns for a projection Q of the coordinates."""
        return np.ascontiguousarray(self.basis @ Q.astype(np.float32))

    def intercept(self, Q: NDArray[Any], t: NDArray[Any]) -> NDArray[np.float64]:
        """Intercept (r,) of the columns for Q and t of the coordinates."""
        return np.asarray(t - self.centre @ Q)

    def hash_function(self, Q: NDArray[Any], t: NDArray[Any]) -> HashFunction:
        """The hash function of untransformed rows for a projection Q (k, r) of the coordinates."""
        return self.wide_hash_function(self.projection(Q), self.intercept(Q, t))

    def wide_hash_function(self, P: NDArray[np.float32], t: NDArray[Any]) -> HashFunction:
        """The hash function of untransformed rows for a projection of the columns."""
        return HashFunction(
            np.ascontiguousarray(P / self.sizes[:, None]),
            t.astype(np.float64),
            scale=self.sizes,
            precision="int8",
            columns=self.columns,
            n_features=len(self.sums.shift),
        )


def _kept_columns(sums: Sums) -> NDArray[np.int32]:
    """Columns that occur often enough to be learned from.

    A column seen in one row tells its class and nothing else; such columns are dropped only where
    rows have enough others.
    """
    wanted = (2 if sums.n_rows < 10_000 else 3), 2, 1
    left = (sums.counts[sums.counts >= least].sum() / max(sums.n_rows, 1) for least in wanted)
    least = next((one for one, n in zip(wanted, left, strict=True) if n >= ENTRIES_LEFT), 1)
    kept = np.flatnonzero((sums.counts >= least) & (sums.squares > 0))
    return (kept if len(kept) else np.zeros(1)).astype(np.int32)


def _sparse_directions(means: sp.csr_array, q: int) -> NDArray[np.float32]:
    """Directions (k, q) in which sparse class means vary most, by a randomised SVD."""
    random = np.random.default_rng(0)
    sparse = means.astype(np.float32)
    transposed = sp.csr_array(sparse.T)
    centre = np.asarray(means.mean(axis=0)).ravel().astype(np.float32)
    found = random.standard_normal((means.shape[1], min(q + 16, *means.shape)), dtype=np.float32)
    for _ in range(3):
        products = np.linalg.qr(sparse @ found - centre @ found)[0]
        found = transposed @ products - np.outer(centre, products.sum(axis=0))
        found = np.linalg.qr(found)[0]
    products = sparse @ found - centre @ found
    _, vectors = scipy.linalg.eigh(products.T @ products, check_finite=False)
    return np.ascontiguousarray(found @ vectors[:, ::-1][:, :q], dtype=np.float32)


# -------------------------------------------------------------------------------------------------
# Hyperplanes
# -------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Kind of hyperplanes.

    Attributes
    ----------
    planes : "rotation" or "bisectors", how hyperplanes are placed; the class weights are
        the signs of the class means
    scores : "even", "expected" or "discriminant"
        Whether the bit scores F vary as much for all bits, tanh(F) are expected values of the bits,
        or hyperplanes are moved such that the class scores are those of the linear discriminant.
    size : float, optional
        Factor on the scores of the discriminant: computed once from all rows and reused for parts
        of them, so that their calibration applies to the final model.
    """

    planes: str
    scores: str = "even"
    size: float | None = None


_KINDS: tuple[Kind, ...] = (
    Kind("rotation"),
    Kind("rotation", "discriminant"),
    Kind("bisectors", "expected"),
    Kind("bisectors"),
    Kind("bisectors", "discriminant"),
)


@dataclass(frozen=True)
class ClosedForm:
    """Projection, intercept and weights in whitened coordinates.

    Attributes
    ----------
    whitening : Whitening
    Q : (k, r)
    t : (r,)
    weights : (C, r) int8
    bias : (C,) of the class scores
    kind : Kind of hyperplanes
    start : Kind of hyperplanes that refinement starts from
    """

    whitening: Whitening
    Q: NDArray[np.float64]
    t: NDArray[np.float64]
    weights: NDArray[np.int8]
    bias: NDArray[np.float32]
    kind: Kind
    start: Kind


def closed_form(
    whitening: Whitening,
    n_bits: int,
    deviation: float,
    seed: int,
    kind: Kind | None = None,
) -> ClosedForm:
    """Place hyperplanes among the class means; the weights are the signs of the means.

    Rotated axes (ITQ) serve where class means spread in many directions, bisectors of confusable
    pairs where they lie on a line, a curve or a grid. With the weights of either, hyperplanes can
    also be fitted such that the class scores are those of the linear discriminant. Rows drawn from
    the sums tell which is best.

    Parameters
    ----------
    whitening : Whitening
    n_bits : int
    deviation : float
        Standard deviation within classes of the scores F, which tells how soon tanh saturates.
    seed : int
    kind : Kind, optional
        The kind of hyperplanes, if it is known.
    """
    means, random = whitening.means, np.random.default_rng(seed)
    is_single = whitening.sums.has_single_rows
    shares = whitening.sums.mass / whitening.sums.total
    y = random.choice(len(means), _DRAWN_ROWS, p=shares)
    A = whitening.draw(y, random, unseen=True)
    if is_single:  # nothing tells how far rows are from the means
        y, A = np.arange(len(means)), means
    log_shares = np.log(shares)
    # Means of few wide rows lie in all directions: nothing is to be compared.
    is_compared = not isinstance(whitening, WideWhitening) and n_bits > 1
    kinds = _KINDS if is_compared and len(means) <= _MAX_COMPARED_CLASSES else _KINDS[:1]
    if is_single and len(kinds) > 1:
        kinds = tuple(each for each in kinds if each.scores == "discriminant")
    if kind is not None:
        kinds = (kind,)
    tried: list[tuple[float, float, ClosedForm]] = []
    for planes in dict.fromkeys(each.planes for each in kinds):
        place = _rotated if planes == "rotation" else _bisectors
        Q, t = place(whitening, n_bits, random)
        weights = np.empty((len(means), n_bits), dtype=np.int8)
        Q32, t32 = Q.astype(np.float32), t.astype(np.float32)
        for part in class_blocks(len(means)):
            weights[part] = sign(product(means[part], Q32) + t32)
        for each in kinds:
            if each.planes != planes:
                continue
            one, scaled, shift = _scaled(whitening, each, Q, t, weights, deviation)
            bias = np.zeros(len(means), np.float32)
            model = ClosedForm(whitening, scaled, shift, weights, bias, one, Kind(planes))
            is_biased = each.scores == "even" and len(means) <= MAX_BIASED_CLASSES
            if len(kinds) == 1 and not is_biased:
                return model
            scores = _drawn_scores(model, A)
            temperature, likelihood, accuracy = best_temperature(scores, y, None, log_shares)
            if is_biased:
                bias = _drawn_bias(scores, y, temperature, log_shares)
                model = replace(model, bias=bias)
                _, likelihood, accuracy = best_temperature(scores + bias, y, None, log_shares)
            tried.append((accuracy, likelihood, model))
    refinable = [each for each in tried if each[2].kind.scores == "even"] or tried
    likelihood = max(each[1] for each in refinable)
    start = next(each[2].kind for each in refinable if each[1] >= likelihood - MIN_GAIN)
    return replace(_best(tried), start=start)


def _best(tried: list[tuple[float, float, ClosedForm]]) -> ClosedForm:
    """The first of the models that are as accurate and as likely as the best, up to chance."""
    accuracy = max(each[0] for each in tried)
    error = math.sqrt(accuracy * (1.0 - accuracy) / _DRAWN_ROWS)
    good = [each for each in tried if each[0] >= accuracy - error]
    likelihood = max(each[1] for each in good)
    return next(each[2] for each in good if each[1] >= likelihood - _LIKELIHOOD_TOLERANCE)


def _scaled(
    whitening: Whitening,
    kind: Kind,
    Q: NDArray[np.float64],
    t: NDArray[np.float64],
    weights: NDArray[np.int8],
    deviation: float,
) -> tuple[Kind, NDArray[np.float64], NDArray[np.float64]]:
    """Hyperplanes for the wanted kind of scores; see `Kind`."""
    size: Any = score_sizes(whitening, Q, deviation)
    if kind.scores == "expected":
        # Rows that were not seen do not scatter less than those that were.
        size = 1.0 / max(whitening.temperature, _scatter_along_means(whitening), 1e-12)
    elif kind.scores == "discriminant":
        means, shares = whitening.means, whitening.sums.mass / whitening.sums.total
        Q, t = _discriminant(means, weights, single=whitening.sums.has_single_rows)
        size = kind.size
        if size is None:
            square = shares @ (means @ Q + t) ** 2 + whitening.within**2 @ Q**2
            size = _SPREAD / math.sqrt(float(np.mean(square)) + 1e-30)
            kind = kind._replace(size=size)
    return kind, Q * size, t * size + _dither(weights)


def _dither(weights: NDArray[np.int8]) -> NDArray[np.float64]:
    """Offsets (r,) of bits whose weights coincide in every class, less than a rounding step apart.

    Values tanh(F) have 8 bits. Without offsets, equal bits are rounded alike, and tell no more than
    one of them.
    """
    columns = np.packbits(weights.T > 0, axis=1)
    _, group, counts = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    place = np.empty(len(group))
    place[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ((place + 0.5) / counts[group] - 0.5) / 127.0


def score_sizes(whitening: Whitening, Q: NDArray[Any], deviation: float) -> NDArray[np.float64]:
    """Factors (r,) on the columns of Q with which all scores vary as much within classes."""
    return np.asarray(deviation / np.maximum(np.sqrt(whitening.within**2 @ Q**2), 1e-12))


def _drawn_scores(model: ClosedForm, A: NDArray[np.float32]) -> NDArray[np.float32]:
    """Class scores (m, C) of rows (m, k), without the bias."""
    F = A @ model.Q.astype(np.float32) + model.t.astype(np.float32)
    values = np.rint(np.tanh(F) * np.float32(127.0)) / np.float32(127.0)  # as in the kernels
    return np.asarray(values @ model.weights.astype(np.float32).T)


def _drawn_bias(
    scores: NDArray[np.float32],
    y: NDArray[np.intp],
    temperature: float,
    log_shares: NDArray[np.float64],
) -> NDArray[np.float32]:
    """Bias (C,) with which as many drawn rows are assigned to each class as were drawn from it.

    Codes have the same length for all classes: they lack the term that LDA subtracts for distant
    means.
    """
    counts = np.bincount(y, minlength=scores.shape[1])
    bias = np.zeros(scores.shape[1], dtype=np.float32)
    for _ in range(4):
        logits = scores / np.float32(temperature) + (bias + log_shares.astype(np.float32))
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        bias += np.log((counts + _PRIOR_COUNT) / (logits.sum(axis=0) + _PRIOR_COUNT))
    return np.asarray((bias - bias.mean()) * np.float32(temperature), dtype=np.float32)


def _discriminant(
    means: NDArray[np.float32], weights: NDArray[np.int8], *, single: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q (k, r) and t (r,) whose class scores ``W(Q'a + t)`` are those of the linear discriminant.

    These are ``m_c.a - |m_c|^2 / 2``, up to a number that is the same for all classes. With more
    bits than classes they are met exactly, and Q and t are the least ones that do so; otherwise
    they are met in the mean of squares. The length of a single row is largely noise: if classes
    have one row each, only its root counts, and the second term is left out.
    """
    M = means.astype(np.float64)
    squares = np.einsum("ck,ck->c", M, M)
    if single:
        M *= (squares.mean() / np.maximum(squares, 1e-300))[:, None] ** 0.25
        squares[:] = 0.0
    wanted = np.concatenate([M, -0.5 * squares[:, None]], axis=1)
    wanted -= wanted.mean(axis=0)
    W = weights - weights.mean(axis=0)
    few = len(W) <= W.shape[1]
    gram = W @ W.T if few else W.T @ W
    gram[np.diag_indices_from(gram)] += _LEAST_SQUARES_PENALTY * np.trace(gram) / len(gram) + 1e-9
    right = wanted if few else W.T @ wanted
    found = scipy.linalg.solve(gram, right, assume_a="pos", check_finite=False)
    Q = (W.T @ found if few else found).T
    return Q[:-1], Q[-1]


def _rotated(
    whitening: Whitening, n_bits: int, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Axes rotated so that class means are close to corners of a cube (ITQ).

    If there are more directions than bits, those in which classes hardly differ get fewer bits: in
    proportion to how much of the variance along them is between classes. If there are more bits
    than directions, each further block of bits has its own rotation. Thresholds are at the mean of
    the class means.
    """
    q = int(np.count_nonzero(whitening.between > 0))
    between, scale = whitening.between[:q], np.ones(q)
    if q > n_bits:
        scale = np.sqrt(between / (between + whitening.within[:q] ** 2))
    means = whitening.means[:, :q] * scale.astype(np.float32)
    chosen = means.astype(np.float64)
    if len(means) > _MAX_ITQ_MEANS:
        rows = np.sort(random.choice(len(means), _MAX_ITQ_MEANS, replace=False))
        chosen = means[rows].astype(np.float64)
    k = min(n_bits, q)
    centre = np.asarray(np.mean(means, axis=0, dtype=np.float64))[:k]
    chosen = chosen[:, :k] - centre
    # Random numbers are assigned to classes, not to axes, whose signs and order may depend on
    # rounding.
    axes = _nearest_rotation(chosen).T
    n_rounds = _ITQ_ROUNDS * _ITQ_BITS // max(n_bits, _ITQ_BITS)
    rows32, blocks = chosen.astype(np.float32), []
    inertia = np.float32(_ITQ_INERTIA * np.linalg.norm(chosen))
    for _ in range(math.ceil(n_bits / k)):
        rotation = _nearest_rotation(axes @ random.standard_normal(chosen.shape))
        rotation = rotation.astype(np.float32)  # the signs of rows need no more digits
        codes = None
        for _ in range(n_rounds):
            before, codes = codes, signs(product(rows32, rotation))
            if before is not None and np.array_equal(before, codes):
                break
            rotation = _nearest_rotation(product(rows32.T, codes) + inertia * rotation)
        blocks.append(_nearest_rotation(rotation.astype(np.float64)))
    Q = np.zeros((len(whitening.between), n_bits))
    Q[:k] = np.concatenate(blocks, axis=1)[:, :n_bits]
    t = -(centre @ Q[:k])
    Q[:q] *= scale[:, None]
    return Q, t


def _nearest_rotation(matrix: NDArray[Any]) -> NDArray[Any]:
    left, _, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    return np.asarray(left @ right)


def _bisectors(
    whitening: Whitening, n_bits: int, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hyperplanes halfway between pairs of neighbouring class means, confusable pairs first.

    Two classes are neighbours if no other mean is nearer to the point halfway between them: only
    then do their regions touch there. A pair at squared distance D in whitened coordinates is
    confused with probability about ``exp(-D / 8)``, and is drawn in proportion to that. Its score F
    is half of the log-likelihood ratio of the two classes, so that tanh(F) is the expected value of
    the bit; it is less where a pair has more bits than others.
    """
    chosen = whitening.means.astype(np.float64)
    squares = np.einsum("cq,cq->c", chosen, chosen)
    D = np.maximum(squares[:, None] + squares - 2.0 * chosen @ chosen.T, 0.0)
    np.fill_diagonal(D, np.inf)
    n_near = min(_NEAREST_MEANS, len(D) - 1)
    near = np.argpartition(D, n_near - 1, axis=1)[:, :n_near]
    pairs = np.stack([np.repeat(np.arange(len(D)), n_near), near.ravel()], axis=1)
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    touching = [
        # The square of the distance from the halfway point to a mean k is
        # D[i, k] / 2 + D[j, k] / 2 - D[i, j] / 4.
        (D[i] + D[j]).min(axis=1) >= D[i, j] * (1.0 - 1e-9)
        for i, j in (part.T for part in np.array_split(pairs, 1 + len(pairs) // 1024))
    ]
    first, second = pairs[np.concatenate(touching)].T
    keys = D[first, second] / 8.0 - np.asarray(random.gumbel(size=len(first)))
    drawn = np.resize(np.argsort(keys, kind="stable"), n_bits)
    one, other = chosen[first[drawn]], chosen[second[drawn]]
    n_equal = np.bincount(drawn)[drawn]
    normals = (one - other) * (0.5 * n_equal.min() / n_equal[:, None])
    return normals.T, -np.einsum("pq,pq->p", (one + other) / 2.0, normals)
