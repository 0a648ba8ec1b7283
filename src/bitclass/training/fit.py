"""From rows to a model, in five steps: sum, closed form, refine, judge, pack.

Rows arrive summed (`Collected`), and leave as a `PackedModel`. On the way,

- a `_Part` is a division of the rows into some to train on and some that judge;
- a `_Trial` has both models of a part, the closed form and the refined one, each of them an
  `_Attempt`: a `Candidate`, which can become a model, and the rows that judge it;
- the `_Verdict` says which of the two kinds is better, and what `Judged` rows say of its scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import warn
from bitclass.model import PackedModel
from bitclass.report import Report
from bitclass.training.candidate import (
    RESCORE_LENGTHS,
    Candidate,
    Fitted,
    candidate_of,
    typical_score,
    with_all_rows,
)
from bitclass.training.closed_form import (
    FIRST_ALPHA,
    MIN_GAIN,
    ClosedForm,
    Kind,
    Penalties,
    Whitening,
    Whitenings,
    closed_form,
    score_deviation,
)
from bitclass.training.compact import Compaction, compactions
from bitclass.training.judge import (
    Fold,
    Judged,
    calibrated,
    is_better,
    judge,
    loss,
    prior_temperature,
)
from bitclass.training.refine import Refinement, refine
from bitclass.training.resume import can_resume, resume
from bitclass.training.settings import Settings
from bitclass.training.span import spans
from bitclass.training.sums import ROWS_PER_RUN, Collected, Sample, Sums

# Share of the rows that judge a model: with few rows more, so that there are enough, with many
# fewer, since they are missed in training.
_JUDGED_SHARE, _MAX_JUDGED_SHARE, _MIN_JUDGED_SHARE = 1 / 15, 0.2, 0.01
_MIN_JUDGED, _ENOUGH_JUDGED = 400, 1000
# With fewer effective rows than this a single part is too small to judge by; each of so many folds
# is then judged by a model of the others.
_MIN_ROWS_OF_ONE_PART, _FOLDS = 1000, 3
# With fewer rows than this the judged ones are missed, and the final model is fitted to all rows.
_MIN_ROWS_OF_ONE_MODEL = 10_000
_MAX_KNOWN_SHARES = 1024


def fit_model(settings: Settings, collected: Collected, before: Fitted | None = None) -> Fitted:
    """Learn a model from collected rows.

    Parts of the rows are left out, and judge models of the others: sums, closed form and
    refinement. Which of the two models explains them better decides what is fitted in the end.
    Few rows of many features are learned from in coordinates of their span. Where few rows were
    added to wide rows, training continues from the model `before`.
    """
    found = spans(collected, settings.span_rows)
    if found:
        # Which units are better is seen by leaving rows out one by one.
        own, standardised = (_likelihood(settings, span.collected) for span in found)
        span = found[int(standardised > own + MIN_GAIN)]
        # It has no more coordinates than rows, and hence no span of its own.
        fitted = fit_model(settings, span.collected)
        fitted = replace(fitted, model=span.of_features(fitted.model))
        if not collected.sums.wide:
            return fitted
        # The variances of columns alone may tell more than all pairs of columns of few rows.
        other = fit_model(replace(settings, span_rows=0), collected)
        return other if _is_clearly_better(other.report, fitted.report) else fitted
    effective = _effective_rows(settings, collected)
    parts = [_part(settings, collected, is_judged) for is_judged in _parts(collected, effective)]
    if before is not None and len(parts) == 1 and can_resume(settings, collected, before):
        return _resumed(settings, collected, parts[0], before)
    # With many rows, the model that is judged is the final one.
    is_large = len(parts) == 1 and collected.n_rows >= _MIN_ROWS_OF_ONE_MODEL
    choices = _choose(settings, parts[0] if is_large else _all_rows(settings, collected))
    # Progress is that of the only part, or of the final model.
    quiet = settings.quiet()
    of_parts, of_all = (settings, quiet) if len(parts) == 1 else (quiet, settings)
    trials = [_try(of_parts, part, choices) for part in parts]
    verdict = _verdict(settings, collected, trials)
    if is_large:
        candidate, classes = _judged_model(settings, collected, trials[0], verdict)
        refinement = trials[0].refinement
    else:
        candidate, classes, refinement = _final(of_all, collected, choices, trials, verdict)
    model = _with_prior(settings, collected, candidate, classes, verdict.attempts)
    model = _calibrated(settings, model, choices.closed, trials, verdict)
    report = replace(verdict.report, alpha=choices.closed.whitening.alpha)
    if refinement is not None:
        report = replace(report, epochs=refinement.epochs, stopped=refinement.stopped)
    return Fitted(model, report)


def _is_clearly_better(other: Report, one: Report) -> bool:
    """Whether an accuracy exceeds another by one standard error of the difference."""
    if other.accuracy is None or one.accuracy is None or one.n_judged is None:
        return False
    share = (other.accuracy + one.accuracy) / 2.0
    return other.accuracy > one.accuracy + math.sqrt(2.0 * share * (1.0 - share) / one.n_judged)


@dataclass(frozen=True)
class _Verdict:
    """What the rows that were left out say.

    Attributes
    ----------
    accepted : bool, whether refined models are better than closed forms
    attempts : the better models of all parts
    judged : how they score the rows, None if none could be left out
    compactions : what made them smaller
    report : Report
    """

    accepted: bool
    attempts: list[_Attempt]
    judged: Judged | None
    compactions: list[Compaction]
    report: Report


def _verdict(settings: Settings, collected: Collected, trials: list[_Trial]) -> _Verdict:
    of_closed = _judged([trial.closed for trial in trials], settings.rescore)
    of_refined = _judged([trial.refined for trial in trials], settings.rescore)
    judged, accepted = of_closed, False
    if of_closed is not None and of_refined is not None and is_better(of_refined, of_closed):
        # After folds, the final model is yet to be refined.
        accepted = not (len(trials) > 1 and settings.out_of_time)
        judged = of_refined if accepted else of_closed
    attempts = [trial.of(accepted) for trial in trials]
    report = _report(settings, collected.n_rows, of_closed, judged)
    made_compact: list[Compaction] = []
    if judged is not None and collected.sums.wide:
        attempts, judged, made_compact = _compacted(trials, attempts, judged, collected)
    return _Verdict(accepted, attempts, judged, made_compact, report)


def _judged_model(
    settings: Settings, collected: Collected, trial: _Trial, verdict: _Verdict
) -> tuple[Candidate, NDArray[Any]]:
    """The better model of the only part, and its classes."""
    candidate = verdict.attempts[0].candidate
    if len(trial.classes) > settings.learned_classes:  # whose weights are codes of class means
        candidate = with_all_rows(candidate, collected.all_sums().with_rows())
    return candidate, trial.classes


def _final(
    settings: Settings,
    collected: Collected,
    choices: _Choices,
    trials: list[_Trial],
    verdict: _Verdict,
) -> tuple[Candidate, NDArray[Any], Refinement | None]:
    """A model of all rows of the better kind, its classes, and its refinement."""
    refinement = trials[0].refinement if trials else None
    was_stopped = refinement is not None and refinement.stopped is not None
    if verdict.accepted and len(trials) == 1 and (was_stopped or settings.out_of_time):
        return *_judged_model(settings, collected, trials[0], verdict), refinement
    candidate = candidate_of(choices.closed)
    if verdict.accepted:
        of_all_rows = _refine_all(settings, collected, choices)
        refinement = refinement if len(trials) == 1 else of_all_rows
        candidate = of_all_rows.candidate
    for compact in verdict.compactions:
        candidate = compact(candidate)
    return candidate, choices.closed.whitening.sums.classes, refinement


def _calibrated(
    settings: Settings,
    model: PackedModel,
    closed: ClosedForm,
    trials: list[_Trial],
    verdict: _Verdict,
) -> PackedModel:
    """The model with its short list, its temperature and its table of typical scores."""
    judged = verdict.judged
    if judged is None:  # every class has a single row
        length = RESCORE_LENGTHS[-1] if settings.rescore is None else settings.rescore
        return calibrated(model, length, 1.0 / candidate_of(closed).sharpness, None)
    temperature = judged.temperature * _gain_of_rows(trials, closed)
    typical = [trial.typical_score for trial in trials if trial.typical_score is not None]
    if len(typical) > 1:
        # With fewer rows than features, directions without rows are whitened by the penalty alone:
        # all scores are larger the fewer rows there are, and typicality compares scores.
        scale = typical_score(closed) / max(float(np.mean(typical)), 1e-30)
        if scale > 0:
            judged = replace(judged, best=(judged.best * scale).astype(np.float32))
    return calibrated(model, judged.length, temperature, judged)


def _gain_of_rows(trials: list[_Trial], closed: ClosedForm) -> float:
    """Factor on temperatures of judged models for the rows that the final one has in addition.

    They tell more of class means: a new row varies about the mean of n others by 1 + 1 / n times
    the variance within the class. And they tell more of that variance, which shows on rows drawn
    from the sums of either if these are few. The factor is the lesser of both.
    """
    sums = closed.whitening.sums
    total = gain = 0.0
    for part in (trial.part for trial in trials):
        n, n_of_part = (
            each.rows_per_class[np.searchsorted(each.classes, part.judged.labels)]
            for each in (sums, part.sums)
        )
        gain += float(part.weights @ (np.log1p(1.0 / n) - np.log1p(1.0 / n_of_part)))
        total += float(part.weights.sum())
    by_means = math.exp(gain / total)
    if len(trials) == 1:
        return by_means
    of_folds = _mean_log([trial.closed.candidate.sharpness for trial in trials])
    return min(by_means, of_folds / candidate_of(closed).sharpness)


def _mean_log(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(float(np.mean(np.log(values))))


def _resumed(settings: Settings, collected: Collected, part: _Part, before: Fitted) -> Fitted:
    """The model before, after some steps on rows that were added since."""
    attempt = part.attempt(resume(settings, before.model, part.sums, part.sample))
    judged = judge([attempt.fold], settings.rescore)
    model = _with_prior(settings, collected, attempt.candidate, part.sums.classes, [attempt])
    report = replace(
        before.report,
        n_rows=collected.n_rows,
        n_added=before.report.n_added + collected.n_rows - before.report.n_rows,
        n_judged=len(judged.gap),
        accuracy=judged.accuracy,
    )
    model = calibrated(model, judged.length, judged.temperature, judged)
    return Fitted(model, report)


def _with_prior(
    settings: Settings,
    collected: Collected,
    candidate: Candidate,
    classes: NDArray[Any],
    attempts: list[_Attempt],
) -> PackedModel:
    """The model for the prior of its classes, at the temperature of the judged models."""
    mass = collected.masses()
    temperatures = [attempt.prior_temperature for attempt in attempts] or [1 / candidate.sharpness]
    temperature = _mean_log(temperatures)
    return candidate.model(classes, _prior(settings, mass[mass > 0]), temperature)


def _likelihood(settings: Settings, collected: Collected) -> float:
    """Likelihood of rows that were left out one by one, at the penalty that is tried first."""
    alpha = FIRST_ALPHA if settings.alpha is None else settings.alpha
    rows = _all_rows(settings, collected)
    return (
        Whitenings(rows.sums, rows.sample, replace(settings, alpha=alpha)).penalties[0].likelihood
    )


@dataclass(frozen=True)
class _Choices:
    """What is chosen once, and the closed form of the rows that it was chosen from."""

    whitenings: Whitenings
    closed: ClosedForm

    @property
    def penalties(self) -> Penalties:
        """For the closed form and for refinement."""
        return self.whitenings.penalties


def _choose(settings: Settings, rows: _Part) -> _Choices:
    """Choose penalties by leave-one-out, and hyperplanes by rows drawn from the sums."""
    whitenings = Whitenings(rows.sums, rows.sample, settings)
    return _Choices(whitenings, _closed_form(settings, whitenings.closed))


def _closed_form(settings: Settings, whitening: Whitening, kind: Kind | None = None) -> ClosedForm:
    sums = whitening.sums
    deviation = score_deviation(sums.effective_rows / len(sums.classes))
    return closed_form(whitening, settings.n_bits, deviation, settings.seed, kind)


def _refine_all(settings: Settings, collected: Collected, choices: _Choices) -> Refinement:
    """The refined model of all rows."""
    rows = _all_rows(settings, collected)
    start = _closed_form(settings, choices.whitenings.start, choices.closed.start)
    return refine(settings, start, rows.sample, rows.judged)


def _report(
    settings: Settings, n_rows: int, closed: Judged | None, chosen: Judged | None
) -> Report:
    if closed is None or chosen is None:
        return Report(n_rows=n_rows)
    report = Report(
        n_rows=n_rows,
        n_judged=len(chosen.gap),
        accuracy=chosen.accuracy,
        accuracy_closed_form=closed.accuracy,
        refined=chosen is not closed,
    )
    settings.print_line(
        f"closed form {report.accuracy_closed_form:.2%}, chosen model {report.accuracy:.2%} on "
        f"{report.n_judged} rows; refinement {'accepted' if report.refined else 'not accepted'}"
    )
    return report


def _judged(attempts: list[_Attempt | None], rescore: int | None) -> Judged | None:
    """How the parts that were left out judge one kind of model; None if there is none."""
    folds = [one.fold for one in attempts if one is not None]
    return judge(folds, rescore) if folds and len(folds) == len(attempts) else None


def _compacted(
    trials: list[_Trial], attempts: list[_Attempt], judged: Judged, collected: Collected
) -> tuple[list[_Attempt], Judged, list[Compaction]]:
    """Models of wide rows, as small as the judged rows allow, and what made them so."""
    sums, made = collected.all_sums(), []
    for choices, max_loss in compactions(sums):
        for compact in choices:  # the smallest first
            smaller = [compact(attempt.candidate) for attempt in attempts]
            if all(s is a.candidate for s, a in zip(smaller, attempts, strict=True)):
                continue
            found = [t.part.attempt(one) for t, one in zip(trials, smaller, strict=True)]
            more = judge([one.fold for one in found], judged.length)
            if loss(more) <= loss(judged) + max_loss:
                attempts, judged = found, more
                made.append(compact)
                break
    return attempts, judged, made


def _prior(settings: Settings, mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares (C,) of the classes where the model is used; `mass` is their total weight."""
    if isinstance(settings.prior, str):
        # The shares of very many classes are hardly known.
        if settings.prior == "uniform" or len(mass) > _MAX_KNOWN_SHARES:
            return np.full(len(mass), 1.0 / len(mass))
        return np.asarray(mass / mass.sum())
    return settings.prior


@dataclass(frozen=True)
class _Attempt:
    """A model of a part of the rows, and the others, which judge it."""

    candidate: Candidate
    prior_temperature: float
    fold: Fold


@dataclass(frozen=True)
class _Part:
    """Rows to train on, and rows that judge, with the weights they have where the model is used."""

    sums: Sums
    sample: Sample
    judged: Sample
    prior: NDArray[np.float64]
    weights: NDArray[np.float64]

    def attempt(self, candidate: Candidate) -> _Attempt:
        """A model of the rows to train on."""
        classes, shares = self.sums.classes, self.sums.mass / self.sums.total
        temperature = prior_temperature(candidate, self.judged, classes, shares)
        model = candidate.model(classes, self.prior, temperature)
        return _Attempt(candidate, temperature, (model, self.judged, self.weights))


def _all_rows(settings: Settings, collected: Collected) -> _Part:
    """All rows to train on, and none to judge."""
    return _part(settings, collected, np.zeros(len(collected.pool), dtype=bool))


def _part(settings: Settings, collected: Collected, is_judged: NDArray[np.bool_]) -> _Part:
    sums, sample = collected.without(is_judged, with_sample=bool(settings.refine))
    sums = sums.with_rows()
    judged = collected.pool.take(np.flatnonzero(is_judged))
    judged = judged.take(np.flatnonzero(np.isin(judged.labels, sums.classes)))
    prior, y = (
        _prior_of_part(settings, collected, sums),
        np.searchsorted(sums.classes, judged.labels),
    )
    # Runs of judged rows are mostly of one class: classes with fewer judged rows than their share
    # count for more, smoothed by one run per class.
    mass = np.bincount(y, judged.weights, len(sums.classes))
    total, one_run = mass.sum(), ROWS_PER_RUN * judged.weights.mean() if len(judged) else 1.0
    shift = (sums.mass / sums.total * total + one_run) / (mass + one_run)
    if settings.shifts_prior:
        shift *= prior / sums.mass * sums.total
    return _Part(sums, sample, judged, prior, judged.weights * shift[y])


@dataclass(frozen=True)
class _Trial:
    """Both kinds of models of a part of the rows."""

    part: _Part
    closed: _Attempt
    refined: _Attempt | None
    refinement: Refinement | None
    typical_score: float | None  # only in the span of few rows

    @property
    def classes(self) -> NDArray[Any]:
        """The classes of the models."""
        return self.part.sums.classes

    def of(self, refined: bool) -> _Attempt:
        """The refined model, or the closed form."""
        if not refined:
            return self.closed
        assert self.refined is not None
        return self.refined


def _try(settings: Settings, part: _Part, choices: _Choices) -> _Trial:
    if part.sums is choices.closed.whitening.sums:  # the rows that they were chosen from
        whitenings, closed = choices.whitenings, choices.closed
    else:
        whitenings = Whitenings(part.sums, part.sample, settings, choices.penalties)
        closed = _closed_form(settings, whitenings.closed, choices.closed.kind)
    refinement, refined = None, None
    if settings.refine and not settings.out_of_time:
        start = _closed_form(settings, whitenings.start, choices.closed.start)
        refinement = refine(settings, start, part.sample, part.judged)
        refined = part.attempt(refinement.candidate)
    elif settings.refine:
        settings.print_line("refinement: skipped, max_time has passed")
    typical = typical_score(closed) if part.sums.span_of is not None else None
    return _Trial(part, part.attempt(candidate_of(closed)), refined, refinement, typical)


def _prior_of_part(settings: Settings, collected: Collected, sums: Sums) -> NDArray[np.float64]:
    prior = _prior(settings, sums.mass)
    if len(prior) != len(sums.classes):  # some classes have no rows in this part
        everyone = collected.classes[collected.masses() > 0]
        prior = prior[np.searchsorted(everyone, sums.classes)]
    return prior / prior.sum()


def _effective_rows(settings: Settings, collected: Collected) -> float:
    """Effective number of rows, given their weights where the model is used.

    Where rare classes count as much as frequent ones, their few rows decide how well models are
    judged.
    """
    pool, mass = collected.pool, collected.masses()
    shift = np.ones(len(mass))
    if settings.shifts_prior:
        present = mass > 0
        shift[present] = _prior(settings, mass[present]) / mass[present]
    weights = pool.weights * shift[np.searchsorted(collected.classes, pool.labels)]
    return float(collected.n_rows * weights.sum() ** 2 / (weights @ weights) / len(weights))


def _parts(collected: Collected, effective: float) -> list[NDArray[np.bool_]]:
    """Masks of the rows of the pool that judge: one part, or folds if there are few rows.

    Every class that has rows keeps at least one of them, or half of its mass.

    Parameters
    ----------
    collected : Collected
    effective : float, effective number of rows
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
    if effective < _MIN_ROWS_OF_ONE_PART and len(pool) == n_rows:
        # Rows that follow each other stay together; of two rows per class, each fold leaves out
        # those of some classes only.
        of_rows = (rank * _FOLDS // counts[y] + y) % _FOLDS
        folds = [(of_rows == fold) & several[y] for fold in range(_FOLDS)]
        return [fold for fold in folds if np.count_nonzero(fold) > 1]
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
