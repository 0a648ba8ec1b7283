"""The one-pass sums: any split and any merge of the rows give the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from bitclass.codes import unpack
from bitclass.rows import sample_rows
from bitclass.training import RandomCodes, Statistics, standardisation
from bitclass.training.starting_codes import ProjectionCodes


def projection(rng, d, r):
    return ProjectionCodes(
        rng.standard_normal((d, r)), np.full(d, 10.0), np.full(d, 3.0), "projection"
    )


def signs_of(starting, X):
    labels = np.zeros(len(X), dtype=np.intp)
    return unpack(starting.codes(X, np.array([0]), labels, 0), starting.n_bits).astype(float)


def problem(seed, n=60, d=5, n_classes=4):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * 3 + 10).astype(np.float32)
    labels = rng.integers(0, n_classes, n)
    weights = rng.integers(1, 5, n).astype(float)
    return rng, X, labels, weights


def assert_same_sums(a, b):
    np.testing.assert_array_equal(a.classes, b.classes)
    np.testing.assert_array_equal(a.code_sums, b.code_sums)
    np.testing.assert_array_equal(a.class_weights, b.class_weights)
    np.testing.assert_allclose(a.gram, b.gram, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(a.feature_sums, b.feature_sums, rtol=1e-5, atol=1e-3)
    assert a.n_rows == b.n_rows


def test_sums_are_what_their_names_say():
    rng, X, labels, weights = problem(0)
    starting, shift, scale = projection(rng, 5, 9), np.full(5, 9.0), np.arange(1.0, 6.0)
    statistics = Statistics(starting, shift, scale, keep_codes=True)
    statistics.add(X, labels, weights)
    Z = (X.astype(float) - shift) / scale
    codes = signs_of(starting, X)
    np.testing.assert_allclose(statistics.gram, (Z * weights[:, None]).T @ Z, rtol=1e-5)
    for c in range(4):
        rows = labels == c
        np.testing.assert_allclose(
            statistics.feature_sums[c], weights[rows] @ Z[rows], rtol=1e-5, atol=1e-4
        )
        np.testing.assert_array_equal(statistics.code_sums[c], weights[rows] @ codes[rows])
    groups = statistics.groups(statistics.starting_sums())
    np.testing.assert_array_equal(unpack(groups.codes[groups.inverse], 9), codes)


@given(st.integers(0, 1000), st.lists(st.integers(0, 60), max_size=4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_split_gives_the_same_sums(seed, cuts, keep_codes):
    rng, X, labels, weights = problem(seed)
    starting, shift = projection(rng, 5, 12), X[0].astype(float)
    whole = Statistics(starting, shift, np.full(5, 3.0), keep_codes)
    whole.add(X, labels, weights)
    parts = Statistics(starting, shift, np.full(5, 3.0), keep_codes)
    for rows in np.split(np.arange(60), sorted(cuts)):
        parts.add(X[rows], labels[rows], weights[rows])
    assert_same_sums(whole, parts)
    if keep_codes:
        a, b = (each.groups(each.starting_sums()) for each in (whole, parts))
        np.testing.assert_array_equal(a.codes[a.inverse], b.codes[b.inverse])
        np.testing.assert_array_equal(a.labels[a.inverse], b.labels[b.inverse])


@given(st.integers(0, 1000), st.integers(1, 59))
@settings(max_examples=30, deadline=None)
def test_merging_two_halves_with_different_shifts_gives_the_whole(seed, cut):
    rng, X, labels, weights = problem(seed)
    # The halves need not know the same classes.
    labels[:cut] = np.minimum(labels[:cut], 2)
    starting = projection(rng, 5, 12)
    whole = Statistics(starting, np.full(5, 10.0), np.full(5, 3.0), keep_codes=True)
    whole.add(X, labels, weights)
    merged = Statistics(starting, np.full(5, 10.0), np.full(5, 3.0), keep_codes=True)
    merged.add(X[:cut], labels[:cut], weights[:cut])
    other = Statistics(starting, np.full(5, 12.5), np.arange(1.0, 6.0), keep_codes=True)
    other.add(X[cut:], labels[cut:], weights[cut:])
    merged.merge(other)
    assert_same_sums(whole, merged)
    a, b = (each.groups(each.starting_sums()) for each in (whole, merged))
    np.testing.assert_array_equal(a.labels[a.inverse], b.labels[b.inverse])


def empty(starting, d=5, keep_codes=False):
    return Statistics(starting, np.zeros(d), np.ones(d), keep_codes=keep_codes)


def test_merging_what_does_not_fit_is_refused():
    rng = np.random.default_rng(0)
    starting = projection(rng, 5, 8)
    one = empty(starting)
    with pytest.raises(ValueError, match="4 features cannot be merged into statistics of 5"):
        one.merge(empty(projection(rng, 4, 8), d=4))
    with pytest.raises(ValueError, match="different starting codes"):
        one.merge(empty(projection(rng, 5, 8)))
    with pytest.raises(ValueError, match="hinge loss and of another"):
        one.merge(empty(starting, keep_codes=True))
    with pytest.raises(ValueError, match="different starting codes"):
        empty(RandomCodes(8, seed=0)).merge(empty(RandomCodes(8, seed=1)))


def test_an_empty_part_merges_into_one_of_any_labels():
    rng, X, labels, _ = problem(0)
    starting = projection(rng, 5, 8)
    for names in (labels, np.array(list("abcd"))[labels]):
        full = empty(starting)
        full.add(X, names, None)
        before = full.gram.copy()
        full.merge(empty(starting))
        np.testing.assert_array_equal(full.gram, before)
        other = empty(starting)
        other.merge(full)
        assert_same_sums(other, full)


def test_cross_follows_rows_whose_code_differs_from_their_class():
    rng, X, labels, weights = problem(3)
    statistics = Statistics(
        projection(rng, 5, 10), np.full(5, 9.0), np.full(5, 2.0), keep_codes=True
    )
    statistics.add(X, labels, weights)
    class_codes = rng.choice(np.array([-1, 1], dtype=np.int8), size=(4, 10))
    codes = class_codes[labels]
    codes[::7] *= -1
    packed = np.packbits(codes > 0, axis=1, bitorder="little")
    cross, code_sum = statistics.cross(class_codes, [(0, X[:25]), (25, X[25:])], packed)
    Z = (X.astype(float) - 9.0) / 2.0
    np.testing.assert_allclose(cross, (Z * weights[:, None]).T @ codes, rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(code_sum, weights @ codes)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_kind_of_features_gives_the_same_sums(dtype, sparse):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 5, size=(40, 6)).astype(dtype)
    labels = rng.integers(0, 3, 40)
    starting = projection(rng, 6, 16)
    expected = Statistics(starting, np.full(6, 2.0), np.ones(6), keep_codes=False)
    expected.add(X.astype(np.float64), labels, None)
    if sparse and dtype == np.float16:
        pytest.skip("SciPy has no sparse matrices of float16")
    found = Statistics(starting, np.full(6, 2.0), np.ones(6), keep_codes=False)
    found.add(csr_array(X) if sparse else X, labels, None)
    assert_same_sums(expected, found)


def test_random_codes_depend_on_seed_and_label_alone():
    few = RandomCodes(20, seed=7).of_classes(np.array([3, 9]))
    many = RandomCodes(20, seed=7).of_classes(np.array([1, 3, 5, 9]))
    np.testing.assert_array_equal(few, many[[1, 3]])
    other = RandomCodes(20, seed=8).of_classes(np.array([3, 9]))
    assert not np.array_equal(few, other)
    assert np.all(few[:, -1] < 16)  # padding bits are 0


def test_random_codes_are_the_same_for_labels_that_are_equal():
    codes = RandomCodes(64, seed=1)
    expected = codes.of_classes(np.array([0, 1, 7]))
    for kind in (np.int8, np.uint64, np.float32, np.float64):
        np.testing.assert_array_equal(codes.of_classes(np.array([0, 1, 7], dtype=kind)), expected)
    np.testing.assert_array_equal(codes.of_classes(np.array([False, True])), expected[:2])
    assert not np.array_equal(codes.of_classes(np.array(["0", "1", "7"])), expected)


def test_rows_are_sampled_without_regard_to_their_order():
    """Every eighth row of cyclic data would be of one class."""
    chosen = sample_rows(160_000, 20_000)
    assert len(np.unique(chosen)) == 20_000
    counts = np.bincount(chosen % 8, minlength=8)
    assert counts.min() > 2000


def test_random_codes_are_balanced_and_far_apart():
    bits = unpack(RandomCodes(256, seed=0).of_classes(np.arange(200)), 256).astype(int)
    assert abs(bits.mean()) < 0.02
    inner = bits @ bits.T - 256 * np.eye(200, dtype=int)
    assert np.abs(inner).max() < 100


def test_standardisation_is_weighted_and_leaves_constant_features_alone():
    X = np.array([[0.0, 5.0], [2.0, 5.0], [9.0, 5.0]])
    centre, scale = standardisation(X, np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(centre, [1.0, 5.0])
    np.testing.assert_allclose(scale, [1.0, 1.0])


def test_labels_of_text_and_numbers_do_not_mix():
    rng, X, labels, _ = problem(0)
    statistics = empty(projection(rng, 5, 8))
    statistics.add(X, labels, None)
    with pytest.raises(ValueError, match="text and numbers"):
        statistics.add(X, np.array(["a", "b"] * 30), None)


def test_projection_codes_are_signs_of_the_projection_but_for_rounding():
    rng = np.random.default_rng(0)
    mapping, centre, scale = rng.standard_normal((50, 64)), rng.uniform(-9, 9, 50), np.full(50, 2.0)
    X = centre + scale * rng.standard_normal((300, 50))
    scores = ((X - centre) / scale) @ mapping
    found = signs_of(ProjectionCodes(mapping, centre, scale, "projection"), X)
    wrong = found != np.where(scores >= 0, 1.0, -1.0)
    assert wrong.mean() < 0.01
    assert np.all(np.abs(scores[wrong]) < 0.5)


def test_projection_codes_of_a_row_do_not_depend_on_its_batch():
    rng = np.random.default_rng(0)
    starting = projection(rng, 40, 128)
    X = (10 + 3 * rng.standard_normal((200, 40))).astype(np.float32)
    alone = np.concatenate([signs_of(starting, X[i : i + 1]) for i in range(200)])
    np.testing.assert_array_equal(signs_of(starting, X), alone)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_features_that_float32_cannot_hold_are_named(unit):
    X = np.random.default_rng(0).standard_normal((20, 3))
    X[:, 1] *= unit
    with pytest.raises(ValueError, match="X must have features that float32 can hold.*feature 1"):
        standardisation(X, np.ones(20))
