"""Steps of refinement: gradient descent on projection and weights.

The scores of a mini-batch are ``F = Q'a + t``, in whitened coordinates (`Coordinates`). The loss is
the mean of two softmax cross-entropies: that of the class scores w_c.sign(F), by which the nearest
class is found, and that of w_c.tanh(F), by which a short list is ranked. Straight-through gradients
replace the derivative of sign by that of tanh, and the binary weights W are the signs of
real-valued latent weights.

All columns of Q keep the same length: it does not affect the sign of a score, but determines how
soon tanh saturates.
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

# Chosen on held-out training rows of six datasets: see docs/accuracy.md.
LEARNING_RATE_OF_PROJECTION = 0.2  # in units of the root mean square of the entries of Q
LEARNING_RATE_OF_INTERCEPT = 0.06  # in units of the standard deviation of the scores
LEARNING_RATE_OF_WEIGHTS = 0.025
LATENT_SIZE = 0.1
SHARPNESS_OF_SIGNS, SHARPNESS_OF_TANH = 2.2, 3.2  # times the logarithm of the number of classes
SHARE_OF_SIGNS = 0.5
_WARM_UP = 0.05
_BETA1, _BETA2 = 0.9, 0.99  # of Adam
_TINY = 1e-9

# With very many classes, a step scores the classes of its rows, this many random ones, and this
# many nearest to each row.
_RANDOM_CLASSES = 512
_NEAREST_CLASSES = 4
# Number of steps between refits of the weights: at least this, and one step per this many classes,
# because a refit of 1,000,000 classes costs as much as a hundred steps.
STEPS_BETWEEN_REFITS = 16
_CLASSES_PER_STEP = 4096
# Parts of a mini-batch that may be computed in parallel. Their number is fixed, so that rounding
# does not depend on the number of threads.
_PARTS = 2
_ROWS_PER_BLOCK = 1024

#: Computes the weights (C, r) for a projection Q (k, r) and an intercept (r,).
Refit = Callable[[Array, Array], Array]
#: Target probabilities (m, C) for the class scores by sign and for those by tanh.
Targets = tuple[NDArray[np.float32], NDArray[np.float32]]


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


def mini_batches(
    n_rows: int, n_per_step: int, random: np.random.Generator, X: Array = None
) -> Iterator[Array]:
    """Yield the row indices of each step of an epoch, in random order, on the device of X.

    Rows at the end that do not fill a mini-batch are skipped.
    """
    order = like(random.permutation(n_rows), X)
    # A sample may have fewer rows than expected, and an epoch must have at least one step.
    n_per_step = min(n_per_step, n_rows)
    for start in range(0, n_rows - n_per_step + 1, n_per_step):
        yield order[start : start + n_per_step]


def sharpness(n_classes: int, n_bits: int) -> tuple[float, float]:
    """Factors on the class scores in the softmax, by sign and by tanh."""
    # With few classes and many bits, scores are sharper than needed.
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
        # The bias corrections of both moments, combined into one factor.
        unbiased = (1.0 - _BETA2**step) ** 0.5
        change = self._xp.sqrt(square)
        change += _TINY * unbiased
        change = mean / change
        change *= learning_rate * unbiased / (1.0 - _BETA1**step)
        values -= change


class Refinement:
    """A hash function and weights that are trained on mini-batches of rows.

    Parameters
    ----------
    projection : (k, r), initial projection Q; its columns are rescaled to the same length
    intercept : (r,)
    weights : (C, r) in {-1, +1}
    means : (C, k), the class means in the coordinates of the rows
    length : float, length of the columns of Q
    score_deviation : float, standard deviation of the scores F
    schedule : Schedule
    random : generator that selects random classes to score, unless `score_all`
    refit : callable, optional
        Computes the weights (C, r) for a projection and an intercept. If given, weights are
        recomputed from time to time instead of being trained by gradient steps.
    score_all : bool
        Whether a step scores all classes, or only a subset.
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
        # If a step scores only some classes, it converts only their signs to float.
        as_float = score_all or self._on_device
        self._signs = xp.astype(like(weights, means), xp.float32 if as_float else xp.int8)
        self._sharpness = sharpness(*weights.shape)
        self._steps = 0
        self._losses: list[Array] = []
        # Arrays updated by gradient steps, and their learning rates.
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
        """Mean cross-entropy over the steps since the last call."""
        losses, self._losses = self._losses, []
        return float(np.mean([float(loss) for loss in losses])) if losses else 0.0

    @property
    def progress(self) -> float:
        """Completed share of the schedule, in [0, 1]."""
        return self._steps / self._schedule.n_steps

    @property
    def finished(self) -> bool:
        """Whether the schedule is complete."""
        return self._steps >= self._schedule.n_steps

    def step(
        self,
        A: Array,
        y: Array,
        sample_weight: Array | None = None,
        targets: Targets | None = None,
    ) -> None:
        """Update projection, intercept and weights on one mini-batch.

        Parameters
        ----------
        A : (m, k) rows
        y : (m,) index of each row's class
        sample_weight : (m,) with mean about 1, optional
        targets : target probabilities instead of the true class; only with `score_all`, on the host
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
            weights = self._refit(self.projection, self.intercept)
            self._signs[...] = self._xp.astype(weights, self._signs.dtype, copy=False)
            self._index = None

    def _host_step(
        self,
        A: NDArray[np.float32],
        y: NDArray[np.intp],
        factors: NDArray[np.float32],
        targets: Targets | None,
    ) -> float:
        """Take a step on the host, in parts on several threads; returns its loss."""
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
        """Take a step on a device; returns its loss. Duplicate classes are scored only once."""
        xp, weights, bias = self._xp, self._signs, None
        if not self._score_all:
            codes = signs(A @ self.projection + self.intercept)
            nearest = top_k(codes @ weights.T, min(_NEAREST_CLASSES, weights.shape[0]))[1]
            classes = xp.sort(xp.concat([y, xp.reshape(nearest, (-1,)), drawn]))
            duplicate = xp.astype(classes[1:] == classes[:-1], A.dtype)
            bias = xp.concat([xp.zeros_like(duplicate[:1]), -1e9 * duplicate])
            weights, y = take(weights, classes), xp.searchsorted(classes, y)
        loss, gradients = self._gradients(A, y, factors, weights, bias)
        self._move(gradients, factor, step)
        return loss

    def _scored_classes(self, A: NDArray[np.float32], y: NDArray[np.intp]) -> NDArray[np.intp]:
        """Indices of the classes that a step scores, ascending.

        These are the classes of the rows, those with the nearest codes, and some random ones.
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
        """Loss over some rows, and its gradients with respect to the trained arrays."""
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
        # The derivative of tanh, which also replaces that of sign.
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
        """Predicted class indices (n,) of rows (n, k), by nearest code or by real-valued scores."""
        by_tanh = rescored and self._score_all
        if self._on_device:
            values = A @ self.projection + self.intercept
            values = self._xp.tanh(values) if by_tanh else signs(values)
            return to_host(self._xp.argmax(values @ self._signs.T, axis=1))
        predicted = np.empty(len(A), dtype=np.intp)
        index = None if by_tanh else HammingIndex(pack(self._signs))
        for start in range(0, len(A), _ROWS_PER_BLOCK):
            part = slice(start, start + _ROWS_PER_BLOCK)
            scores = A[part] @ self.projection + self.intercept
            if index is None:
                predicted[part] = np.argmax(np.tanh(scores) @ self._signs.T, axis=1)
            else:
                predicted[part] = index.nearest(pack(scores >= 0))[0]
        return predicted

    def close(self) -> None:
        """Stop the threads, and release the recorded step."""
        self._pool.shutdown()
        del self._step_on_device


def _latent_weights(values: Array, weights: Array) -> Array:
    """Latent weights (C, r) with the signs of `weights`, scaled by the scores of class means."""
    xp = namespace(values)
    size = max(float(xp.sqrt(xp.mean(values**2))), _TINY)
    latent = xp.where((values >= 0) == (weights > 0), values / size, 0.1 * weights)
    return xp.clip(LATENT_SIZE * latent, -1.0, 1.0)


def signs_and_tanh(A: Array, Q: Array, t: Array) -> tuple[Array, Array]:
    """Signs and tanh of the scores of rows (m, k), each (m, r)."""
    xp, scores = namespace(A), A @ Q
    scores += t
    return signs(scores), np.tanh(scores, out=scores) if xp is np else xp.tanh(scores)


def softmax(scores: Array, bias: Array | None = None) -> Array:
    """Class probabilities from the class scores (m, C), which are overwritten."""
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
    """Mean of the cross-entropies by sign and by tanh, and its gradients.

    Parameters
    ----------
    codes, activations : (m, r), signs of the rows' scores F and their tanh
    weights : (C, r), in {-1, +1}
    y : (m,) index of each row's class
    factors : (m,) weights of the rows in the loss
    sharp : factors on the class scores in the softmax, by sign and by tanh
    bias : (C,), added to the class scores, optional
    targets : target probabilities instead of the true class, optional

    Returns
    -------
    loss : float, 0 if there are targets
    by_codes : (m, r), gradient with respect to codes and activations
    by_weights : (C, r), gradient with respect to the weights, or None unless `learn_weights`
    """
    xp, loss = namespace(codes), 0.0
    by_signs = softmax(codes @ weights.T * sharp[0], bias)
    by_tanh = softmax(activations @ weights.T * sharp[1], bias)
    # Turn the probabilities into gradients with respect to the class scores.
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
