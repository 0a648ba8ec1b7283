"""From sums over rows to a model: the steps of the paper (1 to 4), and refinement (5).

1. Sums over the rows (`statistics`).
2. Starting codes (`starting_codes`).
3. Class weights and codes, optimised alternately (`regression`, `alternation`, `bqp`).
4. The hash function: a ridge regression of the codes on the features (`regression`).
5. Joint refinement of projection and weights, on the rows (`refinement`).

For discriminant codes, the default, closed forms of weights and hash function (`discriminant`)
replace steps 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bitclass._warn import warn
from bitclass.arrays import Features, class_blocks, dense_rows, sample_rows
from bitclass.codes import make_distinct, pack
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.alternation import HISTORY_DTYPE, hinge_weights
from bitclass.training.anchors import anchor_count, choose_anchors
from bitclass.training.discriminant import (
    Coordinates,
    coordinates_of,
    default_alpha,
    discriminant_projection,
    scatter_of,
    target_deviation,
    temperature_of_means,
)
from bitclass.training.refinement import Facts, Refined, Rows, refine, updated_model
from bitclass.training.regression import solve_class_ridge, solve_paper
from bitclass.training.settings import Settings
from bitclass.training.starting_codes import CLASS_CODES, StartingCodes, start_row_codes
from bitclass.training.statistics import Statistics, Sums, standardisation

__all__ = ["Fitted", "fit_model", "start_statistics", "update_model"]

# refine="auto" skips refinement below this number of rows: too few could be held out.
_MIN_ROWS_TO_REFINE = 500
# With fewer rows per class than this, weights learned from all rows overfit the held-out rows.
_FEW_ROWS = 50
# Number of rows from which the standardisation of similarities to the anchors is estimated.
_ROWS_FOR_SIMILARITIES = 10_000


@dataclass(frozen=True)
class Fitted:
    """The result of training.

    Attributes
    ----------
    model : PackedModel, with the classes that have rows
    history : (m,) of `HISTORY_DTYPE`
    n_rounds : int, number of rounds of the alternation
    alpha : float or None, regularisation strength of the hash function, if known
    refinement : dict or None, facts about the refinement, if there was one
    """

    model: PackedModel
    history: NDArray[np.void]
    n_rounds: int
    alpha: float | None = None
    refinement: Facts | None = None

    @property
    def is_refined(self) -> bool:
        """Whether the model is the result of refinement."""
        return self.refinement is not None and bool(self.refinement.get("taken"))


def start_statistics(
    settings: Settings,
    X: Features,
    labels: NDArray[Any],
    sample_weight: NDArray[np.float64] | None,
    initial_codes: str | NDArray[Any],
) -> Statistics:
    """Create empty statistics, with anchors and starting codes computed from sample rows.

    Parameters
    ----------
    settings : Settings
    X : (n, d)
    labels : (n,)
    sample_weight : (n,), or None for ones
    initial_codes : name of the starting codes, or (n, r) codes
    """
    sample_weight = np.ones(X.shape[0]) if sample_weight is None else sample_weight
    centre, scale = standardisation(X, sample_weight)
    random = check_random_state(settings.random_state)
    anchors = None
    if settings.kernel:
        n_anchors = anchor_count(settings.n_anchors, *X.shape)
        anchors = choose_anchors(X, n_anchors, settings.gamma, centre, scale, random)
        sample = sample_rows(X.shape[0], _ROWS_FOR_SIMILARITIES)
        X = anchors.similarities(dense_rows(X, sample))
        labels, sample_weight = labels[sample], sample_weight[sample]
        centre, scale = standardisation(X, sample_weight)
    starting: StartingCodes
    if isinstance(initial_codes, str) and initial_codes in CLASS_CODES:
        seed = int(random.randint(np.iinfo(np.int32).max))
        starting = CLASS_CODES[initial_codes](settings.n_bits, seed)
    else:
        starting = start_row_codes(
            initial_codes, settings.n_bits, X, labels, sample_weight, centre, scale, random
        )
    keep_codes = settings.table is not None
    return Statistics(starting, centre, scale, keep_codes=keep_codes, anchors=anchors)


def fit_model(
    settings: Settings,
    statistics: Statistics,
    rows: Rows | None = None,
    n_rows: int | None = None,
    groups: NDArray[np.intp] | None = None,
) -> Fitted:
    """Learn a model from sums over rows, and from the rows if they are available.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    rows : callable that passes over the rows that were summed, if they are available
        Without them, each row enters the regression with the most common code of its class.
    n_rows : int, number of rows in a pass, if these are a sample of the rows that were summed
    groups : (n,) index of each row's group, or None; refinement holds out whole groups

    Returns
    -------
    Fitted
    """
    if statistics.sums().constant.all():
        warn("all features of X are constant to float64 precision: all rows get the same code")
    method: _DiscriminantMethod | _PaperMethod
    # Discriminant directions do not depend on class weights; the regression does.
    unweighted_hinge = settings.table is None and not settings.class_weighted
    if statistics.starting.kind == "discriminant" and unweighted_hinge:
        method = _DiscriminantMethod(settings, statistics)
    else:
        statistics.to_host()
        method = _PaperMethod(settings, statistics, rows if n_rows is None else None)

    refined = _refine(settings, statistics, method, rows, n_rows, groups)
    facts, sums = None if refined is None else refined.facts, statistics.sums()
    if refined is not None and refined.taken:
        return method.fitted(sums, refined.model, facts)
    model = method.closed_form(sums, facts)
    if refined is not None:  # the held-out rows give better estimates than the sums
        model.rescore, model.temperature = refined.model.rescore, refined.model.temperature
    return method.fitted(sums, model, facts)


class _PaperMethod:
    """The paper's method: starting codes, weights and codes, ridge regression of the codes."""

    def __init__(self, settings: Settings, statistics: Statistics, rows: Rows | None) -> None:
        self._settings, self._statistics = settings, statistics
        self._solution = solve_paper(settings, statistics, rows)

    def start(self, coordinates: Coordinates) -> tuple[HashFunction, NDArray[np.int8]]:
        """Hash function and weights (C, r) from the sums without the held-out rows."""
        sums, statistics, weights = coordinates.sums, self._statistics, self._solution.weights
        if statistics.n_rows < _FEW_ROWS * len(weights):
            # The learned weights are close to the code of each row, including the held-out ones.
            weights = hinge_weights(statistics.starting.code_sums(sums))
        ridge = solve_class_ridge(sums, weights, self._solution.ridge.alpha)
        return ridge.hash_function(self._settings.precision), weights

    def closed_form(self, sums: Sums, _: Facts | None) -> PackedModel:
        """The model fitted to all rows, before refinement."""
        solution, settings = self._solution, self._settings
        return PackedModel(
            sums.classes,
            pack(solution.weights),
            solution.ridge.hash_function(settings.precision),
            rescore=settings.default_rescore,
            temperature=solution.temperature,
        )

    def fitted(self, sums: Sums, model: PackedModel, facts: Facts | None) -> Fitted:
        """The result of training."""
        solution, history = self._solution, self._solution.history
        if history is None:
            weights = hinge_weights(solution.code_sums)
            history = _hinge_history(weights, sums.class_weights, solution.code_sums)
        return Fitted(model, history, solution.n_rounds, solution.ridge.alpha, facts)


class _DiscriminantMethod:
    """Discriminant codes: hash function and weights in closed form."""

    def __init__(self, settings: Settings, statistics: Statistics) -> None:
        self._settings, self._statistics = settings, statistics

    def start(self, coordinates: Coordinates) -> tuple[HashFunction, NDArray[np.int8]]:
        """Hash function and weights (C, r) from the sums without the held-out rows."""
        settings, sums = self._settings, coordinates.sums
        seed = self._statistics.starting.seed
        Q, t, weights = discriminant_projection(coordinates, settings.n_bits, seed)
        factor = target_deviation(sums) / coordinates.score_deviation(Q)
        hash_function = coordinates.hash_function(factor * Q, factor * t, settings.precision)
        return hash_function, weights

    def _alpha(self, sums: Sums, facts: Facts | None) -> float:
        """The regularisation strength: chosen by refinement, set by the user, or by a rule."""
        if facts is not None:
            return float(facts["alpha"])
        alpha = self._settings.alpha
        return default_alpha(sums) if alpha is None else alpha

    def closed_form(self, sums: Sums, facts: Facts | None) -> PackedModel:
        """The model fitted to all rows, before refinement."""
        settings, alpha = self._settings, self._alpha(sums, facts)
        coordinates = coordinates_of(scatter_of(sums, alpha), alpha, settings.n_bits)
        hash_function, weights = self.start(coordinates)
        weights = make_distinct(weights, weights, sums.classes)
        rescored = settings.rescore != 0
        return PackedModel(
            sums.classes,
            pack(weights),
            hash_function,
            rescore=settings.default_rescore,
            temperature=temperature_of_means(hash_function, weights, coordinates, rescored),
        )

    def fitted(self, sums: Sums, model: PackedModel, facts: Facts | None) -> Fitted:
        """The result of training."""
        history = _hinge_history(model.unpacked_weights(), sums.class_weights)
        return Fitted(model, history, 1, self._alpha(sums, facts), facts)


def _refine(
    settings: Settings,
    statistics: Statistics,
    method: _DiscriminantMethod | _PaperMethod,
    rows: Rows | None,
    n_rows: int | None,
    groups: NDArray[np.intp] | None,
) -> Refined | None:
    """Refine the model if requested and possible."""
    n_classes = int(np.count_nonzero(statistics.class_weights > 0))
    wanted = settings.refine
    if wanted == "auto":
        n_effective = statistics.effective_rows
        wanted = rows is not None and n_effective >= max(_MIN_ROWS_TO_REFINE, 2 * n_classes)
    if not wanted:
        return None
    if rows is None:
        warn(
            "refine=True: the model was not refined, because the rows of earlier batches are no "
            "longer available; call fit or fit_batches"
        )
        return None
    if settings.out_of_time:
        settings.print_line("refinement: skipped, max_time has passed")
        return None
    n_rows = statistics.n_rows if n_rows is None else n_rows
    refined = refine(settings, statistics, rows, n_rows, method.start, groups)
    if refined is None and groups is not None:
        warn(
            "groups: the model was not refined, because every group contains more than half of "
            "some class, so none can be held out"
        )
    elif refined is None and settings.refine != "auto":
        warn(
            f"refine=True: the model was not refined, because {statistics.n_rows} rows of "
            f"{n_classes} classes are too few to hold any out"
        )
    if refined is not None and refined.taken:
        statistics.class_weights_when_refined = statistics.class_weights.copy()
    return refined


def update_model(settings: Settings, fitted: Fitted, statistics: Statistics) -> Fitted:
    """Update a refined model after rows were added or classes removed: see `updated_model`.

    Parameters
    ----------
    settings : Settings
    fitted : Fitted, with a refined model
    statistics : Statistics

    Returns
    -------
    Fitted
    """
    assert fitted.refinement is not None
    model = updated_model(fitted.model, fitted.refinement, statistics)
    if model is None:
        warn(
            "the refined hash function does not separate the new classes: the model is fitted to "
            "the sums instead; call fit with all rows to refine it again"
        )
        return fit_model(settings, statistics)
    return replace(fitted, model=model)


def _hinge_history(
    weights: NDArray[np.int8],
    class_weights: NDArray[np.float64],
    code_sums: NDArray[np.float64] | None = None,
) -> NDArray[np.void]:
    """History of the hinge loss after W-step and B-step.

    If `code_sums` is None, the weights of a class were the starting code of all its rows.
    """
    n_classes, n_bits = weights.shape
    weight_sum, total = weights.sum(axis=0, dtype=np.int64), class_weights.sum()
    agreement = 0.0
    for part in class_blocks(n_classes):  # in blocks, to avoid a copy in int64
        agreement += float(class_weights[part] @ (weights[part] @ weight_sum))
    after_w = after_b = agreement - n_classes * n_bits * total
    if code_sums is not None:
        after_w = weight_sum @ code_sums.sum(axis=0) - n_classes * np.sum(weights * code_sums)
    # Relative to the smallest value that the linear loss can take, so that the logarithm exists.
    lowest = -2.0 * n_bits * (n_classes - 1) * total
    history = np.empty(2, dtype=HISTORY_DTYPE)
    history["round"], history["step"], history["bit"] = 1, ["W", "B"], n_bits - 1
    with np.errstate(divide="ignore"):
        history["log_objective"] = np.log(np.maximum([after_w - lowest, after_b - lowest], 0.0))
    return history
