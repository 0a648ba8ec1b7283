"""Sums: the same from any batches, merged or not, and a batch is added whole or not at all."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bitclass.labels import which_classes
from bitclass.training.sums import Collected, Sums, row_keys, run_keys, standardisation

D = 5
SHIFT, SCALE = np.linspace(-2.0, 2.0, D), np.linspace(0.5, 3.0, D)


def empty(wide=False):
    return Sums.of_wide(D) if wide else Sums(SHIFT, SCALE)


def problem(seed, n=60, n_classes=5, weighted=True):
    rng = np.random.default_rng(seed)
    X = SHIFT + SCALE * rng.standard_normal((n, D)) * (rng.random((n, D)) < 0.7)
    weights = rng.uniform(0.1, 3.0, n) * (rng.random(n) < 0.8) if weighted else np.ones(n)
    return X, rng.integers(0, n_classes, n), weights


def assert_equal_sums(a, b, rtol=1e-10):
    np.testing.assert_array_equal(a.classes, b.classes)
    assert a.n_rows == b.n_rows
    for name in ("mass", "mass_squares", "gram", "squares", "counts"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-9, err_msg=name)
    one, other = (s.feature_sums for s in (a, b))
    if a.wide:
        one, other = one.toarray(), other.toarray()
    np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-9)


CUTS = st.lists(st.integers(0, 60), max_size=5).map(sorted)


@given(st.integers(0, 1000), CUTS, st.booleans())
def test_any_batches_give_the_sums_of_the_formulas(seed, cuts, wide):
    X, y, weights = problem(seed)
    sums = empty(wide)
    for rows in np.split(np.arange(60), cuts):
        sums.add(sp.csr_array(X[rows]) if wide else X[rows], y[rows], weights[rows])
    Z = X if wide else (X - SHIFT) / SCALE
    assert sums.classes.tolist() == np.unique(y).tolist()
    for c, mass, feature_sums in zip(
        sums.classes,
        sums.mass,
        sums.feature_sums.toarray() if wide else sums.feature_sums,
        strict=True,
    ):
        assert mass == pytest.approx(weights[y == c].sum())
        np.testing.assert_allclose(feature_sums, weights[y == c] @ Z[y == c], atol=1e-9)
    if wide:
        np.testing.assert_allclose(sums.squares, weights @ Z**2)
        np.testing.assert_array_equal(sums.counts, np.count_nonzero(X, axis=0))
    else:
        np.testing.assert_allclose(sums.gram, (weights[:, None] * Z).T @ Z, atol=1e-9)
    assert sums.n_rows == np.count_nonzero(weights)
    assert sums.effective_rows == pytest.approx(weights.sum() ** 2 / (weights @ weights))


@given(st.integers(0, 1000), st.integers(0, 60), st.booleans(), st.booleans())
def test_merged_sums_equal_those_of_all_rows(seed, cut, wide, other_units):
    X, y, weights = problem(seed)
    rows = sp.csr_array(X) if wide else X
    whole, first = empty(wide), empty(wide)
    second = Sums(SHIFT + 1.5, SCALE * 2.0) if other_units and not wide else empty(wide)
    whole.add(rows, y, weights)
    first.add(rows[:cut], y[:cut], weights[:cut])
    second.add(rows[cut:], y[cut:], weights[cut:])
    first.merge(second)
    assert_equal_sums(first, whole)


def test_rows_of_weight_0_do_not_count():
    X, y, weights = problem(0)
    used = weights > 0
    some, every = empty(), empty()
    every.add(X, y, weights)
    some.add(X[used], y[used], weights[used])
    assert_equal_sums(every, some)
    every.add(X[:1] + 5.0, np.array([99]), np.zeros(1))
    assert every.classes.tolist() == [0, 1, 2, 3, 4, 99]
    assert_equal_sums(every.with_rows(), some)


@pytest.mark.parametrize("wide", [False, True])
def test_removed_classes_leave_the_others_and_the_shared_scatter(wide):
    X, y, weights = problem(1, n=500)
    sums, rest = empty(wide), empty(wide)
    sums.add(sp.csr_array(X) if wide else X, y, weights)
    stay = ~np.isin(y, [1, 3])
    rest.add(sp.csr_array(X[stay]) if wide else X[stay], y[stay], weights[stay])
    sums.remove_classes(np.array([1, 3]))
    assert sums.classes.tolist() == [0, 2, 4]
    np.testing.assert_allclose(sums.mass, rest.mass)
    one, other = (s.feature_sums.toarray() if wide else s.feature_sums for s in (sums, rest))
    np.testing.assert_allclose(one, other, atol=1e-9)
    if wide:
        np.testing.assert_allclose(sums.squares, rest.squares, rtol=0.3)
    else:
        np.testing.assert_allclose(np.diag(sums.gram), np.diag(rest.gram), rtol=0.3)
    with pytest.raises(ValueError, match="labels must be known classes, found 3"):
        sums.remove_classes(np.array([3]))


@pytest.mark.parametrize("bad", [1e200, -1e12])
def test_a_batch_that_cannot_be_summed_is_not_added(bad):
    X, y, weights = problem(0)
    sums, before = empty(), empty()
    for each in (sums, before):
        each.add(X, y, weights)
    X[7, 2] = bad
    with pytest.raises(ValueError, match="row 7 has .* in feature 2"):
        sums.add(X, y + 3, weights + 1.0)
    assert_equal_sums(sums, before, rtol=0)


def test_text_and_numbers_are_not_mixed():
    X, y, weights = problem(0)
    sums = empty()
    sums.add(X, y, weights)
    with pytest.raises(ValueError, match="text and numbers cannot be mixed"):
        sums.add(X, y.astype(str), weights)
    with pytest.raises(ValueError, match="text and numbers cannot be mixed"):
        sums.add_classes(np.array(["a"]))


def test_constant_features_are_found_up_to_rounding():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    X[:, 1], X[:, 2] = 1e6 / 3, 0.0
    X[:, 3] = 1000.0 + 1e-3 * X[:, 3]
    for dtype in (np.float32, np.float64):
        rows = X.astype(dtype)
        sums = Sums(*standardisation(rows, np.ones(300)))
        sums.add(rows, np.arange(300) % 3, np.ones(300))
        assert sums.constant.tolist() == [False, True, True, False]


# -------------------------------------------------------------------------------------------------
# Pool and sample
# -------------------------------------------------------------------------------------------------


def collect(X, y, weights, cuts, pool_rows=20, max_bytes=1 << 20, wide=False):
    collected = Collected(empty(wide), 3, pool_rows, max_bytes)
    for rows in np.split(np.arange(len(y)), cuts):
        if len(rows):
            collected.add(X[rows], y[rows], weights[rows])
    return collected


def rows_of(sample):
    return {tuple(row) for row in np.asarray(sample.features())}


@given(st.integers(0, 100), CUTS)
def test_every_row_is_summed_or_waits_and_all_rows_count_once(seed, cuts):
    X, y, _ = problem(seed)
    X, weights = np.where(X == 0, 0.1, X), np.ones(60)
    collected = collect(X, y, weights, cuts)
    whole = empty()
    whole.add(X, y, weights)
    assert_equal_sums(collected.all_sums().with_rows(), whole)
    np.testing.assert_allclose(collected.masses(), np.bincount(y))
    pool = collected.pool
    assert collected.sums.n_rows + len(pool) == collected.n_rows == 60
    # Whatever the batches were, the rows of the smallest keys wait, and at most a quarter more.
    if collected.sums.n_rows:
        assert len(pool) <= 25
        assert np.isin(np.sort(run_keys(np.arange(60), 3))[:20], pool.keys).all()
        assert not rows_of(pool) & rows_of(collected.sample)
        assert len(rows_of(pool) | rows_of(collected.sample)) == 60
    # Judged rows are in neither the sums nor the rows to train on.
    judged = np.arange(len(pool)) % 3 == 0
    sums, sample = collected.without(judged)
    assert sums.n_rows == len(sample) == 60 - np.count_nonzero(judged)
    assert not rows_of(pool.take(np.flatnonzero(judged))) & rows_of(sample)


def test_consecutive_rows_are_in_the_pool_together():
    rng = np.random.default_rng(0)
    X, y = np.arange(2000.0)[:, None] * np.ones(D), rng.integers(0, 4, 2000)
    rows = np.sort(collect(X, y, np.ones(2000), []).pool.features()[:, 0])
    runs, lengths = np.unique(rows // 10, return_counts=True)
    assert np.count_nonzero(lengths == 10) >= len(runs) - 1
    assert len(runs) < np.ptp(runs), "runs are chosen at random"


def test_the_sample_is_bounded_and_the_same_for_any_batches():
    rng = np.random.default_rng(0)
    X, y, weights = rng.standard_normal((2000, D)), rng.integers(0, 4, 2000), np.ones(2000)
    max_bytes = 100 * D * 8
    found = [
        collect(X, y, weights, cuts, max_bytes=max_bytes)
        for cuts in ([], [700], list(range(50, 2000, 50)))
    ]
    for collected in found:
        assert 60 <= len(collected.sample) <= 100
        assert collected.sample.nbytes <= max_bytes
        # Single rows, not runs of rows, chosen at random among those that were summed.
        summed = np.setdiff1d(run_keys(np.arange(2000), 3), collected.pool.keys)
        expected = summed[np.argsort(row_keys(summed))][: len(collected.sample)]
        np.testing.assert_array_equal(np.sort(collected.sample.keys), np.sort(expected))
        assert len(rows_of(collected.kept(max_bytes // 2).sample)) <= 50


def test_collected_elsewhere_and_merged():
    X, y, weights = problem(0, n=300)
    weights = np.ones(300)
    one = collect(X[:100], y[:100], weights[:100], [50])
    other = Collected(empty(), 4, 20)
    other.add(X[100:], y[100:], weights[100:])
    other.sources.append("elsewhere")
    one.merge(other)
    whole = empty()
    whole.add(X, y, weights)
    assert_equal_sums(one.all_sums(), whole)
    assert (one.n_rows, one.sources, len(one.pool)) == (300, ["elsewhere"], 20)


def test_removed_classes_leave_no_row_behind():
    X, y, weights = problem(0, n=300)
    collected = collect(X, y, weights, [100])
    collected.remove_classes(np.array([2]))
    assert collected.classes.tolist() == [0, 1, 3, 4]
    assert 2 not in collected.pool.labels
    assert 2 not in collected.sample.labels
    assert collected.n_rows == collected.sums.n_rows + len(collected.pool)


@pytest.mark.parametrize("pool_rows", [20, 1000])
def test_a_failing_batch_changes_neither_sums_nor_pool(pool_rows):
    X, y, _ = problem(0)
    collected = collect(X, y, np.ones(60), [], pool_rows)
    before, n_pool = collected.all_sums(), len(collected.pool)
    spoiled = X.copy()
    spoiled[50, 1] = 1e30
    for rows, labels in (
        (spoiled, y),
        (X, y.astype(str)),
        (X, np.where(y > 2, 2**60 + 1, y)),  # then floats that cannot stand beside them
        (X, np.full(60, 0.5)),
    ):
        try:
            collected.add(rows, labels, np.ones(60))
        except ValueError:
            assert_equal_sums(collected.all_sums(), before, rtol=0)
            assert (collected.n_rows, len(collected.pool)) == (before.n_rows, n_pool)
        else:
            before, n_pool = collected.all_sums(), len(collected.pool)


@pytest.mark.parametrize("n_classes", [2, 200])  # NumPy's isin compares in another way from ten on
def test_bytes_are_not_the_text_they_spell(n_classes):
    classes = np.array([f"class{i}" for i in range(n_classes)])
    with pytest.raises(ValueError, match="known classes, found b'class1'"):
        which_classes(classes, np.array([b"class1"]))
    assert which_classes(classes, np.array(["class1"])).nonzero()[0].tolist() == [1]
