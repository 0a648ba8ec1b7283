"""From sums over rows to a model: the outline of the paper.

1. Sums over the rows (`statistics`).
2. Starting codes (`starting_codes`).
3. Class weights and codes, improved in turn (`alternation`, `bqp`).
4. The hash function: a ridge regression of the codes on the features (`ridge`).
5. Refinement of projection and weights together, on the rows (`refinement`).

Discriminant codes, the default, come with their weights and their hash function in closed form
(`discriminant`), which takes the place of steps 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bitclass._warn import warn
from bitclass.arrays import Features, dense_rows, hosted, sample_rows
from bitclass.codes import pack, unpack
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.alternation import (
    Groups,
    alternate,
    hinge_history,
    hinge_weights,
    make_distinct,
)
from bitclass.training.anchors import anchor_count, choose_anchors
from bitclass.training.calibration import temperature_of_means, temperature_of_regression
from bitclass.training.discriminant import (
    FURTHER_COORDINATES,
    Coordinates,
    Scatter,
    coordinates_of,
    default_alpha,
    discriminant_projection,
    drawn_rows,
    scatter_of,
    target_deviation,
)
from bitclass.training.refinement import RESCORE_LENGTHS, Refined, Rows, refine, updated_model
from bitclass.training.ridge import ridge
from bitclass.training.settings import Settings
from bitclass.training.starting_codes import start_codes
from bitclass.training.statistics import Statistics, Sums, standardisation

__all__ = ["Fitted", "fit_model", "start_statistics", "update_model"]

# The program of one bit holds a number for each pair of classes, several times: 1 GB here.
MAX_CLASSES_OF_PROGRAMS = 4096
# With refine="auto" fewer rows than this are not refined: too few could be held out.
_MIN_ROWS_TO_REFINE = 500
# Where classes have fewer rows than this, their weights know the held-out rows too well.
_FEW_ROWS = 50
# Regression values are near -1 and +1 where a bit is certain.
_STEEPNESS_OF_REGRESSION = 2.0
# Where the most frequent class has so many times the mean share, a regression is tried as well, but
# not with very many classes: it is worse there, and judging it would take too much memory.
_UNEVEN, _MAX_CLASSES_OF_REGRESSION = 1.25, 4096
# Without held-out rows, hash functions are judged by rows drawn from what the sums know, and
# another one than the first is taken where its accuracy is higher by this.
_ROWS_TO_JUDGE, _CLEAR_LEAD = 2000, 0.03
# Rows on which the similarities to the anchors are standardised.
_ROWS_FOR_SIMILARITIES = 10_000

# A hash function and class weights (C, r).
_Candidate = tuple[HashFunction, NDArray[np.int8]]


@dataclass(frozen=True)
class Fitted:
    """What training ends with.

    Attributes
    ----------
    model : PackedModel, of the classes that have rows
    history : (m,) of `HISTORY_DTYPE`
    n_rounds : int, of the alternation
    alpha : float or None, the penalty, where it is known
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
    sample_weight: NDArray[np.float64] | None,
    initial_codes: str | NDArray[Any],
) -> Statistics:
    """Empty statistics, with anchors and starting codes set up on sample rows.

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
    starting = start_codes(
        initial_codes, settings.n_bits, X, labels, sample_weight, centre, scale, random
    )
    keep_codes = not settings.loss.closed_form
    return Statistics(starting, centre, scale, keep_codes=keep_codes, anchors=anchors)


def fit_model(
    settings: Settings,
    statistics: Statistics,
    rows: Rows | None = None,
    n_rows: int | None = None,
    groups: NDArray[np.intp] | None = None,
) -> Fitted:
    """Learn a model from sums over rows, and from the rows where they are at hand.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    rows : passes over the rows that were summed, where they are at hand
        Without them, a row counts in the regression with the code that most of its class has.
    n_rows : int, how many rows pass, where they are a sample of those that were summed
    groups : (n,) index of each row's group, none of which refinement holds out in part, or None

    Returns
    -------
    Fitted
    """
    if statistics.sums().constant.all():
        warn("no feature of X varies, as far as float64 can tell: all rows get the same code")
    # Discriminant directions do not depend on class weights; the regression does.
    by_discriminant = (
        statistics.starting.kind == "discriminant"
        and settings.loss.closed_form
        and not settings.class_weighted
    )
    if not by_discriminant:
        statistics.to_host()
    learned = (
        _Discriminant(settings, statistics)
        if by_discriminant
        else _Regression(settings, statistics, rows if n_rows is None else None)
    )
    refined = _refined(settings, statistics, learned, rows, n_rows, groups)
    return learned.fitted(refined)


class _Regression:
    """The paper: starting codes, weights and codes, ridge regression of the codes.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    rows : passes over all rows, or None
    """

    steepness = _STEEPNESS_OF_REGRESSION

    def __init__(self, settings: Settings, statistics: Statistics, rows: Rows | None) -> None:
        self._settings, self._statistics = settings, statistics
        sums = statistics.sums()
        code_sums = statistics.starting.code_sums(sums)
        weights = hinge_weights(code_sums)
        class_codes, row_codes = weights, None
        if settings.table is None:  # the closed forms of the hinge loss: b_i = w_{y_i}
            self._history, self._n_rounds = hinge_history(weights, sums.class_weights, code_sums), 1
        else:
            found = alternate(
                _starting_groups(statistics, sums, code_sums, settings),
                weights,
                settings.table,
                settings.solver,
                settings.max_rounds,
                settings.report,
            )
            if not found.converged:
                warn(
                    f"the alternation still changed bits in round {found.n_rounds}, the last one "
                    "allowed; increase max_iter",
                    ConvergenceWarning,
                )
            weights, self._history, self._n_rounds = found.weights, found.history, found.n_rounds
            class_codes = unpack(found.groups.most_frequent_codes(), settings.n_bits)
            if statistics.keep_codes:
                row_codes = found.groups.codes[found.groups.inverse]
        self._weights = make_distinct(weights, code_sums, sums.classes)
        # The rows of a class whose weights had to change take these as their code.
        moved = np.any(self._weights != weights, axis=1)
        class_codes = np.where(moved[:, None], self._weights, class_codes)
        cross, code_sum = _codes_times_features(statistics, moved, class_codes, row_codes, rows)
        self._ridge = ridge(
            sums, cross, code_sum, settings.alpha, settings.precision, statistics.anchors
        )
        explained = self._ridge.explained
        settings.report(f"hash function: {explained:.1%} of the codes' variance explained")

    def start(self, sums: Sums, coordinates: Coordinates) -> list[_Candidate]:
        """Hash function and weights from the sums without the held-out rows."""
        statistics, weights = self._statistics, self._weights
        if statistics.n_rows < _FEW_ROWS * len(weights):
            # Weights near to the code of each row make held-out rows look as easy as training rows.
            weights = hinge_weights(statistics.starting.code_sums(sums))
        signs = weights.astype(np.float64)
        cross, code_sum = sums.feature_sums.T @ signs, sums.class_weights @ signs
        found = ridge(
            sums,
            cross,
            code_sum,
            self._ridge.alpha,
            self._settings.precision,
            statistics.anchors,
        )
        return [(found.hash_function, weights)]

    def fitted(self, refined: Refined | None) -> Fitted:
        """The refined model where it was taken, else the closed form of all rows."""
        if refined is not None and refined.taken:
            model = refined.model
        else:
            classes = self._statistics.sums().classes
            model = PackedModel(
                classes, pack(self._weights), self._ridge.hash_function, steepness=self.steepness
            )
            n_bits, n_classes = self._settings.n_bits, len(classes)
            temperature = temperature_of_regression(self._ridge.explained, n_bits, n_classes)
            _set_probabilities(model, self._settings, temperature, refined)
        report = None if refined is None else refined.report
        return Fitted(model, self._history, self._n_rounds, self._ridge.alpha, report)


class _Discriminant:
    """Discriminant codes: hash function and weights in closed form.

    Parameters
    ----------
    settings : Settings
    statistics : Statistics
    """

    steepness = 1.0

    def __init__(self, settings: Settings, statistics: Statistics) -> None:
        self._settings, self._statistics = settings, statistics

    def start(self, sums: Sums, coordinates: Coordinates) -> list[_Candidate]:
        """Hash functions and weights to choose from."""
        settings, statistics = self._settings, self._statistics
        shares = sums.class_weights / sums.total_weight
        seed = statistics.starting.seed
        Q, t, weights = discriminant_projection(coordinates, shares, settings.n_bits, seed)
        factor = target_deviation(sums) / coordinates.score_deviation(Q)
        hash_function = coordinates.hash_function(
            factor * Q, factor * t, sums, settings.precision, statistics.anchors
        )
        found = [(hash_function, weights)]
        if len(shares) * shares.max() > _UNEVEN and len(shares) <= _MAX_CLASSES_OF_REGRESSION:
            found.append(self._regression(sums, weights))
        return found

    def _regression(self, sums: Sums, codes: NDArray[np.int8]) -> _Candidate:
        """The paper's closed forms from discriminant codes (C, r).

        Discriminant directions do not know how frequent classes are; the regression does, and is
        better where frequent classes overlap with rare ones.
        """
        sums = hosted(sums)
        weights = hinge_weights(codes * sums.class_weights[:, None])
        signs = weights.astype(np.float64)
        cross, code_sum = sums.feature_sums.T @ signs, sums.class_weights @ signs
        found = ridge(sums, cross, code_sum, self._settings.alpha).hash_function
        hash_function = HashFunction(
            np.float32(_STEEPNESS_OF_REGRESSION) * found.projection,
            _STEEPNESS_OF_REGRESSION * found.intercept,
            centre=found.centre,
            scale=found.scale,
            precision=self._settings.precision,
            anchors=self._statistics.anchors,
        )
        return hash_function, weights

    def fitted(self, refined: Refined | None) -> Fitted:
        """The refined model where it was taken, else the closed form of all rows."""
        settings, sums = self._settings, self._statistics.sums()
        if refined is not None and refined.taken:
            model, alpha = refined.model, refined.alpha
        else:
            alpha = default_alpha(sums) if refined is None else refined.alpha
            alpha = alpha if settings.alpha is None else settings.alpha
            n_directions = settings.n_bits
            if len(sums.classes) <= _MAX_CLASSES_OF_REGRESSION:  # which makes use of the others
                n_directions += FURTHER_COORDINATES
                scatter = scatter_of(sums)
            else:
                scatter = scatter_of(sums, alpha)
            coordinates = coordinates_of(scatter, alpha, n_directions)
            hash_function, weights = _best_on_drawn_rows(
                self.start(sums, coordinates), coordinates, scatter, alpha, sums
            )
            weights = make_distinct(weights, weights, sums.classes)
            model = PackedModel(sums.classes, pack(weights), hash_function)
            temperature = temperature_of_means(
                hash_function, weights, coordinates, sums, _default_rescore(settings) > 0
            )
            _set_probabilities(model, settings, temperature, refined)
        history = hinge_history(model.unpacked_weights(), sums.class_weights)
        return Fitted(model, history, 1, alpha, None if refined is None else refined.report)


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
    coordinates = hosted(coordinates)
    A = drawn_rows(coordinates, hosted(scatter), alpha, own, random)

    def accuracy(candidate: _Candidate) -> float:
        Q, t = coordinates.projected(candidate[0], sums)
        scores = np.tanh(A @ Q + t) @ candidate[1].T.astype(np.float32)
        return float(np.mean(scores.argmax(axis=1) == own))

    best = max(candidates, key=accuracy)
    return best if accuracy(best) > accuracy(candidates[0]) + _CLEAR_LEAD else candidates[0]


def _default_rescore(settings: Settings) -> int:
    """Length of the short list where no rows were held out to choose it."""
    return RESCORE_LENGTHS[0] if settings.rescore is None else settings.rescore


def _set_probabilities(
    model: PackedModel, settings: Settings, temperature: float, refined: Refined | None
) -> None:
    """Give a model a short list and a temperature, as found on held-out rows where there were."""
    if refined is None:
        model.rescore, model.temperature = _default_rescore(settings), temperature
    else:
        model.rescore, model.temperature = refined.model.rescore, refined.model.temperature


def _refined(
    settings: Settings,
    statistics: Statistics,
    learned: _Discriminant | _Regression,
    rows: Rows | None,
    n_rows: int | None,
    groups: NDArray[np.intp] | None,
) -> Refined | None:
    """Refine the model where that is wanted and can be done."""
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
        settings.report("refinement: skipped, max_time has passed")
        return None
    n_rows = statistics.n_rows if n_rows is None else n_rows
    refined = refine(settings, statistics, rows, n_rows, learned.start, learned.steepness, groups)
    if refined is None and groups is not None:
        warn(
            "groups: the model was not refined, because every group has more than half of some "
            "class, and none can be held out"
        )
    elif refined is None and settings.refine != "auto":
        warn(
            f"refine=True: the model was not refined, because {statistics.n_rows} rows of "
            f"{n_classes} classes are too few to hold some out"
        )
    if refined is not None and refined.taken:
        statistics.class_weights_when_refined = statistics.class_weights.copy()
    return refined


def update_model(settings: Settings, fitted: Fitted, statistics: Statistics) -> Fitted:
    """A refined model after more rows, or with classes removed: see `updated_model`.

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
    model = updated_model(fitted.model, fitted.refinement, statistics)
    if model is None:
        warn(
            "the refined hash function does not tell the new classes apart: the model is "
            "learned from the sums instead; call fit with all rows to refine it again"
        )
        return fit_model(settings, statistics)
    return replace(fitted, model=model)


def _starting_groups(
    statistics: Statistics, sums: Sums, code_sums: NDArray[np.float64], settings: Settings
) -> Groups:
    """All rows with their starting codes, grouped: one group per class, or from kept codes.

    Labels count the classes that have rows, from 0 on.
    """
    n_classes = len(sums.classes)
    if n_classes > MAX_CLASSES_OF_PROGRAMS:
        raise ValueError(
            f"loss={settings.loss.name!r} compares all pairs of classes and takes at most "
            f"{MAX_CLASSES_OF_PROGRAMS:,} of them, found {n_classes:,}; use loss='hinge'"
        )
    if not statistics.keep_codes:
        own = np.arange(n_classes)
        return Groups(own, pack(code_sums >= 0), sums.class_weights, own)
    place = np.cumsum(statistics.class_weights > 0) - 1
    labels, codes, sample_weight = statistics.kept_rows()
    return Groups.of_samples(place[labels], codes, sample_weight)


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
    own = statistics.kept_rows().labels
    row_codes = np.where(follows[own, None], pack(all_codes)[own], row_codes)
    return statistics.cross(all_codes, (X for X, _, _ in rows()), row_codes)
