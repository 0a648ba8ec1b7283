"""Results of refinement: never a worse model, and deterministic."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refinement_problems import in_batches, make, refining, start
from sklearn.utils import check_random_state

from bitclass.training.refinement.refine import Split
from problems import assert_same_model, clusters


def accuracy_held_out(classifier, X, y):
    """Accuracy of a fitted estimator on the rows that its refinement held out."""
    seed = int(check_random_state(classifier.random_state).randint(2**31 - 1))
    held_out = Split(classifier.statistics_, in_batches(X, y), len(y), seed, 1 << 30).held_out
    return float(np.mean(classifier.predict(held_out.X) == classifier.classes_[held_out.y]))


@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(0.0, 1.0), st.sampled_from([3, 17, 40]))
@settings(max_examples=20)
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_refinement_is_never_worse_on_the_held_out_rows(seed, n_classes, share_of_noise, n_bits):
    rng = np.random.default_rng(seed)
    X, y = clusters(300, d=6, n_classes=n_classes, seed=seed)
    noisy = rng.random(300) < share_of_noise
    y[noisy] = rng.integers(0, n_classes, int(noisy.sum()))
    # A fixed penalty for both models: otherwise the plain one would choose another.
    given = {"alpha": 0.01, "random_state": seed}
    classifier = make(n_bits, **given).fit(X, y)
    found = classifier.refinement_
    assert found["taken"] == (found["accuracy_after"] >= found["accuracy_before"])
    if found["taken"]:
        assert accuracy_held_out(classifier, X, y) == found["accuracy_after"]
    else:
        plain = make(n_bits, refine=False, **given).fit(X, y)
        np.testing.assert_array_equal(classifier.projection_, plain.projection_)
        np.testing.assert_array_equal(classifier.weights_, plain.weights_)
    assert classifier.packed().temperature > 0


@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_refinement_needs_500_rows_by_default_and_two_per_class_on_request():
    for n in (499, 500):
        refinement = make(refine="auto").fit(*clusters(n, n_classes=3)).refinement_
        assert (refinement is not None) == (n == 500)
    X = np.random.default_rng(0).standard_normal((200, 10))
    assert make(48).fit(X, np.repeat(np.arange(100), 2)).refinement_["epochs"] > 0


def test_too_few_or_unavailable_rows_warn():
    X, y = clusters(700)
    with pytest.warns(UserWarning, match="refine=True: the model was not refined, because 60 rows"):
        assert make(64).fit(X[:60], np.arange(60)).refinement_ is None
    classifier = make().partial_fit(X[:400], y[:400]).partial_fit(X[400:], y[400:])
    with pytest.warns(
        UserWarning, match="refine=True: the model was not refined, because the rows of"
    ):
        assert classifier.solve().refinement_ is None
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="refine")
        assert make(refine="auto").partial_fit(X, y).solve().refinement_ is None


def test_rows_of_weight_0_are_ignored():
    X, y = clusters(1000)
    weights = np.random.default_rng(0).integers(0, 3, 1000).astype(float)
    there = weights > 0
    assert_same_model(
        make().fit(X, y, sample_weight=weights),
        make().fit(X[there], y[there], sample_weight=weights[there]),
    )


def test_class_weights_have_an_effect():
    """Also on the held-out rows, on which a model of the other class alone may look better."""
    X, y = clusters(2000, n_classes=2, noise=6.0)
    shares = {}
    for weight in (0.05, 0.5, 1.0, 2.0, 20.0):
        classifier = make(class_weight={1: weight}).fit(X, y)
        shares[weight] = np.mean(classifier.predict(X) == 1)
        # The reported accuracies are weighted.
        average = np.average(classifier.predict(X) == y, weights=np.where(y == 1, weight, 1.0))
        told = classifier.refinement_["accuracy_before"], classifier.refinement_["accuracy_after"]
        assert max(told) == pytest.approx(average, abs=0.12)
    assert shares[0.05] < 0.1 < shares[0.5] < shares[1.0] < shares[2.0] < 0.9 < shares[20.0]


def test_a_feature_that_varies_only_in_held_out_rows_does_no_harm():
    """Without them its variance is rounding error, which must not be amplified."""
    X, y = clusters(1000, noise=4.0)
    rare = np.zeros((1000, 60), np.float32)
    rng = np.random.default_rng(0)
    rare[rng.integers(0, 1000, 60), np.arange(60)] = rng.uniform(1, 2, 60)
    X = np.hstack([X, rare])
    classifier = make().fit(X, y)
    assert classifier.refinement_["taken"]
    sizes = np.abs(classifier.projection_) * X.std(axis=0)[:, None]
    assert sizes[12:].max() < sizes[:12].max()


def test_constant_and_duplicate_features_do_no_harm():
    X, y = clusters(700)
    X = np.hstack([X, X[:, :3], np.full((700, 2), 7.3, np.float32), np.zeros((700, 1), np.float32)])
    for alpha in (0.0, 0.01, "auto"):
        classifier = make(alpha=alpha).fit(X, y)
        found = classifier.refinement_
        assert found["accuracy_after"] > found["accuracy_before"] - 0.05 or alpha == 0.0
        assert np.abs(classifier.projection_[15:]).max() < 1e-12
        assert np.isfinite(classifier.projection_).all()
        assert classifier.score(X, y) > 0.85


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [([0.7, 0.8], [1]), ([0.8, 0.79], [1, 0]), ([0.8, 0.5], [0]), ([0.8, 0.79, 0.5], [1, 0])],
)
def test_the_last_good_epoch_is_tried_then_the_best_and_none_twice(accuracies, expected):
    best = refining.BestEpoch(100)
    for epoch, accuracy in enumerate(accuracies):
        Q, t = np.full((2, 3), epoch), np.zeros(3)
        best.offer(accuracy, SimpleNamespace(projection=Q, intercept=t, weights=None))
    assert [int(Q[0, 0]) for Q, _, _ in best.candidates()] == expected
    assert [best.far_exceeds(accuracy) for accuracy in (0.7, 0.5)] == [False, True]


@pytest.mark.parametrize(("of_last", "of_best"), [(0.5, None), (0.4, 0.6), (0.4, 0.45)])
def test_the_best_epoch_is_used_if_the_last_good_one_is_not_good_enough(
    of_last, of_best, monkeypatch
):
    """Two epochs to try, whichever they are."""
    candidates = refining.BestEpoch.candidates
    monkeypatch.setattr(refining.BestEpoch, "candidates", lambda best: 2 * candidates(best)[:1])
    answers = iter([0.5, of_last, *([] if of_best is None else [of_best]), 0.0])
    monkeypatch.setattr(
        refining, "with_short_list", lambda model, *_: refining.Evaluated(model, next(answers))
    )
    X, y = clusters()
    found = make().fit(X, y).refinement_
    assert found["accuracy_before"] == 0.5
    assert found["accuracy_after"] == (of_last if of_best is None else of_best)
    assert found["taken"] == (found["accuracy_after"] >= 0.5)


# -------------------------------------------------------------------------------------------------
# Callbacks and early stopping
# -------------------------------------------------------------------------------------------------


def test_a_callback_sees_every_epoch_and_changes_nothing():
    X, y = clusters(1500, noise=3.0)
    seen = []
    watched = make().fit(X, y, callback=seen.append)
    assert_same_model(watched, make().fit(X, y))
    assert [each.epoch for each in seen] == list(range(1, watched.refinement_["epochs"] + 1))
    assert {each.n_epochs for each in seen} == {12}
    assert seen[-1].objective < seen[0].objective
    assert max(each.accuracy for each in seen) >= watched.refinement_["accuracy_after"] - 0.02
    in_batches_too = []
    make().fit_batches(lambda start: iter([(X[start:], y[start:])]), callback=in_batches_too.append)
    assert len(in_batches_too) == len(seen)


def test_the_objective_is_the_cross_entropy_of_the_rows_of_an_epoch():
    """With a projection of zeros every class has the same probability."""
    model = start(np.random.default_rng(0), d=4, r=6, n_classes=3)
    model.projection[:], model.intercept[:], model._signs[:] = 0.0, 1e-20, 1.0
    model.step(np.ones((20, 4), np.float32), np.arange(20) % 3)
    assert model.mean_loss() == pytest.approx(np.log(3), rel=1e-5)
    assert model.mean_loss() == 0.0


def test_a_callback_stops_refinement_and_an_error_in_it_leaves_the_estimator_unchanged():
    X, y = clusters(1500, noise=3.0)
    found = make().fit(X, y, callback=lambda epoch: epoch.epoch == 2).refinement_
    assert (found["epochs"], found["stopped"]) == (2, "callback")
    assert found["taken"] == (found["accuracy_after"] >= found["accuracy_before"])

    def broken(epoch):
        raise RuntimeError("no more")

    classifier = make(random_state=1).fit(X, y)
    before = classifier.projection_
    with pytest.raises(RuntimeError, match="no more"):
        classifier.fit(X, y, callback=broken)
    assert classifier.projection_ is before


def test_out_of_time_the_model_before_refinement_or_the_best_so_far_is_kept(monkeypatch):
    X, y = clusters(1500, noise=3.0)
    plain = make(refine=False).fit(X, y)
    assert_same_model(make(max_time=1e-9).fit(X, y), plain)
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def later(epoch):
        clock[0] = epoch.epoch * 10.0

    found = make(max_time=25.0).fit(X, y, callback=later).refinement_
    assert (found["epochs"], found["stopped"]) == (3, "max_time")
    assert "stopped" not in make(max_time=1e6).fit(X, y).refinement_


@pytest.mark.parametrize(("n", "d"), [(200, 100), (700, 300)])
def test_mislabelled_rows_of_negligible_weight_have_little_effect(n, d):
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((10, d))
    y, labels = rng.integers(0, 10, n + 3000), rng.integers(0, 10, 1000)
    X, test = (centres[of] + 3.5 * rng.standard_normal((len(of), d)) for of in (y, labels))
    y[n:] = rng.integers(0, 10, 3000)
    order = rng.permutation(len(y))
    weight = np.where(np.arange(len(y)) < n, 1.0, 1e-6)[order]
    alone = make(64, refine="auto").fit(X[:n], y[:n])
    found = make(64, refine="auto").fit(X[order], y[order], weight)
    assert found.score(test, labels) > alone.score(test, labels) - 0.04
    assert found.alpha_ == pytest.approx(alone.alpha_, rel=0.02)


def test_the_effective_number_of_rows_accounts_for_weights():
    X, y = clusters(200)
    weight = np.where(np.arange(200) < 150, 2.0, 1e-6)
    statistics = make(8, refine=False).fit(X, y, weight).statistics_
    assert statistics.effective_rows == pytest.approx(150, rel=1e-3)
    assert statistics.sums().count == pytest.approx(300, rel=1e-3)
    in_parts = make(8, refine=False).partial_fit(X[:90], y[:90], sample_weight=weight[:90])
    in_parts.partial_fit(X[90:], y[90:], sample_weight=weight[90:])
    assert in_parts.statistics_.effective_rows == pytest.approx(statistics.effective_rows)
    assert make(8, refine=False).fit(X, y, np.full(200, 0.01)).statistics_.sums().count == (
        pytest.approx(200)
    )
