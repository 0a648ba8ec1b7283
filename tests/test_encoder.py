import numpy as np
import pytest
from sklearn.linear_model import Ridge

from bitclass.encoder import ridge


def sums(X, B, weights, shift, scale=None):
    scale = np.exp(np.linspace(-1, 1, X.shape[1])) if scale is None else scale
    Z = (X - shift) / scale
    weighted = Z * weights[:, None]
    return {
        "gram": weighted.T @ Z,
        "column_sums": weighted.sum(axis=0),
        "cross": weighted.T @ B,
        "code_sum": weights @ B,
        "total_weight": weights.sum(),
        "n_rows": len(X),
        "shift": shift,
        "scale": scale,
    }


def problem(seed=0, n=200, d=7, r=12):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.exp(rng.uniform(-3, 3, d)) + rng.uniform(-5, 5, d)
    return X, rng.choice([-1.0, 1.0], size=(n, r)), rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0])
def test_it_is_a_ridge_on_standardised_features(alpha):
    X, B, weights = problem()
    found = ridge(**sums(X, B, weights, X[0]), alpha=alpha)
    mean = np.average(X, axis=0, weights=weights)
    std = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    peer = Ridge(alpha=alpha * weights.sum()).fit((X - mean) / std, B, sample_weight=weights)
    np.testing.assert_allclose(found.projection, peer.coef_.T / std[:, None], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        X @ found.projection.astype(float) + found.intercept,
        peer.predict((X - mean) / std),
        atol=1e-4,
    )


def test_explained_share_of_variance():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(300, 4))
    assert ridge(**sums(X, X, np.ones(300), np.zeros(4)), alpha=0.0).fit == pytest.approx(
        1, abs=1e-6
    )
    noise = rng.choice([-1.0, 1.0], size=(300, 4))
    assert ridge(**sums(X, noise, np.ones(300), np.zeros(4)), alpha=0.0).fit < 0.1


def test_constant_and_repeated_features_do_no_harm():
    X, B, weights = problem()
    X = np.column_stack([X, np.full(len(X), 3.0), X[:, 0]])
    found = ridge(**sums(X, B, weights, X[0]), alpha=0.0)
    assert np.isfinite(found.projection).all()
    assert np.all(found.projection[-2] == 0)
    plain = ridge(**sums(X[:, :-2], B, weights, X[0, :-2]), alpha=0.0)
    np.testing.assert_allclose(
        X @ found.projection + found.intercept,
        X[:, :-2] @ plain.projection + plain.intercept,
        atol=1e-3,
    )


def test_a_gram_matrix_that_rounding_made_indefinite_is_survived():
    X, B, weights = problem(d=5)
    given = sums(X, B, weights, X.mean(axis=0))
    values, vectors = np.linalg.eigh(given["gram"])
    values[0] = -1e-9 * values[-1]
    given["gram"] = vectors @ np.diag(values) @ vectors.T
    found = ridge(**given, alpha=0.0)
    assert np.isfinite(found.projection).all()


def test_a_mean_far_from_zero_costs_no_accuracy():
    X, B, weights = problem()
    near = ridge(**sums(X, B, weights, X.mean(axis=0)), alpha=1e-3)
    far = ridge(**sums(X + 1e6, B, weights, X.mean(axis=0) + 1e6), alpha=1e-3)
    signs = X @ near.projection.astype(float) + near.intercept >= 0
    moved = (X + 1e6) @ far.projection.astype(float) + far.intercept >= 0
    assert np.mean(signs == moved) > 0.999


def test_the_quantisation_of_rows_gets_mean_and_standard_deviation():
    X, B, weights = problem()
    found = ridge(**sums(X, B, weights, X[0]), alpha=1e-3)
    mean = np.average(X, axis=0, weights=weights)
    std = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    np.testing.assert_allclose(found.centre, mean, rtol=1e-5)
    np.testing.assert_allclose(found.scale, std, rtol=1e-5)
