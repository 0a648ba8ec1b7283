"""From rows to a model, in five steps: sum, closed form, refine, judge, pack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import warn
from bitclass.model import PackedModel
from bitclass.report import Report
from bitclass.training.closed_form import ClosedForm, closed_form, whiten
from bitclass.training.refine import (
    Candidate,
    Judged,
    Refinement,
    candidate_of,
    choose,
    chosen_length,
    judge,
    refine,
    score_deviation,
)
from bitclass.training.settings import Settings
from bitclass.training.sums import Collected, Sample, Sums

__all__ = ["Fitted", "fit_model", "judged_groups"]

# Share of the rows that judge a model: with few rows more, so that there are enough, with many
# fewer, since they are missed in training.
_JUDGED_SHARE, _MAX_JUDGED_SHARE, _MIN_JUDGED_SHARE = 0.05, 0.2, 0.01
_MIN_JUDGED, _ENOUGH_JUDGED = 200, 1000
# With fewer rows than this a single part is too small to judge by; each of so many folds is then
# judged by a model of the others.
_MIN_ROWS_OF_ONE_PART, _FOLDS = 1000, 3
_TYPICALITY_QUANTILES = 256


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
    """Learn a model from collected rows."""
    parts = _parts(collected)
    everything = np.zeros(len(collected.pool), dtype=bool)
    trials = [_try(settings, collected, part) for part in parts]
    prior = _prior(settings, collected.all_sums().with_rows())
    if not trials:
        sums, sample = collected.without(everything)
        return _without_judge(settings, sums.with_rows(), sample, collected.n_rows)
    closed = Judged.joined([trial.closed for trial in trials])
    accepted = False
    length = chosen_length(closed, settings.rescore)
    best = closed
    if all(trial.refined is not None for trial in trials):
        refined = Judged.joined([trial.refined for trial in trials if trial.refined is not None])
        accepted = choose(closed, refined, length)
        if accepted:
            best, length = refined, chosen_length(refined, settings.rescore)
    first = trials[0]
    if accepted and len(trials) == 1:
        assert first.refinement is not None
        candidate, classes, alpha = first.refinement.candidate, first.classes, first.alpha
    else:
        sums, sample = collected.without(everything)
        final, start = _closed(settings, sums.with_rows(), sample)
        candidate, classes = candidate_of(final), final.whitening.sums.classes
        alpha = final.whitening.alpha
        if accepted:
            candidate = refine(settings, start, sample, sample.select(np.arange(0))).candidate
    model = candidate.model(classes, prior)
    model.rescore, model.temperature = length, best.temperature(length)
    model = _with_typicality(model, best.best)
    refinement = first.refinement
    report = Report(
        n_rows=collected.n_rows,
        n_judged=len(closed.gap),
        accuracy=best.accuracy(length),
        accuracy_closed_form=closed.accuracy(length if settings.rescore is not None else 16),
        refined=accepted,
        alpha=alpha,
        epochs=() if refinement is None else refinement.epochs,
        stopped=None if refinement is None else refinement.stopped,
    )
    settings.print_line(
        f"closed form {report.accuracy_closed_form:.2%}, chosen model {report.accuracy:.2%} on "
        f"{report.n_judged} rows; refinement {'accepted' if accepted else 'not accepted'}"
    )
    return Fitted(model, report)


def _with_typicality(model: PackedModel, best: NDArray[np.float32]) -> PackedModel:
    table = np.quantile(best, np.linspace(0.0, 1.0, min(len(best), _TYPICALITY_QUANTILES)))
    return PackedModel(
        model.classes,
        model.weights,
        model.hash_function,
        bias=model.bias,
        rescore=model.rescore,
        temperature=model.temperature,
        typicality=table.astype(np.float32),
    )


def _without_judge(settings: Settings, sums: Sums, sample: Sample, n_rows: int) -> Fitted:
    """The closed form, calibrated by rows drawn from the sums: no row can judge it."""
    closed, _ = _closed(settings, sums, sample)
    candidate = candidate_of(closed)
    model = candidate.model(sums.classes, _prior(settings, sums))
    model.rescore = 16 if settings.rescore is None else settings.rescore
    model.temperature = 1.0 / candidate.sharpness
    return Fitted(model, Report(n_rows=n_rows, alpha=closed.whitening.alpha))


def _prior(settings: Settings, sums: Sums) -> NDArray[np.float64]:
    """Shares (C,) of the classes where the model is used."""
    if isinstance(settings.prior, str):
        if settings.prior == "uniform":
            return np.full(len(sums.classes), 1.0 / len(sums.classes))
        return np.asarray(sums.mass / sums.total)
    return settings.prior


def _closed(settings: Settings, sums: Sums, sample: Sample) -> tuple[ClosedForm, ClosedForm]:
    """The closed form, and the one that refinement starts from."""
    whitenings = whiten(
        sums, settings.alpha, sample, settings.n_bits, all_directions=settings.kernel
    )
    deviation = score_deviation(sums.effective_rows / len(sums.classes))
    model = closed_form(whitenings[0], settings.n_bits, deviation, settings.seed)
    if whitenings[1] is whitenings[0]:
        return model, model
    start = closed_form(whitenings[1], settings.n_bits, deviation, settings.seed, model.kind)
    return model, start


@dataclass(frozen=True)
class _Trial:
    """Models of a part of the rows, judged by the others."""

    classes: NDArray[np.object_]
    alpha: float
    closed: Judged
    refined: Judged | None
    refinement: Refinement | None


def _try(settings: Settings, collected: Collected, is_judged: NDArray[np.bool_]) -> _Trial:
    sums, sample = collected.without(is_judged)
    sums = sums.with_rows()
    judged = collected.pool.take(np.flatnonzero(is_judged))
    known = np.isin(judged.labels, sums.classes)
    judged = judged.take(np.flatnonzero(known))
    closed, start = _closed(settings, sums, sample)
    prior = _prior_of_part(settings, collected, sums)
    train = sums.mass / sums.total
    weights = judged.weights * (prior / train)[np.searchsorted(sums.classes, judged.labels)]

    def judged_by(candidate: Candidate) -> Judged:
        return judge(candidate.model(sums.classes, prior), judged, weights, settings.rescore)

    refinement, refined = None, None
    if settings.refine and not settings.out_of_time:
        refinement = refine(settings, start, sample, judged)
        refined = judged_by(refinement.candidate)
    elif settings.refine:
        settings.print_line("refinement: skipped, max_time has passed")
    return _Trial(
        sums.classes,
        closed.whitening.alpha,
        judged_by(candidate_of(closed)),
        refined,
        refinement,
    )


def _prior_of_part(settings: Settings, collected: Collected, sums: Sums) -> NDArray[np.float64]:
    prior = _prior(settings, sums)
    if len(prior) != len(sums.classes):  # some classes have no rows in this part
        everyone = collected.all_sums().with_rows()
        prior = prior[np.searchsorted(everyone.classes, sums.classes)]
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
        folds = [(rank % _FOLDS == fold) & several[y] for fold in range(_FOLDS)]
        return [fold for fold in folds if np.count_nonzero(fold) > 1]
    effective = n_rows * _evenness(pool.weights)
    share = min(max(_JUDGED_SHARE, _MIN_JUDGED / effective), _MAX_JUDGED_SHARE)
    n_judged = min(int(share * n_rows), max(_ENOUGH_JUDGED, int(_MIN_JUDGED_SHARE * n_rows)))
    n_judged = min(n_judged, len(pool))
    allowed = np.where(summed, counts, counts // 2)
    is_judged = np.zeros(len(pool), dtype=bool)
    usable = order[(rank < allowed[y])[order]]
    is_judged[usable[:n_judged]] = True
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
