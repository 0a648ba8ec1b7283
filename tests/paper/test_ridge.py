"""The ridge regression of the hash function."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from bitclass.codes import pack
from bitclass.paper.alternation import Groups
from bitclass.paper.ridge import solve_ridge, standardise, temperature


def fitted(X, B, weights=None, alpha=0.01):
    """Hash function and explained variance; classes do not matter."""
    weights = np.ones(len(B)) if weights is None else weights
    labels = np.zeros(len(B), dtype=np.intp)
    rows, groups = standardise(X, labels, weights), Groups.of_samples(labels, pack(B), weights)
    return solve_ridge(rows, groups, B.shape[1], alpha)


def problem(seed, n, d, r=5, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.uniform(-3, 3, d)
    scores = X @ rng.standard_normal((d, r)) / d + noise * rng.standard_normal((n, r))
    return X, np.where(scores > 0, 1.0, -1.0)


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize(("n", "r"), [(200, 12), (9000, 12), (9000, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_a_ridge_on_standardised_features(n, r, dtype, alpha):
    """In several blocks of rows, with few and with many distinct codes."""
    X, B = problem(0, n, 7, r=r)
    X = (X * np.exp(np.linspace(-5, 5, 7)) + 100.0).astype(dtype)
    weights = np.random.default_rng(1).integers(1, 4, n).astype(float)
    found, explained = fitted(X, B, weights, alpha)
    X = X.astype(float)
    mean = np.average(X, axis=0, weights=weights)
    std = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    Z = (X - mean) / std
    peer = Ridge(alpha=alpha * weights.sum()).fit(Z, B, sample_weight=weights)
    P = found.projection.astype(float) * std[:, None]
    np.testing.assert_allclose(P, peer.coef_.T, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(X @ found.projection + found.intercept, peer.predict(Z), atol=1e-3)
    # The standardisation for quantising rows.
    np.testing.assert_allclose(found.centre, mean, rtol=1e-5)
    np.testing.assert_allclose(found.scale, std, rtol=1e-5)
    if alpha == 0.0:
        assert explained == pytest.approx(
            1 - np.average((B - peer.predict(Z)) ** 2, axis=0, weights=weights).sum()
            / np.sum(1 - np.average(B, axis=0, weights=weights) ** 2), abs=1e-4)  # fmt: skip


def test_constant_features_change_nothing():
    X, B = problem(2, 40, 6)
    more = np.column_stack([X, np.full(40, 0.1), np.zeros(40)])
    plain, with_constants = fitted(X, B)[0], fitted(more, B)[0]
    assert np.all(with_constants.projection[6:] == 0)
    np.testing.assert_allclose(with_constants.projection[:6], plain.projection, rtol=1e-5)
    assert np.all(fitted(np.ones((40, 3)), B)[0].projection == 0)


def test_duplicate_features_do_no_harm():
    X, B = problem(0, 200, 7)
    twice = np.column_stack([X, X])  # whose correlations have no Cholesky factor
    values = [x @ (h := fitted(x, B, alpha=0.0)[0]).projection + h.intercept for x in (X, twice)]
    np.testing.assert_allclose(*values, atol=1e-2)


def test_rows_whose_variance_overflows_are_rejected():
    X, B = problem(0, 20, 3)
    X[4, 1] = 1e200
    with pytest.raises(ValueError, match="feature 1 are too large"):
        fitted(X, B)


def test_probabilities_are_sharper_the_better_the_codes_are_predicted():
    found = [temperature(explained, 10, 64) for explained in (0.0, 0.2, 0.6, 1.0)]
    assert np.all(np.diff(found) < 0)
    assert found[-1] > 0
