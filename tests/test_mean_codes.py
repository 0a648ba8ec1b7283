"""Codes of class means: units, order and batches of the rows do not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass import BinaryCodeClassifier
from bitclass.codes import unpack
from bitclass.training import Statistics
from bitclass.training.starting_codes import MeanCodes


def problem(seed=0, n=300, d=6, n_classes=8):
    rng = np.random.default_rng(seed)
    own = np.arange(n) % n_classes
    X = rng.standard_normal((n_classes, d))[own] * 2 + rng.standard_normal((n, d))
    return X @ rng.standard_normal((d, d)), own, rng.integers(1, 4, n).astype(float)


def summed(parts, shift=0.0, scale=1.0, d=6, n_bits=40, seed=5):
    statistics = Statistics(
        MeanCodes(n_bits, seed), np.full(d, shift), np.full(d, scale), keep_codes=True
    )
    for X, own, weights in parts:
        statistics.add(X, own, weights)
    return statistics


def codes(statistics):
    return np.sign(statistics.starting_sums()).astype(int)


def mostly_equal(a, b):
    # A mean within rounding of the border may fall to the other side.
    return np.mean(a == b) > 0.99


def test_codes_are_signs_of_projections_of_uncorrelated_means():
    """By the definition, with the rows themselves in the place of sums."""
    X, own, weights = problem()
    statistics = summed([(X, own, weights)])
    repeated, labels = (
        np.repeat(X, weights.astype(int), axis=0),
        np.repeat(own, weights.astype(int)),
    )
    Z = (repeated - repeated.mean(axis=0)) / repeated.std(axis=0)
    covariance = Z.T @ Z / len(Z) + 0.03 * np.eye(6)
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, Z.T).T
    means = np.array([white[labels == c].mean(axis=0) for c in range(8)])
    means -= means.mean(axis=0)
    drawn = np.random.default_rng(5).standard_normal((6, 40))
    assert mostly_equal(codes(statistics), np.where(means @ drawn >= 0, 1, -1))
    np.testing.assert_array_equal(
        np.abs(statistics.starting_sums()), np.bincount(own, weights)[:, None] * np.ones(40)
    )


@given(st.integers(0, 1000), st.floats(-2, 2), st.floats(-30, 30))
@settings(max_examples=30, deadline=None)
def test_units_and_zero_of_the_features_do_not_matter(seed, log_unit, shift):
    X, own, weights = problem(seed)
    unit = 10.0 ** (log_unit * np.linspace(-1, 1, 6))
    plain = summed([(X, own, weights)])
    moved = summed([(X * unit + shift * unit, own, weights)])
    assert mostly_equal(codes(plain), codes(moved))
    # Nor does what the sums are counted from.
    assert mostly_equal(codes(plain), codes(summed([(X, own, weights)], shift=3.0, scale=0.2)))


@given(st.integers(0, 1000), st.lists(st.integers(0, 300), max_size=5), st.randoms())
@settings(max_examples=30, deadline=None)
def test_neither_batches_nor_their_order_matter(seed, cuts, random):
    X, own, weights = problem(seed)
    parts = [
        (X[rows], own[rows], weights[rows])
        for rows in np.split(np.arange(300), sorted(cuts))
        if len(rows)
    ]
    whole = codes(summed([(X, own, weights)]))
    random.shuffle(parts)
    assert mostly_equal(whole, codes(summed(parts)))
    merged = summed(parts[:1])
    for part in parts[1:]:
        merged.merge(summed([part], shift=1.0, scale=3.0))
    np.testing.assert_array_equal(merged.classes, np.arange(8))
    assert merged.n_rows == 300
    assert mostly_equal(whole, codes(merged))


def test_other_seeds_and_bits_do_not_merge():
    one = summed([problem()])
    for other in (summed([problem()], seed=6), summed([problem()], n_bits=41)):
        with pytest.raises(ValueError, match="different starting codes"):
            one.merge(other)


def test_no_row_keeps_a_code():
    statistics = summed([problem()])
    assert not statistics.keep_codes
    assert statistics.code_sums.shape == (8, 0)
    with pytest.raises(TypeError, match="need the sums over all rows"):
        statistics.starting.codes(np.zeros((1, 6)), np.arange(1), np.zeros(1, np.intp), 0)
    groups = statistics.groups(statistics.starting_sums())
    np.testing.assert_array_equal(unpack(groups.codes, 40), codes(statistics))
    np.testing.assert_array_equal(groups.weights, statistics.class_weights)


def test_classes_without_rows_have_no_part():
    X, own, weights = problem()
    plain = summed([(X, own, weights)])
    more = summed([(X, own, weights)])
    more.add_classes(np.array([-1, 3, 100]))
    np.testing.assert_array_equal(plain.starting_sums(), more.starting_sums())


def test_constant_and_repeated_features_do_no_harm():
    X, own, weights = problem()
    X = np.column_stack([X, X[:, 0], np.full(300, 4.0)])
    found = codes(summed([(X, own, weights)], d=8))
    assert set(np.unique(found)) == {-1, 1}


def test_classes_that_are_alike_get_codes_that_are_alike():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((3, 6)) * 4
    centres[1] = centres[0] + 0.5
    own = np.arange(600) % 3
    X = centres[own] + rng.standard_normal((600, 6))
    found = codes(summed([(X, own, None)], n_bits=256))
    near, far = found[0] @ found[1], found[0] @ found[2]
    assert near > far + 50


@pytest.mark.parametrize("loss", ["hinge", "exponential", "logistic"])
def test_every_loss_learns_from_them(blobs, loss):
    X, y = blobs
    classifier = BinaryCodeClassifier(64, loss=loss, scale=0.1, refine=False, random_state=0)
    assert classifier.initial_codes == "means"
    assert classifier.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.9


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_batches_give_the_model_of_fit(blobs, loss):
    X, y = blobs
    whole = BinaryCodeClassifier(32, loss=loss, refine=False, random_state=0).fit(X, y)
    parts = BinaryCodeClassifier(32, loss=loss, refine=False, random_state=0)
    parts.partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    np.testing.assert_array_equal(whole.weights_, parts.weights_)
    np.testing.assert_allclose(whole.projection_, parts.projection_, rtol=1e-3, atol=1e-5)
