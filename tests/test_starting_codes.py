"""Starting codes: by definition, and independent of units, order and batches of the rows."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from bitclass.codes import unpack
from bitclass.training import Statistics, starting_codes
from bitclass.training.discriminant import itq
from bitclass.training.starting_codes import MeanCodes, ProjectionCodes, RandomCodes


def problem(seed=0, n=300, d=6, n_classes=8):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n_classes, d))[y] * 2 + rng.standard_normal((n, d))
    return X @ rng.standard_normal((d, d)), y, rng.integers(1, 4, n).astype(float)


def summed(parts, shift=0.0, scale=1.0, d=6, n_bits=40, seed=5):
    statistics = Statistics(MeanCodes(n_bits, seed), np.full(d, shift), np.full(d, scale))
    for X, y, weights in parts:
        statistics.add(X, y, weights)
    return statistics


def codes(statistics):
    return statistics.starting.class_codes(statistics.sums()).astype(int)


def mostly_equal(a, b):
    # A mean within rounding error of a threshold may change sign.
    return np.mean(a == b) > 0.99


def test_codes_of_means_are_signs_of_projections_of_uncorrelated_means():
    """By the definition, from the rows themselves instead of sums."""
    X, y, weights = problem()
    statistics = summed([(X, y, weights)])
    times = weights.astype(int)
    repeated, labels = np.repeat(X, times, axis=0), np.repeat(y, times)
    Z = (repeated - repeated.mean(axis=0)) / repeated.std(axis=0)
    factor = np.linalg.cholesky(Z.T @ Z / len(Z) + 0.03 * np.eye(6))
    white = np.linalg.solve(factor, Z.T).T
    means = np.array([white[labels == c].mean(axis=0) for c in range(8)])
    means -= means.mean(axis=0)
    drawn = np.random.default_rng(5).standard_normal((6, 40))
    assert mostly_equal(codes(statistics), np.where(means @ drawn >= 0, 1, -1))
    # Every row starts with the code of its class.
    sums = statistics.starting.code_sums(statistics.sums())
    np.testing.assert_array_equal(sums, codes(statistics) * np.bincount(y, weights)[:, None])


@given(st.integers(0, 1000), st.floats(-2, 2), st.floats(-30, 30))
def test_scaling_and_shifting_features_has_no_effect(seed, log_unit, shift):
    X, y, weights = problem(seed)
    unit = 10.0 ** (log_unit * np.linspace(-1, 1, 6))
    plain = codes(summed([(X, y, weights)]))
    assert mostly_equal(plain, codes(summed([(X * unit + shift * unit, y, weights)])))
    # Nor does the origin of the sums.
    assert mostly_equal(plain, codes(summed([(X, y, weights)], shift=3.0, scale=0.2)))


def test_classes_without_rows_and_constant_features_do_no_harm():
    X, y, weights = problem()
    plain, more = summed([(X, y, weights)]), summed([(X, y, weights)])
    more.add(X[:0], y[:0], classes=np.array([-1, 3, 100]))
    np.testing.assert_array_equal(codes(plain), codes(more))
    X = np.column_stack([X, X[:, 0], np.full(300, 4.0)])
    assert set(np.unique(codes(summed([(X, y, weights)], d=8)))) == {-1, 1}


def test_sums_that_no_rows_can_have_raise_an_error():
    statistics = summed([problem()])
    statistics.gram[0, 1] = statistics.gram[1, 0] = 1e6
    with pytest.raises(ValueError, match="sums are damaged: .* is not positive definite"):
        codes(statistics)


# -------------------------------------------------------------------------------------------------
# Random codes
# -------------------------------------------------------------------------------------------------


def random_codes(labels, n_bits=64, seed=7):
    statistics = Statistics(RandomCodes(n_bits, seed), np.zeros(1), np.ones(1))
    statistics.add(np.arange(len(labels), dtype=float)[:, None], np.asarray(labels))
    return statistics.starting.class_codes(statistics.sums())


def test_random_codes_depend_only_on_seed_and_label():
    few = random_codes([3, 9], n_bits=20)
    np.testing.assert_array_equal(few, random_codes([1, 3, 5, 9], n_bits=20)[[1, 3]])
    assert not np.array_equal(few, random_codes([3, 9], n_bits=20, seed=8))


def test_random_codes_are_the_same_for_labels_that_are_equal():
    expected = random_codes([0, 1, 7])
    for kind in (np.int8, np.uint64, np.float32, np.float64):
        np.testing.assert_array_equal(random_codes(np.array([0, 1, 7], dtype=kind)), expected)
    np.testing.assert_array_equal(random_codes([False, True]), expected[:2])
    assert not np.array_equal(random_codes(["0", "1", "7"]), expected)


def test_random_codes_are_balanced_and_far_apart():
    bits = random_codes(np.arange(200), n_bits=256, seed=0).astype(int)
    assert abs(bits.mean()) < 0.02
    assert np.abs(bits @ bits.T - 256 * np.eye(200, dtype=int)).max() < 100


# -------------------------------------------------------------------------------------------------
# Codes per row
# -------------------------------------------------------------------------------------------------


def test_projection_codes_are_signs_of_the_projection_in_any_batch():
    rng = np.random.default_rng(0)
    mapping, centre, scale = rng.standard_normal((50, 64)), rng.uniform(-9, 9, 50), np.full(50, 2.0)
    X = (centre + scale * rng.standard_normal((300, 50))).astype(np.float32)
    starting = ProjectionCodes(mapping, centre, scale, "projection")
    scores = ((X - centre) / scale) @ mapping
    packed = starting.row_codes(X, np.arange(300))
    wrong = (unpack(packed, 64) > 0) != (scores >= 0)
    assert wrong.mean() < 0.01  # they are computed in integers
    assert np.all(np.abs(scores[wrong]) < 0.5)
    alone = [starting.row_codes(X[i : i + 1], np.arange(1)) for i in range(300)]
    np.testing.assert_array_equal(packed, np.concatenate(alone))


def test_cca_itq_rotates_the_canonical_directions_of_a_dense_eigenproblem():
    X, y = load_digits(return_X_y=True)
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    random = np.random.RandomState(0)
    mapping = starting_codes._cca_itq_mapping(Z, y, np.ones(len(y)), 32, random)
    covariance = Z.T @ Z / len(y)
    covariance += 1e-4 * np.trace(covariance) * np.eye(64)
    means = np.array([Z[y == c].mean(axis=0) for c in range(10)])
    between = (means * np.bincount(y)[:, None]).T @ means / len(y)
    values, vectors = scipy.linalg.eigh(between, covariance)
    directions = vectors[:, -9:] * np.sqrt(values[-9:])  # ten classes differ in nine
    # Rotating the directions does not change their products.
    np.testing.assert_allclose(mapping @ mapping.T, directions @ directions.T, atol=1e-8)


@pytest.mark.parametrize("n_bits", [9, 64])
def test_the_rotation_lowers_the_quantisation_error(n_bits):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1000, 9)) * np.linspace(1, 2, 9)
    rotation = np.linalg.qr(rng.standard_normal((n_bits, n_bits)))[0][:9]
    errors = []
    for _ in range(50):
        rotation = itq(rows, rotation, 1)
        errors.append(np.sum((np.where(rows @ rotation >= 0, 1, -1) - rows @ rotation) ** 2))
    assert np.all(np.diff(errors) <= 1e-9 * errors[0])
    assert errors[-1] < 0.999 * errors[0]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(9), atol=1e-8)
