"""Steps of refinement: projection and weights improved together.

Mini-batches go through ``F = Q'a + t``, in coordinates in which rows of every class scatter alike.
Two softmax cross-entropies are minimised together: that of the scores w_c.sign(F), by which the
nearest class is found, and that of the scores w_c.tanh(F), by which a short list is ranked. Where
sign has no slope that of tanh stands in for it, and latent weights whose signs are W learn in their
place (straight-through gradients).

All columns of Q keep one length: a bit is the sign of its score, and the length decides how soon
tanh saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex, effective_threads
from bitclass.arrays import (
    Array,
    device,
    is_foreign,
    like,
    namespace,
    put,
    recorded,
    take,
    to_host,
    top_k,
)
from bitclass.codes import pack

__all__ = [
    "Refinement",
    "Schedule",
    "Targets",
    "mini_batches",
    "rows_per_step",
    "sharpness",
    "signs_and_tanh",
    "softmax",
]

# Chosen on held-out training rows of six data sets: see docs/accuracy.md.
STEP_OF_PROJECTION = 0.2  # in units of the root mean square of the entries of Q
STEP_OF_INTERCEPT = 0.06  # in units of the standard deviation of the scores
STEP_OF_WEIGHTS = 0.025
LATENT_SIZE = 0.1
SHARPNESS_OF_SIGNS, SHARPNESS_OF_TANH = 2.2, 3.2  # times the logarithm of the number of classes
SHARE_OF_SIGNS = 0.5
_WARM_UP = 0.05
_DECAY_OF_MEAN, _DECAY_OF_SQUARE = 0.9, 0.99
_TINY = 1e-9

# With very many classes, a step scores those of its rows and this many others.
_RANDOM_CLASSES = 512
_NEAREST_CLASSES = 4
# Weights are refitted after so many steps, or one for so many classes, because a refit of 1,000,000
# costs as much as a hundred steps.
STEPS_BETWEEN_REFITS = 16
_CLASSES_PER_STEP = 4096
# Parts of a mini-batch that may be computed at the same time. Their number is fixed, so that
# rounding does not depend on the number of threads.
_PARTS = 2
_ROWS_PER_BLOCK = 1024

#: Weights (C, r) that suit a projection Q (k, r) and an intercept (r,).
Refit = Callable[[Array, Array], Array]
#: Probabilities (m, C) to learn, of the scores by signs and of those by tanh.
Targets = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class Schedule:
    """Size of the steps: a short rise, then a quarter of a cosine down to 0.

    Attributes
    ----------
    n_steps : int
    size : float, factor of all steps
    """

    n_steps: int
    size: float = 1.0

    def at(self, step: int) -> float:
        """Factor of the step sizes at a step, counted from 1."""
        share = step / self.n_steps
        return self.size * (min(1.0, share / _WARM_UP) * math.cos(0.5 * math.pi * min(share, 1.0)))


def rows_per_step(n_rows: int) -> int:
    """Rows per mini-batch: 256, or 512 where there are many."""
    return min(n_rows, 256 if n_rows < 20_000 else 512)


def mini_batches(
    n_rows: int, n_per_step: int, random: np.random.Generator, X: Array = None
) -> Iterator[Array]:
    """Indices of the rows X of each step of an epoch, where they lie; another order each time."""
    order = like(random.permutation(n_rows), X)
    # A sample may have fewer rows than expected, and an epoch must have at least one step.
    n_per_step = min(n_per_step, n_rows)
    for start in range(0, n_rows - n_per_step + 1, n_per_step):
        yield order[start : start + n_per_step]


def sharpness(n_classes: int, n_bits: int) -> tuple[float, float]:
    """Factors of the scores in the softmax, by signs and by real values."""
    # With few classes and many bits, scores are sharper than the classes need.
    nats = max(math.log(n_classes), math.log(n_bits) - 1.4)
    of_signs, of_tanh = SHARPNESS_OF_SIGNS * nats / n_bits, SHARPNESS_OF_TANH * nats / n_bits
    return float(np.float32(of_signs)), float(np.float32(of_tanh))


class Adam:
    """Adam's moments of one array."""

    def __init__(self, values: Array) -> None:
        self._mean = namespace(values).zeros_like(values)
        self._square = namespace(values).zeros_like(values)

    def move(self, values: Array, gradient: Array, size: float, step: int) -> None:
        """Move `values` against the gradient, in place."""
        mean, square = self._mean, self._square
        mean *= _DECAY_OF_MEAN
        mean += gradient * (1.0 - _DECAY_OF_MEAN)
        square *= _DECAY_OF_SQUARE
        gradient = gradient * gradient
        gradient *= 1.0 - _DECAY_OF_SQUARE
        square += gradient
        # The corrections for the start of both means, as one factor of the step.
        unbiased = (1.0 - _DECAY_OF_SQUARE**step) ** 0.5
        change = namespace(square).sqrt(square)
        change += _TINY * unbiased
        change = mean / change
        change *= size * unbiased / (1.0 - _DECAY_OF_MEAN**step)
        values -= change


@dataclass(frozen=True)
class _Gradient:
    """Loss, and its gradient by projection (k, r), intercept (r,) and weights (C, r) or None."""

    loss: Array
    projection: Array
    intercept: Array
    weights: Array | None

    def add(self, other: _Gradient) -> None:
        """Add the gradient of other rows."""
        for mine, theirs in (
            (self.projection, other.projection),
            (self.intercept, other.intercept),
            (self.weights, other.weights),
        ):
            if mine is not None and theirs is not None:
                mine += theirs


class Refinement:
    """A hash function and weights that learn from mini-batches of rows.

    Parameters
    ----------
    projection : (k, r), the projection Q to start from; its columns get one length
    intercept : (r,)
    weights : (C, r) in {-1, +1}
    means : (C, k), the class means in the coordinates of the rows
    length : float, of the columns of Q
    score_deviation : float, standard deviation of the scores F
    schedule : Schedule
    random : draws the classes that are scored, where not all are
    refit : optional
        Gives the weights (C, r) that suit a projection and an intercept. Where given, weights are
        refitted from time to time, in the place of learning by steps of their own.
    score_all : bool
        Whether a step scores all classes, or only some of very many.
    """

    def __init__(
        self,
        projection: NDArray[np.floating],
        intercept: NDArray[np.floating],
        weights: NDArray[np.signedinteger],
        means: NDArray[np.float32],
        length: float,
        score_deviation: float,
        schedule: Schedule,
        random: np.random.Generator,
        refit: Refit | None = None,
        score_all: bool = True,
    ) -> None:
        n_coordinates, n_bits = projection.shape
        n_classes = len(weights)
        lengths = np.linalg.norm(projection, axis=0)
        lengths[lengths == 0] = 1.0
        xp, self._length = namespace(means), float(np.float32(length))
        columns = np.ascontiguousarray(projection / lengths * self._length, dtype=np.float32)
        offset = np.asarray(intercept / lengths * self._length, dtype=np.float32)
        self.projection, self.intercept = like(columns, means), like(offset, means)
        self._refit = refit
        self._score_all = score_all
        self._steps_between_refits = max(STEPS_BETWEEN_REFITS, n_classes // _CLASSES_PER_STEP)
        # With very many classes, a step scores only some of them, and converts only their signs.
        in_floats = score_all or is_foreign(means)
        self._signs = xp.astype(like(weights, means), xp.float32 if in_floats else xp.int8)
        self._schedule = schedule
        self._random = random
        self._steps = 0
        self._losses: list[Array] = []
        self._sharp_signs, self._sharp_tanh = sharpness(n_classes, n_bits)
        self._step_of_projection = STEP_OF_PROJECTION * self._length / math.sqrt(n_coordinates)
        self._step_of_intercept = STEP_OF_INTERCEPT * score_deviation
        self._of_projection = Adam(self.projection)
        self._of_intercept = Adam(self.intercept)
        if refit is None:
            self._latent = _latent_weights(means @ self.projection + self.intercept, self._signs)
            self._of_weights = Adam(self._latent)
        self._step_on_device = recorded(self._device_step)
        self._index: HammingIndex | None = None
        self._pool = ThreadPoolExecutor(min(_PARTS, effective_threads(None)))

    @property
    def weights(self) -> NDArray[np.int8]:
        """Weights of the classes, (C, r) in {-1, +1}."""
        return np.array(to_host(self._signs), dtype=np.int8)

    def mean_loss(self) -> float:
        """Mean cross-entropy of the rows of the steps since this was last called."""
        losses, self._losses = self._losses, []
        return float(np.mean([float(loss) for loss in losses])) if losses else 0.0

    @property
    def progress(self) -> float:
        """Share of the schedule that is done."""
        return self._steps / self._schedule.n_steps

    @property
    def finished(self) -> bool:
        """Whether the schedule is at its end."""
        return self._steps >= self._schedule.n_steps

    def step(
        self,
        A: Array,
        own: Array,
        sample_weight: Array | None = None,
        targets: Targets | None = None,
    ) -> None:
        """Learn from one mini-batch.

        Parameters
        ----------
        A : (m, k) rows
        own : (m,) index of each row's class
        sample_weight : (m,) of mean about 1, optional
        targets : probabilities to learn in the place of the own class, where all are scored
        """
        self._steps += 1
        factor = self._schedule.at(self._steps)
        classes = self._scored_classes(A, own)
        signs = self._signs if classes is None else self._signs[classes].astype(np.float32)
        place: Array = own if classes is None else np.searchsorted(classes, own)
        factors = namespace(A).full_like(A[:, 0], 1.0 / A.shape[0])
        if sample_weight is not None:
            factors *= sample_weight
        if is_foreign(A):
            drawn = own
            if not self._score_all:
                drawn = like(self._random.integers(signs.shape[0], size=_RANDOM_CLASSES), A)
            self._losses.append(self._step_on_device(A, own, factors, drawn, factor, self._steps))
            self._refit_weights()
            return
        bounds = np.linspace(0, len(own), _PARTS + 1).astype(int)
        parts = [slice(*pair) for pair in pairwise(bounds)]

        def gradient_of(part: slice) -> _Gradient:
            some = None if targets is None else (targets[0][part], targets[1][part])
            return self._gradient(A[part], place[part], factors[part], signs, some)

        gradient, *others = self._pool.map(gradient_of, parts)
        self._losses.append(gradient.loss + sum(other.loss for other in others))
        for other in others:
            gradient.add(other)
        self._move(gradient, factor, self._steps)
        self._refit_weights()

    def _device_step(
        self, A: Array, own: Array, factors: Array, drawn: Array, factor: float, step: int
    ) -> Array:
        """A step on a device, and its loss; of classes that come twice, the first is scored."""
        xp, signs, bias = namespace(A), self._signs, None
        if not self._score_all:
            codes = _signs(A @ self.projection + self.intercept)
            nearest = top_k(codes @ signs.T, min(_NEAREST_CLASSES, signs.shape[0]))[1]
            classes = xp.sort(xp.concat([own, xp.reshape(nearest, (-1,)), drawn]))
            again = xp.astype(classes[1:] == classes[:-1], A.dtype)
            bias = xp.concat([xp.zeros_like(again[:1]), -1e9 * again])
            signs, own = take(signs, classes), xp.searchsorted(classes, own)
        gradient = self._gradient(A, own, factors, signs, None, bias)
        self._move(gradient, factor, step)
        return gradient.loss

    def _gradient(
        self,
        A: Array,
        own: Array,
        factors: Array,
        signs: Array,
        targets: Targets | None,
        bias: Array | None = None,
    ) -> _Gradient:
        """Gradient of some rows; `factors` (m,) are their shares of the loss."""
        codes, scores = signs_and_tanh(A, self.projection, self.intercept)
        of_signs = softmax(codes @ signs.T * self._sharp_signs, bias)
        of_tanh = softmax(scores @ signs.T * self._sharp_tanh, bias)
        xp, loss = namespace(A), 0.0
        # Slopes of the cross-entropies by the scores of the classes.
        if targets is None:
            at = xp.arange(A.shape[0], device=device(A)), own
            log_likelihood = SHARE_OF_SIGNS * xp.log(of_signs[at] + _TINY)
            log_likelihood += (1.0 - SHARE_OF_SIGNS) * xp.log(of_tanh[at] + _TINY)
            loss = -(factors @ log_likelihood)
            put(of_signs, at, of_signs[at] - 1.0)
            put(of_tanh, at, of_tanh[at] - 1.0)
        else:
            of_signs -= targets[0]
            of_tanh -= targets[1]
        of_signs *= (SHARE_OF_SIGNS * self._sharp_signs * factors)[:, None]
        of_tanh *= ((1.0 - SHARE_OF_SIGNS) * self._sharp_tanh * factors)[:, None]
        of_weights = None
        if self._refit is None:
            of_weights = of_signs.T @ codes
            of_weights += of_tanh.T @ scores
        of_signs += of_tanh
        of_scores = of_signs @ signs
        # The slope of tanh, also in the place of that of sign.
        scores *= scores
        of_scores -= of_scores * scores
        return _Gradient(loss, A.T @ of_scores, xp.sum(of_scores, axis=0), of_weights)

    def _move(self, gradient: _Gradient, factor: float, step: int) -> None:
        """Move projection, intercept and latent weights against the gradient."""
        size = factor * self._step_of_projection
        self._of_projection.move(self.projection, gradient.projection, size, step)
        size = factor * self._step_of_intercept
        self._of_intercept.move(self.intercept, gradient.intercept, size, step)
        xp = namespace(self.projection)
        if is_foreign(self.projection):
            squares = xp.sum(self.projection**2, axis=0)
        else:
            squares = np.einsum("dr,dr->r", self.projection, self.projection)
        self.projection *= self._length / xp.maximum(xp.sqrt(squares), 0 * squares + _TINY)
        if gradient.weights is not None:
            size = factor * STEP_OF_WEIGHTS
            self._of_weights.move(self._latent, gradient.weights, size, step)
            one = xp.ones_like(self._latent)
            self._latent[...] = xp.maximum(xp.minimum(self._latent, one), -one)
            self._signs[...] = _signs(self._latent)

    def _refit_weights(self) -> None:
        if self._refit is None:
            return
        if self._steps % self._steps_between_refits == 0 or self.finished:
            found = self._refit(self.projection, self.intercept)
            self._signs[...] = namespace(found).astype(found, self._signs.dtype, copy=False)
            self._index = None

    def _scored_classes(
        self, A: NDArray[np.float32], own: NDArray[np.intp]
    ) -> NDArray[np.intp] | None:
        """The classes that a step scores, ascending, or None for all of them.

        Of very many: those of the rows, those with the nearest codes, and some drawn at random.
        """
        if self._score_all or is_foreign(A):
            return None
        if self._index is None:
            self._index = HammingIndex(pack(self._signs))
        codes = pack(A @ self.projection + self.intercept >= 0)
        nearest, _ = self._index.top_k(codes, min(_NEAREST_CLASSES, len(self._signs)))
        drawn = self._random.integers(len(self._signs), size=_RANDOM_CLASSES)
        return np.unique(np.concatenate([own, nearest.ravel(), drawn]))

    def classify(self, A: NDArray[np.float32], *, rescored: bool) -> NDArray[np.intp]:
        """Index of the best class of rows (n, k), shape (n,): the nearest, or by real scores."""
        if is_foreign(A):
            values = A @ self.projection + self.intercept
            by_tanh = rescored and self._score_all
            values = namespace(A).tanh(values) if by_tanh else _signs(values)
            return to_host(namespace(A).argmax(values @ self._signs.T, axis=1))
        found = np.empty(len(A), dtype=np.intp)
        index = HammingIndex(pack(self._signs))
        for start in range(0, len(A), _ROWS_PER_BLOCK):
            part = slice(start, start + _ROWS_PER_BLOCK)
            scores = A[part] @ self.projection + self.intercept
            if rescored and self._score_all:
                found[part] = np.argmax(np.tanh(scores) @ self._signs.T, axis=1)
            else:
                found[part] = index.nearest(pack(scores >= 0))[0]
        return found

    def close(self) -> None:
        """End the threads, and release what was recorded."""
        self._pool.shutdown()
        del self._step_on_device


def _signs(values: Array) -> Array:
    """Signs of values, of their own type."""
    return namespace(values).astype(values >= 0, values.dtype) * 2 - 1


def _latent_weights(values: Array, signs: Array) -> Array:
    """Latent weights (C, r) whose signs are given, larger where class means are clearer.

    Parameters
    ----------
    values : (C, r), the scores of the class means
    signs : (C, r)
    """
    xp = namespace(values)
    size = max(float(xp.sqrt(xp.mean(values**2))), _TINY)
    latent = xp.where((values >= 0) == (signs > 0), values / size, 0.1 * signs)
    return xp.clip(LATENT_SIZE * latent, -1.0, 1.0)


def signs_and_tanh(A: Array, Q: Array, t: Array) -> tuple[Array, Array]:
    """Codes of rows (m, k) by signs and by tanh, each (m, r)."""
    scores = A @ Q
    scores += t
    if is_foreign(A):
        return _signs(scores), namespace(A).tanh(scores)
    return _signs(scores), np.tanh(scores, out=scores)


def softmax(scores: Array, bias: Array | None = None) -> Array:
    """Probabilities of the classes from their scores (m, C), which are overwritten."""
    xp = namespace(scores)
    if bias is not None:
        scores += bias
    scores -= xp.max(scores, axis=1, keepdims=True)
    scores = xp.exp(scores) if is_foreign(scores) else np.exp(scores, out=scores)
    scores /= xp.sum(scores, axis=1, keepdims=True)
    return scores
