"""Steps of refinement: gradients by finite differences, Adam, the schedule, threads."""

import numpy as np
import pytest
import scipy.sparse as sp

from bitclass._native import SparseRows, class_gradients, thread_limit, threads
from bitclass.training.steps import (
    Adam,
    DenseProjection,
    Objective,
    Schedule,
    SparseProjection,
    Steps,
)

M, D, R, C = 7, 5, 6, 4
SHARP = (0.4, 0.7)


def signs(values):
    return np.where(values >= 0, 1.0, -1.0)


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    F = 1.5 * rng.standard_normal((M, R))
    weights = signs(rng.standard_normal((C, R)))
    bias, log_shares = rng.standard_normal(C), np.log(rng.dirichlet(np.full(C, 5.0)))
    return F, weights, bias, log_shares, rng.integers(0, C, M), rng.uniform(0.1, 2.0, M) / M


def cross_entropy(codes, sharp, weights, bias, log_shares, y, factors):
    logits = sharp * (codes @ weights.T + bias) + log_shares
    return factors @ (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(M), y])


def slopes(function, at, h=1e-6):
    """Gradient by central differences."""
    found = np.zeros_like(at)
    for entry in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[entry] = h
        found[entry] = (function(at + step) - function(at - step)) / (2 * h)
    return found


@pytest.mark.parametrize("n_signs", [0, 3, M])
def test_gradients_are_those_of_the_loss_with_the_straight_through_rule(n_signs):
    F, W, bias, log_shares, y, factors = inputs()
    by_sign = np.arange(M)[:, None] < n_signs
    codes, sharp = np.where(by_sign, signs(F), np.tanh(F)), np.where(by_sign, *SHARP)

    def loss(codes=codes, weights=W, biases=bias):
        return cross_entropy(codes, sharp, weights, biases, log_shares, y, factors)

    given = [a.astype(np.float32) for a in (F, W, bias, log_shares)]
    found, of_rows, by_classes = class_gradients(
        *given, y, factors.astype(np.float32), SHARP, n_signs
    )
    by_scores = given[0]
    assert found == pytest.approx(loss(), rel=1e-5)
    close = {"rtol": 1e-3, "atol": 1e-6}
    np.testing.assert_allclose(of_rows, codes, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_scores, slopes(loss, codes) * (1.0 - np.tanh(F) ** 2), **close)
    by_weights = slopes(lambda w: loss(weights=w), W)
    np.testing.assert_allclose(by_classes.T @ of_rows, by_weights, **close)
    by_bias = slopes(lambda b: loss(biases=b), bias)
    np.testing.assert_allclose(by_classes.sum(axis=0), by_bias, **close)
    if n_signs == 0:  # then it is the gradient of a differentiable function of the scores
        np.testing.assert_allclose(by_scores, slopes(lambda F: loss(np.tanh(F)), F), **close)


def test_columns_of_the_projection_keep_one_length():
    rng = np.random.default_rng(0)
    Q, t = rng.standard_normal((D, R)) * np.arange(1, R + 1), rng.standard_normal(R)
    projection = DenseProjection(Q, t, 1.0)
    length = np.linalg.norm(Q, axis=0).mean()
    # The hyperplanes themselves are unchanged.
    expected = t / np.linalg.norm(Q, axis=0)
    np.testing.assert_allclose(projection.intercept / length, expected, rtol=1e-5)
    for step in range(1, 9):
        A, by_scores = (rng.standard_normal(s).astype(np.float32) for s in ((M, D), (M, R)))
        projection.move(A, by_scores, 1.0, step)
        np.testing.assert_allclose(np.linalg.norm(projection.matrix, axis=0), length, rtol=1e-5)


@pytest.mark.parametrize("shape", [(5, 3), (1, 40), (70, 1)])
def test_adam_equals_the_textbook_formula(shape):
    rng, n_steps, m = np.random.default_rng(0), 30, 4
    left = rng.standard_normal((n_steps, m, shape[0])).astype(np.float32)
    left *= np.exp(rng.uniform(-10, 3, shape[0])).astype(np.float32)
    left[:, :, -1] = 0.0  # no gradient, unless it is the only row
    right = rng.standard_normal((n_steps, m, shape[1])).astype(np.float32)
    rates = rng.uniform(0.01, 0.2, n_steps)
    values = rng.standard_normal(shape).astype(np.float32)
    expected, mean, square = values.astype(float), 0.0, 0.0
    adam = Adam(values)
    for t, (a, b, rate) in enumerate(zip(left, right, rates, strict=True), start=1):
        g = a.T.astype(float) @ b
        mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g**2
        unbiased = np.sqrt(square / (1 - 0.99**t))
        expected = expected - rate * (mean / (1 - 0.9**t)) / (unbiased + 1e-9)
        adam.move(values, a, b, rate, t)
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=2e-4)


def test_latent_weights_are_clipped_and_their_signs_written():
    rng = np.random.default_rng(0)
    latent = rng.uniform(-1, 1, (40, 9)).astype(np.float32)
    free, found = latent.copy(), np.zeros_like(latent)
    left, right = (rng.standard_normal((6, n)).astype(np.float32) for n in (40, 9))
    Adam(free).move(free, left, right, 0.9, 1)
    Adam(latent).move(latent, left, right, 0.9, 1, found)
    assert (np.abs(free) > 1).any()
    np.testing.assert_array_equal(latent, np.clip(free, -1, 1))
    np.testing.assert_array_equal(found, signs(latent))


def test_the_schedule_warms_up_and_ends_at_zero():
    schedule = Schedule(1000, peak=2.0)
    rates = [schedule.at(step) for step in range(1, 1001)]
    top = int(np.argmax(rates))
    assert 40 <= top <= 60
    assert np.all(np.diff(rates[:top]) > 0)
    assert np.all(np.diff(rates[top:]) < 0)
    assert 1.9 < rates[top] <= 2.0
    assert rates[-1] == pytest.approx(0.0, abs=1e-9)


# -- Steps


def learnable(n=2000, d=8, n_classes=5, seed=0):
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.standard_normal((n_classes, d))
    y = rng.integers(0, n_classes, n)
    return (centres[y] + rng.standard_normal((n, d))).astype(np.float32), y


def started(n_steps=60, r=20, n_classes=5, d=8, class_means=None, projection=None):
    rng = np.random.default_rng(1)
    if projection is None:
        projection = DenseProjection(rng.standard_normal((d, r)) / 4, np.zeros(r), 0.7)
    means = rng.standard_normal((n_classes, r)).astype(np.float32)
    weights = signs(means).astype(np.int8)
    objective = Objective((0.2, 0.3), np.full(n_classes, -np.log(n_classes), np.float32))
    given = objective, Schedule(n_steps), np.random.default_rng(2), class_means
    return Steps(projection, weights, means, np.zeros(n_classes, np.float32), *given)


def train(steps, X, y, n_steps=60, size=128):
    rng, losses = np.random.default_rng(3), []
    for _ in range(n_steps):
        chosen = rng.integers(0, len(y), size)
        steps.step(X[chosen], y[chosen], np.ones(size, np.float32))
        losses.append(steps.mean_loss())
    return losses


def accuracy(steps, X, y):
    return np.mean((signs(steps.projection.scores(X)) @ steps.weights.T).argmax(axis=1) == y)


def test_steps_reduce_the_loss_and_learn_all_that_can_be_learned():
    X, y = learnable()
    steps = started()
    first, before = steps.weights, accuracy(steps, X, y)
    losses = train(steps, X, y)
    assert steps.finished
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:5])
    assert accuracy(steps, X, y) > max(0.85, before)
    assert set(np.unique(steps.weights)) == {-1, 1}
    assert not np.array_equal(steps.weights, first)
    assert steps.bias.any()


def test_sparse_rows_are_learned_from_too():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 1000)
    X = (rng.random((1000, 40)) < 0.1 + 0.4 * (np.arange(40) % 5 == y[:, None])).astype(np.float32)
    P = (rng.standard_normal((40, 20)) / 4).astype(np.float32)
    projection = SparseProjection(P, np.zeros(20), 0.7, 6.0)
    rows = SparseRows.of(sp.csr_array(X))
    np.testing.assert_allclose(projection.scores(rows), X @ P, atol=1e-4)
    steps = started(projection=projection)
    for _ in range(60):
        chosen = rng.integers(0, 1000, 128)
        part = SparseRows.of(sp.csr_array(X[chosen]))
        steps.step(part, y[chosen], np.ones(128, np.float32))
    assert accuracy(steps, rows, y) > 0.8


@pytest.mark.parametrize("r", [20, 40])  # scored by sign and tanh, and by tanh alone
def test_any_number_of_threads_gives_the_same_result(monkeypatch, r):
    monkeypatch.setattr(threads, "available_cpus", lambda: 16)
    X, y = learnable()
    found = []
    for n_threads in (1, 2, 5, 16):
        with thread_limit(n_threads):
            steps = started(r=r)
            train(steps, X, y, 20)
            found.append(steps)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].projection.matrix, other.projection.matrix)
        np.testing.assert_array_equal(found[0].weights, other.weights)
        np.testing.assert_array_equal(found[0].bias, other.bias)


def test_weights_from_class_means_follow_the_projection_and_have_no_bias():
    """As with very many classes: refitted from time to time, and at the end."""
    X, y = learnable()
    means, asked = np.array([X[y == c].mean(axis=0) for c in range(5)]), []

    def class_means():
        asked.append(steps.n_steps)
        return signs(steps.projection.scores(means)).astype(np.int8)

    steps = started(class_means=class_means, n_steps=40)
    train(steps, X, y, 40)
    assert asked == [16, 32, 40]
    np.testing.assert_array_equal(steps.weights, class_means())
    assert not steps.bias.any()
    assert accuracy(steps, X, y) > 0.85


@pytest.mark.parametrize("n_classes", [3000, 20_000])
def test_a_step_scores_some_of_very_many_classes(n_classes):
    rng = np.random.default_rng(0)
    steps = started(n_classes=n_classes, r=32, class_means=lambda: None)
    y, A = rng.integers(0, n_classes, 64), rng.standard_normal((64, 8)).astype(np.float32)
    scored = steps._scored_classes(steps.projection.scores(A), y)
    assert np.all(np.diff(scored) > 0)
    assert np.isin(y, scored).all()
    nearest = (signs(steps.projection.scores(A)) @ steps.weights.T).argmax(axis=1)
    assert np.isin(nearest, scored).mean() > 0.9  # but for ties
    assert 64 + 400 < len(scored) <= 5 * 64 + 512
