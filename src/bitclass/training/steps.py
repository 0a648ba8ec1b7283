"""Steps of refinement: losses, their gradients, and Adam, for dense and for sparse rows.

The scores of a mini-batch are ``F = Q'a + t``. The loss is the mean of two softmax
cross-entropies: that of the class scores w_c.sign(F), by which the nearest class is found, and that
of w_c.tanh(F), by which a short list is ranked. Straight-through gradients replace the derivative
of sign by that of tanh, and the binary weights W are the signs of real-valued latent weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex, SparseRows, effective_threads, sparse_scores, sparse_step
from bitclass.arrays import class_blocks, signs
from bitclass.codes import pack

__all__ = [
    "Adam",
    "ClassMeans",
    "DenseProjection",
    "MeanSteps",
    "Objective",
    "Schedule",
    "SparseProjection",
    "Steps",
]

# Chosen on held-out training rows of six datasets: see docs/accuracy.md.
_RATE_OF_PROJECTION = 0.2  # in units of the root mean square of the entries of Q
_RATE_OF_INTERCEPT = 0.1  # in units of the standard deviation of the scores within classes
_RATE_OF_WEIGHTS, _LATENT_SIZE = 0.025, 0.1
_RATE_OF_BIAS = 0.3  # in units of one bit
_SHARE_OF_SIGNS = 0.5
_WARM_UP = 0.05
_BETA1, _BETA2 = 0.9, 0.99  # of Adam
_TINY = 1e-9
# With very many classes, a step scores the classes of its rows, this many random ones, and this
# many nearest to each row. Weights are refitted after so many steps, and one per so many classes.
_RANDOM_CLASSES, _NEAREST_CLASSES = 512, 4
_STEPS_BETWEEN_REFITS, _CLASSES_PER_STEP = 16, 4096
# Parts of a mini-batch that may be computed in parallel. Their number is fixed, so that rounding
# does not depend on the number of threads.
_PARTS = 2
# Sparse rows: learning rate in units of the root mean square of the projection, and the number of
# entries per row above which steps are smaller, because those of shared columns add up.
_RATE_OF_COLUMNS, _ENTRIES_PER_ROW = 0.6, 256
# Nearest classes of each class that are in the same mini-batch, if weights are class means.
_NEAR_CLASSES = 3

#: Signs (C, r) of the class means for the present projection.
ClassMeans = Callable[[], NDArray[np.int8]]


@dataclass(frozen=True)
class Schedule:
    """Learning-rate factor: a linear warm-up, then a quarter of a cosine down to 0.

    Attributes
    ----------
    n_steps : int
    peak : float, the largest factor
    """

    n_steps: int
    peak: float = 1.0

    def at(self, step: int) -> float:
        """Learning-rate factor at a step, counted from 1."""
        share = step / self.n_steps
        return self.peak * (min(1.0, share / _WARM_UP) * math.cos(0.5 * math.pi * min(share, 1.0)))


class Adam:
    """Adam's moments of one array."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self._mean, self._square = np.zeros_like(values), np.zeros_like(values)

    def move(
        self, values: NDArray[np.float32], gradient: NDArray[Any], rate: float, step: int
    ) -> None:
        """Move `values` against the gradient, in place; steps are counted from 1."""
        mean, square = self._mean, self._square
        mean *= _BETA1
        mean += gradient * np.float32(1.0 - _BETA1)
        square *= _BETA2
        gradient = gradient * gradient
        gradient *= np.float32(1.0 - _BETA2)
        square += gradient
        # The bias corrections of both moments, combined into one factor.
        unbiased = math.sqrt(1.0 - _BETA2**step)
        change = np.sqrt(square)
        change += np.float32(_TINY * unbiased)
        np.divide(mean, change, out=change)
        change *= np.float32(rate * unbiased / (1.0 - _BETA1**step))
        values -= change


# -------------------------------------------------------------------------------------------------
# Projections
# -------------------------------------------------------------------------------------------------


class DenseProjection:
    """Q and t of whitened dense rows.

    All columns of Q keep the same length: it does not affect the sign of a score, but determines
    how soon tanh saturates.

    Parameters
    ----------
    Q : (k, r)
    t : (r,)
    deviation : float, standard deviation of the scores within classes
    """

    def __init__(self, Q: NDArray[Any], t: NDArray[Any], deviation: float) -> None:
        lengths = np.linalg.norm(Q, axis=0)
        lengths[lengths == 0] = 1.0
        self._length = float(np.float32(np.mean(lengths)))
        self.matrix = np.ascontiguousarray(Q / lengths * self._length, dtype=np.float32)
        self.intercept = np.asarray(t / lengths * self._length, dtype=np.float32)
        self._moments = Adam(self.matrix), Adam(self.intercept)
        self._rates = (
            _RATE_OF_PROJECTION * self._length / math.sqrt(len(Q)),
            _RATE_OF_INTERCEPT * deviation,
        )

    def scores(self, A: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores F (m, r) of rows (m, k)."""
        F = A @ self.matrix
        F += self.intercept
        return F

    def gradients(self, A: NDArray[np.float32], by_scores: NDArray[np.float32]) -> list[Any]:
        """Gradients of Q and t."""
        return [A.T @ by_scores, by_scores.sum(axis=0)]

    def move(self, _: Any, gradients: list[Any], factor: float, step: int) -> None:
        """Move Q and t against the gradients."""
        matrix, values = self.matrix, (self.matrix, self.intercept)
        for moments, value, gradient, rate in zip(
            self._moments, values, gradients, self._rates, strict=True
        ):
            moments.move(value, gradient, factor * rate, step)
        squares = np.einsum("dr,dr->r", matrix, matrix)
        matrix *= self._length / np.maximum(np.sqrt(squares), np.float32(_TINY))


class SparseProjection:
    """P and t of scaled sparse rows; a step touches the columns of its rows only.

    Learning rates are per column, so that rare columns move as far as frequent ones.

    Parameters
    ----------
    P : (k, r) float32
    t : (r,)
    deviation : float, standard deviation of the scores within classes
    entries_per_row : float
    """

    def __init__(
        self,
        P: NDArray[np.float32],
        t: NDArray[Any],
        deviation: float,
        entries_per_row: float,
    ) -> None:
        self.matrix, self.intercept = P, np.asarray(t, dtype=np.float32)
        self._moments = Adam(self.intercept)
        k = len(P)
        self._squares, self._counts = np.zeros(k, np.float32), np.zeros(k, np.int32)
        size = self._size = deviation / math.sqrt(max(entries_per_row, 1.0))
        shrink = _ENTRIES_PER_ROW / max(entries_per_row, _ENTRIES_PER_ROW)
        self._rates = _RATE_OF_COLUMNS * size * shrink, _RATE_OF_INTERCEPT * deviation

    def randomise(self, of_classes: SparseRows, random: np.random.Generator) -> None:
        """Start from random directions, with thresholds at the mean of the class means (C, k)."""
        self.matrix = random.standard_normal(self.matrix.shape, dtype=np.float32)
        self.matrix *= np.float32(self._size)
        self.intercept[:] = 0.0
        total = np.zeros_like(self.intercept)
        for part in class_blocks(len(of_classes)):
            total += self.scores(of_classes[part]).sum(axis=0)
        self.intercept -= total / np.float32(len(of_classes))

    def scores(self, rows: SparseRows) -> NDArray[np.float32]:
        """Scores F (m, r) of rows (m, k)."""
        F = sparse_scores(rows, self.matrix)
        F += self.intercept
        return F

    def gradients(self, _: SparseRows, by_scores: NDArray[np.float32]) -> list[Any]:
        """The gradient of the scores: that of P is never formed."""
        return [by_scores]

    def move(self, rows: SparseRows, gradients: list[Any], factor: float, step: int) -> None:
        """Move P and t against the gradients."""
        (by_scores,) = gradients
        sparse_step(
            rows, by_scores, factor * self._rates[0], self.matrix, self._squares, self._counts
        )
        total = by_scores.sum(axis=0)
        self._moments.move(self.intercept, total, factor * self._rates[1], step)


# -------------------------------------------------------------------------------------------------
# Objective
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """The loss of refinement.

    Attributes
    ----------
    sharpness : factors on the class scores in the softmax, by sign and by tanh
    log_shares : (C,) logarithms of the shares of the classes among the rows of a step
        They are added to the class scores in training only, so that the scores themselves do not
        depend on how frequent a class is (logit adjustment).
    """

    sharpness: tuple[float, float]
    log_shares: NDArray[np.float32]

    def gradients(
        self,
        F: NDArray[np.float32],
        weights: NDArray[np.float32],
        bias: NDArray[np.float32],
        log_shares: NDArray[np.float32],
        y: NDArray[np.intp],
        factors: NDArray[np.float32],
        *,
        learn_weights: bool,
    ) -> tuple[float, NDArray[np.float32], list[Any]]:
        """Loss of rows, and its gradients.

        Parameters
        ----------
        F : (m, r) scores; overwritten
        weights : (C, r) in {-1, +1}
        bias, log_shares : (C,)
        y : (m,) index of each row's class
        factors : (m,) weights of the rows
        learn_weights : bool

        Returns
        -------
        loss : float
        by_scores : (m, r)
        by_classes : gradients of weights (C, r) and bias (C,), empty unless `learn_weights`
        """
        codes, values = signs(F), np.tanh(F, out=F)
        at, loss = (np.arange(len(y)), y), 0.0
        by_values: Any = 0.0
        by_weights: Any = 0.0
        by_bias: Any = 0.0
        for inputs, sharp, share in (
            (codes, self.sharpness[0], _SHARE_OF_SIGNS),
            (values, self.sharpness[1], 1.0 - _SHARE_OF_SIGNS),
        ):
            slopes = inputs @ weights.T
            slopes += bias
            slopes *= np.float32(sharp)
            slopes += log_shares
            slopes -= slopes.max(axis=1, keepdims=True)
            np.exp(slopes, out=slopes)
            slopes /= slopes.sum(axis=1, keepdims=True)
            loss -= share * float(factors @ np.log(slopes[at] + np.float32(_TINY)))
            slopes[at] -= 1.0
            slopes *= (np.float32(share * sharp) * factors)[:, None]
            by_values = by_values + slopes @ weights
            if learn_weights:
                by_weights = by_weights + slopes.T @ inputs
                by_bias = by_bias + slopes.sum(axis=0)
        # Straight-through: the derivative of tanh also replaces that of sign.
        values *= values
        by_scores: NDArray[np.float32] = by_values - by_values * values
        return loss, by_scores, [by_weights, by_bias] if learn_weights else []


class Steps:
    """A projection and class weights that are trained on mini-batches.

    Parameters
    ----------
    projection : DenseProjection or SparseProjection
    weights : (C, r) in {-1, +1}
    means : (C, r), scores F of the class means
    bias : (C,)
    objective : Objective
    schedule : Schedule
    random : generator of the random classes that a step scores
    class_means : callable, optional
        Computes the weights from class means. If given, weights and bias are not trained: the
        weights follow the projection, and a step scores only some of the classes.
    """

    def __init__(
        self,
        projection: Any,
        weights: NDArray[np.int8],
        means: NDArray[np.float32] | None,
        bias: NDArray[np.float32],
        objective: Objective,
        schedule: Schedule,
        random: np.random.Generator,
        class_means: ClassMeans | None = None,
    ) -> None:
        self.projection, self.bias = projection, bias.astype(np.float32)
        self.objective, self._schedule, self._random = objective, schedule, random
        self._class_means = class_means
        self._index: HammingIndex | None = None
        self._between_refits = max(_STEPS_BETWEEN_REFITS, len(weights) // _CLASSES_PER_STEP)
        self.n_steps = 0
        self._losses: list[float] = []
        if class_means is None:
            assert means is not None
            self._latent = _latent_weights(means, weights)
            self._signs: NDArray[Any] = signs(self._latent)
            self._moments = Adam(self._latent), Adam(self.bias)
        else:
            self._signs = weights
        self._pool = ThreadPoolExecutor(min(_PARTS, effective_threads(None)))

    @property
    def weights(self) -> NDArray[np.int8]:
        """Weights of the classes, (C, r) in {-1, +1}."""
        return np.array(self._signs, dtype=np.int8)

    @property
    def finished(self) -> bool:
        """Whether the schedule is complete."""
        return self.n_steps >= self._schedule.n_steps

    def mean_loss(self) -> float:
        """Mean cross-entropy over the steps since the last call."""
        losses, self._losses = self._losses, []
        return float(np.mean(losses)) if losses else 0.0

    def step(self, rows: Any, y: NDArray[np.intp], weights: NDArray[np.float32]) -> None:
        """Update projection, weights and bias on one mini-batch.

        Parameters
        ----------
        rows : (m, k) rows in the coordinates of the projection
        y : (m,) index of each row's class
        weights : (m,) with mean about 1
        """
        self.n_steps += 1
        learn_weights = self._class_means is None
        signs_of_classes, log_shares, bias = self._signs, self.objective.log_shares, self.bias
        if not learn_weights:
            classes = self._scored_classes(rows, y)
            signs_of_classes, y = (
                self._signs[classes].astype(np.float32),
                np.searchsorted(classes, y),
            )
            log_shares, bias = log_shares[classes], bias[classes]
        factors = weights / np.float32(len(y))

        def of_part(part: slice) -> tuple[float, list[Any]]:
            some = rows[part]
            loss, by_scores, by_classes = self.objective.gradients(
                self.projection.scores(some),
                signs_of_classes,
                bias,
                log_shares,
                y[part],
                factors[part],
                learn_weights=learn_weights,
            )
            return loss, [*self.projection.gradients(some, by_scores), *by_classes]

        in_parts = isinstance(rows, np.ndarray)
        bounds = np.linspace(0, len(y), (_PARTS if in_parts else 1) + 1).astype(int)
        parts = list(self._pool.map(of_part, [slice(*pair) for pair in pairwise(bounds)]))
        gradients = parts[0][1]
        for _, others in parts[1:]:
            for total, more in zip(gradients, others, strict=True):
                total += more
        self._losses.append(sum(loss for loss, _ in parts))
        self._move(rows, gradients, learn_weights)

    def _move(self, rows: Any, gradients: list[Any], learn_weights: bool) -> None:
        factor, step = self._schedule.at(self.n_steps), self.n_steps
        if not learn_weights:
            self.projection.move(rows, gradients, factor, step)
            if step % self._between_refits == 0 or self.finished:
                assert self._class_means is not None
                self._signs, self._index = self._class_means(), None
            return
        self.projection.move(rows, gradients[:-2], factor, step)
        self._moments[0].move(self._latent, gradients[-2], factor * _RATE_OF_WEIGHTS, step)
        self._moments[1].move(self.bias, gradients[-1], factor * _RATE_OF_BIAS, step)
        np.clip(self._latent, -1.0, 1.0, out=self._latent)
        self._signs = signs(self._latent)

    def _scored_classes(self, rows: Any, y: NDArray[np.intp]) -> NDArray[np.intp]:
        """Classes that a step scores, ascending: those of the rows, near ones, and random ones."""
        if self._index is None:
            self._index = HammingIndex(pack(self._signs))
        codes = pack(self.projection.scores(rows) >= 0)
        nearest, _ = self._index.top_k(codes, min(_NEAREST_CLASSES, len(self._signs)))
        drawn = self._random.integers(len(self._signs), size=_RANDOM_CLASSES)
        return np.unique(np.concatenate([y, nearest.ravel(), drawn]))

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()


class MeanSteps(Steps):
    """Steps on whole classes, whose weights are the signs of the mean scores of their rows.

    A row is compared with the mean of the *other* rows of its class and with the means of the other
    classes of the mini-batch. If it were part of its own class mean, the projection would learn to
    recognise rows it has seen.
    """

    def near_classes(self, classes: NDArray[np.intp]) -> NDArray[np.intp]:
        """Some classes and those nearest to them, ascending."""
        if self._index is None:
            self._index = HammingIndex(pack(self._signs))
        near, _ = self._index.top_k(
            pack(self._signs[classes]), min(1 + _NEAR_CLASSES, len(self._signs))
        )
        return np.union1d(classes, near.ravel())

    def step(self, rows: Any, y: NDArray[np.intp], weights: NDArray[np.float32]) -> None:
        """Update the projection on all rows of some classes, which `y` (m,) ascending tells."""
        self.n_steps += 1
        loss, by_scores = _gradient_by_means(
            self.projection.scores(rows), y, weights, self.objective.sharpness
        )
        self._losses.append(loss)
        self._move(rows, self.projection.gradients(rows, by_scores), learn_weights=False)


def _gradient_by_means(
    F: NDArray[np.float32],
    y: NDArray[np.intp],
    row_weights: NDArray[np.float32],
    sharpness: tuple[float, float],
) -> tuple[float, NDArray[np.float32]]:
    """Loss of rows compared with class means, and its gradient by their scores F (m, r).

    The only row of a class has no loss, but other rows are compared with it.
    """
    _, starts, place, lengths = np.unique(
        y, return_index=True, return_inverse=True, return_counts=True
    )
    weights = row_weights[:, None]
    weighted = F * weights
    sums, totals = np.add.reduceat(weighted, starts), np.add.reduceat(weights, starts)
    means = sums / totals
    has_others = lengths[place] > 1
    left = np.where(has_others[:, None], totals[place] - weights, np.float32(1))
    others = (sums[place] - weighted) / left
    values, of_classes, of_others = np.tanh(F), signs(means), signs(others)
    n_compared = max(1, int(np.count_nonzero(has_others)))
    shares = (has_others * row_weights / n_compared).astype(np.float32)
    at, loss = (np.arange(len(y)), place), 0.0
    by_scores, by_others = np.zeros_like(F), np.zeros_like(F)
    by_classes = np.zeros_like(means)
    for inputs, sharp, share in (
        (signs(F), sharpness[0], _SHARE_OF_SIGNS),
        (values, sharpness[1], 1.0 - _SHARE_OF_SIGNS),
    ):
        slopes = inputs @ of_classes.T
        slopes[at] = np.einsum("mr,mr->m", inputs, of_others)
        slopes *= np.float32(sharp)
        slopes -= slopes.max(axis=1, keepdims=True)
        np.exp(slopes, out=slopes)
        slopes /= slopes.sum(axis=1, keepdims=True)
        loss -= share * float(shares @ np.log(slopes[at] + np.float32(_TINY)))
        slopes[at] -= 1.0
        slopes *= (np.float32(share * sharp) * shares)[:, None]
        own = slopes[at][:, None]
        slopes[at] = 0.0
        by_scores += slopes @ of_classes
        by_scores += own * of_others
        by_others += own * inputs
        by_classes += slopes.T @ inputs
    # Straight-through: the derivative of tanh also replaces that of sign.
    by_scores *= 1.0 - values * values
    by_classes *= (1.0 - np.tanh(means) ** 2) / totals
    by_others *= (1.0 - np.tanh(others) ** 2) / left
    # The mean of the others contains all rows of the class but one.
    by_classes += np.add.reduceat(by_others, starts)
    by_scores += weights * (by_classes[place] - by_others)
    return loss, by_scores


def _latent_weights(values: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float32]:
    """Latent weights (C, r) with the signs of `weights`, scaled by the scores of class means."""
    size = max(float(np.sqrt(np.mean(values**2))), _TINY)
    latent = np.where((values >= 0) == (weights > 0), values / size, 0.1 * weights)
    return np.clip(_LATENT_SIZE * latent, -1.0, 1.0).astype(np.float32)
