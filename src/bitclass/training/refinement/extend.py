"""New classes for a refined model, without the rows of the old ones.

The hash function was refined to tell the old classes apart, and codes of new class means alone are
poor weights for it. So projection and weights of the new classes learn on by the steps of
refinement, on rows drawn from what the sums know: a normal distribution about each class mean, with
the scatter that all classes share. Drawn rows of old classes have the probabilities that the model
gave them as targets (distillation), so that it stays what it was for them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitclass.codes import sign
from bitclass.hash_function import HashFunction
from bitclass.training.discriminant import (
    Coordinates,
    Scatter,
    coordinates_to_refine,
    discriminant_projection,
    drawn_rows,
    scatter_of,
    spread_of,
)
from bitclass.training.refinement.steps import (
    SHARE_OF_SIGNS,
    STEP_OF_INTERCEPT,
    STEP_OF_PROJECTION,
    STEPS_BETWEEN_REFITS,
    Adam,
    Schedule,
    sharpness,
    softmax,
)
from bitclass.training.statistics import Sums

__all__ = ["MAX_CLASSES", "extend"]

#: With more classes new ones get the codes of their means.
MAX_CLASSES = 2048
_EPOCHS = 8
_ROWS_PER_STEP, _MIN_STEPS_PER_EPOCH = 512, 16
_ROWS_PER_CLASS, _MAX_ROWS = 100, 40_000
# Steps are smaller than those of refinement, in units of which they are.
_STEP = 0.1
# Rows per class that the result is judged by, and how much of the recall it must reach.
_ROWS_TO_JUDGE, _MIN_SHARE_OF_RECALL = 30, 0.9


def extend(
    hash_function: HashFunction,
    weights: NDArray[np.int8],
    is_new: NDArray[np.bool_],
    sums: Sums,
    alpha: float,
    seed: int,
) -> tuple[HashFunction, NDArray[np.int8]] | None:
    """Hash function and weights that tell new classes apart as well.

    Parameters
    ----------
    hash_function : HashFunction, of the old classes
    weights : (C, r) int8; those of new classes are not looked at
    is_new : (C,) which classes are new
    sums : Sums, over the rows of all C classes
    alpha : float, penalty of the scatter within classes
    seed : int

    Returns
    -------
    hash_function : HashFunction
    weights : (C, r) int8, changed for new classes only
        Or None, where new classes are told apart far worse than by learning from the sums: a hash
        function of few classes may have no direction for another one.
    """
    n_classes, n_bits = weights.shape
    scatter = scatter_of(sums)
    coordinates = coordinates_to_refine(scatter, alpha, n_bits, hash_function.anchors)
    Q, t = (values.astype(np.float32) for values in coordinates.projected(hash_function, sums))
    start = Q.copy(), t.copy()
    signs = weights.astype(np.float32)
    sharp = sharpness(n_classes, n_bits)
    random = np.random.default_rng(seed)
    length = np.float32(np.linalg.norm(Q, axis=0).mean())
    of_projection, of_intercept = Adam(Q.shape), Adam(t.shape)
    n_per_class = max(1, min(_ROWS_PER_CLASS, _MAX_ROWS // n_classes))
    n_per_step = min(_ROWS_PER_STEP, n_per_class * n_classes // _MIN_STEPS_PER_EPOCH)
    schedule = Schedule(_EPOCHS * (n_per_class * n_classes // n_per_step))
    step_of_projection = STEP_OF_PROJECTION * float(length) / np.sqrt(len(Q))
    step_of_intercept = STEP_OF_INTERCEPT * spread_of(sums)

    def refit() -> None:
        signs[is_new] = sign(coordinates.means[is_new] @ Q + t)

    refit()
    step = 0
    for _ in range(_EPOCHS):
        own = np.repeat(np.arange(n_classes), n_per_class)
        A = drawn_rows(coordinates, scatter, alpha, own, random)
        order = random.permutation(len(A))
        for begin in range(0, len(order) - n_per_step + 1, n_per_step):
            step += 1
            rows = order[begin : begin + n_per_step]
            of_scores = np.zeros((len(rows), n_bits), dtype=np.float32)
            codes, real = _codes(A[rows], Q, t)
            targets = _targets(A[rows], own[rows], start, signs, is_new, sharp)
            for values, target, sharp_by, share in (
                (codes, targets[0], sharp[0], SHARE_OF_SIGNS),
                (real, targets[1], sharp[1], 1.0 - SHARE_OF_SIGNS),
            ):
                slopes = softmax(values @ signs.T * sharp_by) - target
                of_scores += np.float32(share * sharp_by / len(rows)) * (slopes @ signs)
            of_scores *= 1.0 - real * real
            size = _STEP * schedule.at(step)
            of_projection.move(Q, A[rows].T @ of_scores, size * step_of_projection, step)
            of_intercept.move(t, of_scores.sum(axis=0), size * step_of_intercept, step)
            Q *= length / np.maximum(np.linalg.norm(Q, axis=0), np.float32(1e-9))
            if step % STEPS_BETWEEN_REFITS == 0:
                refit()
    refit()
    if not _tells_new_classes_apart(coordinates, scatter, alpha, (Q, t, signs), is_new, seed):
        return None
    extended = coordinates.hash_function(Q, t, sums, hash_function.precision, hash_function.anchors)
    return extended, signs.astype(np.int8)


def _tells_new_classes_apart(
    coordinates: Coordinates,
    scatter: Scatter,
    alpha: float,
    extended: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]],
    is_new: NDArray[np.bool_],
    seed: int,
) -> bool:
    """Whether rows drawn of new classes are recognised nearly as well as by discriminant codes."""
    random = np.random.default_rng([seed, 1])
    own = np.repeat(np.flatnonzero(is_new), _ROWS_TO_JUDGE)
    A = drawn_rows(coordinates, scatter, alpha, own, random)
    n_bits = len(extended[1])
    Q, t, weights = discriminant_projection(coordinates, scatter.shares, n_bits, seed)
    Q /= coordinates.spread(Q)
    recalls = [
        np.mean(np.argmax(np.tanh(A @ Q + t) @ weights.T, axis=1) == own)
        for Q, t, weights in (extended, (Q, t, weights))
    ]
    return bool(recalls[0] >= _MIN_SHARE_OF_RECALL * recalls[1])


def _codes(
    A: NDArray[np.float32], Q: NDArray[np.float32], t: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Signs and real-valued codes (m, r) of rows (m, k)."""
    scores = A @ Q + t
    return np.where(scores >= 0, np.float32(1), np.float32(-1)), np.tanh(scores)


def _targets(
    A: NDArray[np.float32],
    own: NDArray[np.intp],
    start: tuple[NDArray[np.float32], NDArray[np.float32]],
    signs: NDArray[np.float32],
    is_new: NDArray[np.bool_],
    sharp: tuple[np.float32, np.float32],
) -> list[NDArray[np.float32]]:
    """Probabilities (m, C) to learn, by signs and by real values; of old rows the model's own."""
    old = ~is_new
    new_rows = np.flatnonzero(is_new[own])
    found = []
    for values, sharp_by in zip(_codes(A, *start), sharp, strict=True):
        target = np.zeros((len(own), len(signs)), dtype=np.float32)
        target[:, old] = softmax(values @ signs[old].T * sharp_by)
        target[new_rows] = 0.0
        target[new_rows, own[new_rows]] = 1.0
        found.append(target)
    return found
