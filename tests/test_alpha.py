"""`alpha="auto"`: the penalty by generalised cross-validation, beside its definition."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bitclass import BinaryCodeClassifier
from bitclass.encoder import _PENALTIES, ridge


def sums(X, B, weights, shift=None, scale=None):
    shift = np.zeros(X.shape[1]) if shift is None else shift
    scale = np.ones(X.shape[1]) if scale is None else scale
    Z = (X - shift) / scale
    weighted = Z * weights[:, None]
    return {
        "gram": weighted.T @ Z,
        "column_sums": weighted.sum(axis=0),
        "cross": weighted.T @ B,
        "code_sum": weights @ B,
        "total_weight": float(weights.sum()),
        "n_rows": len(X),
        "shift": shift,
        "scale": scale,
    }


def problem(seed, n, d, r=5, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.uniform(-3, 3, d)
    B = np.where(
        X @ rng.standard_normal((d, r)) / d + noise * rng.standard_normal((n, r)) > 0, 1, -1
    )
    return X, B.astype(float)


def brute_force(X, B):
    """Errors of generalised cross-validation of all penalties, from the hat matrix itself."""
    n = len(X)
    deviation = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    errors = []
    for alpha in _PENALTIES:
        hat = np.full((n, n), 1 / n)
        hat += Z @ np.linalg.solve(Z.T @ Z + alpha * n * np.eye(Z.shape[1]), Z.T)
        left = B - hat @ B
        errors.append(np.sum(left**2) / (n - np.trace(hat)) ** 2)
    return np.array(errors)


@given(
    st.integers(0, 10_000),
    st.sampled_from([(30, 3), (30, 12), (15, 14), (12, 30), (20, 100)]),
    st.sampled_from([0.05, 0.5, 3.0]),
)
@example(6917, (20, 100), 0.05)  # both parts of the error vanish with the penalty
@settings(max_examples=60, deadline=None)
def test_the_penalty_has_the_smallest_error_by_definition(seed, shape, noise):
    """Also where there are more features than rows."""
    X, B = problem(seed, *shape, noise=noise)
    errors = brute_force(X, B)
    found = ridge(**sums(X, B, np.ones(len(X)), X.mean(axis=0)), alpha=None)
    at = int(np.flatnonzero(found.alpha == _PENALTIES)[0])
    # Neighbours may be equal to within rounding, and all of them where no code differs.
    assert errors[at] <= errors.min() * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize("shape", [(60, 4), (25, 40)])
def test_the_solution_is_the_ridge_of_that_penalty(shape):
    X, B = problem(1, *shape)
    scale = np.exp(np.linspace(-1, 1, shape[1]))
    given = sums(X, B, np.ones(len(X)), X[0], scale)
    auto = ridge(**given, alpha=None)
    plain = ridge(**given, alpha=auto.alpha)
    np.testing.assert_allclose(auto.projection, plain.projection, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(auto.intercept, plain.intercept, rtol=1e-4, atol=1e-5)
    assert auto.fit == pytest.approx(plain.fit)
    np.testing.assert_array_equal(auto.scale, plain.scale)


def test_constant_features_change_nothing():
    X, B = problem(2, 40, 6)
    more = np.column_stack([X, np.full(40, 5.0), np.zeros(40)])
    plain = ridge(**sums(X, B, np.ones(40), X[0]), alpha=None)
    found = ridge(**sums(more, B, np.ones(40), more[0]), alpha=None)
    assert found.alpha == plain.alpha
    assert np.all(found.projection[6:] == 0)
    np.testing.assert_allclose(found.projection[:6], plain.projection, rtol=1e-5)


def test_nothing_but_constant_features_is_survived():
    B = problem(0, 10, 2)[1]
    found = ridge(**sums(np.ones((10, 3)), B, np.ones(10)), alpha=None)
    assert np.all(found.projection == 0)
    assert np.isfinite(found.alpha)


def test_units_of_features_change_nothing():
    X, B = problem(3, 50, 8)
    units = np.exp(np.linspace(-4, 4, 8))
    plain = ridge(**sums(X, B, np.ones(50), X[0]), alpha=None)
    found = ridge(**sums(X * units, B, np.ones(50), X[0] * units), alpha=None)
    assert found.alpha == plain.alpha
    np.testing.assert_allclose(found.projection * units[:, None], plain.projection, rtol=1e-4)


def test_a_weight_is_so_many_rows():
    X, B = problem(4, 30, 10)
    times = np.random.default_rng(0).integers(1, 4, 30)
    repeated = ridge(
        **sums(np.repeat(X, times, axis=0), np.repeat(B, times, axis=0), np.ones(times.sum())),
        alpha=None,
    )
    weighted = ridge(**sums(X, B, times.astype(float)), alpha=None)
    assert weighted.alpha == repeated.alpha
    np.testing.assert_allclose(weighted.projection, repeated.projection, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("total", [1e-6, 1.0, 10.0])
def test_weights_that_add_up_to_little_do_not_take_the_penalty_away(total):
    """Weights are often given as shares of all rows."""
    X, B = problem(5, 40, 30, noise=2.0)
    plain = ridge(**sums(X, B, np.ones(40)), alpha=None)
    found = ridge(**sums(X, B, np.full(40, total / 40)), alpha=None)
    assert plain.alpha > 1e-3
    assert found.alpha == plain.alpha


def test_more_noise_asks_for_more_penalty():
    found = [
        ridge(**sums(*problem(6, 60, 40, noise=noise), np.ones(60)), alpha=None).alpha
        for noise in (0.01, 10.0)
    ]
    assert found[0] < found[1]


def test_the_estimator_tells_its_penalty():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 10)), rng.integers(0, 3, 300)
    auto = BinaryCodeClassifier(16, refine=False, random_state=0).fit(X, y)
    assert auto.alpha_ in _PENALTIES
    same = BinaryCodeClassifier(16, refine=False, alpha=auto.alpha_, random_state=0).fit(X, y)
    assert same.alpha_ == auto.alpha_
    np.testing.assert_allclose(auto.projection_, same.projection_, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(auto.weights_, same.weights_)


def test_more_features_than_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 200)).astype(np.float32)
    y = np.arange(60) % 3
    X[:, :3] += 6 * np.eye(3, dtype=np.float32)[y]
    classifier = BinaryCodeClassifier(32, refine=False, random_state=0).fit(X, y)
    assert np.isfinite(classifier.projection_).all()
    assert classifier.score(X, y) > 0.9
