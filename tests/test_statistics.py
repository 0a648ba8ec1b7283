"""One-pass sums: any split and merge give the same sums; batches are added whole or not at all."""

import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitclass.codes import pack, unpack
from bitclass.training import Statistics, statistics
from bitclass.training.alternation import Groups
from bitclass.training.regression import codes_times_features
from bitclass.training.starting_codes import MeanCodes, ProjectionCodes, RandomCodes
from bitclass.training.statistics import standardisation

NAMES = ("classes", "feature_sums", "code_sums", "class_weights", "gram")


def projection(rng, d, r):
    return ProjectionCodes(
        rng.standard_normal((d, r)), np.full(d, 10.0), np.full(d, 3.0), "projection"
    )


def problem(seed=0, n=60, d=5, n_classes=4):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * 3 + 10).astype(np.float32)
    return rng, X, rng.integers(0, n_classes, n), rng.integers(1, 5, n).astype(float)


def summed(starting, *parts, shift=10.0, scale=3.0, keep_codes=True):
    d = parts[0][0].shape[1]
    found = Statistics(starting, np.full(d, shift), np.full(d, scale), keep_codes=keep_codes)
    for part in parts:
        found.add(*part)
    return found


def assert_same_sums(a, b, rtol=1e-5, atol=1e-3):
    for name in ("classes", "code_sums", "class_weights"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("gram", "feature_sums"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=atol)
    assert a.n_rows == b.n_rows
    for one, other in zip(a.kept_rows(), b.kept_rows(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_sums_equal_their_definitions():
    rng, X, labels, weights = problem()
    starting = projection(rng, 5, 9)
    found = summed(starting, (X, labels, weights), shift=9.0, scale=2.0)
    Z = (X.astype(float) - 9.0) / 2.0
    codes = unpack(starting.row_codes(X, np.arange(60)), 9).astype(float)
    np.testing.assert_allclose(found.gram, (Z * weights[:, None]).T @ Z, rtol=1e-5)
    one_hot = (labels == np.arange(4)[:, None]) * weights
    np.testing.assert_allclose(found.feature_sums, one_hot @ Z, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(found.code_sums, one_hot @ codes)
    kept = found.kept_rows()
    np.testing.assert_array_equal(unpack(kept.codes, 9), codes)
    np.testing.assert_array_equal(kept.labels, labels)
    np.testing.assert_array_equal(kept.sample_weight, weights)


@given(st.integers(0, 1000), st.lists(st.integers(0, 60), max_size=4), st.booleans())
def test_any_split_gives_the_same_sums(seed, cuts, keep_codes):
    rng, X, labels, weights = problem(seed)
    starting = projection(rng, 5, 12)
    parts = [(X[at], labels[at], weights[at]) for at in np.split(np.arange(60), sorted(cuts))]
    whole = summed(starting, (X, labels, weights), keep_codes=keep_codes)
    assert_same_sums(whole, summed(starting, *parts, keep_codes=keep_codes))


@given(st.permutations(range(12)), st.lists(st.integers(0, 4), max_size=12))
def test_classes_may_arrive_in_any_order(order, reads):
    rng, X, _, _ = problem(n=48)
    labels = np.tile(order, 4)
    starting = projection(rng, 5, 12)
    found = summed(starting, (X[:2], labels[:2]))
    for start in range(2, 48, 3):
        if start // 12 in reads:  # which sorts the sums
            found.feature_sums.sum()
        found.add(X[start : start + 3], labels[start : start + 3])
    assert_same_sums(summed(starting, (X, labels)), pickle.loads(pickle.dumps(found)))


@given(st.integers(0, 1000), st.integers(1, 59))
def test_merging_two_halves_with_different_shifts_gives_the_whole(seed, cut):
    rng, X, labels, weights = problem(seed)
    labels[:cut] = np.minimum(labels[:cut], 2)  # the halves need not know the same classes
    starting = projection(rng, 5, 12)
    merged = summed(starting, (X[:cut], labels[:cut], weights[:cut]))
    rest = (X[cut:], labels[cut:], weights[cut:])
    merged.merge(summed(starting, rest, shift=12.5, scale=2.0))
    assert_same_sums(summed(starting, (X, labels, weights)), merged)


def test_merging_incompatible_statistics_raises():
    rng = np.random.default_rng(0)

    def empty(starting, d=5, keep_codes=False):
        return Statistics(starting, np.zeros(d), np.ones(d), keep_codes=keep_codes)

    starting = projection(rng, 5, 8)
    for one, other, message in [
        (starting, empty(projection(rng, 4, 8), d=4), "4 features cannot be merged .* with 5"),
        (starting, empty(projection(rng, 5, 8)), "different starting codes"),
        (starting, empty(starting, keep_codes=True), "hinge loss and for another"),
        (RandomCodes(8, 0), empty(RandomCodes(8, 1)), "different starting codes"),
        (MeanCodes(8, 0), empty(MeanCodes(9, 0)), "different starting codes"),
    ]:
        with pytest.raises(ValueError, match=message):
            empty(one).merge(other)


def test_empty_statistics_merge_with_any_labels():
    rng, X, labels, _ = problem()
    names, starting = np.array(list("abcd")), projection(rng, 5, 8)
    full = summed(starting, (X, names[labels]))
    full.merge(Statistics(starting, full.shift, full.scale, keep_codes=True))
    other = Statistics(starting, full.shift, full.scale, keep_codes=True)
    other.merge(full)
    full.add(X, names[labels])  # which the other one does not follow
    assert_same_sums(other, summed(starting, (X, names[labels])))


def test_cross_follows_rows_whose_code_differs_from_their_class():
    rng, X, labels, weights = problem(3)
    found = summed(projection(rng, 5, 10), (X, labels, weights), shift=9.0, scale=2.0)
    class_codes = rng.choice(np.array([-1, 1], dtype=np.int8), size=(4, 10))
    codes = class_codes[labels]
    codes[::7] *= -1
    groups = Groups.of_samples(labels, pack(codes), weights)
    cross, code_sum = codes_times_features(
        found, class_codes, groups, lambda: iter([(X[:25], None, None), (X[25:], None, None)])
    )
    Z = (X.astype(float) - 9.0) / 2.0
    np.testing.assert_allclose(cross, (Z * weights[:, None]).T @ codes, rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(code_sum, weights @ codes)


# -------------------------------------------------------------------------------------------------
# All or nothing
# -------------------------------------------------------------------------------------------------


def state(found):
    kept = [array.tobytes() for array in found.kept_rows()]
    return [getattr(found, name).tobytes() for name in NAMES] + kept + [found.n_rows]


@pytest.mark.parametrize("function", ["class_sums", "put"])
def test_an_error_anywhere_in_a_batch_leaves_the_sums_unchanged(monkeypatch, function):
    """While the second block is summed, or in the last step, which is rolled back."""
    rng, X, labels, weights = problem(n=20_000)
    starting = projection(rng, 5, 12)
    first = (X[:5000], labels[:5000], weights[:5000])
    found = summed(starting, first)
    before = state(found)
    # With a new class; without one, the last step changes sums in place.
    batch = X[5000:], labels[5000:] + (function != "put"), weights[5000:]
    original, calls = getattr(statistics, function), []

    def failing(*given):
        calls.append(original(*given))
        if len(calls) == (1 if function == "put" else 3):
            raise KeyboardInterrupt

    monkeypatch.setattr(statistics, function, failing)
    with pytest.raises(KeyboardInterrupt):
        found.add(*batch)
    monkeypatch.undo()
    assert state(found) == before
    found.add(*batch)
    assert_same_sums(found, summed(starting, first, batch), rtol=0, atol=0)


def test_an_interrupt_at_any_moment_adds_a_whole_batch_or_nothing():
    rng, X, labels, weights = problem(n=4000, d=40)
    starting = projection(rng, 40, 64)
    one, found = (summed(starting, (X, labels, weights)) for _ in range(2))
    n_added, n_interrupted = 1, 0
    began = time.perf_counter()
    one.summed(X, labels, weights, np.arange(4000))
    longest = 2 * (time.perf_counter() - began)
    for _ in range(40):
        timer = threading.Timer(rng.uniform(0, longest), os.kill, (os.getpid(), signal.SIGINT))
        before = found.n_rows
        try:
            timer.start()
            found.add(X, labels, weights)
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            n_interrupted += 1
        timer.join()
        is_added = found.n_rows > before
        longest *= 0.8 if is_added else 1.25  # follows the speed of the machine, which may change
        n_added += is_added
        assert found.n_rows == 4000 * n_added
        np.testing.assert_allclose(found.class_weights, n_added * one.class_weights)
        np.testing.assert_allclose(found.gram, n_added * one.gram, rtol=1e-6)
        assert [len(kept) for kept in found.kept_rows()] == [found.n_rows] * 3
    assert n_interrupted == 40
    assert 1 < n_added < 41, "interrupts came only before or only after the batch was added"


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_sums_that_overflow_float64_raise():
    rng, X, labels, _ = problem(n=60)
    found, other = (summed(starting, (X, labels)) for starting in [projection(rng, 5, 12)] * 2)
    found.gram[0, 0] = other.gram[0, 0] = 1.7e308
    before = state(found)
    with pytest.raises(ValueError, match="sums that overflow float64; .* not added"):
        found.merge(other)
    assert state(found) == before


@pytest.mark.parametrize(
    ("known", "new"),
    [
        (np.array([0, 1]), np.array([2**63, 2**63 + 1], dtype=np.uint64)),
        (np.array([2**60, 2**60 + 1]), np.array([1.0, 2.0])),
    ],
)
def test_labels_join_unless_a_common_type_would_merge_some(known, new):
    with pytest.raises(ValueError, match="cannot be mixed"):
        statistics.joined_labels(known, new)
    assert statistics.joined_labels(np.array([1, 3]), np.array([2.5, 1.0])).tolist() == [1, 2.5, 3]


# -------------------------------------------------------------------------------------------------
# Standardisation
# -------------------------------------------------------------------------------------------------


def test_standardisation_is_weighted_and_leaves_constant_features_alone():
    X = np.array([[0.0, 5.0, 0.0], [2.0, 5.0, 1e-44], [9.0, 5.0, 0.0]], dtype=np.float32)
    assert X[1, 2] > 0  # it would be 0 if it had not underflowed to a subnormal number
    centre, scale = standardisation(X, np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(centre, [1.0, 5.0, 0.0], atol=1e-40)
    np.testing.assert_allclose(scale, [1.0, 1.0, 1.0])


# -------------------------------------------------------------------------------------------------
# Removing classes
# -------------------------------------------------------------------------------------------------


def alike(copies=1):
    """Rows whose classes have the same scatter about their means, exactly: whole numbers.

    A class may be several times as frequent as another; its scatter per row is the same.
    """
    rng = np.random.default_rng(0)
    half, means = rng.integers(-4, 5, (10, 6)), rng.integers(-9, 10, (5, 6))
    around = np.concatenate([half, -half])
    times = [1 + copies * c for c in range(5)]
    X = np.concatenate([np.tile(means[c] + around, (times[c], 1)) for c in range(5)])
    y = np.repeat(np.arange(5) * 10, [20 * n for n in times])
    order = rng.permutation(len(y))
    return X[order].astype(np.float64), y[order]


def sums_of(X, y, weights=None, keep_codes=True):
    starting = projection(np.random.default_rng(0), 6, 20)
    return summed(starting, (X, y, weights), shift=0.0, scale=1.0, keep_codes=keep_codes)


@pytest.mark.parametrize("keep_codes", [False, True])
@pytest.mark.parametrize("gone", [[0], [20], [40, 0, 20]])
@pytest.mark.parametrize("copies", [0, 1])
def test_removing_a_class_gives_the_sums_without_it(keep_codes, gone, copies):
    X, y = alike(copies)
    found = sums_of(X, y, keep_codes=keep_codes)
    found.remove_classes(np.array(gone))
    stays = ~np.isin(y, gone)
    expected = sums_of(X[stays], y[stays], keep_codes=keep_codes)
    assert_same_sums(found, expected, rtol=1e-9, atol=1e-8)
    found.add(X[~stays], y[~stays])  # they may be added again
    np.testing.assert_allclose(found.gram, sums_of(X, y).gram, rtol=1e-9, atol=1e-8)


def test_the_gram_matrix_stays_symmetric_and_positive():
    # Classes of few rows and of very different scatter, where the assumption is far off.
    rng, y = np.random.default_rng(0), np.arange(24) % 5
    X = 10 * rng.standard_normal((5, 6))[y]
    X += 10.0 ** (y - 2)[:, None] * rng.standard_normal((24, 6))
    found = sums_of(X, y, rng.uniform(0.5, 2, 24))
    total = np.trace(found.gram)
    for gone in (4, 0, 2):
        found.remove_classes(np.array([gone]))
        np.testing.assert_array_equal(found.gram, found.gram.T)
        assert np.linalg.eigvalsh(found.gram).min() > -1e-12 * total
        assert np.trace(found.gram) < total


def test_unknown_and_empty_classes_leave_the_sums_unchanged():
    X, y = alike()
    found = sums_of(X, y)
    before = state(found)
    with pytest.raises(ValueError, match="known classes"):
        found.remove_classes(np.array([10, 11]))
    found.add(X[:0], y[:0], classes=np.array([25]))
    found.remove_classes(np.array([25]))
    assert state(found) == before
