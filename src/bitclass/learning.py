"""From sums over rows to a model: the outline of the paper.

Starting codes give the first class weights; the alternation improves weights and codes in turn;
a ridge regression of the codes on the features is the hash function.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bitclass._native import Precision
from bitclass.codes import pack, unpack
from bitclass.encoder import ridge
from bitclass.losses import LossTable
from bitclass.model import PackedModel
from bitclass.rows import Features
from bitclass.training import (
    HISTORY_DTYPE,
    Solver,
    Statistics,
    alternate,
    hinge_weights,
    make_distinct,
)

__all__ = ["Knowledge", "Settings", "Solution", "learn"]

# The program of one bit holds a number for each pair of classes, several times: 1 GB here.
_MOST_CLASSES_OF_PROGRAMS = 4096


@dataclass(frozen=True)
class Settings:
    """How to learn.

    Attributes
    ----------
    table : LossTable, or None for the closed forms of the hinge loss
    solver : solves the binary quadratic program of one bit
    max_rounds : int, most rounds of the alternation
    alpha : float, penalty of the ridge regression, or None to choose it by cross-validation
    max_bytes : int, memory that the table of margins may take
    precision : what codes are computed in at prediction
    report : called with each line of progress
    """

    table: LossTable | None
    solver: Solver
    max_rounds: int
    alpha: float | None
    max_bytes: int
    precision: Precision
    report: Callable[[str], None]


@dataclass(frozen=True)
class Solution:
    """What learning ends with.

    Attributes
    ----------
    model : PackedModel, of the classes that have rows
    history : (m,) of `HISTORY_DTYPE`
    n_rounds : int
    alpha : float or None, the penalty of the regression, where it is known
    refinement : dict or None, what refinement came to, where it took place
    """

    model: PackedModel
    history: NDArray[np.void]
    n_rounds: int
    alpha: float | None = None
    refinement: dict[str, Any] | None = None


@dataclass
class Knowledge:
    """The sums over all rows seen, and what was learned from them once somebody asked.

    A model that comes from a file has a solution and no sums.
    """

    statistics: Statistics | None
    solution: Solution | None = None


@dataclass(frozen=True)
class _Codes:
    """Weights and codes of the C classes that have rows.

    Attributes
    ----------
    weights : (C, r) int8
    class_codes : (C, r) int8, the code that most rows of each class have
    row_codes : (n, bytes) packed codes of all rows, or None where each has its class's code
    history : (m,) of `HISTORY_DTYPE`
    n_rounds : int
    """

    weights: NDArray[np.int8]
    class_codes: NDArray[np.int8]
    row_codes: NDArray[np.uint8] | None
    history: NDArray[np.void]
    n_rounds: int


def learn(
    statistics: Statistics,
    settings: Settings,
    batches: Iterable[tuple[int, Features]] | None = None,
) -> Solution:
    """Learn a model from sums over rows.

    Parameters
    ----------
    statistics : Statistics
    settings : Settings
    batches : optional
        All rows that were added once more, where they are still at hand: each batch as its first
        row's number and X (m, d). They are asked for only if a row's code differs from its
        class's. A row whose features are gone counts in the regression with the code that most of
        its class has.

    Returns
    -------
    Solution
    """
    seen = statistics.class_weights > 0
    code_sums = statistics.starting_sums()
    table = settings.table
    if table is not None and len(code_sums) > _MOST_CLASSES_OF_PROGRAMS:
        warnings.warn(
            f"{len(code_sums):,} classes: the alternation compares all pairs of them, bit by bit, "
            f"and was left out, for there are more than {_MOST_CLASSES_OF_PROGRAMS:,}; the weights "
            "are those of loss='hinge'",
            UserWarning,
            stacklevel=5,
        )
        table = None
    if table is None:
        found = _by_closed_forms(code_sums, statistics.class_weights[seen])
    else:
        found = _by_alternation(statistics, code_sums, table, settings)

    classes = statistics.classes[seen]
    weights = make_distinct(found.weights, code_sums, classes.tolist())
    moved = np.any(weights != found.weights, axis=1)
    class_codes = np.where(moved[:, None], weights, found.class_codes)

    # Classes without rows take no part: their sums are 0, whatever code stands for them here.
    all_codes = np.ones((len(seen), weights.shape[1]), dtype=np.int8)
    all_codes[seen] = class_codes
    if batches is None or found.row_codes is None:
        cross, code_sum = statistics.cross(all_codes)
    else:
        all_moved = np.zeros(len(seen), dtype=bool)
        all_moved[seen] = moved
        row_codes = statistics.follow(all_moved, pack(all_codes), found.row_codes)
        cross, code_sum = statistics.cross(all_codes, batches, row_codes)
    hash_function = ridge(
        statistics.gram,
        statistics.feature_sums.sum(axis=0),
        cross,
        code_sum,
        statistics.total_weight,
        statistics.n_rows,
        statistics.shift,
        statistics.scale,
        settings.alpha,
    )
    settings.report(f"hash function: {hash_function.fit:.1%} of the codes' variance explained")
    model = PackedModel(
        classes,
        pack(weights),
        hash_function.projection,
        hash_function.intercept,
        centre=hash_function.centre,
        scale=hash_function.scale,
        temperature=_temperature(hash_function.fit, weights.shape[1], len(classes)),
        precision=settings.precision,
        anchors=statistics.anchors,
    )
    return Solution(model, found.history, found.n_rounds, hash_function.alpha)


def _by_closed_forms(code_sums: NDArray[np.float64], class_weights: NDArray[np.float64]) -> _Codes:
    """The hinge loss: W from the code sums, then b_i = w_{y_i}, which is a fixed point."""
    weights = hinge_weights(code_sums)
    n_classes, n_bits = weights.shape
    own = np.sum(weights * code_sums)
    all_pairs = np.sum(weights.sum(axis=0) * code_sums.sum(axis=0))
    after_w = all_pairs - n_classes * own
    class_sums = weights.sum(axis=0, dtype=np.int64)
    agreement = class_weights @ (weights @ class_sums)
    after_b = agreement - n_classes * n_bits * class_weights.sum()
    # Counted from the smallest value that the linear loss could take, so that a logarithm exists.
    lowest = -2.0 * n_bits * (n_classes - 1) * class_weights.sum()
    history = np.empty(2, dtype=HISTORY_DTYPE)
    history["round"], history["step"], history["bit"] = 1, ["W", "B"], n_bits - 1
    with np.errstate(divide="ignore"):
        history["log_objective"] = np.log(np.maximum([after_w - lowest, after_b - lowest], 0.0))
    return _Codes(weights, weights, None, history, n_rounds=1)


def _by_alternation(
    statistics: Statistics, code_sums: NDArray[np.float64], table: LossTable, settings: Settings
) -> _Codes:
    """Any loss: alternate W-step and B-step from hinge's weights and the starting codes."""
    found = alternate(
        statistics.groups(code_sums),
        hinge_weights(code_sums),
        table,
        settings.solver,
        settings.max_rounds,
        settings.max_bytes,
        settings.report,
    )
    if not found.converged:
        warnings.warn(
            f"the alternation still changed bits in round {found.n_rounds}, the last one allowed; "
            "raise max_iter to let it go on",
            ConvergenceWarning,
            stacklevel=6,
        )
    return _Codes(
        found.weights,
        unpack(found.groups.most_frequent_codes(), table.n_bits),
        found.groups.codes[found.groups.inverse] if statistics.keep_codes else None,
        found.history,
        found.n_rounds,
    )


def _temperature(fit: float, n_bits: int, n_classes: int) -> float:
    """Temperature of the probabilities, from how well the regression explains the codes.

    If bits were hashed wrongly independently of each other, each with probability e, the posterior
    of class c would be the softmax of ``w_c.h(x) * log((1 - e) / e) / 2``. The share of explained
    variance gives e, for a bit whose regression value is normal around it. Bits are far from
    independent where they outnumber the C - 1 directions that tell C classes apart.
    """
    fit = min(max(fit, 1e-6), 1.0 - 1e-6)
    error = 0.5 * math.erfc(math.sqrt(fit / (1.0 - fit) / 2.0))
    log_odds = math.log1p(-error) - math.log(max(error, 1e-12))
    independent = min(1.0, (n_classes - 1) / n_bits)
    return 2.0 / (log_odds * independent)
