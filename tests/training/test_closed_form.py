"""The closed form: whitening, leave-one-out, shrunken means and hyperplanes, by the formulas."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.codes import unpack
from bitclass.training import closed_form as module
from bitclass.training.closed_form import (
    DenseWhitening,
    Kind,
    Penalty,
    Whitenings,
    WideWhitening,
    _bisectors,
    _discriminant,
    _noise_along_means,
    _rotated,
    _shrunken_means,
    best_temperature,
    closed_form,
    leave_one_out,
)
from bitclass.training.sums import Sums

from .learning import problem, sample_of, scatter_of, sums_of
from .learning import settings as settings_of


def whitening_of(X, y, alpha=0.1, n_extra=0, own_units=False, **given):
    return DenseWhitening(
        scatter_of(X, y, **given), Penalty(alpha, own_units), n_directions=500, n_extra=n_extra
    )


# -------------------------------------------------------------------------------------------------
# Leave-one-out
# -------------------------------------------------------------------------------------------------


def discriminant_scores(X, y, weights, x, penalty, n_within):
    """Scores of one row by LDA of the others: from means and the scatter within, no shortcuts."""
    classes = np.arange(y.max() + 1)
    means = np.array([np.average(X[y == c], axis=0, weights=weights[y == c]) for c in classes])
    deviations = X - means[y]
    within = (weights[:, None] * deviations).T @ deviations / n_within
    inverse = np.linalg.inv(within + np.diag(penalty))
    return means @ inverse @ x - 0.5 * np.einsum("cd,de,ce->c", means, inverse, means)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("own_units", [False, True])
def test_leave_one_out_equals_refitting_without_each_row(monkeypatch, own_units, weighted):
    """Class means are not shrunken here; the penalty and the number of rows are those of all."""

    def not_shrunken(means, n, noise):
        # So large a variance of the means leaves them as they are.
        return np.full(means.shape[1], 1e12), means, np.zeros(len(means))

    monkeypatch.setattr(module, "_shrunken_means", not_shrunken)
    X, y = problem(n=40, d=5, n_classes=3, noise=1.5)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 40) if weighted else np.ones(40)
    scatter = scatter_of(X, y, weights=weights)
    sums, alpha = scatter.sums, 0.3
    found = leave_one_out(scatter, alpha, own_units, X - scatter.centre, y, weights)
    penalty = alpha * scatter.penalties(own_units)
    likelihoods, correct = [], []
    for i in range(40):
        rest = np.arange(40) != i
        scores = discriminant_scores(
            X[rest],
            y[rest],
            weights[rest],
            X[i] - scatter.centre * 0,
            penalty,
            scatter.mass_within,
        )
        scores = scores / found.temperature + np.log(sums.mass / sums.total)
        correct.append(scores.argmax() == y[i])
        scores -= scores.max()
        likelihoods.append(scores[y[i]] - np.log(np.exp(scores).sum()))
    assert 0.5 < np.mean(correct) < 1.0, "or this would show little"
    assert found.accuracy == pytest.approx(np.average(correct, weights=weights))
    assert found.likelihood == pytest.approx(np.average(likelihoods, weights=weights), rel=1e-6)


def test_leave_one_out_foresees_the_accuracy_of_other_rows():
    """With few rows per class the accuracy on the training rows would be far too high."""
    X, y = problem(n=3000, d=20, n_classes=10, noise=2.0)
    few = scatter_of(X[:60], y[:60])
    for alpha in (0.01, 1.0):
        found = leave_one_out(few, alpha, False, X[:60] - few.centre, y[:60], np.ones(60))
        whitening = whitening_of(X[:60], y[:60], alpha)
        A = whitening.rows(X, slice(60, 3000))
        scores = A @ whitening.means.T - 0.5 * (whitening.means**2).sum(axis=1)
        assert abs(found.accuracy - np.mean(scores.argmax(axis=1) == y[60:])) < 0.12


def test_the_penalty_of_the_highest_likelihood_is_chosen():
    for noise, n in ((0.5, 2000), (6.0, 80)):
        X, y = problem(n=n, d=12, n_classes=8, noise=noise)
        scatter = scatter_of(X, y)
        best, _ = Whitenings(scatter.sums, sample_of(X, y), settings_of()).penalties
        tried = {
            alpha: leave_one_out(scatter, alpha, best.own_units, X - scatter.centre, y, np.ones(n))
            for alpha in module.ALPHAS
        }
        # Uphill from 1: no neighbour is better.
        place = module.ALPHAS.index(best.alpha)
        for neighbour in module.ALPHAS[max(place - 1, 0) : place + 2]:
            assert tried[neighbour].likelihood <= tried[best.alpha].likelihood + 0.01


@given(st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e4]), st.booleans())
@settings(max_examples=20)
def test_the_best_temperature_is_the_most_likely_one(seed, unit, uneven):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, 300)
    scores = rng.standard_normal((300, 5)) + 1.5 * (np.arange(5) == y[:, None])
    shares = np.array([0.6, 0.1, 0.1, 0.1, 0.1]) if uneven else np.full(5, 0.2)
    at = np.arange(300), y

    def likelihood(temperature):
        logits = scores / temperature + np.log(shares)
        return np.mean(logits[at] - np.log(np.exp(logits).sum(axis=1)))

    found, best, accuracy = best_temperature(scores * unit, y, None, np.log(shares))
    assert best == pytest.approx(likelihood(found / unit), abs=1e-4)
    assert best >= max(likelihood(other) for other in np.geomspace(0.05, 20, 40)) - 2e-3
    assert accuracy == np.mean((scores / (found / unit) + np.log(shares)).argmax(axis=1) == y)


# -------------------------------------------------------------------------------------------------
# Whitening
# -------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.sampled_from([1e-3, 0.1, 10.0]), st.booleans(), st.integers(0, 9))
@settings(max_examples=25)
def test_the_covariance_within_classes_is_at_most_the_identity(seed, alpha, own_units, n_extra):
    X, y = problem(seed=seed)
    whitening = whitening_of(X, y, alpha, n_extra, own_units)
    A = whitening.rows(X, slice(None)).astype(float)
    assert A.shape == (90, min(6, 3 + n_extra))
    deviations = A - np.array([A[y == c].mean(axis=0) for c in range(4)])[y]
    covariance = deviations.T @ deviations / (90 - 4)
    assert np.linalg.eigvalsh(covariance).max() <= 1.0 + 1e-5
    np.testing.assert_allclose(covariance, whitening.covariance, atol=1e-4)
    np.testing.assert_allclose(np.diag(covariance), whitening.within**2, atol=1e-4)
    # Beyond the directions of the class means, the means do not differ.
    means = np.array([A[y == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(np.ptp(means[:, 3:], axis=0), 0.0, atol=1e-4)


def test_shrunken_means_follow_the_formula():
    rng = np.random.default_rng(0)
    n_classes, within = 2000, np.array([1.0, 0.5, 2.0])
    n = rng.integers(1, 30, n_classes).astype(float)
    true_between = np.array([4.0, 1.0, 0.25])
    true = rng.standard_normal((n_classes, 3)) * np.sqrt(true_between)
    means = true + rng.standard_normal((n_classes, 3)) * np.sqrt(within / n[:, None])
    between, shrunken, unknown = _shrunken_means(means, n, within)
    np.testing.assert_allclose(between, true_between, rtol=0.2)
    share = n[:, None] * between / (within + n[:, None] * between)
    np.testing.assert_allclose(shrunken, share * means, rtol=1e-5)
    np.testing.assert_allclose(unknown, ((1.0 - share) @ between) / between.sum(), rtol=1e-6)
    assert np.mean((shrunken - true) ** 2) < 0.9 * np.mean((means - true) ** 2)
    many = _shrunken_means(means, np.full(n_classes, 1e9), within)
    np.testing.assert_allclose(many[1], means, rtol=1e-5)
    assert many[2].max() < 1e-6


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_hash_function_gives_the_scores_of_the_coordinates(shift):
    X, y = problem()
    X = X * np.logspace(-2, 2, 6) + shift * np.logspace(-2, 2, 6)
    sums = Sums(X.mean(axis=0), X.std(axis=0))
    sums.add(X, y, np.ones(90))
    whitening = Whitenings(sums, sample_of(X, y), settings_of(), (Penalty(0.1, False),) * 2).closed
    rng = np.random.default_rng(0)
    Q, t = rng.standard_normal((whitening.means.shape[1], 20)), rng.standard_normal(20)
    found = whitening.hash_function(Q, t)
    expected = whitening.rows(X, slice(None)) @ Q + t
    np.testing.assert_allclose(X @ found.projection + found.intercept, expected, atol=2e-3)
    clear = np.abs(expected) > 0.2  # int8 rounds
    bits = unpack(found.encode(X.astype(np.float32)), 20) > 0
    np.testing.assert_array_equal(bits[clear], expected[clear] > 0)


def test_refinement_of_very_many_classes_keeps_the_penalty_of_the_closed_form():
    """Their means leave no direction to add, for which a larger penalty would be wanted."""
    y = np.arange(6000) % 3000
    X = 3.0 * np.sin(y[:, None] * np.arange(8.0))
    X += np.random.default_rng(0).standard_normal(X.shape)
    penalties = Penalty(0.1, False), Penalty(10.0, False)
    whitenings = Whitenings(sums_of(X, y), sample_of(X, y), settings_of(), penalties)
    assert whitenings.start is whitenings.closed
    assert whitenings.start.alpha == 0.1
    few = y < 2000
    of_few = Whitenings(
        sums_of(X[few], y[few]), sample_of(X[few], y[few]), settings_of(), penalties
    )
    assert of_few.start.alpha == 10.0


def test_the_hash_function_of_wide_rows_is_linear_in_their_coordinates():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 5
    shares = 0.2 + 0.5 * (np.arange(30) % 5 == y[:, None])
    X = sp.csr_array((rng.random((400, 30)) < shares) * rng.uniform(0.5, 2, 30))
    sums = Sums.of_wide(30)
    sums.add(X, y, np.ones(400))
    whitening = WideWhitening(sums, 0.5, sample_of(X, y), 16)

    def scores(Q, t):
        found = whitening.hash_function(Q, t)
        return X[:, found.columns] @ found.projection + found.intercept

    A = scores(np.eye(4), np.zeros(4))
    Q, t = rng.standard_normal((4, 20)), rng.standard_normal(20)
    np.testing.assert_allclose(scores(Q, t), A @ Q + t, atol=1e-3)
    means = np.array([A[y == c].mean(axis=0) for c in range(5)])
    np.testing.assert_allclose(means.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(whitening.means, means, rtol=0.1, atol=0.05)


def test_drawn_rows_have_the_means_and_the_covariance_of_the_rows():
    X, y = problem(n=400, n_classes=3)
    whitening = whitening_of(X, y, n_extra=4)
    drawn_y = np.repeat(np.arange(3), 20_000)
    A = whitening.draw(drawn_y, np.random.default_rng(0))
    for c in range(3):
        np.testing.assert_allclose(A[drawn_y == c].mean(axis=0), whitening.means[c], atol=0.05)
        np.testing.assert_allclose(np.cov(A[drawn_y == c].T), whitening.covariance, atol=0.05)
    unseen = whitening.draw(drawn_y, np.random.default_rng(0), unseen=True)
    assert unseen[drawn_y == 0].var(axis=0)[0] > A[drawn_y == 0].var(axis=0)[0]


@pytest.mark.parametrize(("n_classes", "d"), [(40, 300), (200, 50), (60, 60)])
def test_noise_along_the_directions_of_means_is_that_of_means_of_noise(n_classes, d):
    means = np.random.default_rng(0).standard_normal((n_classes, d))
    means -= means.mean(axis=0)
    observed = np.linalg.eigvalsh(means @ means.T / (n_classes - 1))[::-1]
    q = min(n_classes - 1, d)
    expected = _noise_along_means(n_classes, 1.0, d, q)
    np.testing.assert_allclose(observed[:q], expected, rtol=0.15, atol=0.05 * expected[0])


def test_means_that_differ_in_few_directions_are_shrunken_to_these():
    """In most directions of the class means there is only noise, more than along a fixed one."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 30
    true = np.zeros((30, 100))
    true[:, :2] = 4.0 * rng.standard_normal((30, 2))
    X = true[y] + rng.standard_normal((300, 100))
    sums, rows = sums_of(X, y), sample_of(X, y)
    whitening = Whitenings(sums, rows, settings_of(64)).closed
    kept = np.linalg.norm(whitening.means, axis=0)
    A = whitening.rows(X, slice(None))
    raw = np.linalg.norm([A[y == c].mean(axis=0) for c in range(30)], axis=0)
    assert (kept[:2] > 0.9 * raw[:2]).all()
    assert (kept[2:29] < 0.5 * raw[2:29]).all()


# -------------------------------------------------------------------------------------------------
# Hyperplanes
# -------------------------------------------------------------------------------------------------


def test_bisectors_of_means_on_a_line_separate_neighbours():
    """Only neighbours touch, so there are as many hyperplanes as gaps, each halfway."""
    means = np.array([[0.0], [1.0], [2.5], [4.0], [7.0]], dtype=np.float32)
    Q, t = _bisectors(SimpleNamespace(means=means), 8, np.random.default_rng(0))
    halfway, lengths = np.round(-t / Q[0], 6), np.abs(Q[0])
    assert sorted(set(halfway)) == [0.5, 1.75, 3.25, 5.5]
    # Each pair has two bits; the score of each is half of its log-likelihood ratio.
    expected = {0.5: 0.5, 1.75: 0.75, 3.25: 0.75, 5.5: 1.5}
    np.testing.assert_allclose(lengths, [expected[place] for place in halfway])
    signs = means @ Q + t > 0
    assert len(np.unique(signs, axis=0)) == 5


@given(st.integers(0, 1000), st.integers(3, 30), st.integers(1, 6))
@settings(max_examples=25)
def test_bisectors_are_halfway_between_two_means_of_which_no_other_is_nearer(seed, n_classes, q):
    means = np.random.default_rng(seed).standard_normal((n_classes, q)).astype(np.float32)
    Q, t = _bisectors(SimpleNamespace(means=means), 12, np.random.default_rng(0))
    lengths = np.linalg.norm(Q, axis=0)
    Q, t = Q / lengths, t / lengths
    signed = means @ Q + t
    for j in range(12):
        pairs = np.argwhere(np.isclose(signed[:, j, None], -signed[None, :, j], atol=1e-5))
        halfway = []
        for a, b in pairs:
            along = means[a] - means[b]
            if a != b and np.allclose(along / np.linalg.norm(along), Q[:, j], atol=1e-4):
                middle = (means[a] + means[b]) / 2.0
                apart = np.linalg.norm(means - middle, axis=1)
                halfway.append(apart.min() >= np.linalg.norm(means[a] - middle) - 1e-5)
        assert any(halfway)


def test_rotations_are_orthonormal_and_balance_the_bits():
    means = np.random.default_rng(0).standard_normal((200, 10)).astype(np.float32)
    # So much of the variance is between classes that all directions count alike.
    whitening = SimpleNamespace(means=means, between=np.full(10, 1e12), within=np.ones(10))
    Q, t = _rotated(whitening, 25, np.random.default_rng(0))
    for block in (Q[:, :10], Q[:, 10:20]):
        np.testing.assert_allclose(block.T @ block, np.eye(10), atol=1e-9)
    np.testing.assert_allclose((means @ Q + t).mean(axis=0), 0.0, atol=1e-5)
    one = _rotated(whitening, 10, np.random.default_rng(0))[0]
    random = np.linalg.qr(np.random.default_rng(5).standard_normal((10, 10)))[0]
    centred = means - means.mean(axis=0)
    assert np.abs(centred @ one).sum() > np.abs(centred @ random).sum(), "nearer to the corners"


def model_of(X, y, n_bits=32, seed=0, weights=None, kind=None, **given):
    sums = sums_of(X, y, weights, **given)
    rows = sample_of(X, y, weights)
    whitening = Whitenings(sums, rows, settings_of(n_bits)).closed
    return closed_form(whitening, n_bits, 0.7, seed, kind)


def predicted_by(model, X):
    return (np.tanh(scores_of(model, X)) @ model.weights.T + model.bias).argmax(axis=1)


def scores_of(model, X):
    h = model.whitening.hash_function(model.Q, model.t)
    return X @ h.projection.astype(float) + h.intercept


@pytest.mark.parametrize("kind", ["clusters", "line"])
def test_rows_are_nearest_to_the_code_of_their_class(kind):
    X, y = problem(n=600, n_classes=8, noise=0.3)
    if kind == "line":
        X[:, 0], X[:, 1:] = 3.0 * y + X[:, 0] * 0.1, 0.1 * X[:, 1:]
    model = model_of(X, y)
    assert model.weights.shape == (8, 32)
    assert set(np.unique(model.weights)) == {-1, 1}
    assert np.mean(predicted_by(model, X) == y) > 0.97
    if kind == "line":
        assert model.kind.planes == "bisectors"


def test_equal_bits_are_rounded_differently():
    """Eight classes on a line have seven different bits, each of which has many copies."""
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 8
    X = (3.0 * y + rng.standard_normal(4000))[:, None]
    model = model_of(X, y, n_bits=128, kind=Kind("bisectors", "discriminant"))
    assert len(np.unique(model.weights, axis=1).T) <= 7
    F = scores_of(model, X)
    exact = np.tanh(F) @ model.weights.T
    rounded = np.rint(127.0 * np.tanh(F)) / 127.0 @ model.weights.T
    steps = np.abs(rounded - exact).max() * 127.0 / 128
    assert steps < 0.1, "of a step of rounding, where equal bits would be off by half of one"


def test_scores_deviate_within_classes_as_asked():
    X, y = problem(n=2000)
    whitening = whitening_of(X, y, 0.01)
    F = scores_of(closed_form(whitening, 32, 0.4, 0, Kind("rotation")), X)
    deviations = F - np.array([F[y == c].mean(axis=0) for c in range(4)])[y]
    np.testing.assert_allclose(deviations.std(axis=0), 0.4, rtol=0.02)


def test_units_of_the_features_and_of_the_sums_do_not_matter():
    """Features are scaled by their deviations, or there is nothing to choose between units."""
    X, y = problem(n=300)
    expected = scores_of(model_of(X, y), X)
    moved = scores_of(model_of(X, y, shift=2.5, scale=4.0), X)
    np.testing.assert_allclose(moved, expected, atol=1e-3)
    shifted = scores_of(model_of(X + 7.0, y), X + 7.0)
    np.testing.assert_allclose(shifted, expected, atol=1e-3)
    scaled = scores_of(model_of(3.0 * X, y), 3.0 * X)
    np.testing.assert_allclose(scaled, expected, atol=1e-3)


def test_the_order_of_rows_does_not_matter_and_classes_only_by_their_names():
    X, y = problem(n=300)
    order = np.random.default_rng(0).permutation(300)
    model, shuffled = model_of(X, y), model_of(X[order], y[order])
    np.testing.assert_array_equal(model.weights, shuffled.weights)
    np.testing.assert_allclose(scores_of(model, X), scores_of(shuffled, X), atol=1e-3)
    renamed = model_of(X, np.array([2, 0, 3, 1])[y])
    for found, names in ((model, np.arange(4)), (renamed, np.array([2, 0, 3, 1]))):
        assert np.mean(predicted_by(found, X) == names[y]) > 0.95


def test_one_row_per_class_and_two_classes():
    X, y = problem(n=12, n_classes=12)
    codes = model_of(X, y).weights
    assert len(np.unique(codes, axis=0)) == 12
    X, y = problem(n=40, n_classes=2, d=1, noise=0.3)
    model = model_of(X, y, n_bits=5)
    np.testing.assert_array_equal(model.weights[0], -model.weights[1])


@given(st.integers(0, 1000), st.integers(2, 20), st.sampled_from([24, 64]), st.booleans())
@settings(max_examples=20)
def test_fitted_hyperplanes_have_the_scores_of_the_discriminant(seed, n_classes, n_bits, single):
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((n_classes, 6)).astype(np.float32)
    weights = np.where(rng.random((n_classes, n_bits)) < 0.5, -1, 1).astype(np.int8)
    Q, t = _discriminant(means, weights, single=single)
    A = rng.standard_normal((50, 6))
    found = (A @ Q + t) @ weights.T
    squares = (means**2).sum(axis=1)
    expected = A @ means.T
    if single:
        expected *= (squares.mean() / squares) ** 0.25
    else:
        expected -= 0.5 * squares
    for scores in (found, expected):
        scores -= scores.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())


def test_a_fitted_model_predicts_as_the_discriminant_does():
    X, y = problem(n=400, n_classes=8, noise=3.0)
    model = model_of(X, y, 64, kind=Kind("bisectors", "discriminant"))
    A = model.whitening.rows(X, slice(None))
    means = model.whitening.means
    expected = (A @ means.T - 0.5 * (means**2).sum(axis=1)).argmax(axis=1)
    found = (np.tanh(A @ model.Q + model.t) @ model.weights.T).argmax(axis=1)
    assert np.mean(expected == y) < 0.9, "or this would show little"
    assert np.mean(found == expected) > 0.97
