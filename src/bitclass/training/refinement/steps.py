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
    signs,
    take,
    to_host,
    top_k,
)
from bitclass.codes import pack

__all__ = [
    "Adam",
    "Refinement",
    "Schedule",
    "Targets",
    "cross_entropy",
    "mini_batches",
    "sharpness",
    "signs_and_tanh",
    "softmax",
]

# Chosen on held-out training rows of six data sets: see docs/accuracy.md.
LEARNING_RATE_OF_PROJECTION = 0.2  # in units of the root mean square of the entries of Q
LEARNING_RATE_OF_INTERCEPT = 0.06  # in units of the standard deviation of the scores
LEARNING_RATE_OF_WEIGHTS = 0.025
LATENT_SIZE = 0.1
SHARPNESS_OF_SIGNS, SHARPNESS_OF_TANH = 2.2, 3.2  # times the logarithm of the number of classes
SHARE_OF_SIGNS = 0.5
_WARM_UP = 0.05
_BETA1, _BETA2 = 0.9, 0.99  # of Adam
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
    """Factor of the learning rates: a short rise, then a quarter of a cosine down to 0.

    Attributes
    ----------
    n_steps : int
    peak : float, the largest factor
    """

    n_steps: int
    peak: float = 1.0

    def at(self, step: int) -> float:
        """Factor of the learning rates at a step, counted from 1."""
        share = step / self.n_steps
        return self.peak * (min(1.0, share / _WARM_UP) * math.cos(0.5 * math.pi * min(share, 1.0)))


def mini_batches(
    n_rows: int, n_per_step: int, random: np.random.Generator, X: Array = None
) -> Iterator[Array]:
    """Indices of the rows X of each step of an epoch, where they lie; another order each time.

    Rows at the end that do not fill a mini-batch are left out.
    """
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
        self._xp = namespace(values)
        self._mean, self._square = self._xp.zeros_like(values), self._xp.zeros_like(values)

    def move(self, values: Array, gradient: Array, learning_rate: float, step: int) -> None:
        """Move `values` against the gradient, in place; steps are counted from 1."""
        mean, square = self._mean, self._square
        mean *= _BETA1
        mean += gradient * (1.0 - _BETA1)
        square *= _BETA2
        gradient = gradient * gradient
        gradient *= 1.0 - _BETA2
        square += gradient
        # The corrections for the start of both means, as one factor of the step.
        unbiased = (1.0 - _BETA2**step) ** 0.5
        change = self._xp.sqrt(square)
        change += _TINY * unbiased
        change = mean / change
        change *= learning_rate * unbiased / (1.0 - _BETA1**step)
        values -= change


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
        refitted from time to time, instead of learning by steps of their own.
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
        lengths = np.linalg.norm(projection, axis=0)
        lengths[lengths == 0] = 1.0
        xp, self._length = namespace(means), float(np.float32(length))
        columns = np.ascontiguousarray(projection / lengths * self._length, dtype=np.float32)
        offset = np.asarray(intercept / lengths * self._length, dtype=np.float32)
        self.projection, self.intercept = like(columns, means), like(offset, means)
        self._xp, self._on_device = xp, is_foreign(means)
        self._schedule, self._random = schedule, random
        self._refit, self._score_all = refit, score_all
        self._steps_between_refits = max(STEPS_BETWEEN_REFITS, len(weights) // _CLASSES_PER_STEP)
        # With very many classes, a step scores only some of them, and converts only their signs.
        in_floats = score_all or self._on_device
        self._signs = xp.astype(like(weights, means), xp.float32 if in_floats else xp.int8)
        self._sharpness = sharpness(*weights.shape)
        self._steps = 0
        self._losses: list[Array] = []
        # What learns by steps, and the learning rates.
        self._learned = [self.projection, self.intercept]
        self._learning_rates = [
            LEARNING_RATE_OF_PROJECTION * self._length / math.sqrt(projection.shape[0]),
            LEARNING_RATE_OF_INTERCEPT * score_deviation,
        ]
        if refit is None:
            scores = means @ self.projection + self.intercept
            self._learned.append(_latent_weights(scores, self._signs))
            self._learning_rates.append(LEARNING_RATE_OF_WEIGHTS)
        self._moments = [Adam(values) for values in self._learned]
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
        """Share of the schedule that is done; 1 at its end."""
        return self._steps / self._schedule.n_steps

    @property
    def finished(self) -> bool:
        """Whether the schedule is at its end."""
        return self._steps >= self._schedule.n_steps

    def step(
        self,
        A: Array,
        y: Array,
        sample_weight: Array | None = None,
        targets: Targets | None = None,
    ) -> None:
        """Learn from one mini-batch.

        Parameters
        ----------
        A : (m, k) rows
        y : (m,) index of each row's class
        sample_weight : (m,) of mean about 1, optional
        targets : probabilities to learn instead of the own class, where all are scored, on the host
        """
        self._steps += 1
        factors = self._xp.full_like(A[:, 0], 1.0 / A.shape[0])
        if sample_weight is not None:
            factors *= sample_weight
        if self._on_device:
            drawn = y
            if not self._score_all:
                drawn = like(self._random.integers(self._signs.shape[0], size=_RANDOM_CLASSES), A)
            factor = self._schedule.at(self._steps)
            loss = self._step_on_device(A, y, factors, drawn, factor, self._steps)
        else:
            loss = self._host_step(A, y, factors, targets)
        self._losses.append(loss)
        if self._refit is not None and (
            self._steps % self._steps_between_refits == 0 or self.finished
        ):
            found = self._refit(self.projection, self.intercept)
            self._signs[...] = self._xp.astype(found, self._signs.dtype, copy=False)
            self._index = None

    def _host_step(
        self,
        A: NDArray[np.float32],
        y: NDArray[np.intp],
        factors: NDArray[np.float32],
        targets: Targets | None,
    ) -> float:
        """A step on the host, in parts on several threads, and its loss."""
        weights = self._signs
        if not self._score_all:
            classes = self._scored_classes(A, y)
            weights, y = weights[classes].astype(np.float32), np.searchsorted(classes, y)
        bounds = np.linspace(0, len(y), _PARTS + 1).astype(int)

        def of_part(part: slice) -> tuple[Array, list[Array]]:
            some = None if targets is None else (targets[0][part], targets[1][part])
            return self._gradients(A[part], y[part], factors[part], weights, targets=some)

        parts = list(self._pool.map(of_part, [slice(*pair) for pair in pairwise(bounds)]))
        gradients = parts[0][1]
        for _, others in parts[1:]:
            for total, more in zip(gradients, others, strict=True):
                total += more
        self._move(gradients, self._schedule.at(self._steps), self._steps)
        return sum(loss for loss, _ in parts)

    def _device_step(
        self, A: Array, y: Array, factors: Array, drawn: Array, factor: float, step: int
    ) -> Array:
        """A step on a device, and its loss; of classes that come twice, the first is scored."""
        xp, weights, bias = self._xp, self._signs, None
        if not self._score_all:
            codes = signs(A @ self.projection + self.intercept)
            nearest = top_k(codes @ weights.T, min(_NEAREST_CLASSES, weights.shape[0]))[1]
            classes = xp.sort(xp.concat([y, xp.reshape(nearest, (-1,)), drawn]))
            again = xp.astype(classes[1:] == classes[:-1], A.dtype)
            bias = xp.concat([xp.zeros_like(again[:1]), -1e9 * again])
            weights, y = take(weights, classes), xp.searchsorted(classes, y)
        loss, gradients = self._gradients(A, y, factors, weights, bias)
        self._move(gradients, factor, step)
        return loss

    def _scored_classes(self, A: NDArray[np.float32], y: NDArray[np.intp]) -> NDArray[np.intp]:
        """Which of very many classes a step scores, ascending.

        Those of the rows, those with the nearest codes, and some drawn at random.
        """
        if self._index is None:
            self._index = HammingIndex(pack(self._signs))
        codes = pack(A @ self.projection + self.intercept >= 0)
        nearest, _ = self._index.top_k(codes, min(_NEAREST_CLASSES, len(self._signs)))
        drawn = self._random.integers(len(self._signs), size=_RANDOM_CLASSES)
        return np.unique(np.concatenate([y, nearest.ravel(), drawn]))

    def _gradients(
        self,
        A: Array,
        y: Array,
        factors: Array,
        weights: Array,
        bias: Array | None = None,
        targets: Targets | None = None,
    ) -> tuple[Array, list[Array]]:
        """Loss of some rows, and its gradients by what learns."""
        codes, activations = signs_and_tanh(A, self.projection, self.intercept)
        loss, by_scores, by_weights = cross_entropy(
            codes,
            activations,
            weights,
            y,
            factors,
            self._sharpness,
            bias,
            targets,
            learn_weights=self._refit is None,
        )
        # The slope of tanh, also instead of that of sign.
        activations *= activations
        by_scores -= by_scores * activations
        gradients = [A.T @ by_scores, self._xp.sum(by_scores, axis=0)]
        return loss, gradients if by_weights is None else [*gradients, by_weights]

    def _move(self, gradients: list[Array], factor: float, step: int) -> None:
        """Move projection, intercept and latent weights against the gradient."""
        for values, moments, gradient, learning_rate in zip(
            self._learned, self._moments, gradients, self._learning_rates, strict=True
        ):
            moments.move(values, gradient, factor * learning_rate, step)
        xp, projection = self._xp, self.projection
        if self._on_device:
            squares = xp.sum(projection**2, axis=0)
        else:
            squares = np.einsum("dr,dr->r", projection, projection)
        projection *= self._length / xp.maximum(xp.sqrt(squares), 0 * squares + _TINY)
        if self._refit is None:
            latent = self._learned[2]
            one = xp.ones_like(latent)
            latent[...] = xp.maximum(xp.minimum(latent, one), -one)
            self._signs[...] = signs(latent)

    def classify(self, A: NDArray[np.float32], *, rescored: bool) -> NDArray[np.intp]:
        """Index of the best class of rows (n, k), shape (n,): the nearest, or by real scores."""
        by_tanh = rescored and self._score_all
        if self._on_device:
            values = A @ self.projection + self.intercept
            values = self._xp.tanh(values) if by_tanh else signs(values)
            return to_host(self._xp.argmax(values @ self._signs.T, axis=1))
        found = np.empty(len(A), dtype=np.intp)
        index = None if by_tanh else HammingIndex(pack(self._signs))
        for start in range(0, len(A), _ROWS_PER_BLOCK):
            part = slice(start, start + _ROWS_PER_BLOCK)
            scores = A[part] @ self.projection + self.intercept
            if index is None:
                found[part] = np.argmax(np.tanh(scores) @ self._signs.T, axis=1)
            else:
                found[part] = index.nearest(pack(scores >= 0))[0]
        return found

    def close(self) -> None:
        """End the threads, and release what was recorded."""
        self._pool.shutdown()
        del self._step_on_device


def _latent_weights(values: Array, weights: Array) -> Array:
    """Latent weights (C, r) whose signs are `weights`, larger where class means score clearly."""
    xp = namespace(values)
    size = max(float(xp.sqrt(xp.mean(values**2))), _TINY)
    latent = xp.where((values >= 0) == (weights > 0), values / size, 0.1 * weights)
    return xp.clip(LATENT_SIZE * latent, -1.0, 1.0)


def signs_and_tanh(A: Array, Q: Array, t: Array) -> tuple[Array, Array]:
    """Codes of rows (m, k) by signs and by tanh, each (m, r)."""
    xp, scores = namespace(A), A @ Q
    scores += t
    return signs(scores), np.tanh(scores, out=scores) if xp is np else xp.tanh(scores)


def softmax(scores: Array, bias: Array | None = None) -> Array:
    """Probabilities of the classes from their scores (m, C), which are overwritten."""
    xp = namespace(scores)
    if bias is not None:
        scores += bias
    scores -= xp.max(scores, axis=1, keepdims=True)
    scores = np.exp(scores, out=scores) if xp is np else xp.exp(scores)
    scores /= xp.sum(scores, axis=1, keepdims=True)
    return scores


def cross_entropy(
    codes: Array,
    activations: Array,
    weights: Array,
    y: Array,
    factors: Array,
    sharp: tuple[float, float],
    bias: Array | None = None,
    targets: Targets | None = None,
    *,
    learn_weights: bool = True,
) -> tuple[Array, Array, Array | None]:
    """Mean of the cross-entropies of classes by signs and by tanh, and its gradients.

    Parameters
    ----------
    codes, activations : (m, r), signs of the rows' scores F and their tanh
    weights : (C, r), signs
    y : (m,) index of each row's class
    factors : (m,) shares of the rows in the loss
    sharp : factors of the scores in the softmax, by signs and by tanh
    bias : (C,), added to the scores of the classes, optional
    targets : probabilities to learn instead of the own class, optional

    Returns
    -------
    loss : of the own classes; 0 where there are targets
    by_codes : (m, r), by codes and activations alike
    by_weights : (C, r), or None unless weights learn
    """
    xp, loss = namespace(codes), 0.0
    by_signs = softmax(codes @ weights.T * sharp[0], bias)
    by_tanh = softmax(activations @ weights.T * sharp[1], bias)
    # Slopes of the cross-entropies by the scores of the classes.
    if targets is None:
        at = xp.arange(codes.shape[0], device=device(codes)), y
        log_likelihood = SHARE_OF_SIGNS * xp.log(by_signs[at] + _TINY)
        log_likelihood += (1.0 - SHARE_OF_SIGNS) * xp.log(by_tanh[at] + _TINY)
        loss = -(factors @ log_likelihood)
        put(by_signs, at, by_signs[at] - 1.0)
        put(by_tanh, at, by_tanh[at] - 1.0)
    else:
        by_signs -= targets[0]
        by_tanh -= targets[1]
    by_signs *= (SHARE_OF_SIGNS * sharp[0] * factors)[:, None]
    by_tanh *= ((1.0 - SHARE_OF_SIGNS) * sharp[1] * factors)[:, None]
    by_weights = None
    if learn_weights:
        by_weights = by_signs.T @ codes
        by_weights += by_tanh.T @ activations
    by_signs += by_tanh
    return loss, by_signs @ weights, by_weights
