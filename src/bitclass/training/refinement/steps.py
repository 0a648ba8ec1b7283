"""Refinement: projection and weights improved together on the classification loss of real codes.

The alternation learns codes without looking at the features, and the hash function is a least
squares fit of them. Here both learn on: mini-batches go through h(x) = sign(Q'z + t) and the scores
w_c.h(x) of the classes; the softmax cross-entropy goes backwards through tanh in the place of sign,
and through latent weights whose signs are W (the straight-through estimator).

Rows come whitened, so that one step size suits all directions, and every column of Q keeps length
1: a code bit is the sign of a score of about unit variance, whose size means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.codes import pack

__all__ = ["Refinement", "Schedule", "rows_per_step"]

# Chosen on held-out training rows of five data sets: see docs/accuracy.md.
_STEP_OF_PROJECTION = 0.2  # divided by sqrt(d), which is the size of an entry of Q
_STEP_OF_WEIGHTS = 0.1
_START_OF_LATENT = 0.2
_SHARPNESS_A_NAT = 2.2
_LEAST_SHARPNESS = 4.0
_WARM_UP = 0.05
_DECAY_OF_MEAN, _DECAY_OF_SQUARE = 0.9, 0.99
_TINY = 1e-9

# Of very many classes, what a step scores beside those of its rows.
_RANDOM_CLASSES = 512
_NEAREST_CLASSES = 4
# Weights are refitted after so many steps, or one for so many classes, for a refit of 1,000,000
# costs as much as a hundred steps.
_STEPS_BETWEEN_REFITS = 16
_CLASSES_A_STEP = 4096


Refit = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.int8]]


@dataclass(frozen=True)
class Schedule:
    """Size of the steps: a short rise, then a quarter of a cosine down to 0.

    Attributes
    ----------
    n_steps : int
    """

    n_steps: int

    def at(self, step: int) -> float:
        """Factor of the step sizes at a step, counted from 1."""
        share = step / self.n_steps
        return min(1.0, share / _WARM_UP) * math.cos(0.5 * math.pi * min(share, 1.0))


def rows_per_step(n_rows: int) -> int:
    """Rows per mini-batch: 256, or 512 where there are many."""
    return min(n_rows, 256 if n_rows < 20_000 else 512)


class _Adam:
    """Adam's moments of one array."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._mean = np.zeros(shape, dtype=np.float32)
        self._square = np.zeros(shape, dtype=np.float32)
        self._scratch = np.empty(shape, dtype=np.float32)

    def move(
        self,
        values: NDArray[np.float32],
        gradient: NDArray[np.float32],
        size: float,
        step: int,
    ) -> None:
        """Move `values` against the gradient, in place."""
        mean, square, scratch = self._mean, self._square, self._scratch
        mean *= _DECAY_OF_MEAN
        np.multiply(gradient, 1.0 - _DECAY_OF_MEAN, out=scratch)
        mean += scratch
        square *= _DECAY_OF_SQUARE
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1.0 - _DECAY_OF_SQUARE
        square += scratch
        np.sqrt(square, out=scratch)
        # The corrections for the start of both means, as one factor of the step.
        unbiased = math.sqrt(1.0 - _DECAY_OF_SQUARE**step)
        scratch += _TINY * unbiased
        np.divide(mean, scratch, out=scratch)
        scratch *= size * unbiased / (1.0 - _DECAY_OF_MEAN**step)
        values -= scratch


class Refinement:
    """A hash function and weights that learn from mini-batches of whitened rows.

    Parameters
    ----------
    projection : (d, r), the projection Q of whitened rows to start from
    intercept : (r,)
    weights : (C, r) in {-1, +1}
    schedule : Schedule
    random : draws the classes that are scored where there are very many
    refit : optional, for very many classes
        Gives the weights (C, r) that suit a projection and an intercept. Where given, weights are
        refitted from time to time, in the place of learning by steps of their own, and a step
        scores some of the classes only, however many there are.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> Z = random.standard_normal((64, 3)).astype(np.float32)
    >>> own = (Z[:, 0] > 0).astype(np.intp)
    >>> weights = np.where(random.random((2, 8)) < 0.5, -1, 1)
    >>> refinement = Refinement(np.eye(3, 8), np.zeros(8), weights, Schedule(50), random)
    >>> for _ in range(50):
    ...     refinement.step(Z, own)
    >>> bool(np.mean(refinement.classify(Z) == own) > 0.9)
    True
    """

    def __init__(
        self,
        projection: NDArray[np.floating],
        intercept: NDArray[np.floating],
        weights: NDArray[np.signedinteger],
        schedule: Schedule,
        random: np.random.Generator,
        refit: Refit | None = None,
    ) -> None:
        n_features, n_bits = projection.shape
        lengths = np.linalg.norm(projection, axis=0)
        lengths[lengths == 0] = 1.0
        self.projection = np.ascontiguousarray(projection / lengths, dtype=np.float32)
        self.intercept = np.asarray(intercept / lengths, dtype=np.float32)
        self._refit = refit
        self._steps_between_refits = max(_STEPS_BETWEEN_REFITS, len(weights) // _CLASSES_A_STEP)
        self._signs = weights.astype(np.float32)
        self._schedule = schedule
        self._random = random
        self._steps = 0
        n_classes = len(weights)
        sharpness = max(_LEAST_SHARPNESS, _SHARPNESS_A_NAT * math.log(n_classes))
        self._scale = np.float32(sharpness / n_bits)
        self._step_of_projection = _STEP_OF_PROJECTION / math.sqrt(n_features)
        self._of_projection = _Adam(self.projection.shape)
        self._of_intercept = _Adam(self.intercept.shape)
        if refit is None:
            self._latent = np.float32(_START_OF_LATENT) * self._signs
            self._of_weights = _Adam(weights.shape)
        self._index: HammingIndex | None = None

    @property
    def weights(self) -> NDArray[np.int8]:
        """Weights of the classes, (C, r) in {-1, +1}."""
        return self._signs.astype(np.int8)

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
        Z: NDArray[np.float32],
        own: NDArray[np.intp],
        row_weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Learn from one mini-batch.

        Parameters
        ----------
        Z : (m, d) whitened rows
        own : (m,) index of each row's class
        row_weights : (m,) of mean about 1, optional
        """
        self._steps += 1
        scores = Z @ self.projection
        scores += self.intercept
        codes = np.where(scores >= 0, np.float32(1), np.float32(-1))
        classes = self._scored_classes(codes, own)
        signs = self._signs if classes is None else self._signs[classes]
        place = own if classes is None else np.searchsorted(classes, own)

        slopes = _softmax_slopes(codes @ signs.T * self._scale, place)
        if row_weights is not None:
            slopes *= row_weights[:, None]
        slopes *= self._scale / len(own)
        of_scores = slopes @ signs
        # The slope of tanh, in the place of that of sign.
        np.tanh(scores, out=scores)
        scores *= scores
        of_scores -= of_scores * scores

        factor = self._schedule.at(self._steps)
        size = factor * self._step_of_projection
        self._of_projection.move(self.projection, Z.T @ of_scores, size, self._steps)
        self._of_intercept.move(self.intercept, of_scores.sum(axis=0), size, self._steps)
        lengths = np.sqrt(np.einsum("dr,dr->r", self.projection, self.projection))
        self.projection /= np.maximum(lengths, np.float32(_TINY))
        if self._refit is None:
            of_weights = slopes.T @ codes
            self._of_weights.move(self._latent, of_weights, factor * _STEP_OF_WEIGHTS, self._steps)
            np.clip(self._latent, -1.0, 1.0, out=self._latent)
            self._signs = np.where(self._latent >= 0, np.float32(1), np.float32(-1))
        elif self._steps % self._steps_between_refits == 0 or self.finished:
            self._signs = self._refit(self.projection, self.intercept).astype(np.float32)
            self._index = None

    def _scored_classes(
        self, codes: NDArray[np.float32], own: NDArray[np.intp]
    ) -> NDArray[np.intp] | None:
        """The classes that a step scores, ascending, or None for all of them.

        Where there are very many: those of the rows, those with the nearest codes, and some drawn
        at random.
        """
        if self._refit is None:
            return None
        if self._index is None:
            self._index = HammingIndex(pack(self._signs))
        nearest, _ = self._index.top_k(pack(codes), _NEAREST_CLASSES)
        drawn = self._random.integers(len(self._signs), size=_RANDOM_CLASSES)
        return np.unique(np.concatenate([own, nearest.ravel(), drawn]))

    def classify(self, Z: NDArray[np.float32]) -> NDArray[np.intp]:
        """Index of the nearest class of whitened rows (n, d), shape (n,)."""
        codes = pack(Z @ self.projection + self.intercept >= 0)
        return HammingIndex(pack(self._signs)).nearest(codes)[0]


def _softmax_slopes(scores: NDArray[np.float32], own: NDArray[np.intp]) -> NDArray[np.float32]:
    """Slopes of the cross-entropy by the scores (m, C) of the classes; overwrites `scores`."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(own)), own] -= 1.0
    return scores
