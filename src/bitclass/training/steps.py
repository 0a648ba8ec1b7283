"""Steps of refinement: losses, their gradients, and Adam, for dense and for sparse rows.

The scores of a mini-batch are ``F = Q'a + t``. The loss is the softmax cross-entropy of the class
scores w_c.tanh(F), by which a short list is ranked. Short codes add that of w_c.sign(F), by which
the nearest class is found; straight-through gradients replace the derivative of sign by that of
tanh. The binary weights W are the signs of real-valued latent weights. Kernels do the arithmetic,
and distribute parts of a step over all threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import (
    HammingIndex,
    SparseRows,
    adam_step,
    class_gradients,
    product,
    sparse_scores,
    sparse_step,
)
from bitclass.arrays import class_blocks, signs
from bitclass.codes import pack

# Chosen on held-out training rows of the shared data sets.
_RATE_OF_PROJECTION = 0.2  # in units of the root mean square of the entries of Q
_RATE_OF_INTERCEPT = 0.1  # in units of the standard deviation of the scores within classes
_RATE_OF_WEIGHTS, _LATENT_SIZE = 0.025, 0.1
_RATE_OF_BIAS = 0.3  # in units of one bit
# Share of the loss by sign(F), and up to how many bits it has one: on held-out training rows,
# longer codes do not gain from it, with or without a short list.
_SHARE_OF_SIGNS, _SHORT_CODE = 0.5, 32
_WARM_UP = 0.05
_BETA1, _BETA2 = 0.9, 0.99  # of Adam
_TINY = 1e-9
# With very many classes, a step scores the classes of its rows, this many random ones, and this
# many nearest to each row. Weights are refitted after so many steps, and one per so many classes.
_RANDOM_CLASSES, _NEAREST_CLASSES = 512, 4
_STEPS_BETWEEN_REFITS, _CLASSES_PER_REFIT_STEP = 16, 4096
# Sparse rows: learning rate in units of the root mean square of the projection, and the number of
# entries per row above which steps are smaller, because those of shared columns add up.
_RATE_OF_COLUMNS, _ENTRIES_PER_ROW = 0.6, 256
# Nearest classes of each class that are in the same mini-batch, if weights are class means, and how
# often they are found anew.
_NEAR_CLASSES, _SEARCHES = 3, 10

#: Signs (C, r) of the class means for the present projection.
ClassMeans = Callable[[], NDArray[np.int8]]


@dataclass(frozen=True)
class Schedule:
    """Learning-rate factor: a linear warm-up, then a quarter of a cosine down to 0."""

    n_steps: int
    peak: float = 1.0  # the largest factor

    def at(self, step: int) -> float:
        """Learning-rate factor at a step, counted from 1."""
        share = step / self.n_steps
        return self.peak * (min(1.0, share / _WARM_UP) * math.cos(0.5 * math.pi * min(share, 1.0)))


class Adam:
    """Adam's moments of one matrix."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self._mean, self._square = np.zeros_like(values), np.zeros_like(values)

    def move(
        self,
        values: NDArray[np.float32],
        left: NDArray[np.float32],
        right: NDArray[np.float32],
        rate: float,
        step: int,
        signs: NDArray[np.float32] | None = None,
    ) -> None:
        """Move `values` (k, r), in place, against the gradient ``left' right``.

        Parameters
        ----------
        values : (k, r)
        left : (m, k)
        right : (m, r)
        rate : float
        step : int, counted from 1
        signs : (k, r), optional
            If given, values are clipped to [-1, 1], and their signs are written there.
        """
        # The bias corrections of both moments, combined into one factor.
        unbiased = math.sqrt(1.0 - _BETA2**step)
        rate *= unbiased / (1.0 - _BETA1**step)
        betas, moments = (_BETA1, _BETA2), (self._mean, self._square)
        adam_step(left, right, rate, betas, _TINY * unbiased, values, *moments, signs)


# -- Projections


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
        self._moments = Adam(self.matrix), Adam(self.intercept[None])
        self._rates = (
            _RATE_OF_PROJECTION * self._length / math.sqrt(len(Q)),
            _RATE_OF_INTERCEPT * deviation,
        )

    def scores(self, A: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores F (m, r) of rows (m, k)."""
        F = np.asarray(product(A, self.matrix))
        F += self.intercept
        return F

    def move(
        self, A: NDArray[np.float32], by_scores: NDArray[np.float32], factor: float, step: int
    ) -> None:
        """Move Q and t against the gradient with respect to the scores of the rows."""
        of_matrix, of_intercept = self._moments
        of_matrix.move(self.matrix, A, by_scores, factor * self._rates[0], step)
        of_intercept.move(self.intercept[None], _ones(A), by_scores, factor * self._rates[1], step)
        lengths = np.sqrt(np.einsum("kr,kr->r", self.matrix, self.matrix))
        self.matrix *= np.float32(self._length) / np.maximum(lengths, np.float32(_TINY))


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
        self._moments = Adam(self.intercept[None])
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

    def move(
        self, rows: SparseRows, by_scores: NDArray[np.float32], factor: float, step: int
    ) -> None:
        """Move P and t against the gradient with respect to the scores of the rows."""
        of_columns, of_intercept = (factor * rate for rate in self._rates)
        sparse_step(rows, by_scores, of_columns, self.matrix, self._squares, self._counts)
        self._moments.move(self.intercept[None], _ones(rows), by_scores, of_intercept, step)


def _ones(rows: Any) -> NDArray[np.float32]:
    return np.ones((len(rows), 1), dtype=np.float32)


# -- Steps


@dataclass(frozen=True)
class Objective:
    """The loss of refinement.

    The logarithms of the shares of the classes among the rows of a step are added to the class
    scores in training only, so that the scores themselves do not depend on how frequent a class is
    (logit adjustment).
    """

    sharpness: tuple[
        float, float
    ]  # factors on the class scores in the softmax, by sign and by tanh
    log_shares: NDArray[np.float32]  # (C,)


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
        self._between_refits = max(_STEPS_BETWEEN_REFITS, len(weights) // _CLASSES_PER_REFIT_STEP)
        self.n_steps = 0
        self._losses: list[float] = []
        if class_means is None:
            assert means is not None
            self._latent = _latent_weights(means, weights)
            self._signs: NDArray[Any] = signs(self._latent)
            self._moments = Adam(self._latent), Adam(self.bias[:, None])
        else:
            self._signs = weights

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
        F, objective = self.projection.scores(rows), self.objective
        signs_of_classes, bias, log_shares = self._signs, self.bias, objective.log_shares
        if self._class_means is not None:
            classes = self._scored_classes(F, y)
            signs_of_classes = self._signs[classes].astype(np.float32)
            bias, log_shares, y = bias[classes], log_shares[classes], np.searchsorted(classes, y)
        factors, m, n_signs = weights / np.float32(len(y)), len(F), 0
        if F.shape[1] <= _SHORT_CODE:  # the same rows once more, scored by sign
            F, y, n_signs = np.concatenate([F, F]), np.concatenate([y, y]), m
            shares = np.float32(_SHARE_OF_SIGNS), np.float32(1.0 - _SHARE_OF_SIGNS)
            factors = np.concatenate([share * factors for share in shares])
        loss, inputs, slopes = class_gradients(
            F, signs_of_classes, bias, log_shares, y, factors, objective.sharpness, n_signs
        )
        self._losses.append(loss)
        self._move(rows, F[:m] + F[m:] if n_signs else F)
        if self._class_means is None:
            factor, step = self._schedule.at(self.n_steps), self.n_steps
            of_weights, of_bias = self._moments
            rates = factor * _RATE_OF_WEIGHTS, factor * _RATE_OF_BIAS
            of_weights.move(self._latent, slopes, inputs, rates[0], step, self._signs)
            of_bias.move(self.bias[:, None], slopes, _ones(slopes), rates[1], step)

    def _move(self, rows: Any, by_scores: NDArray[np.float32]) -> None:
        """Move the projection, and the weights that follow it."""
        self.projection.move(rows, by_scores, self._schedule.at(self.n_steps), self.n_steps)
        is_due = self.n_steps % self._between_refits == 0 or self.finished
        if self._class_means is not None and is_due:
            self._signs, self._index = self._class_means(), None

    def _scored_classes(self, F: NDArray[np.float32], y: NDArray[np.intp]) -> NDArray[np.intp]:
        """Classes that a step scores, ascending: those of the rows, near ones, and random ones."""
        if self._index is None:
            self._index = HammingIndex(pack(self._signs))
        codes = pack(F >= 0)
        nearest, _ = self._index.top_k(codes, min(_NEAREST_CLASSES, len(self._signs)))
        drawn = self._random.integers(len(self._signs), size=_RANDOM_CLASSES)
        return np.unique(np.concatenate([y, nearest.ravel(), drawn]))


class MeanSteps(Steps):
    """Steps on whole classes, whose weights are the signs of the mean scores of their rows.

    A row is compared with the mean of the *other* rows of its class and with the means of the other
    classes of the mini-batch. If it were part of its own class mean, the projection would learn to
    recognise rows it has seen.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._between_refits = 1 + self._schedule.n_steps // _SEARCHES

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
            self.projection.scores(rows), y, weights, self.objective.sharpness[1]
        )
        self._losses.append(loss)
        self._move(rows, by_scores)


def _gradient_by_means(
    F: NDArray[np.float32],
    y: NDArray[np.intp],
    row_weights: NDArray[np.float32],
    sharpness: float,
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
    at = np.arange(len(y)), place
    slopes = values @ of_classes.T
    slopes[at] = np.einsum("mr,mr->m", values, of_others)
    slopes *= np.float32(sharpness)
    slopes -= slopes.max(axis=1, keepdims=True)
    np.exp(slopes, out=slopes)
    slopes /= slopes.sum(axis=1, keepdims=True)
    loss = -float(shares @ np.log(slopes[at] + np.float32(_TINY)))
    slopes[at] -= 1.0
    slopes *= (np.float32(sharpness) * shares)[:, None]
    own = slopes[at][:, None]
    slopes[at] = 0.0
    by_scores = slopes @ of_classes + own * of_others
    by_others, by_classes = own * values, slopes.T @ values
    by_scores *= 1.0 - values * values
    # Straight-through: the derivative of tanh replaces that of the signs of means.
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
