"""Update a refined model with more rows and new classes, without the rows of the old ones.

The hash function was refined to separate the old classes, so the codes of new class means alone are
poor weights. The projection and the weights of new classes are therefore trained by refinement
steps on synthetic rows, drawn from a normal distribution around each class mean with the shared
within-class scatter of the sums. Targets for synthetic rows of old classes are the probabilities
that the old model predicts (distillation), so that its predictions for them are preserved.
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

# Factor by which a class must have grown for its weights to be replaced by the code of its mean: if
# these weights were as good as the learned ones in refinement, and if they were not.
_GROWTH_TO_FOLLOW, _GROWTH_TO_FOLLOW_ANYWAY = 1.1, 2.0
# With more classes than this, the weights of new ones are simply the codes of their means.
_MAX_CLASSES = 2048
_EPOCHS = 8
_ROWS_PER_STEP, _MIN_STEPS_PER_EPOCH = 512, 16
_ROWS_PER_CLASS, _MAX_ROWS = 100, 40_000
# Learning rates, relative to those of refinement.
_LEARNING_RATE_FACTOR = 0.1
# Synthetic rows per class for evaluation, and the share of the achievable recall that is required.
_EVALUATION_ROWS_PER_CLASS, _MIN_EVALUATION_ROWS, _MIN_SHARE_OF_RECALL = 30, 1000, 0.9


def updated_model(
    old: PackedModel, facts: Mapping[str, Any], statistics: Statistics
) -> PackedModel | None:
    """Update a refined model after rows were added or classes removed.

    The hash function is kept, unless there are new classes: it is then extended to separate these
    as well (`extend`). The weights of new classes are the codes of their means; so are those of
    known classes that gained rows, if such weights were at least as good as the learned ones in
    refinement, or if the new rows outnumber those that the weights were learned from. All others
    are kept.

    Parameters
    ----------
    old : PackedModel
    facts : facts about the refinement of that model
    statistics : Statistics

    Returns
    -------
    PackedModel, or None if the hash function cannot separate the new classes
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
    # The weights of new classes were computed from their current rows.
    statistics.class_weights_when_refined[seen] = np.where(known, before, now)
    # Weights to keep come first, so that `make_distinct` changes the others.
    order = np.argsort(~stay, kind="stable")
    ordered = weights[order]
    weights[order] = make_distinct(ordered, ordered, sums.classes[order])
    return PackedModel(
        sums.classes,
        pack(weights),
        hash_function,
        rescore=old.rescore,
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
    """Train hash function and weights to separate new classes as well.

    Parameters
    ----------
    hash_function : HashFunction, trained on the old classes
    weights : (C, r) int8; those of new classes are ignored
    is_new : (C,) mask of the new classes
    sums : Sums, over the rows of all C classes
    alpha : float, penalty on the within-class scatter
    seed : int

    Returns
    -------
    hash_function : HashFunction
    weights : (C, r) int8, changed for new classes only
        None in place of both if new classes are separated far worse than by a model fitted to the
        sums: a hash function of few classes may have no direction for another one.
    """
    n_classes, n_bits = weights.shape
    coordinates = coordinates_to_refine(scatter_of(sums), alpha, n_bits)
    Q, t = (values.astype(np.float32) for values in coordinates.projected(hash_function))

    def refit(Q: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.int8]:
        """Keep the weights of the old classes; those of new ones are the codes of their means."""
        refitted = weights.copy()
        refitted[is_new] = sign(coordinates.means[is_new] @ Q + t)
        return refitted

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
        Schedule(_EPOCHS * (n_rows // n_per_step), _LEARNING_RATE_FACTOR),
        random,
        refit,
    )
    y = np.repeat(np.arange(n_classes), n_per_class)
    for _ in range(_EPOCHS):
        A = coordinates.synthetic_rows(y, random)
        for rows in mini_batches(n_rows, n_per_step, random):
            targets = _targets(A[rows], y[rows], Q, t, weights, is_new)
            refinement.step(A[rows], y[rows], targets=targets)
    refinement.close()
    extended = refinement.projection, refinement.intercept, refinement.weights
    if not _separates_new_classes(coordinates, extended, is_new, seed):
        return None
    return coordinates.hash_function(*extended[:2], hash_function.precision), extended[2]


def _separates_new_classes(
    coordinates: Coordinates,
    extended: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int8]],
    is_new: NDArray[np.bool_],
    seed: int,
) -> bool:
    """Whether synthetic rows of new classes are classified nearly as well as by a fresh model."""
    random = np.random.default_rng([seed, 1])
    new = np.flatnonzero(is_new)
    y = np.repeat(new, max(_EVALUATION_ROWS_PER_CLASS, _MIN_EVALUATION_ROWS // len(new)))
    A = coordinates.synthetic_rows(y, random)

    def recall(Q: NDArray[Any], t: NDArray[Any], weights: NDArray[np.int8]) -> float:
        return float(np.mean(np.argmax(np.tanh(A @ Q + t) @ weights.T, axis=1) == y))

    Q, t, weights = discriminant_projection(coordinates, len(extended[1]), seed)
    deviation = coordinates.score_deviation(Q)
    achievable = recall(Q / deviation, t / deviation, weights)
    return recall(*extended) >= _MIN_SHARE_OF_RECALL * achievable


def _targets(
    A: NDArray[np.float32],
    y: NDArray[np.intp],
    Q: NDArray[np.float32],
    t: NDArray[np.float32],
    weights: NDArray[np.int8],
    is_new: NDArray[np.bool_],
) -> Targets:
    """Target probabilities: for rows of old classes, those predicted by the old model.

    `y` (m,) is the index of each row's class.
    """
    n_classes, n_bits = weights.shape
    signs = weights[~is_new].astype(np.float32)
    new_rows = np.flatnonzero(is_new[y])

    def targets(codes: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
        probabilities = np.zeros((len(y), n_classes), dtype=np.float32)
        probabilities[:, ~is_new] = softmax(codes @ signs.T * factor)
        probabilities[new_rows] = 0.0
        probabilities[new_rows, y[new_rows]] = 1.0
        return probabilities

    codes, activations = signs_and_tanh(A, Q, t)
    sharpness_of_signs, sharpness_of_tanh = sharpness(n_classes, n_bits)
    return targets(codes, sharpness_of_signs), targets(activations, sharpness_of_tanh)
