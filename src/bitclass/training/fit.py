"""From rows to a model, in five steps: sum, closed form, refine, judge, pack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import warn
from bitclass.model import PackedModel
from bitclass.report import Report
from bitclass.training.closed_form import ClosedForm, closed_form, whiten
from bitclass.training.refine import (
    RESCORE_LENGTHS,
    Candidate,
    Judged,
    Refinement,
    calibrated,
    candidate_of,
    choose,
    chosen_length,
    judge,
    prior_temperature,
    refine,
    score_deviation,
    sharpness,
    with_all_rows,
)
from bitclass.training.settings import Settings
from bitclass.training.sums import Collected, Sample, Sums

__all__ = ["Fitted", "fit_model", "judged_groups"]

# Share of the rows that judge a model: with few rows more, so that there are enough, with many
# fewer, since they are missed in training.
_JUDGED_SHARE, _MAX_JUDGED_SHARE, _MIN_JUDGED_SHARE = 1 / 15, 0.2, 0.01
_MIN_JUDGED, _ENOUGH_JUDGED = 400, 1000
# With fewer rows than this a single part is too small to judge by; each of so many folds is then
# judged by a model of the others.
_MIN_ROWS_OF_ONE_PART, _FOLDS = 1000, 3
# With fewer rows than this the judged ones are missed, and the final model is fitted to all rows.
_MIN_ROWS_OF_ONE_MODEL = 10_000
# Temperature, in units of that of refinement, if no row can judge: about that of models of two rows
# per class, which can be judged.
_UNJUDGED_TEMPERATURE = 0.4
_MAX_KNOWN_SHARES = 1024


@dataclass(frozen=True)
class Fitted:
    """The result of training.

    Attributes
    ----------
    model : PackedModel, with the classes that have rows
    report : Report
    """

    model: PackedModel
    report: Report


def fit_model(settings: Settings, collected: Collected) -> Fitted:
    """Learn a model from collected rows.

    Parts of the rows are left out, and judge models of the others: sums, closed form and
    refinement. Which of the two models explains them better decides what is fitted in the end.
    """
    parts = _parts(collected)
    # Progress is that of the only part, or of the final model.
    quiet = replace(settings, callback=None, print_line=_print_nothing)
    trials = [_try(settings if len(parts) == 1 else quiet, collected, part) for part in parts]
    accepted = _is_refinement_accepted(trials)
    refinement = trials[0].refinement if trials else None
    if len(trials) > 1 and settings.out_of_time:
        accepted = False
    was_stopped = refinement is not None and refinement.stopped is not None
    is_large = collected.n_rows >= _MIN_ROWS_OF_ONE_MODEL or was_stopped or settings.out_of_time
    if accepted and len(trials) == 1 and is_large:
        candidate, classes, alpha = trials[0].of(True).candidate, trials[0].classes, trials[0].alpha
        if len(classes) > settings.learned_classes:  # whose weights are codes of class means
            candidate = with_all_rows(candidate, collected.all_sums().with_rows())
    else:
        kind = trials[0].kind if trials else None  # that of the model which was judged
        of_all_rows = quiet if len(parts) == 1 else settings
        candidate, closed, refined = _final(of_all_rows, collected, accepted, kind)
        classes, alpha = closed.whitening.sums.classes, closed.whitening.alpha
        refinement = refinement if len(parts) == 1 else refined
    mass = collected.masses()
    prior = _prior(settings, mass[mass > 0])
    of_prior = [trial.of(accepted).prior_temperature for trial in trials]
    of_prior = of_prior or [1.0 / candidate.sharpness]
    model = candidate.model(classes, prior, float(np.mean(of_prior)))
    if trials:
        judged = Judged.joined([trial.of(accepted).judged for trial in trials])
        length = chosen_length(judged, settings.rescore)
        if length != judged.length:  # scores depend on the length of the short list
            judged = Judged.joined([trial.of(accepted).judge_with(length) for trial in trials])
        temperature, best_scores = judged.temperature(length), judged.best
    else:  # every class has a single row
        length = RESCORE_LENGTHS[0] if settings.rescore is None else settings.rescore
        temperature, best_scores = _UNJUDGED_TEMPERATURE / sharpness(closed)[1], None
    report = _report(settings, collected.n_rows, trials, accepted, alpha, refinement)
    return Fitted(calibrated(model, length, temperature, best_scores), report)


def _final(
    settings: Settings, collected: Collected, accepted: bool, kind: str | None
) -> tuple[Candidate, ClosedForm, Refinement | None]:
    """The chosen kind of model of all rows, its closed form, and how it was refined."""
    nothing = np.zeros(len(collected.pool), dtype=bool)
    sums, sample = collected.without(nothing, with_sample=accepted)
    closed, start = _closed(settings, sums.with_rows(), sample, kind)
    if not accepted:
        return candidate_of(closed), closed, None
    refinement = refine(settings, start, sample, sample.select(np.arange(0)))
    return refinement.candidate, closed, refinement


def _print_nothing(line: str) -> None:
    pass


def _report(
    settings: Settings,
    n_rows: int,
    trials: list[_Trial],
    accepted: bool,
    alpha: float,
    refinement: Refinement | None,
) -> Report:
    if not trials:
        return Report(n_rows=n_rows, alpha=alpha)
    closed = Judged.joined([trial.closed.judged for trial in trials])
    chosen = Judged.joined([trial.of(accepted).judged for trial in trials])
    report = Report(
        n_rows=n_rows,
        n_judged=len(chosen.gap),
        accuracy=chosen.accuracy(chosen_length(chosen, settings.rescore)),
        accuracy_closed_form=closed.accuracy(chosen_length(closed, settings.rescore)),
        refined=accepted,
        alpha=alpha,
        epochs=() if refinement is None else refinement.epochs,
        stopped=None if refinement is None else refinement.stopped,
    )
    settings.print_line(
        f"closed form {report.accuracy_closed_form:.2%}, chosen model {report.accuracy:.2%} on "
        f"{report.n_judged} rows; refinement {'accepted' if accepted else 'not accepted'}"
    )
    return report


def _is_refinement_accepted(trials: list[_Trial]) -> bool:
    refined = [trial.refined.judged for trial in trials if trial.refined is not None]
    if not refined or len(refined) < len(trials):
        return False
    closed = Judged.joined([trial.closed.judged for trial in trials])
    # Models of folds lack a third of the rows, which refinement misses more than the closed form.
    return choose(closed, Judged.joined(refined), 1.0 if len(trials) == 1 else 0.0)


def _prior(settings: Settings, mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares (C,) of the classes where the model is used; `mass` is their total weight."""
    if isinstance(settings.prior, str):
        # The shares of very many classes are hardly known.
        if settings.prior == "uniform" or len(mass) > _MAX_KNOWN_SHARES:
            return np.full(len(mass), 1.0 / len(mass))
        return np.asarray(mass / mass.sum())
    return settings.prior


def _closed(
    settings: Settings, sums: Sums, sample: Sample, kind: str | None = None
) -> tuple[ClosedForm, ClosedForm]:
    """The closed form, and the one that refinement starts from."""
    whitenings = whiten(
        sums, settings.alpha, sample, settings.n_bits, all_directions=settings.kernel
    )
    deviation = score_deviation(sums.effective_rows / len(sums.classes))
    model = closed_form(whitenings[0], settings.n_bits, deviation, settings.seed, kind)
    if whitenings[1] is whitenings[0]:
        return model, model
    start = closed_form(whitenings[1], settings.n_bits, deviation, settings.seed, model.kind)
    return model, start


@dataclass(frozen=True)
class _Attempt:
    """A model of a part of the rows, and how the others judge it."""

    candidate: Candidate
    prior_temperature: float
    judge_with: Callable[[int | None], Judged]  # a length of the short list
    judged: Judged


@dataclass(frozen=True)
class _Trial:
    """Both kinds of models of a part of the rows."""

    classes: NDArray[Any]
    alpha: float
    kind: str
    closed: _Attempt
    refined: _Attempt | None
    refinement: Refinement | None

    def of(self, refined: bool) -> _Attempt:
        """The refined model, or the closed form."""
        if not refined:
            return self.closed
        assert self.refined is not None
        return self.refined


def _try(settings: Settings, collected: Collected, is_judged: NDArray[np.bool_]) -> _Trial:
    sums, sample = collected.without(is_judged, with_sample=bool(settings.refine))
    sums = sums.with_rows()
    judged = collected.pool.take(np.flatnonzero(is_judged))
    judged = judged.take(np.flatnonzero(np.isin(judged.labels, sums.classes)))
    closed, start = _closed(settings, sums, sample)
    prior, shares = _prior_of_part(settings, collected, sums), sums.mass / sums.total
    # Judged rows count as they would where the model is used.
    weights = judged.weights * (prior / shares)[np.searchsorted(sums.classes, judged.labels)]

    def attempt(candidate: Candidate) -> _Attempt:
        temperature = prior_temperature(candidate, judged, sums.classes, shares)
        model = candidate.model(sums.classes, prior, temperature)
        judge_with = partial(judge, model, judged, weights)
        return _Attempt(candidate, temperature, judge_with, judge_with(settings.rescore))

    refinement, refined = None, None
    if settings.refine and not settings.out_of_time:
        refinement = refine(settings, start, sample, judged)
        refined = attempt(refinement.candidate)
    elif settings.refine:
        settings.print_line("refinement: skipped, max_time has passed")
    return _Trial(
        sums.classes,
        closed.whitening.alpha,
        closed.kind,
        attempt(candidate_of(closed)),
        refined,
        refinement,
    )


def _prior_of_part(settings: Settings, collected: Collected, sums: Sums) -> NDArray[np.float64]:
    prior = _prior(settings, sums.mass)
    if len(prior) != len(sums.classes):  # some classes have no rows in this part
        everyone = collected.classes[collected.masses() > 0]
        prior = prior[np.searchsorted(everyone, sums.classes)]
    return prior / prior.sum()


def _parts(collected: Collected) -> list[NDArray[np.bool_]]:
    """Masks of the rows of the pool that judge: one part, or folds if there are few rows.

    Every class that has rows keeps at least one of them, or half of its mass.
    """
    pool, n_rows = collected.pool, collected.n_rows
    classes, y, counts = np.unique(pool.labels, return_inverse=True, return_counts=True)
    if (pool.keys < 0).any():  # chosen by `judged_groups`
        return [pool.keys < 0]
    order = np.argsort(pool.keys, kind="stable")
    rank = np.empty(len(y), dtype=np.intp)  # rank of each row within its class, by key
    by_class = order[np.argsort(y[order], kind="stable")]
    rank[by_class] = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    summed = np.isin(classes, collected.sums.with_rows().classes)
    several = (counts > 1) | summed
    if n_rows < _MIN_ROWS_OF_ONE_PART:
        of_rows = rank * _FOLDS // counts[y]
        folds = [(of_rows == fold) & several[y] for fold in range(_FOLDS)]
        return [fold for fold in folds if np.count_nonzero(fold) > 1]
    effective = n_rows * _evenness(pool.weights)
    share = min(max(_JUDGED_SHARE, _MIN_JUDGED / effective), _MAX_JUDGED_SHARE)
    n_judged = min(int(share * n_rows), max(_ENOUGH_JUDGED, int(_MIN_JUDGED_SHARE * n_rows)))
    n_judged = min(n_judged, len(pool))
    allowed = np.where(summed, counts, counts // 2)
    is_judged = np.zeros(len(pool), dtype=bool)
    usable = order[(rank < allowed[y])[order]]
    # Runs of rows are mostly of one class: if possible, none loses twice its share.
    masses = collected.masses()[np.searchsorted(collected.classes, classes)]
    spared = 2.0 * n_judged / n_rows * masses * counts / np.bincount(y, pool.weights)
    is_beyond = rank[usable] >= np.maximum(spared, 1.0)[y[usable]]
    is_judged[usable[np.argsort(is_beyond, kind="stable")][:n_judged]] = True
    return [is_judged] if np.count_nonzero(is_judged) > 1 else []


def _evenness(weights: NDArray[np.float64]) -> float:
    """Effective number of rows relative to their number."""
    return float(weights.sum() ** 2 / (weights @ weights) / len(weights))


def judged_groups(
    labels: NDArray[Any], groups: NDArray[np.intp], weights: NDArray[np.float64], seed: int
) -> NDArray[np.bool_] | None:
    """Mask (n,) of the rows of whole groups that judge the model.

    Groups are taken in random order, the first whatever its size; each class keeps at least half
    of its mass. None, with a warning, if no group can be spared.
    """
    classes, y = np.unique(labels, return_inverse=True)
    wanted = max(_JUDGED_SHARE * len(y), min(_MIN_JUDGED, _MAX_JUDGED_SHARE * len(y)))
    wanted = min(wanted, max(_ENOUGH_JUDGED, _MIN_JUDGED_SHARE * len(y)))
    mass = np.bincount(y, weights, minlength=len(classes))
    lost, is_judged, n_judged = np.zeros(len(classes)), np.zeros(len(y), dtype=bool), 0
    by_group = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    for group in np.random.default_rng([seed, 2]).permutation(len(by_group)):
        rows = by_group[group]
        if n_judged and n_judged + len(rows) > wanted:
            continue
        some, place = np.unique(y[rows], return_inverse=True)
        more = lost[some] + np.bincount(place, weights[rows])
        if (2.0 * more <= (1.0 + 1e-9) * mass[some]).all():
            lost[some] = more
            n_judged += len(rows)
            is_judged[rows] = True
    if n_judged > 1:
        return is_judged
    warn(
        "groups: every group contains more than half of some class, so none can be held out; the "
        "model is judged on single rows"
    )
    return None
