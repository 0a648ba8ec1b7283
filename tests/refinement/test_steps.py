"""Refinement steps follow the formulas, for any number of classes."""

import math

import numpy as np
import pytest
from refinement_problems import start

from bitclass.training.refinement import steps


@pytest.fixture
def gradients(monkeypatch):
    """The gradients of each step, in the order projection, intercept, weights."""
    found = []
    move = steps.Adam.move

    def recorded(self, values, gradient, learning_rate, step):
        found.append(np.array(gradient))
        move(self, values, gradient, learning_rate, step)

    monkeypatch.setattr(steps.Adam, "move", recorded)
    return found


def loss_of(codes, weights, y, row_weights, scale):
    """Cross-entropy of codes (m, r) and class weights (C, r), which need not be signs here."""
    total = 0.0
    for code, label, row_weight in zip(codes, y, row_weights, strict=True):
        scores = [scale * sum(w * b for w, b in zip(row, code, strict=True)) for row in weights]
        total += row_weight * (math.log(sum(map(math.exp, scores))) - scores[label])
    return total / len(codes)


def slope(function, at, entry):
    step = np.zeros_like(at)
    step[entry] = 1e-5
    return (function(at + step) - function(at - step)) / 2e-5


def sharpness(n_classes, r):
    nats = max(math.log(n_classes), math.log(r) - 1.4)
    return 2.2 * nats / r, 3.2 * nats / r


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_gradients_are_those_of_the_straight_through_rule(gradients, monkeypatch, share, weighted):
    """By finite differences of both losses, with the derivative of tanh for that of sign."""
    monkeypatch.setattr(steps, "SHARE_OF_SIGNS", share)
    rng = np.random.default_rng(int(weighted))
    m, d, r, n_classes = 5, 4, 6, 3
    model = start(rng, d, r, n_classes)
    Q, t = model.projection.astype(float), model.intercept.astype(float)
    W = model.weights.astype(float)
    Z = rng.standard_normal((m, d)).astype(np.float32)
    y = rng.integers(0, n_classes, m)
    row_weights = rng.uniform(0.1, 3.0, m).astype(np.float32) if weighted else None
    model.step(Z, y, row_weights)

    scores = Z.astype(float) @ Q + t
    of_rows = np.ones(m) if row_weights is None else row_weights
    of_scores, of_weights = np.zeros((m, r)), np.zeros((n_classes, r))
    kinds = np.where(scores >= 0, 1.0, -1.0), np.tanh(scores)
    for part, codes, scale in zip((share, 1 - share), kinds, sharpness(n_classes, r), strict=True):

        def loss(b, w, scale=scale):
            return loss_of(b, w, y, of_rows, scale)

        for entry in np.ndindex(m, r):
            by_code = slope(lambda b: loss(b, W), codes, entry)
            of_scores[entry] += part * by_code * (1.0 - math.tanh(scores[entry]) ** 2)
        for entry in np.ndindex(n_classes, r):
            of_weights[entry] += part * slope(lambda w: loss(codes, w), W, entry)  # noqa: B023
    expected = (Z.T.astype(float) @ of_scores, of_scores.sum(axis=0), of_weights)
    assert len(gradients) == 3
    for found, wanted in zip(gradients, expected, strict=True):
        assert np.abs(wanted).max() > 0.01
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def textbook_adam(values, gradients, sizes, beta1=0.9, beta2=0.99, epsilon=1e-9):
    mean, square = np.zeros_like(values), np.zeros_like(values)
    for t, (g, size) in enumerate(zip(gradients, sizes, strict=True), start=1):
        mean = beta1 * mean + (1 - beta1) * g
        square = beta2 * square + (1 - beta2) * g**2
        corrected = np.sqrt(square / (1 - beta2**t)) + epsilon
        values = values - size * (mean / (1 - beta1**t)) / corrected
    return values


def test_adam_equals_the_textbook_formula():
    rng = np.random.default_rng(0)
    given = rng.standard_normal((30, 5, 3)) * np.exp(rng.uniform(-12, 3, (1, 5, 3)))
    given[:, 0, 0] = 0.0
    sizes = rng.uniform(0.01, 0.2, 30)
    values = rng.standard_normal((5, 3)).astype(np.float32)
    expected = textbook_adam(values.astype(float), given, sizes)
    adam = steps.Adam(values)
    for t, (gradient, size) in enumerate(zip(given, sizes, strict=True), start=1):
        adam.move(values, gradient.astype(np.float32), size, t)
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-4)


def test_columns_keep_one_length_and_weights_stay_signs():
    rng = np.random.default_rng(0)
    model = start(rng, d=8, r=20, n_classes=5, n_steps=60)
    first, lengths = model.weights, np.linalg.norm(model.projection, axis=0)
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-5)
    for _ in range(60):
        model.step(rng.standard_normal((32, 8)).astype(np.float32), rng.integers(0, 5, 32))
    assert model.finished
    np.testing.assert_allclose(np.linalg.norm(model.projection, axis=0), lengths, rtol=1e-5)
    assert set(np.unique(model.weights)) == {-1, 1}
    assert not np.array_equal(model.weights, first)


def test_real_scores_need_no_index(monkeypatch):
    rng = np.random.default_rng(0)
    model, A = start(rng), rng.standard_normal((20, 4)).astype(np.float32)
    monkeypatch.setattr(steps, "HammingIndex", None)
    scores = np.tanh(A @ model.projection + model.intercept) @ model.weights.T
    np.testing.assert_array_equal(model.classify(A, rescored=True), scores.argmax(axis=1))


def as_it_was(weights):
    """A refit that returns the same weights."""
    return lambda projection, intercept: weights


def test_sampling_all_classes_equals_scoring_all_classes(monkeypatch, gradients):
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((40, 4)).astype(np.float32), rng.integers(0, 3, 40)
    plain = start(np.random.default_rng(2))
    sampled = start(np.random.default_rng(2), refit=as_it_was(plain.weights))
    monkeypatch.setattr(steps, "_NEAREST_CLASSES", 3)
    plain.step(Z, y)
    sampled.step(Z, y)
    np.testing.assert_array_equal(plain.projection, sampled.projection)
    assert len(gradients) == 3 + 2, "refitted weights have no gradient"
    np.testing.assert_array_equal(gradients[0], gradients[3])


def test_weights_are_refitted_from_time_to_time_and_at_the_end():
    rng = np.random.default_rng(0)
    given = []

    def refit(projection, intercept):
        given.append((projection.copy(), intercept.copy()))
        return np.where(rng.random((5, 20)) < 0.5, -1, 1).astype(np.int8)

    model = start(rng, d=8, r=20, n_classes=5, n_steps=40, refit=refit)
    weights = [model.weights]
    for _ in range(40):
        model.step(rng.standard_normal((32, 8)).astype(np.float32), rng.integers(0, 5, 32))
        weights.append(model.weights)
    changed = [i for i in range(1, 41) if not np.array_equal(weights[i - 1], weights[i])]
    assert changed == [16, 32, 40]
    np.testing.assert_array_equal(given[-1][0], model.projection)
    np.testing.assert_array_equal(given[-1][1], model.intercept)


@pytest.mark.parametrize("n_classes", [3000, 50_000])
def test_the_number_of_scored_classes_does_not_grow_with_the_number_of_classes(n_classes):
    rng = np.random.default_rng(0)
    model = start(rng, d=8, r=32, n_classes=n_classes, refit=as_it_was(None))
    for _ in range(20):
        y, A = rng.integers(0, n_classes, 64), rng.standard_normal((64, 8)).astype(np.float32)
        scored = model._scored_classes(A, y)
        assert np.all(np.diff(scored) > 0)
        assert np.isin(y, scored).all()
        assert np.isin(model.classify(A, rescored=False), scored).all()
        assert 64 + 400 < len(scored) <= 5 * 64 + 512
