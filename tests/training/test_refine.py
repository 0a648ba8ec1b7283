"""Refinement and its judge: likelihoods, calibration, acceptance, and rows that are left out."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.training.candidate import candidate_of
from bitclass.training.closed_form import Kind, Whitenings, WideWhitening, closed_form
from bitclass.training.fit import _effective_rows, _parts, fit_model, judged_groups
from bitclass.training.judge import Judged, is_better, judge
from bitclass.training.refine import _TrainingRows, refine
from bitclass.training.sums import Sums

from .learning import collected_of, problem, sample_of, sums_of
from .learning import settings as settings_of

# -------------------------------------------------------------------------------------------------
# The judge
# -------------------------------------------------------------------------------------------------


def random_model(seed=0, n_classes=30, n_bits=24, d=5, bias=0.0, **given):
    rng = np.random.default_rng(seed)
    hash_function = HashFunction(
        rng.standard_normal((d, n_bits)).astype(np.float32), rng.standard_normal(n_bits)
    )
    weights = pack(rng.standard_normal((n_classes, n_bits)) > 0)
    if bias:
        given["bias"] = (bias * rng.standard_normal(n_classes)).astype(np.float32)
    return PackedModel(np.arange(n_classes), weights, hash_function, **given)


def rows_for(model, n=80, seed=1, noise=0.0):
    """Rows with labels that the model predicts, but for a share `noise`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, model.n_features)).astype(np.float32)
    wrong = rng.random(n) < noise
    return sample_of(X, np.where(wrong, rng.integers(0, len(model.classes), n), model.predict(X)))


@given(st.integers(0, 1000), st.sampled_from([0, 5, 16, 64]), st.sampled_from([0.0, 0.3, 8.0]))
@settings(max_examples=30)
def test_likelihoods_equal_those_of_all_scores(seed, rescore, bias):
    """Without the biases the counts below the short list are exact; with them, to one bit."""
    model = random_model(seed, bias=bias)
    rows = rows_for(model, noise=0.5)
    judged = judge([(model, rows, np.ones(80))], rescore)
    assert judged.length == rescore
    model.rescore = rescore
    scores = model.scores(rows.X)
    at = np.arange(80), rows.labels
    np.testing.assert_allclose(judged.best, scores.max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(judged.gap, scores.max(axis=1) - scores[at], atol=1e-5)
    np.testing.assert_array_equal(judged.correct, model.predict(rows.X) == rows.labels)
    for temperature in (0.7, 3.0):
        logits = (scores - scores.max(axis=1, keepdims=True)) / temperature
        expected = logits[at] - np.log(np.exp(logits).sum(axis=1))
        tolerance = 1e-5 if bias == 0 else 1.0 / temperature
        np.testing.assert_allclose(judged.log_likelihoods(temperature), expected, atol=tolerance)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_temperature_minimises_the_cross_entropy_of_being_correct(noise):
    model = random_model()
    judged = judge([(model, rows_for(model, 400, noise=noise), np.ones(400))], 16)
    target = judged.correct * (1.0 - 0.5 / (judged.correct.sum() + 1.0))

    def loss(temperature):
        others = judged.log_others(1.0 / temperature)  # log((1 - p) / p)
        return np.mean(np.log1p(np.exp(others)) - (1.0 - target) * others)

    found = judged.temperature
    for other in np.geomspace(0.06, 900, 60):
        assert loss(found) <= loss(other) + 1e-9
    # Then as many rows are predicted correctly as the probabilities say.
    mean = np.mean(1.0 / (1.0 + np.exp(judged.log_others(1.0 / found))))
    assert mean == pytest.approx(judged.accuracy, abs=0.1)


def judged_with(correct, gap, weights=None):
    n = len(correct)
    listed = np.column_stack([np.zeros(n), np.full(n, 2.0), np.full(n, np.inf)])
    correct = np.asarray(correct, dtype=bool)
    return Judged(
        listed,
        np.zeros((n, 1)),
        np.asarray(gap, dtype=float),
        np.zeros(n, np.float32),
        correct,
        np.ones(n) if weights is None else weights,
        length=16,
    )


def test_refinement_must_be_better_by_a_standard_error():
    rng = np.random.default_rng(0)
    wrong = rng.random(400) < 0.3
    better = wrong & (rng.random(400) < 0.5)
    closed, refined = (judged_with(~bad, 2.0 * bad) for bad in (wrong, better))
    assert is_better(refined, closed)
    assert not is_better(closed, refined)
    assert not is_better(closed, closed)
    # As many rows lost as gained, but for one, are no evidence.
    other = wrong.copy()
    other[np.flatnonzero(~wrong)[:9]], other[np.flatnonzero(wrong)[:10]] = True, False
    assert not is_better(judged_with(~other, 2.0 * other), closed)


def test_the_short_list_has_its_default_length_without_evidence():
    model = random_model(n_classes=100)
    model.rescore = 100
    listed = rows_for(model, 400)
    assert judge([(model, listed, np.ones(400))], None).length in (16, 64)
    assert judge([(model, listed, np.ones(400))], 5).length == 5
    n_right = judge([(model, listed, np.ones(400))], 16).correct.sum()
    assert n_right < 400, "or this would show little"


def test_folds_are_joined():
    model = random_model()
    rows = rows_for(model, 90, noise=0.3)
    folds = [(model, rows.take(np.arange(90)[fold::3]), np.ones(30)) for fold in range(3)]
    other = random_model(n_classes=8, n_bits=24)  # a fold without some of the classes
    folds[2] = other, rows_for(other, 30), np.ones(30)
    joined, parts = judge(folds, 16), [judge([fold], 16) for fold in folds]
    for temperature in (0.5, 4.0):
        expected = np.concatenate([part.log_likelihoods(temperature) for part in parts])
        np.testing.assert_allclose(joined.log_likelihoods(temperature), expected, rtol=1e-9)
    assert joined.accuracy == pytest.approx(np.mean([part.accuracy for part in parts]))


# -------------------------------------------------------------------------------------------------
# Rows that judge
# -------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(2, 9), st.booleans())
def test_no_group_is_on_both_sides_and_no_class_loses_more_than_half(
    seed, n_groups, n_classes, weighted
):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, 400)
    groups = rng.integers(0, n_groups, 400)
    groups = np.unique(groups**2 // n_groups, return_inverse=True)[1]  # of uneven sizes
    weights = rng.uniform(0.1, 3.0, 400) if weighted else np.ones(400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        judged = judged_groups(y, groups, weights, seed)
    if judged is None:
        assert n_groups < 40
        return
    assert not set(groups[judged]) & set(groups[~judged])
    lost = np.bincount(y[judged], weights[judged], minlength=n_classes)
    assert np.all(lost <= 0.5 * (1 + 1e-6) * np.bincount(y, weights, minlength=n_classes))
    if n_groups == 40:
        assert 0 < np.count_nonzero(judged) < 200


def test_groups_that_are_classes_cannot_be_held_out():
    y = np.arange(300) % 5
    with pytest.warns(UserWarning, match="every group contains more than half of some class"):
        assert judged_groups(y, y, np.ones(300), 0) is None


@given(st.integers(0, 1000), st.integers(6, 400), st.integers(2, 60))
def test_few_rows_are_judged_in_folds_each_row_once(seed, n, n_classes):
    y = np.random.default_rng(seed).integers(0, n_classes, n)
    X = np.arange(n, dtype=float)[:, None] * np.ones(2)
    collected = collected_of(X, y)
    folds = _parts(collected, collected.n_rows)
    times = np.sum(folds, axis=0) if folds else np.zeros(n)
    assert times.max() <= 1
    counts = np.bincount(y, minlength=n_classes)
    labels = collected.pool.labels
    assert not times[counts[labels] == 1].any(), "nothing would be left of the class"
    for fold in folds:
        assert np.isin(labels[fold], labels[~fold]).all()
        assert len(fold) == n


@given(st.integers(0, 1000), st.integers(2, 300))
@settings(max_examples=20)
def test_many_rows_are_judged_in_one_part(seed, n_classes):
    y = np.random.default_rng(seed).integers(0, n_classes, 3000)
    collected = collected_of(np.arange(3000.0)[:, None] * np.ones(2), y)
    (part,) = _parts(collected, collected.n_rows)
    labels = collected.pool.labels
    assert 50 < np.count_nonzero(part) <= 600
    lost = np.bincount(labels[part], minlength=n_classes)
    assert np.all(2 * lost <= np.bincount(labels, minlength=n_classes))


def test_effective_rows_are_those_of_the_classes_that_count():
    """Of 2,000 rows, 30 decide how well classes are told apart that all count the same."""
    y = np.repeat(np.arange(4), [1970, 10, 10, 10])
    weights = np.ones(len(y))
    collected = collected_of(np.arange(2000.0)[:, None] * np.ones(2), y)
    assert _effective_rows(settings_of(), collected) == pytest.approx(2000)
    uneven = _effective_rows(settings_of(prior="uniform"), collected)
    assert uneven == pytest.approx(1 / (0.25**2 * (1 / 1970 + 3 / 10)))
    weights[y > 0] = 197.0
    weighted = collected_of(collected.pool.features(), y, weights)
    assert _effective_rows(settings_of(), weighted) == pytest.approx(uneven)
    assert len(_parts(collected, 2000)) == 1
    assert len(_parts(collected, uneven)) == 3


def test_rows_of_one_source_do_not_judge_a_model_of_that_source():
    """Rows of a source follow each other; those of new sources are harder, and judge as hard.

    Forty sources judge a model, so that a single one is off by chance: several models are not.
    """

    def foreseen(seed):
        rng = np.random.default_rng(seed)
        means = 0.9 * rng.standard_normal((20, 24))

        def rows(n_sources):
            sources = np.repeat(means, n_sources, axis=0)
            sources += rng.standard_normal(sources.shape)
            X = np.repeat(sources, 10, axis=0)
            return X + 0.3 * rng.standard_normal(X.shape), np.repeat(np.arange(20), 10 * n_sources)

        (X, y), (X_new, y_new) = rows(10), rows(40)
        classifier = BinaryCodeClassifier(n_bits=64, random_state=seed).fit(X, y)
        optimism = classifier.report_.accuracy - classifier.score(X_new, y_new)
        return optimism, np.mean(classifier.typicality(X_new) < 0.1)

    optimism, rejected = np.mean([foreseen(seed) for seed in range(6)], axis=0)
    assert abs(optimism) < 0.05
    assert rejected == pytest.approx(0.1, abs=0.04)


def test_chosen_rows_judge_and_are_not_trained_on():
    X, y = problem(1500)
    judged = np.arange(1500) % 10 == 0
    collected = collected_of(X, y, judged=judged)
    (part,) = _parts(collected, collected.n_rows)
    sums, sample = collected.without(part)
    assert (np.count_nonzero(part), sums.n_rows, len(sample)) == (150, 1350, 1350)
    assert not {*map(tuple, X[judged])} & {*map(tuple, sample.features())}


# -------------------------------------------------------------------------------------------------
# Refinement
# -------------------------------------------------------------------------------------------------


def hard(n=1500, seed=0):
    """Classes of several clusters each, which one code per class does not separate by means."""
    rng = np.random.default_rng(7)
    centres = 2.5 * rng.standard_normal((24, 8))
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, 24, n)
    return (centres[cluster] + rng.standard_normal((n, 8))).astype(np.float32), cluster % 6


def closed_of(X, y, n_bits=32):
    sums, rows = sums_of(X, y), sample_of(X, y)
    start = Whitenings(sums, rows, settings_of(n_bits)).start
    return closed_form(start, n_bits, 0.7, 0, Kind("rotation"))


def test_refinement_improves_unseen_rows():
    (X, y), (X_test, y_test) = hard(), hard(seed=1)
    fitted = {
        kept: fit_model(settings_of(32, refine=kept), collected_of(X, y)) for kept in (False, True)
    }
    accuracy = {
        kept: np.mean(each.model.predict(X_test) == y_test) for kept, each in fitted.items()
    }
    report = fitted[True].report
    assert report.refined
    assert not fitted[False].report.refined
    assert accuracy[True] > accuracy[False] + 0.02
    assert report.accuracy > report.accuracy_closed_form
    assert report.accuracy == pytest.approx(accuracy[True], abs=0.08)
    assert report.accuracy_closed_form == pytest.approx(accuracy[False], abs=0.08)
    assert report.epochs[-1].objective < report.epochs[0].objective
    assert report.n_judged < report.n_rows == 1500


def test_drawn_rows_stand_in_for_what_few_rows_do_not_tell():
    few = problem(n=60, n_classes=20, d=10, noise=3.0)
    many = problem(n=4000, n_classes=4, d=10)
    shares = []
    for X, y in (few, many):
        rows = _TrainingRows(closed_of(X, y), sample_of(X, y), 10**6, np.random.default_rng(0))
        shares.append(rows.drawn_share)
        for A, labels, weights in itertools.islice(rows.batches(64), 5):
            assert len(A) == len(labels) == len(weights)
        np.testing.assert_allclose(np.exp(rows.log_shares).sum(), 1.0, rtol=1e-5)
    assert shares[0] > 0.05 > shares[1]


def test_class_weights_are_left_to_the_prior():
    """Steps would follow the few rows of a rare class if each counted as its weight says."""
    X, y = problem(n=600, n_classes=4)
    inside = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    by_class = np.array([1.0, 5.0, 0.1, 30.0])[y]
    closed = closed_of(X, y)
    plain, weighted = (
        _TrainingRows(closed, sample_of(X, y, each), 10**6, np.random.default_rng(0))
        for each in (inside, inside * by_class)
    )
    np.testing.assert_allclose(weighted.log_shares, plain.log_shares, rtol=1e-5)
    batches = zip(plain.batches(64), weighted.batches(64), strict=True)
    for one, other in itertools.islice(batches, 5):
        np.testing.assert_allclose(one[2], other[2], rtol=1e-5)
        assert np.ptp(one[2]) > 0.5


def test_sparse_rows_lack_some_entries_at_each_visit():
    random, y = np.random.default_rng(0), np.arange(512) % 4
    X = sp.random_array((512, 3000), density=0.02, format="csr", dtype=np.float32, rng=random)
    sums, sample = Sums.of_wide(3000), sample_of(X, y)
    sums.add(X, y, np.ones(len(y)))
    closed = closed_form(WideWhitening(sums, 10.0, sample, 16), 16, 0.7, 0, Kind("rotation"))
    rows = _TrainingRows(closed, sample, 10**6, random)
    entries = rows.rows[np.arange(512)].data
    for _ in range(2):
        visited = np.concatenate([b[0].data for b in itertools.islice(rows.batches(64), 8)])
        assert len(visited) == len(entries)
        assert np.mean(visited == 0) == pytest.approx(0.2, abs=0.02)
        assert visited.sum() == pytest.approx(entries.sum(), rel=0.03)
    np.testing.assert_array_equal(rows.rows[np.arange(512)].data, entries)


def test_an_epoch_of_very_many_classes_visits_each_of_them():
    """Callbacks and limits of time act after each pass; once, all passes were one epoch."""
    random, y = np.random.default_rng(0), np.repeat(np.arange(600), 3)
    X = sp.random_array((1800, 3000), density=0.01, format="csr", dtype=np.float32, rng=random)
    sums, sample = Sums.of_wide(3000), sample_of(X, y)
    sums.add(X, y, np.ones(len(y)))
    closed = closed_form(WideWhitening(sums, 10.0, sample, 16), 16, 0.7, 0, Kind("rotation"))
    many = settings_of(learned_classes=500)
    done = refine(many, closed, sample, sample.select(np.arange(0)))
    assert [(each.epoch, each.n_epochs) for each in done.epochs] == [(1, 3), (2, 3), (3, 3)]
    stopped = refine(replace(many, callback=lambda epoch: True), closed, sample, sample)
    assert (len(stopped.epochs), stopped.stopped) == (1, "callback")


def test_a_prior_moves_the_biases_alone():
    X, y = problem(n=400, noise=3.0)
    candidate = candidate_of(closed_of(X, y))
    even = candidate.model(np.arange(4), np.full(4, 0.25), 5.0)
    first = candidate.model(np.arange(4), np.array([0.97, 0.01, 0.01, 0.01]), 5.0)
    np.testing.assert_array_equal(even.weights, first.weights)
    counts = [np.mean(model.predict(X) == 0) for model in (even, first)]
    assert counts[1] > counts[0] + 0.1


def test_the_model_of_all_rows_is_refined_if_folds_say_so():
    X, y = hard(700)
    fitted = fit_model(settings_of(32), collected_of(X, y))
    assert fitted.report.n_judged == 700
    assert fitted.model.temperature > 0
    again = fit_model(settings_of(32), collected_of(X, y))
    np.testing.assert_array_equal(again.model.weights, fitted.model.weights)


def test_models_of_all_rows_are_more_certain_than_those_of_folds():
    """By what two rows per class tell of their means more than one."""

    def confidence_and_accuracy(seed):
        X, y = problem(2000, d=8, n_classes=60, noise=0.6, seed=seed)
        model = BinaryCodeClassifier(64, refine=False, random_state=seed).fit(X[:120], y[:120])
        sure = model.predict_proba(X[120:]).max(axis=1).mean()
        return sure, model.score(X[120:], y[120:]), model.report_.accuracy

    found = np.array([confidence_and_accuracy(seed) for seed in range(8)])
    sure, right, foreseen = found.mean(axis=0)
    assert foreseen < right - 0.05, "or there is nothing to correct"
    assert sure == pytest.approx(right, abs=0.04)


def test_one_row_per_class():
    """Nothing can be judged: lists are long, and probabilities between chance and accuracy."""
    X, y = problem(2000, d=40, n_classes=100, noise=0.6)
    classifier = BinaryCodeClassifier(n_bits=128).fit(X[:100], y[:100])
    assert classifier.packed().rescore == 64
    accuracy = classifier.score(X[100:], y[100:])
    nearest = np.mean(y[:100][cdist(X[100:], X[:100]).argmin(axis=1)] == y[100:])
    assert accuracy > nearest - 0.05
    confidence = classifier.predict_proba(X[100:]).max(axis=1).mean()
    assert 0.2 < confidence < accuracy


def test_refining_without_judged_rows_gives_no_accuracies():
    X, y = hard(400)
    sample = sample_of(X, y)
    done = refine(settings_of(32), closed_of(X, y), sample, sample.select(np.arange(0)))
    assert {epoch.accuracy for epoch in done.epochs} == {None}
    assert done.stopped is None


@pytest.mark.parametrize("rescore", [None, 0, 16, 64])
def test_probabilities_and_typicality_suit_the_chosen_short_list(rescore):
    """They were those of the default length, whatever length was chosen."""
    (X, y), (X_test, y_test) = hard(), hard(2000, seed=1)
    model = fit_model(settings_of(32, rescore=rescore), collected_of(X, y)).model
    assert np.mean(model.typicality(X_test) <= 0.5) == pytest.approx(0.5, abs=0.2)
    accuracy = np.mean(model.predict(X_test) == y_test)
    assert model.predict_proba(X_test).max(axis=1).mean() == pytest.approx(accuracy, abs=0.12)
