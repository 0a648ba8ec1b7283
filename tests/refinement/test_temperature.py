"""The temperature of probabilities, fitted on held-out rows, and calibration."""

import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from refinement_problems import make, refining

from bitclass import PackedModel
from bitclass.training.refinement.refine import fitted_temperature
from problems import clusters


def log_loss(model, X, y, temperature):
    """Cross-entropy of the probability of the predicted class and whether it is right.

    Half of an extra row, as confident as the correct ones, counts as wrong.
    """
    scores = model.scores(X)
    right = scores.argmax(axis=1) == y
    logits = scores / temperature
    sure = 1.0 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    sure = np.minimum(sure, 1.0 - 1e-16)
    wanted = np.where(right, 1.0 - 0.5 / (right.sum() + 1), 0.0)
    return float(np.mean(-wanted * np.log(sure) - (1.0 - wanted) * np.log(1.0 - sure)))


@pytest.mark.parametrize("noise", [2.0, 4.0, 20.0])
@pytest.mark.parametrize("n_classes", [2, 7])
def test_the_temperature_is_the_best_of_a_fine_grid(noise, n_classes):
    X, y = clusters(600, noise=noise, n_classes=n_classes)
    model = make(refine=False).fit(X[:300], y[:300]).packed()
    found = fitted_temperature(model, X[300:], y[300:])
    grid = np.logspace(math.log10(0.1), 3, 400)
    best = min(log_loss(model, X[300:], y[300:], temperature) for temperature in grid)
    assert log_loss(model, X[300:], y[300:], found) <= best + 1e-6
    assert 0.1 <= found <= 1000


def test_the_temperature_allocates_no_matrix_of_all_rows_and_classes():
    rng = np.random.default_rng(0)
    n, n_classes = 2000, 8000
    X, y = rng.standard_normal((n, 4)).astype(np.float32), rng.integers(0, n_classes, n)
    plain = make(16, refine=False).fit(X, y % 2).packed()
    weights = rng.integers(0, 256, (n_classes, 2), dtype=np.uint8)
    model = PackedModel(np.arange(n_classes), weights, plain.hash_function)
    y = np.where(rng.random(n) < 0.5, model.predict(X), y)
    tracemalloc.start()
    found = fitted_temperature(model, X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n * n_classes
    for other in (0.9, 1.1):
        assert log_loss(model, X, y, found) < log_loss(model, X, y, other * found)


@pytest.mark.parametrize("rows", [np.asarray, scipy.sparse.csr_matrix])
def test_calibration_does_not_use_only_the_first_rows(rows, monkeypatch):
    """The first 300 of the rows, sorted by class, are predicted correctly; 256 rows are sampled."""
    X, y = clusters(600)
    model = make(refine=False).fit(X, y).packed()
    y = model.predict(X)
    y[300:] = (y[300:] + 1) % 6
    of_all_rows = fitted_temperature(model, X, y)
    monkeypatch.setattr(refining, "_MAX_CALIBRATION_PAIRS", 0)
    assert fitted_temperature(model, rows(X), y) == pytest.approx(of_all_rows, rel=0.2)


@pytest.mark.parametrize("noise", [3.0, 6.0])
def test_probabilities_are_calibrated(noise):
    X, y = clusters(9000, d=16, n_classes=10, noise=noise)
    probabilities = make(128).fit(X[:5000], y[:5000]).predict_proba(X[5000:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y[5000:]
    gaps = np.bincount((15 * sure).astype(int), right - sure)
    assert np.abs(gaps).sum() / len(right) < 0.05


@pytest.mark.parametrize("rescore", [0, 16])
def test_probabilities_stay_moderate_if_all_held_out_rows_are_correct(rescore):
    """A lower temperature would be better on these rows, but worse on the next wrong prediction."""
    X, y = clusters(600, noise=2.0, n_classes=7)
    model = make(refine=False, rescore=rescore).fit(X, y).packed()
    right = model.predict(X) == y
    assert 0.8 < right.mean() < 1
    model.temperature = fitted_temperature(model, X[right], y[right])
    assert 0.9 < model.predict_proba(X[right]).max(axis=1).mean() < 1 - 0.1 / right.sum()
    of_labels = np.take_along_axis(model.predict_proba(X[~right]), y[~right, None], axis=1)
    assert np.median(of_labels) > 1e-4
