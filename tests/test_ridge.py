"""The ridge regression of the hash function, and its cross-validated penalty."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from bitclass import BinaryCodeClassifier
from bitclass.training import Statistics
from bitclass.training.regression import _PENALTIES, solve_paper, solve_ridge
from bitclass.training.starting_codes import GivenCodes
from bitclass.training.statistics import Sums
from bitclass.validation import settings_of


def fitted(X, B, weights=None, alpha=None, shift=None, scale=None):
    """Ridge regression of rows of a single class, as classes do not matter."""
    n, d = X.shape
    weights = np.ones(n) if weights is None else weights
    shift = np.zeros(d) if shift is None else shift
    scale = np.ones(d) if scale is None else scale
    Z = (X - shift) / scale
    weighted = Z * weights[:, None]
    sums = Sums(
        np.arange(1),
        weighted.T @ Z,
        weighted.sum(axis=0)[None],
        np.array([weights.sum()]),
        np.zeros((1, 0)),
        n,
        shift,
        scale,
    )
    found = solve_ridge(sums, weighted.T @ B, weights @ B, alpha)
    return found, found.hash_function("int8")


def problem(seed, n, d, r=5, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.uniform(-3, 3, d)
    scores = X @ rng.standard_normal((d, r)) / d + noise * rng.standard_normal((n, r))
    return X, np.where(scores > 0, 1.0, -1.0)


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0])
def test_it_is_a_ridge_on_standardised_features(alpha):
    X, B = problem(0, 200, 7, r=12)
    weights = np.random.default_rng(1).integers(1, 4, 200).astype(float)
    units = np.exp(np.linspace(-1, 1, 7))
    _, found = fitted(X, B, weights, alpha, shift=X[0], scale=units)
    mean = np.average(X, axis=0, weights=weights)
    std = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    peer = Ridge(alpha=alpha * weights.sum()).fit((X - mean) / std, B, sample_weight=weights)
    np.testing.assert_allclose(found.projection, peer.coef_.T / std[:, None], rtol=1e-4, atol=1e-6)
    values = X @ found.projection.astype(float) + found.intercept
    np.testing.assert_allclose(values, peer.predict((X - mean) / std), atol=1e-4)
    # The standardisation for quantising rows.
    np.testing.assert_allclose(found.centre, mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.scale, std, rtol=1e-5)


def test_explained_share_of_variance():
    X, noise = np.random.default_rng(0).choice([-1.0, 1.0], size=(2, 300, 4))
    assert fitted(X, X, alpha=0.0)[0].explained == pytest.approx(1, abs=1e-6)
    assert fitted(X, noise, alpha=0.0)[0].explained < 0.1


@pytest.mark.parametrize("alpha", [0.0, None])
def test_constant_features_change_nothing(alpha):
    X, B = problem(2, 40, 6)
    more = np.column_stack([X, np.full(40, 5.0), np.zeros(40)])
    plain, with_constants = (fitted(x, B, alpha=alpha, shift=x[0]) for x in (X, more))
    assert with_constants[0].alpha == plain[0].alpha
    assert np.all(with_constants[1].projection[6:] == 0)
    np.testing.assert_allclose(
        with_constants[1].projection[:6], plain[1].projection, rtol=1e-5, atol=1e-7
    )
    only, _ = fitted(np.ones((40, 3)), B, alpha=alpha)
    assert np.all(only.projection == 0)
    assert np.isfinite(only.alpha)


def test_duplicate_features_do_no_harm():
    X, B = problem(0, 200, 7)
    twice = np.column_stack([X, X])  # whose correlations have no Cholesky factor
    values = [x @ (h := fitted(x, B, alpha=0.0)[1]).projection + h.intercept for x in (X, twice)]
    np.testing.assert_allclose(*values, atol=1e-3)


# -------------------------------------------------------------------------------------------------
# alpha="auto"
# -------------------------------------------------------------------------------------------------


def errors_by_definition(X, B):
    """Errors of generalised cross-validation of all penalties, from the hat matrix itself."""
    n = len(X)
    deviation = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    errors = []
    for alpha in _PENALTIES:
        hat = np.full((n, n), 1 / n)
        hat += Z @ np.linalg.solve(Z.T @ Z + alpha * n * np.eye(Z.shape[1]), Z.T)
        errors.append(np.sum((B - hat @ B) ** 2) / (n - np.trace(hat)) ** 2)
    return np.array(errors)


@given(
    st.integers(0, 10_000),
    st.sampled_from([(30, 3), (30, 12), (15, 14), (12, 30), (20, 100)]),
    st.sampled_from([0.05, 0.5, 3.0]),
)
@example(6917, (20, 100), 0.05)  # both parts of the error vanish with the penalty
@settings(max_examples=25)
def test_the_penalty_has_the_smallest_error_by_definition(seed, shape, noise):
    """Also if there are more features than rows."""
    X, B = problem(seed, *shape, noise=noise)
    errors = errors_by_definition(X, B)
    found, _ = fitted(X, B, shift=X.mean(axis=0))
    at = int(np.flatnonzero(found.alpha == _PENALTIES)[0])
    # Neighbouring errors may be equal up to rounding, and all are if the codes are equal.
    assert errors[at] <= errors.min() * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize("shape", [(60, 4), (25, 40)])
def test_the_solution_is_the_ridge_of_that_penalty(shape):
    X, B = problem(1, *shape)
    units = np.exp(np.linspace(-1, 1, shape[1]))
    auto, h = fitted(X, B, shift=X[0], scale=units)
    plain, expected = fitted(X, B, alpha=auto.alpha, shift=X[0], scale=units)
    np.testing.assert_allclose(h.projection, expected.projection, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(h.intercept, expected.intercept, rtol=1e-4, atol=1e-5)
    assert auto.explained == pytest.approx(plain.explained)


def test_a_weight_equals_that_many_rows():
    X, B = problem(4, 30, 10)
    times = np.random.default_rng(0).integers(1, 4, 30)
    repeated, h = fitted(np.repeat(X, times, axis=0), np.repeat(B, times, axis=0))
    weighted, found = fitted(X, B, times.astype(float))
    assert weighted.alpha == repeated.alpha
    np.testing.assert_allclose(found.projection, h.projection, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("total", [1e-6, 1.0, 10.0])
def test_small_weights_do_not_remove_the_penalty(total):
    """Weights are often normalised to sum to 1."""
    X, B = problem(5, 40, 30, noise=2.0)
    plain, found = fitted(X, B)[0], fitted(X, B, np.full(40, total / 40))[0]
    assert found.alpha == plain.alpha > 1e-3


@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_changed_weights_of_a_class_become_the_code_of_its_rows():
    """Two of four classes share a code, so that rows with individual codes must change as well."""
    rng, y = np.random.default_rng(0), np.arange(40) % 4
    X, codes = rng.standard_normal((40, 5)), rng.choice([-1, 1], size=(4, 8))
    codes[1], codes[3] = codes[0], -codes[0]
    statistics = Statistics(GivenCodes(codes[y]), np.zeros(5), np.ones(5), keep_codes=True)
    statistics.add(X, y)
    parameters = BinaryCodeClassifier.paper(8).get_params()
    by_class = solve_paper(settings_of(parameters), statistics, None)
    by_row = solve_paper(settings_of(parameters), statistics, lambda: iter([(X, y, None)]))
    assert len(np.unique(by_row.weights, axis=0)) == 4
    np.testing.assert_array_equal(by_row.ridge.projection, by_class.ridge.projection)
