"""Discriminant codes: by definition, and independent of units, batches, order and threads."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from bitclass.training import Statistics
from bitclass.training import discriminant as module
from bitclass.training.discriminant import (
    best_alpha,
    coordinates_of,
    default_alpha,
    discriminant_projection,
    scatter_of,
)
from bitclass.training.starting_codes import DiscriminantCodes
from problems import assert_same_model, make

D = 8


def problem(seed=0, n=400, n_classes=6, d=D):
    """Correlated features of uneven classes, and weights that are numbers of copies."""
    rng = np.random.default_rng(seed)
    y = np.sort(np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)]))
    rng.shuffle(y)
    X = 2 * rng.standard_normal((n_classes, d))[y] + rng.standard_normal((n, d))
    return X @ rng.standard_normal((d, d)) + 5.0, y, rng.integers(1, 4, n).astype(float)


def summed(parts, shift=0.0, scale=1.0, n_bits=24, d=D):
    statistics = Statistics(DiscriminantCodes(n_bits, 5), np.full(d, shift), np.full(d, scale))
    for X, y, weights in parts:
        statistics.add(X, y, weights)
    return statistics


def codes(statistics):
    return statistics.starting.class_codes(statistics.sums()).astype(int)


def scatters(X, y, weights):
    """Within- and between-class scatter, (d, d) each, of rows repeated by their weights."""
    times = weights.astype(int)
    X, y = np.repeat(X, times, axis=0), np.repeat(y, times)
    means = np.array([X[y == c].mean(axis=0) for c in range(y.max() + 1)])
    within, between = X - means[y], means[y] - X.mean(axis=0)
    return within.T @ within / len(X), between.T @ between / len(X), means, X


@pytest.mark.parametrize("n_classes", [2, 4, 6, 30])
@pytest.mark.parametrize("alpha", [1e-4, 0.1])
def test_the_first_directions_are_those_of_linear_discriminant_analysis(n_classes, alpha):
    """Also against a dense generalised eigenproblem of the rows themselves."""
    X, y, weights = problem(n_classes=n_classes)
    within, between, means, repeated = scatters(X, y, weights)
    deviations = repeated.std(axis=0)
    units = np.outer(deviations, deviations)
    penalised = within / units
    penalised += alpha * np.trace(penalised) / D * np.eye(D)
    _, expected = scipy.linalg.eigh(between / units, penalised)
    q = min(n_classes - 1, D)
    expected = expected[:, ::-1][:, :q] / deviations[:, None]

    coordinates = coordinates_of(scatter_of(summed([(X, y, weights)]).sums()), alpha, D)
    assert coordinates.n_discriminant == q
    found = coordinates.transform
    # The same subspace: nothing is left of either after a regression on the other.
    for one, other in ((found[:, :q], expected), (expected, found[:, :q])):
        _, left, _, _ = np.linalg.lstsq(other, one, rcond=None)
        assert left.size == 0 or left.max() < 1e-10 * np.abs(one).max() ** 2
    # In these coordinates the within-class covariance is the identity.
    np.testing.assert_allclose(found.T @ (penalised * units) @ found, np.eye(D), atol=1e-8)
    # The others do not separate classes.
    centred = (means - repeated.mean(axis=0)) @ found
    np.testing.assert_allclose(centred[:, q:], 0.0, atol=1e-8)
    np.testing.assert_allclose(coordinates.means, centred, atol=1e-4)
    np.testing.assert_allclose(coordinates.inverse @ found, np.eye(D), atol=1e-8)
    spread = np.sqrt(np.mean(((repeated - repeated.mean(axis=0)) @ found) ** 2, axis=0))
    np.testing.assert_allclose(coordinates.deviation, spread, rtol=1e-6)


@pytest.mark.parametrize("n_bits", [1, 3, 5, 24])
def test_the_projection_is_a_rotation_of_these_directions_and_weights_are_signs_of_means(n_bits):
    X, y, _ = problem()
    statistics = summed([(X, np.arange(len(y)) % 6, None)])
    scatter = scatter_of(statistics.sums())
    coordinates = coordinates_of(scatter, 0.01, n_bits)
    Q, t, weights = discriminant_projection(coordinates, n_bits, seed=1)
    k = min(n_bits, 5)  # six classes differ in five directions
    assert Q.shape == (min(n_bits, D), n_bits)
    assert not Q[k:].any()
    for begin in range(0, n_bits, k):
        block = Q[:k, begin : begin + k]
        np.testing.assert_allclose(block.T @ block, np.eye(block.shape[1]), atol=1e-8)
    scores = coordinates.means.astype(float) @ Q + t
    np.testing.assert_array_equal(weights, np.where(scores >= 0, 1, -1))
    np.testing.assert_allclose(scores[:, :k].mean(axis=0), 0.0, atol=1e-5)
    if n_bits > k:  # between two classes
        assert (scores[:, k:].max(axis=0) > 0).all()
        assert (scores[:, k:].min(axis=0) < 0).all()
    other = discriminant_projection(coordinates, n_bits, seed=2)[0]
    assert n_bits == 1 or not np.allclose(Q, other)


@pytest.mark.parametrize(("n_bits", "n_rounds"), [(24, 30), (512, 30), (2048, 7), (8191, 1)])
def test_many_bits_take_fewer_rounds_of_itq(monkeypatch, n_bits, n_rounds):
    X, y, weights = problem(n_classes=12, d=16)
    statistics = summed([(X, y, weights)], d=16)
    coordinates = coordinates_of(scatter_of(statistics.sums()), 0.01, n_bits)
    found = []

    def counted(rows, rotation, n_rounds):
        found.append(n_rounds)
        return rotation

    monkeypatch.setattr(module, "itq", counted)
    discriminant_projection(coordinates, n_bits, seed=1)
    assert set(found) == {n_rounds}


# -------------------------------------------------------------------------------------------------
# Invariances
# -------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.sampled_from([2, 5, 40]), st.floats(-2, 2), st.floats(-30, 30))
def test_scaling_and_shifting_features_has_no_effect(seed, n_classes, log_unit, shift):
    X, y, weights = problem(seed, n_classes=n_classes)
    unit = 10.0 ** (log_unit * np.linspace(-1, 1, D))
    plain = codes(summed([(X, y, weights)]))
    for other in (
        summed([(X * unit + shift * unit, y, weights)]),
        summed([(X, y, weights)], shift=3.0, scale=0.2),  # the origin of the sums
    ):
        assert np.mean(plain == codes(other)) > 0.98, "but for means at the border"


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_models_do_not_depend_on_the_number_of_threads(refine, kernel):
    X, y, _ = problem(n=9000, n_classes=20, d=30)
    given = {"refine": refine, "kernel": kernel, "n_anchors": 100}
    one, two = (make(64, n_jobs=n, **given).fit(X.astype(np.float32), y) for n in (1, 2))
    assert_same_model(one, two)


# -------------------------------------------------------------------------------------------------
# Odd classes and features
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refine", [False, "auto"])
def test_single_row_classes_and_constant_features_do_no_harm(refine):
    X, y, _ = problem(n=700)
    X = np.hstack([X, X[:, :2], np.full((700, 1), 7.3), np.zeros((700, 1))])
    X, y = np.vstack([X, X[:1] + 50.0]), np.append(y, 6)  # a class of one row
    classifier = make(32, refine=refine).fit(X, y)
    assert np.isfinite(classifier.projection_).all()
    assert classifier.score(X, y) > 0.9
    alone = make(32).fit(X[:9], np.arange(9))
    assert np.isfinite(alone.projection_).all()
    assert len(np.unique(alone.weights_, axis=0)) == 9


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_cholesky_factor_replaces_eigenvectors_on_a_gpu_only(on_gpu):
    """Torch tensors have the attribute on every device."""

    class Tensor(np.ndarray):
        is_cuda = on_gpu

    sums = summed([problem()]).sums()
    found = scatter_of(replace(sums, gram=sums.gram.view(Tensor)), 0.01)
    assert np.array_equal(found.values, np.ones(D)) == on_gpu
    plain = coordinates_of(scatter_of(sums), 0.01, D)
    deviation = coordinates_of(found, 0.01, D).deviation
    np.testing.assert_allclose(deviation[:5], plain.deviation[:5], rtol=0.02)


class _LinAlgError(RuntimeError):
    """Named as torch's error."""


class OutOfMemoryError(RuntimeError):
    """Named as torch's error."""


def test_a_failed_cholesky_factorisation_is_distinguished_from_out_of_memory(monkeypatch):
    def raising(error):
        def cholesky(matrix):
            raise error

        linalg = SimpleNamespace(cholesky=cholesky, inv=np.linalg.inv)
        monkeypatch.setattr(module, "namespace", lambda _: SimpleNamespace(linalg=linalg))

    factor, inverse = module._cholesky(np.diag([4.0, 9.0]))
    np.testing.assert_array_equal(factor, np.diag([2.0, 3.0]))
    np.testing.assert_allclose(inverse @ factor, np.eye(2))
    raising(_LinAlgError())
    assert module._cholesky(np.eye(2)) is None
    raising(OutOfMemoryError())
    with pytest.raises(OutOfMemoryError):
        module._cholesky(np.eye(2))


def test_the_penalty_is_the_largest_that_is_nearly_as_good_as_the_best(monkeypatch):
    X, y, _ = problem(n=3000, n_classes=10)
    statistics = summed([(X, y, None)])
    scatter = scatter_of(statistics.sums())
    Z = statistics.sums().standardised_rows(X[:500], np.arange(500))
    found = best_alpha(scatter, Z, y[:500])
    accuracies = {}
    for alpha in module._ALPHAS:
        transform = coordinates_of(scatter, alpha, D).transform
        rows, means = (Z - scatter.mean) @ transform, scatter.centred(slice(None)) @ transform
        nearest = ((rows[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
        accuracies[alpha] = np.mean(nearest == y[:500])
    good = [a for a in accuracies if accuracies[a] >= max(accuracies.values()) - 0.02]
    assert found == max(good)
    assert len(set(accuracies.values())) > 1
    # The first rows, of one class if rows are sorted, must not decide: no penalty suits them here.
    odd = np.concatenate([(y[:100] + 5) % 10, y[100:500]])
    monkeypatch.setattr(module, "_MAX_ALPHA_ROWS", 100)
    assert best_alpha(scatter, Z, odd) < 1.0
    assert best_alpha(scatter, Z[:100], odd[:100]) == 1.0


@pytest.mark.parametrize(("n", "expected"), [(20, 8 / 14), (6, 1.0), (100_000, 1e-4)])
def test_the_default_penalty_decreases_with_the_number_of_rows(n, expected):
    X, y, _ = problem(n=n)
    found = default_alpha(summed([(X, y, None)]).sums())
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_few_classes_have_weights_that_differ_in_many_bits(n_classes, seed):
    """Learned rotations alone would put two of three classes into one corner in every block."""
    X = np.random.default_rng(seed).standard_normal((60, 5))
    classifier = make(128, refine=False, random_state=seed).fit(X, np.arange(60) % n_classes)
    weights = classifier.weights_
    apart = (128 - weights.astype(int) @ weights.T) // 2
    assert np.min(apart + 128 * np.eye(n_classes)) >= 10


def test_coordinates_of_rows_are_about_the_mean_and_give_the_scores_of_their_hash_function():
    X, y, weights = problem()
    coordinates = coordinates_of(scatter_of(summed([(X, y, weights)], 1.0, 2.0).sums()), 0.1, D)
    A = coordinates.rows(X)
    np.testing.assert_allclose(weights @ A / weights.sum(), 0.0, atol=1e-4)
    Q, t, _ = discriminant_projection(coordinates, 24, seed=1)
    h = coordinates.hash_function(Q, t, "float32")
    np.testing.assert_allclose(X @ h.projection + h.intercept, A @ Q + t, atol=1e-3)
    for found, expected in zip(coordinates.projected(h), (Q, t), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_blocks_of_classes_give_the_same_result_as_all_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(900) % 300
    X = rng.standard_normal((300, 12))[y] + 0.3 * rng.standard_normal((900, 12))
    sums = summed([(X, y, None)], d=12).sums()
    whole = coordinates_of(scatter_of(sums), 0.01, 8)
    monkeypatch.setattr("bitclass.arrays._CLASSES_PER_BLOCK", 7)
    blocks = coordinates_of(scatter_of(sums), 0.01, 8)
    signs = np.sign(np.sum(whole.transform * blocks.transform, axis=0))  # axes have either sign
    np.testing.assert_allclose(blocks.transform * signs, whole.transform, atol=1e-9)
    np.testing.assert_allclose(blocks.means * signs, whole.means, atol=1e-5)
    np.testing.assert_allclose(blocks.deviation, whole.deviation, atol=1e-9)
    by_blocks = discriminant_projection(blocks, 16, 0)[2]
    monkeypatch.undo()
    np.testing.assert_array_equal(by_blocks, discriminant_projection(blocks, 16, 0)[2])
    # With very many classes, a sample is enough to find the rotation.
    monkeypatch.setattr(module, "_MAX_ITQ_MEANS", 50)
    by_some = discriminant_projection(blocks, 8, 0)[2]
    assert np.abs(by_some.mean(axis=0)).max() < 0.5


@pytest.mark.parametrize("refine", [False, "auto"])
@pytest.mark.parametrize(("n_classes", "d"), [(10, 20), (100, 50)])
def test_rare_classes_are_predicted_despite_a_frequent_one(n_classes, d, refine):
    """Thresholds at the mean of all rows would cut the frequent class in two."""
    rng = np.random.default_rng(1)
    shares = np.append(0.9, np.full(n_classes - 1, 0.1 / (n_classes - 1)))
    y = rng.choice(n_classes, 200 * n_classes, p=shares)
    X = 1.2 * rng.standard_normal((n_classes, d))[y] + rng.standard_normal((len(y), d))
    half = len(y) // 2
    found = make(128, refine=refine).fit(X[:half], y[:half]).predict(X[half:])
    assert np.mean(found == y[half:]) > 0.97
    rare = y[half:] > 0
    assert np.mean(found[rare] == y[half:][rare]) > 0.8


@pytest.mark.parametrize("refine", [False, "auto"])
def test_classes_on_the_same_ray_are_separated(refine):
    """Hyperplanes through one point would give all classes on one side of it the same code."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=1500)
    X = 4.0 * y[:, None] + rng.standard_normal((len(y), 1))
    assert make(64, refine=refine).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.9


def test_many_bits_in_few_directions_do_not_make_probabilities_certain():
    rng = np.random.default_rng(0)
    y = np.arange(6000) % 4
    X = 0.8 * rng.standard_normal((4, 10))[y] + rng.standard_normal((6000, 10))
    classifier = make(128, refine=False).fit(X[:3000], y[:3000])
    confidence = classifier.predict_proba(X[3000:]).max(axis=1).mean()
    assert abs(confidence - classifier.score(X[3000:], y[3000:])) < 0.17
