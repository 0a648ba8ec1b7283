"""Rows of refinement are fairly drawn, held out and weighed."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refinement_problems import (
    NoWhitening,
    blobs,
    drawing,
    in_batches,
    make,
    refined,
    statistics_of,
)
from scipy.sparse import csr_array

from bitclass.drawing import Drawing
from bitclass.training import Refinement


@given(st.lists(st.integers(0, 400), max_size=5), st.integers(0, 2**31 - 1))
@settings(max_examples=25, deadline=None)
def test_the_same_rows_are_drawn_from_any_batches(sizes, seed):
    rng = np.random.default_rng(0)
    X = np.arange(3000, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    y = rng.integers(0, 4, 3000)
    weights = rng.uniform(0.5, 2.0, 3000)
    samples = []
    for batches in ([], sizes):
        draws = drawing(X, y, seed)
        replay = in_batches(X, y, weights, batches)
        samples.append(draws.held_out(replay))
        samples += [draws.sample(replay, share, NoWhitening) for share in (0.3, 0.3, 1.0)]
    for whole, parts in zip(samples[:4], samples[4:], strict=True):
        np.testing.assert_array_equal(whole.X, parts.X)
        np.testing.assert_array_equal(whole.own, parts.own)
        np.testing.assert_array_equal(whole.weights, parts.weights)
        np.testing.assert_array_equal(whole.own, y[whole.X[:, 0].astype(int)])
        np.testing.assert_array_equal(whole.weights, weights[whole.X[:, 0].astype(int)])
    held_out, first, second, rest = (set(each.X[:, 0].tolist()) for each in samples[:4])
    assert first.isdisjoint(held_out)
    assert second.isdisjoint(held_out)
    assert first != second
    # Every row is held out or learned from.
    assert rest.isdisjoint(held_out)
    assert rest | held_out == set(range(3000))
    assert 100 <= len(held_out) <= 300
    assert 700 <= len(first) <= 1000


def test_no_class_is_held_out_by_more_than_half():
    y = np.concatenate([np.arange(300), np.repeat(np.arange(300, 400), 2), np.full(500, 400)])
    X = np.arange(len(y), dtype=np.float32)[:, None] * np.ones(2, np.float32)
    draws = drawing(X, y)
    replay = in_batches(X, y, None, [])
    held_out = draws.held_out(replay)
    counts = np.bincount(held_out.own, minlength=401)
    assert np.all(2 * counts <= np.bincount(y))
    assert counts[:300].sum() == 0
    assert counts[300:400].sum() > 0
    # Rows that were drawn and given back are learned from.
    assert len(draws.sample(replay, 1.0, NoWhitening).own) + len(held_out.own) == len(y)


def test_rows_of_weight_0_are_neither_held_out_nor_learned_from():
    X, y = blobs(1500)
    weights = np.where(np.arange(1500) % 3 == 0, 0.0, 1.0)
    draws = drawing(X, y)
    replay = in_batches(X, y, weights, [700])
    for sample in (draws.held_out(replay), draws.sample(replay, 1.0, NoWhitening)):
        assert len(sample.own)
        assert np.all(sample.weights > 0)


def test_batches_with_and_without_weights_go_together():
    X, y = blobs(1500)

    def replay():
        yield 0, X[:700], y[:700], None
        yield 700, X[700:], y[700:], np.full(800, 2.0)

    sample = drawing(X, y).held_out(replay)
    assert len(sample.weights) == len(sample.own)
    assert set(sample.weights) == {1.0, 2.0}


@pytest.mark.parametrize("kind", ["float32", "float64", "sparse", "kernel"])
def test_a_replay_in_any_batches_gives_the_same_model(kind):
    dtype = np.float64 if kind == "float64" else np.float32
    X, y = blobs(1300, n_classes=10, noise=2.0, dtype=dtype)
    weights = np.random.default_rng(0).uniform(0.5, 2, 1300)
    kernel = {"kernel": "rbf", "n_anchors": 100} if kind == "kernel" else {}
    statistics = statistics_of(X, y, weights, **kernel)
    X = csr_array(X) if kind == "sparse" else X
    whole = refined(X, y, weights, statistics=statistics)
    parts = refined(X, y, weights, sizes=(1, 100, 0, 700, 33), statistics=statistics)
    assert whole.report == parts.report
    assert whole.report["taken"]
    np.testing.assert_array_equal(whole.model.projection, parts.model.projection)
    np.testing.assert_array_equal(whole.model.weights, parts.model.weights)
    assert whole.model.temperature == parts.model.temperature


def test_rows_held_out_are_never_learned_from(monkeypatch):
    learned, asked = [], []
    step, classify = Refinement.step, Refinement.classify

    def recorded_step(self, Z, own, row_weights=None):
        learned.append(Z.copy())
        step(self, Z, own, row_weights)

    def recorded_classify(self, Z):
        asked.append(Z.copy())
        return classify(self, Z)

    monkeypatch.setattr(Refinement, "step", recorded_step)
    monkeypatch.setattr(Refinement, "classify", recorded_classify)
    X, y = blobs(700)
    found = refined(X, y)
    assert len(asked[0]) == found.report["held_out_rows"]
    used = np.unique(np.concatenate(learned), axis=0)
    apart = np.abs(used[:, None, :] - asked[0][None]).max(axis=2)
    assert apart.min() > 1e-3
    assert len(used) + len(asked[0]) == 700


def test_rows_past_memory_are_sampled_afresh(monkeypatch):
    samples = []
    sample = Drawing.sample

    def recorded(self, *given):
        found = sample(self, *given)
        samples.append({row.tobytes() for row in found.X})
        return found

    monkeypatch.setattr(Drawing, "sample", recorded)
    X, y = blobs(4000)
    found = refined(X, y, max_bytes=1000)
    assert len(samples) >= 3
    assert all(800 < len(each) < 1300 for each in samples)
    assert all(a != b for a, b in itertools.pairwise(samples))
    assert len(set.union(*samples)) > 2000
    assert found.report["accuracy_after"] >= found.report["accuracy_before"]
    samples.clear()
    refined(X, y)
    assert [len(each) for each in samples] == [4000 - found.report["held_out_rows"]]


def test_a_replay_that_can_be_had_but_once_is_told():
    X, y = blobs(700)
    classifier = make().partial_fit(X, y)
    batches = iter([(0, X, y, None)])
    with pytest.raises(ValueError, match="replay must give the rows each time"):
        classifier.solve(lambda: batches)
