"""Rows of refinement: sampling, held-out rows, weights, and no leakage between them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refinement_problems import make, refined, refining, split_of, statistics_of
from scipy.sparse import csr_array

from bitclass.training import Statistics, fit
from bitclass.training.refinement.refine import Split
from bitclass.training.starting_codes import STARTING_CODES
from problems import assert_same_model, clusters


@given(st.lists(st.integers(0, 400), max_size=5), st.integers(0, 2**31 - 1))
@settings(max_examples=25)
def test_the_same_rows_are_sampled_from_any_batches(sizes, seed):
    rng = np.random.default_rng(0)
    X = np.arange(3000, dtype=np.float32)[:, None] * np.ones(64, np.float32)
    y, weights = rng.integers(0, 4, 3000), rng.uniform(0.5, 2.0, 3000)
    samples = []
    for batches in ((), sizes):
        split = split_of(X, y, weights, batches, seed, max_bytes=1 << 18)
        assert split.n_per_sample == 1024
        samples += [
            split.held_out,
            split.training_sample(np.asarray),
            split.training_sample(np.asarray),
        ]
    for whole, parts in zip(samples[:3], samples[3:], strict=True):
        np.testing.assert_array_equal(whole.X, parts.X)
        np.testing.assert_array_equal(whole.X[:, 0], whole.rows)
        np.testing.assert_array_equal(whole.y, parts.y)
        np.testing.assert_array_equal(whole.y, y[whole.rows])
        np.testing.assert_array_equal(whole.weights, parts.weights)
        np.testing.assert_array_equal(whole.weights, weights[whole.rows])
    held_out, first, second = (set(each.rows.tolist()) for each in samples[:3])
    assert first.isdisjoint(held_out)
    assert second.isdisjoint(held_out)
    assert first != second
    assert 100 <= len(held_out) <= 300
    assert 850 <= len(first) <= 1200
    # Every row is either held out or used for training.
    rest = split_of(X, y, weights, sizes, seed).training_sample(np.asarray)
    assert set(rest.rows.tolist()) == set(range(3000)) - held_out


def test_no_more_than_half_of_a_class_is_held_out():
    y = np.concatenate([np.arange(300), np.repeat(np.arange(300, 400), 2), np.full(500, 400)])
    X = np.arange(len(y), dtype=np.float32)[:, None] * np.ones(2, np.float32)
    split = split_of(X, y)
    counts = np.bincount(split.held_out.y, minlength=401)
    assert np.all(2 * counts <= np.bincount(y))
    assert counts[:300].sum() == 0
    assert counts[300:400].sum() > 0
    # Rows that were drawn but not held out are used for training.
    assert len(split.training_sample(np.asarray)) + len(split.held_out) == len(y)


@pytest.mark.parametrize("kind", ["float64", "sparse", "kernel"])
def test_rows_in_any_batches_give_the_same_model(kind):
    dtype = np.float64 if kind == "float64" else np.float32
    X, y = clusters(1300, n_classes=10, noise=2.0, dtype=dtype)
    weights = np.random.default_rng(0).uniform(0.5, 2, 1300)
    kernel = {"kernel": "rbf", "n_anchors": 100} if kind == "kernel" else {}
    statistics = statistics_of(X, y, weights, **kernel)
    X = csr_array(X) if kind == "sparse" else X
    whole = refined(X, y, weights, statistics=statistics)
    parts = refined(X, y, weights, sizes=(1, 100, 0, 700, 33), statistics=statistics)
    assert whole.refinement == parts.refinement
    assert whole.is_refined
    one, other = whole.model, parts.model
    np.testing.assert_array_equal(one.hash_function.projection, other.hash_function.projection)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert one.temperature == other.temperature


@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(2, 9), st.booleans())
def test_no_group_is_on_both_sides_and_no_class_loses_more_than_half(
    seed, n_groups, n_classes, weighted
):
    rng = np.random.default_rng(seed)
    X, y = clusters(400, d=4, n_classes=n_classes, seed=seed)
    groups = rng.integers(0, n_groups, 400)
    groups = np.unique(groups**2 // n_groups, return_inverse=True)[1]  # of uneven sizes
    weights = rng.uniform(0.1, 3.0, 400) if weighted else None
    split = split_of(X, y, weights, sizes=[150], seed=seed, groups=groups)
    held_out = split.held_out.rows
    trained = split.training_sample(np.asarray).rows
    assert sorted([*held_out, *trained]) == list(range(400))
    assert not set(groups[held_out]) & set(groups[trained])
    of_rows = np.ones(400) if weights is None else weights
    lost = np.bincount(y[held_out], of_rows[held_out], minlength=n_classes)
    assert np.all(lost <= 0.5 * (1 + 1e-6) * np.bincount(y, of_rows, minlength=n_classes))
    # As many rows as without groups, up to the sizes of the groups.
    if n_groups == 40:
        assert 0 < len(held_out) < 200


def test_groups_change_the_held_out_rows_and_a_group_that_is_a_class_is_never_held_out():
    X, y = clusters(900)
    plain, grouped = make().fit(X, y), make().fit(X, y, groups=np.arange(900) % 30)
    assert plain.refinement_["held_out_rows"] != grouped.refinement_["held_out_rows"]
    assert grouped.refinement_["held_out_rows"] % 30 == 0
    with pytest.warns(UserWarning, match="groups: the model was not refined.*half of some class"):
        assert make(refine="auto").fit(X, y, groups=y).refinement_ is None
    weights = np.where(np.arange(900) % 3 > 0, 1.0, 0.0)  # rows of weight 0 are ignored
    some = weights > 0
    assert_same_model(
        make().fit(X, y, weights, groups=np.arange(900) % 30),
        make().fit(X[some], y[some], weights[some], groups=(np.arange(900) % 30)[some]),
    )


def test_rows_beyond_memory_are_resampled(monkeypatch):
    samples = []
    sample = Split.training_sample

    def recorded(self, transform):
        found = sample(self, transform)
        samples.append(set(found.rows.tolist()))
        return found

    monkeypatch.setattr(Split, "training_sample", recorded)
    X, y = clusters(4000)
    found = refined(X, y, max_bytes=1000)
    assert len(samples) >= 3
    assert all(800 < len(each) < 1300 for each in samples)
    assert all(a != b for a, b in itertools.pairwise(samples))
    assert len(set.union(*samples)) > 2000
    assert found.refinement["accuracy_after"] >= found.refinement["accuracy_before"]
    samples.clear()
    refined(X, y)
    assert [len(each) for each in samples] == [4000 - found.refinement["held_out_rows"]]


@pytest.mark.parametrize(("n_samples", "expected"), [(1, 1), (8, 1), (16, 2), (250, 4)])
def test_samples_are_reused_only_if_many_would_be_needed(n_samples, expected):
    X, y = clusters(3000, d=64)
    split = split_of(X, y, max_bytes=1 << 18)
    seen = list(itertools.islice(split.epochs(12, 1024 * n_samples, np.asarray), 5))
    assert [each is seen[0] for each in seen] == [at < expected for at in range(5)]


# -------------------------------------------------------------------------------------------------
# Sums without the held-out rows
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("initial_codes", STARTING_CODES)
def test_sums_without_the_held_out_rows_equal_those_of_the_others(initial_codes):
    X, y = clusters(1200, n_classes=60)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    statistics = statistics_of(X, y, weights, initial_codes=initial_codes)
    out = Split(statistics, lambda: iter([(X, y, weights)]), len(y), 3, 1 << 30).held_out
    rest = np.setdiff1d(np.arange(len(y)), out.rows)
    taken, _ = statistics.summed(out.X, statistics.classes[out.y], out.weights, out.rows)
    found = statistics.sums().without(taken)
    # In the same units, which are those of the first batch.
    others = Statistics(statistics.starting, statistics.shift, statistics.scale)
    others.add(X[rest], y[rest], weights[rest])
    expected = others.sums()
    for name in ("gram", "feature_sums", "class_weights", "code_sums"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-3
        )
    assert found.n_rows == expected.n_rows == len(rest) < len(y)


@pytest.mark.parametrize("offset", [0.0, 3000.0])
def test_class_mean_weights_are_the_codes_of_the_class_means(offset, monkeypatch):
    X, y = clusters(900, dtype=np.float64)
    X += offset
    classifier = make(refine=False).fit(X, y)
    hash_function = classifier.packed().hash_function
    means = np.stack([X[y == c].mean(axis=0) for c in range(6)])
    scores = means @ hash_function.projection.astype(float) + hash_function.intercept
    clear = np.abs(scores) > 1e-3
    assert clear.mean() > 0.9
    for size in (1 << 14, 4):
        monkeypatch.setattr("bitclass.arrays._CLASSES_PER_BLOCK", size)
        found = refining.class_mean_weights(hash_function, classifier.statistics_.sums())
        np.testing.assert_array_equal(found[clear] > 0, scores[clear] >= 0)


@pytest.mark.parametrize(("initial_codes", "limit"), [("means", 2048), ("projection", 50)])
def test_refinement_improves_classes_with_few_rows(initial_codes, limit, monkeypatch):
    """If the codes were learned from the held-out rows as well, no refinement would be kept."""
    monkeypatch.setattr(refining, "_MAX_LEARNED_CLASSES", limit)
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(300), 9)
    X = rng.standard_normal((300, 40))[y] + 0.8 * rng.standard_normal((len(y), 40))
    is_test = np.arange(len(y)) % 9 < 4
    X, y, X_test, y_test = X[~is_test], y[~is_test], X[is_test], y[is_test]
    better = make(64, initial_codes=initial_codes).fit(X, y)
    plain = make(64, refine=False, initial_codes=initial_codes).fit(X, y)
    assert better.refinement_["taken"]
    assert better.score(X_test, y_test) > plain.score(X_test, y_test) + 0.03
    assert abs(better.refinement_["accuracy_before"] - plain.score(X_test, y_test)) < 0.1

    monkeypatch.setattr(fit, "_FEW_ROWS", 0)
    knowing = make(64, initial_codes=initial_codes).fit(X, y).refinement_
    assert knowing["accuracy_before"] > plain.score(X_test, y_test) + 0.1
