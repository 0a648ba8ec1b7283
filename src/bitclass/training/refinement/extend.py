"""More rows and new classes for a refined model, without the rows of the old ones.

The hash function was refined to tell the old classes apart, and codes of new class means alone are
poor weights for it. So projection and weights of the new classes learn by the steps of refinement,
on rows drawn from what the sums know: a normal distribution about each class mean, with the scatter
that all classes share. Drawn rows of old classes have the probabilities that the model gave them as
targets (distillation), so that it stays what it was for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.codes import make_distinct, pack, sign
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.discriminant import (
    Coordinates,
    coordinates_to_refine,
    default_alpha,
    discriminant_projection,
    scatter_of,
    target_deviation,
)
from bitclass.training.refinement.refine import class_mean_weights
from bitclass.training.refinement.steps import (
    Refinement,
    Schedule,
    Targets,
    mini_batches,
    sharpness,
    signs_and_tanh,
    softmax,
)
from bitclass.training.statistics import Statistics, Sums

__all__ = ["extend", "updated_model"]

# How much a class must have grown for its weights to follow its mean: where such weights were as
# good as the learned ones in refinement, and where they were not.
_GROWTH_TO_FOLLOW, _GROWTH_TO_FOLLOW_ANYWAY = 1.1, 2.0
# With more classes than this new ones get the codes of their means.
_MAX_CLASSES = 2048
_EPOCHS = 8
_ROWS_PER_STEP, _MIN_STEPS_PER_EPOCH = 512, 16
_ROWS_PER_CLASS, _MAX_ROWS = 100, 40_000
# Factor of the learning rates of refinement.
_FACTOR_OF_LEARNING_RATES = 0.1
# Rows per class that the result is judged by, and how much of the recall it must reach.
_ROWS_PER_CLASS_TO_JUDGE, _MIN_ROWS_TO_JUDGE, _MIN_SHARE_OF_RECALL = 30, 1000, 0.9


def updated_model(
    old: PackedModel, facts: Mapping[str, Any], statistics: Statistics
) -> PackedModel | None:
    """A refined model after more rows, or with classes removed.

    The hash function stays, unless there are new classes: it is then extended to tell these apart
    as well (`extend`). New classes get the codes of their means as weights. So do known classes
    that gained rows, where such weights were at least as good as the learned ones in refinement, or
    where the new rows outnumber those that the weights were learned from. All others stay.

    Parameters
    ----------
    old : PackedModel
    facts : about the refinement of that model
    statistics : Statistics

    Returns
    -------
    PackedModel, or None where the hash function cannot tell new classes apart
    """
    statistics.to_host()
    sums = statistics.sums()
    seen = statistics.class_weights > 0
    now, before = sums.class_weights, statistics.class_weights_when_refined[seen]
    place = np.minimum(np.searchsorted(old.classes, sums.classes), len(old.classes) - 1)
    known = old.classes[place] == sums.classes
    follow = facts.get("weights_follow_means")
    stay = known & (now <= (_GROWTH_TO_FOLLOW if follow else _GROWTH_TO_FOLLOW_ANYWAY) * before)
    hash_function = old.hash_function
    weights = class_mean_weights(hash_function, sums)
    weights[stay] = old.unpacked_weights()[place[stay]]
    if not known.all() and len(known) <= _MAX_CLASSES:
        alpha = facts.get("alpha")
        alpha = default_alpha(sums) if alpha is None else float(alpha)
        extended = extend(hash_function, weights, ~known, sums, alpha, statistics.starting.seed)
        if extended is None:
            return None
        hash_function, weights = extended
    # Of the weights of new classes it is now known which rows they come from.
    statistics.class_weights_when_refined[seen] = np.where(known, before, now)
    # Weights that stay come first, so that it is the others that give way.
    order = np.argsort(~stay, kind="stable")
    ordered = weights[order]
    weights[order] = make_distinct(ordered, ordered, sums.classes[order])
    return PackedModel(
        sums.classes,
        pack(weights),
        hash_function,
        rescore=old.rescore,
        steepness=old.steepness,
        temperature=old.temperature,
    )


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
    coordinates = coordinates_to_refine(scatter_of(sums), alpha, n_bits)
    Q, t = (values.astype(np.float32) for values in coordinates.projected(hash_function))

    def refit(Q: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.int8]:
        """Weights of the old classes stay; those of new ones follow their means."""
        found = weights.copy()
        found[is_new] = sign(coordinates.means[is_new] @ Q + t)
        return found

    random = np.random.default_rng(seed)
    n_per_class = max(1, min(_ROWS_PER_CLASS, _MAX_ROWS // n_classes))
    n_rows = n_per_class * n_classes
    n_per_step = min(_ROWS_PER_STEP, n_rows // _MIN_STEPS_PER_EPOCH)
    refinement = Refinement(
        Q,
        t,
        refit(Q, t),
        coordinates.means,
        float(np.linalg.norm(Q, axis=0).mean()),
        target_deviation(sums),
        Schedule(_EPOCHS * (n_rows // n_per_step), _FACTOR_OF_LEARNING_RATES),
        random,
        refit,
    )
    y = np.repeat(np.arange(n_classes), n_per_class)
    for _ in range(_EPOCHS):
        A = coordinates.drawn_rows(y, random)
        for rows in mini_batches(n_rows, n_per_step, random):
            targets = _targets(A[rows], y[rows], Q, t, weights, is_new)
            refinement.step(A[rows], y[rows], targets=targets)
    refinement.close()
    extended = refinement.projection, refinement.intercept, refinement.weights
    if not _tells_new_classes_apart(coordinates, extended, is_new, seed):
        return None
    return coordinates.hash_function(*extended[:2], hash_function.precision), extended[2]


def _tells_new_classes_apart(
    coordinates: Coordinates,
    extended: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int8]],
    is_new: NDArray[np.bool_],
    seed: int,
) -> bool:
    """Whether rows drawn of new classes are recognised nearly as well as by discriminant codes."""
    random = np.random.default_rng([seed, 1])
    new = np.flatnonzero(is_new)
    y = np.repeat(new, max(_ROWS_PER_CLASS_TO_JUDGE, _MIN_ROWS_TO_JUDGE // len(new)))
    A = coordinates.drawn_rows(y, random)

    def recall(Q: NDArray[Any], t: NDArray[Any], weights: NDArray[np.int8]) -> float:
        return float(np.mean(np.argmax(np.tanh(A @ Q + t) @ weights.T, axis=1) == y))

    Q, t, weights = discriminant_projection(coordinates, len(extended[1]), seed)
    deviation = coordinates.score_deviation(Q)
    possible = recall(Q / deviation, t / deviation, weights)
    return recall(*extended) >= _MIN_SHARE_OF_RECALL * possible


def _targets(
    A: NDArray[np.float32],
    y: NDArray[np.intp],
    Q: NDArray[np.float32],
    t: NDArray[np.float32],
    weights: NDArray[np.int8],
    is_new: NDArray[np.bool_],
) -> Targets:
    """Probabilities to learn: of rows of old classes those that the old model gives them.

    `y` (m,) is the index of each row's class.
    """
    n_classes, n_bits = weights.shape
    signs = weights[~is_new].astype(np.float32)
    new_rows = np.flatnonzero(is_new[y])

    def targets(codes: NDArray[np.float32], sharp: float) -> NDArray[np.float32]:
        found = np.zeros((len(y), n_classes), dtype=np.float32)
        found[:, ~is_new] = softmax(codes @ signs.T * sharp)
        found[new_rows] = 0.0
        found[new_rows, y[new_rows]] = 1.0
        return found

    by_signs, by_tanh = signs_and_tanh(A, Q, t)
    sharp_signs, sharp_tanh = sharpness(n_classes, n_bits)
    return targets(by_signs, sharp_signs), targets(by_tanh, sharp_tanh)
