"""Starting codes, by definition."""

import numpy as np

from bitclass.codes import unpack
from bitclass.paper.ridge import standardise
from bitclass.paper.starting_codes import starting_codes


def problem(seed=0, n=300, d=6, n_classes=8):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n_classes, d))[y] * 2 + rng.standard_normal((n, d))
    return X @ rng.standard_normal((d, d)), y, rng.integers(1, 4, n).astype(float)


def codes(kind, X, y, weights, n_bits=40, seed=5):
    random = np.random.RandomState(seed)
    return unpack(starting_codes(kind, standardise(X, y, weights), n_bits, random), n_bits)


def mostly_equal(a, b):
    # A value within rounding error of a threshold may change sign.
    return np.mean(a == b) > 0.99


def standardised(X, y, weights):
    """The rows repeated by their weights, and standardised."""
    times = weights.astype(int)
    repeated, labels = np.repeat(X, times, axis=0), np.repeat(y, times)
    return (repeated - repeated.mean(axis=0)) / repeated.std(axis=0), labels, times


def test_projection_codes_are_signs_of_random_projections_of_each_sample():
    X, y, weights = problem(n=5000)
    Z, _, times = standardised(X, y, weights)
    drawn = np.random.RandomState(5).standard_normal((6, 40))
    expected = np.where(Z @ drawn >= 0, 1, -1)
    assert mostly_equal(np.repeat(codes("projection", X, y, weights), times, axis=0), expected)


def test_codes_of_means_are_signs_of_projections_of_uncorrelated_means():
    X, y, weights = problem()
    Z, labels, _ = standardised(X, y, weights)
    factor = np.linalg.cholesky(Z.T @ Z / len(Z) + 0.03 * np.eye(6))
    white = np.linalg.solve(factor, Z.T).T
    means = np.array([white[labels == c].mean(axis=0) for c in range(8)])
    means -= means.mean(axis=0)
    drawn = np.random.RandomState(5).standard_normal((6, 40))
    expected = np.where(means @ drawn >= 0, 1, -1)[y]
    assert mostly_equal(codes("means", X, y, weights), expected)


def test_random_codes_are_one_per_class_balanced_and_far_apart():
    y = np.arange(400) % 200
    found = codes("random", np.ones((400, 2)), y, np.ones(400), n_bits=256).astype(int)
    np.testing.assert_array_equal(found[:200], found[200:])
    assert abs(found.mean()) < 0.02
    assert np.abs(found[:200] @ found[:200].T - 256 * np.eye(200, dtype=int)).max() < 100
