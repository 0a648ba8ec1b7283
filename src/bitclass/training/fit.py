"""From sums over rows to a model: the outline of the paper.

Starting codes give the first class weights; the alternation improves weights and codes in turn; a
ridge regression of the codes on the features is the hash function. Discriminant codes, the default,
come with their hash function. Refinement improves projection and weights together on the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.special
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bitclass._native import Precision
from bitclass._warn import warn
from bitclass.codes import pack, unpack
from bitclass.hash_function import HashFunction
from bitclass.losses import Loss, LossTable
from bitclass.model import PackedModel
from bitclass.rows import Features, dense_rows, sample_rows
from bitclass.training.alternation import HISTORY_DTYPE, alternate, hinge_weights
from bitclass.training.anchors import anchor_count, choose_anchors
from bitclass.training.bqp import Solver
from bitclass.training.discriminant import (
    FURTHER_COORDINATES,
    Coordinates,
    Scatter,
    coordinates_of,
    default_alpha,
    discriminant_projection,
    drawn_rows,
    scatter_of,
    spread_of,
)
from bitclass.training.distinct import make_distinct
from bitclass.training.refinement import (
    MAX_EXTENDED_CLASSES,
    RESCORE_LENGTHS,
    Refined,
    Rows,
    Start,
    class_mean_weights,
    extend,
    refine,
)
from bitclass.training.ridge import Ridge, ridge
from bitclass.training.standardise import standardisation
from bitclass.training.starting_codes import start_codes
from bitclass.training.statistics import Statistics, Sums

__all__ = ["Fitted", "Settings", "fit_model", "start_statistics", "update_model"]

# The program of one bit holds a number for each pair of classes, several times: 1 GB here.
MAX_CLASSES_OF_PROGRAMS = 4096
# With refine="auto" fewer rows than this are not refined: too few could be held out.
_MIN_ROWS_TO_REFINE = 500
# Where classes have fewer rows than this, their weights know the held-out rows too well.
_FEW_ROWS = 50
# Regression values are near -1 and +1 where a bit is certain.
_STEEPNESS_OF_REGRESSION = 2.0
# How much a class must have grown for its weights to follow its mean, where that is as good.
_GROWTH_TO_FOLLOW = 1.1
# Where the most frequent class has so many times the mean share, a regression is tried as well, and
# without held-out rows both are judged by so many rows drawn from what the sums know.
_UNEVEN = 1.25
_MAX_CLASSES_OF_REGRESSION = (
    4096  # with more it is worse, and judging it would take too much memory
)
_MAX_MEANS = 10_000  # that the temperature is estimated from
_ROWS_TO_JUDGE, _CLEAR_LEAD = 2000, 0.03
# Rows whose similarities to the anchors tell how these are standardised.
_ROWS_FOR_SIMILARITIES = 10_000


# A hash function and class weights (C, r).
_Candidate = tuple[HashFunction, NDArray[np.int8]]


@dataclass(frozen=True)
class Settings:
    """How to learn: the checked parameters of the estimator.

    Attributes
    ----------
    n_bits : int
    loss : Loss
    table : LossTable, or None for the closed forms of the hinge loss
    solver : solves the binary quadratic program of one bit
    max_rounds : int, limit on the rounds of the alternation
    alpha : float, penalty of the ridge regression, or None to choose it by cross-validation
    refine : bool or "auto"
    kernel : bool, whether rows are hashed by their similarities to anchors
    n_anchors : int or "auto"
    gamma : float or str, width of the kernel
    class_weighted : bool, whether classes have weights of their own
    rescore : int, length of the short list, or None to choose it
    precision : what codes are computed in at prediction
    random_state : seed or source of randomness
    max_bytes : int, memory that a sample of rows for refinement may take a quarter of
    report : called with each line of progress
    """

    n_bits: int
    loss: Loss
    table: LossTable | None
    solver: Solver
    max_rounds: int
    alpha: float | None
    refine: bool | Literal["auto"]
    kernel: bool
    n_anchors: int | str
    gamma: float | str
    class_weighted: bool
    rescore: int | None
    precision: Precision
    random_state: int | np.random.RandomState | None
    max_bytes: int
    report: Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """What training ends with.

    Attributes
    ----------
    model : PackedModel, of the classes that have rows
    history : (m,) of `HISTORY_DTYPE`
    n_rounds : int
    alpha : float or None, the penalty of the regression, where it is known
    refinement : dict or None, facts about the refinement, where it took place
    """

    model: PackedModel
    history: NDArray[np.void]
    n_rounds: int
    alpha: float | None = None
    refinement: dict[str, Any] | None = None

    @property
    def is_refined(self) -> bool:
        """Whether the model is a refined one."""
        return self.refinement is not None and bool(self.refinement.get("taken"))


def start_statistics(
    settings: Settings,
    X: Features,
    labels: NDArray[Any],
    weights: NDArray[np.float64] | None,
    initial_codes: str | NDArray[Any],
) -> Statistics:
    """Empty statistics, with anchors and starting codes set up on sample rows.

    Parameters
    ----------
    settings : Settings
    X : (n, d)
    labels : (n,)
    weights : (n,), or None for ones
    initial_codes : name of the starting codes, or (n, r) codes
    """
    weights = np.ones(len(labels)) if weights is None else weights
    centre, scale = standardisation(X, weights)
    random = check_random_state(settings.random_state)
    anchors = None
    if settings.kernel:
        n_anchors = anchor_count(settings.n_anchors, *X.shape)
        anchors = choose_anchors(X, n_anchors, settings.gamma, centre, scale, random)
        sample = sample_rows(X.shape[0], _ROWS_FOR_SIMILARITIES)
        X = anchors.similarities(dense_rows(X, sample))
        labels, weights = labels[sample], weights[sample]
        centre, scale = standardisation(X, weights)
    starting = start_codes(
        initial_codes, settings.n_bits, X, labels, weights, centre, scale, random
    )
    keep_codes = not settings.loss.closed_form
    return Statistics(starting, centre, scale, keep_codes=keep_codes, anchors=anchors)


def fit_model(
    settings: Settings,
    statistics: Statistics,
    rows: Rows | None = None,
    n_rows: int | None = None,
) -> Fitted:
    """Learn a model from sums over rows, and from the rows where they are at hand.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    rows : passes over the rows that were summed, where they are at hand
        A row whose features are gone counts in the regression with the code that most of its
        class has.
    n_rows : int, how many rows pass, where they are a sample of those that were summed

    Returns
    -------
    Fitted
    """
    if _is_constant(statistics):
        warn("no feature of X varies, as far as float64 can tell: all rows get the same code")
    # Discriminant directions know no weights of classes; the regression does.
    weighted = settings.class_weighted
    if statistics.starting.kind == "discriminant" and settings.table is None and not weighted:
        return _fit_discriminant(settings, statistics, rows, n_rows)
    return _fit_by_regression(settings, statistics, rows, n_rows)


def _is_constant(statistics: Statistics) -> bool:
    """Whether no feature varies over the rows."""
    total = max(statistics.total_weight, 1e-300)
    mean = statistics.feature_sums.sum(axis=0) / total
    square = np.diag(statistics.gram) / total
    return bool(np.all(square - mean**2 <= 1e-12 * square))


def _fit_discriminant(
    settings: Settings, statistics: Statistics, rows: Rows | None, n_rows: int | None
) -> Fitted:
    """Discriminant codes: hash function and weights in closed form, then refinement."""
    seed = statistics.starting.seed

    def start(sums: Sums, coordinates: Coordinates) -> list[_Candidate]:
        shares = sums.class_weights / sums.total_weight
        Q, t, weights = discriminant_projection(coordinates, shares, settings.n_bits, seed)
        factor = spread_of(sums) / coordinates.spread(Q)
        hash_function = coordinates.hash_function(
            factor * Q, factor * t, sums, settings.precision, statistics.anchors
        )
        found = [(hash_function, weights)]
        if len(shares) * shares.max() > _UNEVEN and len(shares) <= _MAX_CLASSES_OF_REGRESSION:
            found.append(_regressed(settings, statistics, sums, weights))
        return found

    sums = statistics.sums()
    refined = _refined(settings, statistics, start, 1.0, rows, n_rows)
    if refined is not None and refined.report["taken"]:
        weights = refined.model.unpacked_weights()
        codes = _closed_form_history(weights, sums)
        return Fitted(refined.model, *codes, refined.alpha, refined.report)
    alpha = settings.alpha
    if alpha is None:
        alpha = default_alpha(sums) if refined is None else refined.alpha
    scatter = scatter_of(sums)
    coordinates = coordinates_of(scatter, alpha, settings.n_bits + FURTHER_COORDINATES)
    hash_function, found = _best_on_drawn_rows(
        start(sums, coordinates), coordinates, scatter, alpha, sums
    )
    weights = make_distinct(found, found.astype(np.float64), sums.classes.tolist())
    model = PackedModel(sums.classes, pack(weights), hash_function)
    if refined is None:
        model.rescore = _default_rescore(settings)
        model.temperature = _temperature_of_means(
            hash_function, weights, coordinates, sums, model.rescore > 0
        )
    else:
        model.rescore, model.temperature = refined.model.rescore, refined.model.temperature
    report = None if refined is None else refined.report
    return Fitted(model, *_closed_form_history(weights, sums), alpha, report)


def _regressed(
    settings: Settings, statistics: Statistics, sums: Sums, codes: NDArray[np.int8]
) -> _Candidate:
    """The paper's closed forms from discriminant codes (C, r).

    Discriminant directions do not know how frequent classes are; the regression does, and is better
    where frequent classes overlap with rare ones.
    """
    weights = hinge_weights(codes * sums.class_weights[:, None])
    signs = weights.astype(np.float64)
    cross, code_sum = sums.feature_sums.T @ signs, sums.class_weights @ signs
    found = ridge(sums, cross, code_sum, settings.alpha).hash_function
    hash_function = HashFunction(
        np.float32(_STEEPNESS_OF_REGRESSION) * found.projection,
        _STEEPNESS_OF_REGRESSION * found.intercept,
        centre=found.centre,
        scale=found.scale,
        precision=settings.precision,
        anchors=statistics.anchors,
    )
    return hash_function, weights


def _best_on_drawn_rows(
    candidates: list[_Candidate],
    coordinates: Coordinates,
    scatter: Scatter,
    alpha: float,
    sums: Sums,
) -> _Candidate:
    """Of several hash functions and weights, the best on rows as the sums describe them."""
    if len(candidates) == 1:
        return candidates[0]
    random = np.random.default_rng(0)
    own = random.choice(len(scatter.shares), _ROWS_TO_JUDGE, p=scatter.shares)
    A = drawn_rows(coordinates, scatter, alpha, own, random)

    def accuracy(candidate: _Candidate) -> float:
        Q, t = coordinates.projected(candidate[0], sums)
        scores = np.tanh(A @ Q + t) @ candidate[1].T.astype(np.float32)
        return float(np.mean(scores.argmax(axis=1) == own))

    best = max(candidates, key=accuracy)
    return best if accuracy(best) > accuracy(candidates[0]) + _CLEAR_LEAD else candidates[0]


def _fit_by_regression(
    settings: Settings, statistics: Statistics, rows: Rows | None, n_rows: int | None
) -> Fitted:
    """The paper: weights and codes, ridge regression of the codes; then refinement."""
    sums = statistics.sums()
    code_sums = statistics.starting.code_sums(sums)
    codes = _weights_and_codes(settings, statistics, sums, code_sums)
    weights = make_distinct(codes.weights, code_sums, sums.classes.tolist())
    moved = np.any(weights != codes.weights, axis=1)
    class_codes = np.where(moved[:, None], weights, codes.class_codes)
    cross, code_sum = _codes_times_features(
        statistics, moved, class_codes, codes.row_codes, None if n_rows is not None else rows
    )

    def regression(sums: Sums, cross: Any, code_sum: Any, alpha: float | None) -> Ridge:
        return ridge(
            sums,
            cross,
            code_sum,
            alpha,
            precision=settings.precision,
            anchors=statistics.anchors,
        )

    found = regression(sums, cross, code_sum, settings.alpha)
    settings.report(f"hash function: {found.explained:.1%} of the codes' variance explained")

    def start(sums: Sums, coordinates: Coordinates) -> list[_Candidate]:
        """The same without the held-out rows."""
        own = weights
        if statistics.n_rows < _FEW_ROWS * len(weights):
            # Weights near to the code of each row make held-out rows look as easy as training rows.
            own = hinge_weights(statistics.starting.code_sums(sums))
        signs = own.astype(np.float64)
        cross, code_sum = sums.feature_sums.T @ signs, sums.class_weights @ signs
        return [(regression(sums, cross, code_sum, found.alpha).hash_function, own)]

    refined = _refined(settings, statistics, start, _STEEPNESS_OF_REGRESSION, rows, n_rows)
    report = None if refined is None else refined.report
    if refined is not None and refined.report["taken"]:
        return Fitted(refined.model, codes.history, codes.n_rounds, found.alpha, report)
    model = PackedModel(
        sums.classes, pack(weights), found.hash_function, steepness=_STEEPNESS_OF_REGRESSION
    )
    if refined is None:
        model.rescore = _default_rescore(settings)
        model.temperature = _temperature(found.explained, settings.n_bits, len(sums.classes))
    else:
        model.rescore, model.temperature = refined.model.rescore, refined.model.temperature
    return Fitted(model, codes.history, codes.n_rounds, found.alpha, report)


def _default_rescore(settings: Settings) -> int:
    """Length of the short list where no rows were held out to choose it."""
    return RESCORE_LENGTHS[0] if settings.rescore is None else settings.rescore


def _refined(
    settings: Settings,
    statistics: Statistics,
    start: Start,
    steepness: float,
    rows: Rows | None,
    n_rows: int | None,
) -> Refined | None:
    """Refine the model where that is wanted and can be done."""
    n_classes = int(np.count_nonzero(statistics.class_weights > 0))
    wanted = settings.refine
    if wanted == "auto":
        wanted = rows is not None and statistics.n_rows >= max(_MIN_ROWS_TO_REFINE, 2 * n_classes)
    if not wanted:
        return None
    if rows is None:
        warn(
            "refine=True: the model was not refined, because the rows of earlier batches are no "
            "longer available; call fit or fit_batches"
        )
        return None
    refined = refine(
        statistics,
        rows,
        start,
        n_rows=statistics.n_rows if n_rows is None else n_rows,
        n_bits=settings.n_bits,
        alpha=settings.alpha,
        rescore=settings.rescore,
        steepness=steepness,
        seed=int(check_random_state(settings.random_state).randint(2**31 - 1)),
        max_bytes=settings.max_bytes // 4,
        report=settings.report,
    )
    if refined is None and settings.refine != "auto":
        warn(
            f"refine=True: the model was not refined, because {statistics.n_rows} rows of "
            f"{n_classes} classes are too few to hold some out"
        )
    if refined is not None and refined.report["taken"]:
        statistics.class_weights_when_refined = statistics.class_weights.copy()
    return refined


def update_model(settings: Settings, fitted: Fitted, statistics: Statistics) -> Fitted:
    """A refined model after more rows, or with classes removed.

    The hash function stays, unless there are new classes: it is then extended to tell these apart
    as well (`extend`). New classes get the codes of their means as weights. So do known classes
    that gained rows, where such weights were at least as good as the learned ones in refinement, or
    where the new rows outnumber those that the weights were learned from. All others stay.

    Parameters
    ----------
    settings : Settings
    fitted : Fitted, a refined one
    statistics : Statistics

    Returns
    -------
    Fitted
    """
    assert fitted.refinement is not None
    sums, old = statistics.sums(), fitted.model
    seen = statistics.class_weights > 0
    now, before = sums.class_weights, statistics.class_weights_when_refined[seen]
    place = np.minimum(np.searchsorted(old.classes, sums.classes), len(old.classes) - 1)
    known = old.classes[place] == sums.classes
    follow = fitted.refinement.get("weights_follow_means")
    outgrown = now > (_GROWTH_TO_FOLLOW if follow else 2.0) * before
    stay = known & ~outgrown
    hash_function = old.hash_function
    weights = class_mean_weights(hash_function, sums)
    weights[stay] = old.unpacked_weights()[place[stay]]
    if not known.all() and len(known) <= MAX_EXTENDED_CLASSES:
        alpha = float(fitted.refinement.get("alpha") or default_alpha(sums))
        extended = extend(hash_function, weights, ~known, sums, alpha, statistics.starting.seed)
        if extended is None:
            warn(
                "the refined hash function does not tell the new classes apart: the model is "
                "learned from the sums instead; call fit with all rows to refine it again"
            )
            return fit_model(settings, statistics)
        hash_function, weights = extended
    # Of the weights of new classes it is now known which rows they come from.
    statistics.class_weights_when_refined[seen] = np.where(known, before, now)
    # Weights that stay come first, so that it is the others that give way.
    order = np.argsort(~stay, kind="stable")
    ordered = weights[order]
    weights[order] = make_distinct(
        ordered, ordered.astype(np.float64), sums.classes[order].tolist()
    )
    model = PackedModel(
        sums.classes,
        pack(weights),
        hash_function,
        rescore=old.rescore,
        steepness=old.steepness,
        temperature=old.temperature,
    )
    return replace(fitted, model=model)


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


def _weights_and_codes(
    settings: Settings, statistics: Statistics, sums: Sums, code_sums: NDArray[np.float64]
) -> _Codes:
    """Class weights and codes, by the closed forms of the hinge loss or by the alternation."""
    if settings.table is None:
        return _by_closed_forms(sums, code_sums)
    n_classes = len(sums.classes)
    if n_classes > MAX_CLASSES_OF_PROGRAMS:
        raise ValueError(
            f"loss={settings.loss.name!r} compares all pairs of classes and takes at most "
            f"{MAX_CLASSES_OF_PROGRAMS:,} of them, found {n_classes:,}; use loss='hinge'"
        )
    found = alternate(
        statistics.groups(code_sums),
        hinge_weights(code_sums),
        settings.table,
        settings.solver,
        settings.max_rounds,
        settings.report,
    )
    if not found.converged:
        warn(
            f"the alternation still changed bits in round {found.n_rounds}, the last one allowed; "
            "increase max_iter",
            ConvergenceWarning,
        )
    return _Codes(
        found.weights,
        unpack(found.groups.most_frequent_codes(), settings.n_bits),
        found.groups.codes[found.groups.inverse] if statistics.keep_codes else None,
        found.history,
        found.n_rounds,
    )


def _by_closed_forms(sums: Sums, code_sums: NDArray[np.float64]) -> _Codes:
    """The hinge loss: W from the code sums, then b_i = w_{y_i}, which is a fixed point."""
    weights = hinge_weights(code_sums)
    history, n_rounds = _closed_form_history(weights, sums, code_sums)
    return _Codes(weights, weights, None, history, n_rounds)


def _closed_form_history(
    weights: NDArray[np.int8], sums: Sums, code_sums: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.void], int]:
    """History of the linear loss after W-step and B-step, and the number of rounds.

    Parameters
    ----------
    weights : (C, r)
    sums : Sums
    code_sums : (C, r), of the codes before the B-step; by default every row has its class's weights
    """
    n_classes, n_bits = weights.shape
    totals = sums.class_weights
    if code_sums is None:
        code_sums = weights * totals[:, None]
    own = np.sum(weights * code_sums)
    all_pairs = np.sum(weights.sum(axis=0, dtype=np.int64) * code_sums.sum(axis=0))
    after_w = all_pairs - n_classes * own
    class_sums = weights.sum(axis=0, dtype=np.int64)
    agreement = totals @ (weights @ class_sums)
    after_b = agreement - n_classes * n_bits * totals.sum()
    # Counted from the smallest value that the linear loss could take, so that a logarithm exists.
    lowest = -2.0 * n_bits * (n_classes - 1) * totals.sum()
    history = np.empty(2, dtype=HISTORY_DTYPE)
    history["round"], history["step"], history["bit"] = 1, ["W", "B"], n_bits - 1
    with np.errstate(divide="ignore"):
        history["log_objective"] = np.log(np.maximum([after_w - lowest, after_b - lowest], 0.0))
    return history, 1


def _codes_times_features(
    statistics: Statistics,
    moved: NDArray[np.bool_],
    class_codes: NDArray[np.int8],
    row_codes: NDArray[np.uint8] | None,
    rows: Rows | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """X'B and the sum of the codes, over all rows.

    Parameters
    ----------
    statistics : Statistics
    moved : (C,) whether the rows of a class follow its code, whatever theirs was
    class_codes : (C, r), of the classes that have rows
    row_codes : (n, bytes) packed codes of all rows, or None where each has its class's code
    rows : passes over all rows, or None
    """
    seen = statistics.class_weights > 0
    # Classes without rows take no part: their sums are 0, whatever code stands for them here.
    all_codes = np.ones((len(seen), class_codes.shape[1]), dtype=np.int8)
    all_codes[seen] = class_codes
    if rows is None or row_codes is None:
        return statistics.cross(all_codes)
    follows = np.zeros(len(seen), dtype=bool)
    follows[seen] = moved
    own, _, _ = statistics.kept_rows()
    row_codes = np.where(follows[own, None], pack(all_codes)[own], row_codes)
    return statistics.cross(all_codes, (X for X, _, _ in rows()), row_codes)


def _temperature_of_means(
    hash_function: HashFunction,
    weights: NDArray[np.int8],
    coordinates: Coordinates,
    sums: Sums,
    rescored: bool,
) -> float:
    """Temperature of the probabilities, from how far class means lie from the thresholds.

    Scores of rows scatter about those of their class mean by the same deviation in every class.
    """
    Q, t = coordinates.projected(hash_function, sums)
    deviations = np.maximum(np.linalg.norm(Q, axis=0), 1e-12)
    some = coordinates.means[:: 1 + len(coordinates.means) // _MAX_MEANS]
    values = some @ Q + t
    distances = np.abs(values) / deviations
    error = float(np.mean(scipy.special.ndtr(-distances)))
    temperature = _temperature_of_errors(error, *weights.shape[::-1])
    if not rescored:
        return temperature
    # Scores of real-valued codes are smaller than those of their signs.
    return temperature * float(np.mean(np.abs(np.tanh(values))))


def _temperature(explained: float, n_bits: int, n_classes: int) -> float:
    """Temperature of the probabilities, from how well the regression explains the codes.

    If bits were hashed wrongly independently of each other, each with probability e, the posterior
    of class c would be the softmax of ``w_c.h(x) * log((1 - e) / e) / 2``. The share of explained
    variance gives e, for a bit whose regression value is normal around it. Bits are far from
    independent where they outnumber the C - 1 directions that tell C classes apart.
    """
    explained = min(max(explained, 1e-6), 1.0 - 1e-6)
    error = 0.5 * math.erfc(math.sqrt(explained / (1.0 - explained) / 2.0))
    return _temperature_of_errors(error, n_bits, n_classes)


def _temperature_of_errors(error: float, n_bits: int, n_classes: int) -> float:
    error = min(max(error, 1e-9), 0.49)
    log_odds = math.log1p(-error) - math.log(max(error, 1e-12))
    independent = min(1.0, (n_classes - 1) / n_bits)
    return 2.0 / (log_odds * independent)
