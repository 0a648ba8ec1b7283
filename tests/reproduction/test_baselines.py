"""Defining properties of the baselines."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.base import clone
from sklearn.cross_decomposition import CCA
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

from reproduction import baselines
from reproduction.baselines import (
    PENALTIES,
    AnchorFeatures,
    CCAITQEncoder,
    LSHEncoder,
    SDHEncoder,
    canonical_directions,
    choose_penalty,
    linear_svm,
    on_codes,
    signs,
)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return ((X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)).astype(np.float32), y


def test_canonical_directions_agree_with_scikit_learn(digits):
    X, y = digits
    X = X[:, X.std(axis=0) > 0.5].astype(np.float64)
    indicator = (y[:, None] == np.arange(10)).astype(float)[:, :9]
    scores = CCA(n_components=3, scale=False, max_iter=5000, tol=1e-10).fit_transform(X, indicator)
    ours = canonical_directions(X - X.mean(axis=0), y, 3)
    # Ours are slightly regularised, so the subspaces agree only approximately.
    angles = scipy.linalg.subspace_angles(scores[0], (X - X.mean(axis=0)) @ ours)
    assert np.cos(angles).min() > 0.99


def test_cca_itq_codes_come_from_nine_directions_of_ten_classes(digits):
    X, y = digits
    encoder = CCAITQEncoder(40, random_state=3).fit(X, y)
    assert np.linalg.matrix_rank(encoder.projection_, tol=1e-4) == 9
    projected = (X - X.mean(axis=0)) @ encoder.projection_
    clear = np.abs(projected) > 1e-4
    np.testing.assert_array_equal(encoder.transform(X)[clear], signs(projected)[clear])


def test_lsh_codes_differ_in_proportion_to_the_angle():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 12))
    X -= X.mean(axis=0)
    codes = LSHEncoder(20_000, random_state=0).fit(X, np.arange(30)).transform(X)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    angles = np.arccos(np.clip(unit @ unit.T, -1, 1))
    differing = (1 - codes @ codes.T / codes.shape[1]) / 2
    np.testing.assert_allclose(differing, angles / np.pi, atol=0.02)


def sdh_objective(encoder, B, W, P, X, y):
    Y = np.eye(y.max() + 1)[y]
    return (
        np.sum((Y - B @ W) ** 2)
        + encoder.penalty * np.sum(W**2)
        + encoder.fidelity * (np.sum((B - X @ P) ** 2) + encoder.hash_penalty * np.sum(P**2))
    )


@pytest.mark.parametrize("fidelity", [1e-5, 10.0])
def test_each_sdh_step_lowers_the_objective(digits, fidelity):
    X, y = digits[0].astype(np.float64), digits[1]
    encoder = SDHEncoder(24)
    encoder.fidelity = fidelity
    B = signs(np.random.default_rng(0).standard_normal((len(X), 24))).astype(np.float32)
    gram = X.T @ X + encoder.hash_penalty * np.eye(X.shape[1])
    W, P, history = np.zeros((24, 10)), np.zeros((64, 24)), []
    for _ in range(3):
        W = encoder.classifier_step(B, y)
        history.append(sdh_objective(encoder, B, W, P, X, y))
        P = np.linalg.solve(gram, X.T @ B)
        history.append(sdh_objective(encoder, B, W, P, X, y))
        encoder.code_step(B, W, P, X, y)
        history.append(sdh_objective(encoder, B, W, P, X, y))
    assert np.all(np.diff(history) <= 1e-7 * np.array(history[:-1]))
    assert history[-1] < 0.9 * history[0]


def test_anchor_features_are_radial_basis_functions_whose_width_follows_the_units(digits):
    X, _ = digits
    anchors = AnchorFeatures(50).fit(X)
    squared = ((X[:20, None].astype(float) - anchors.anchors_) ** 2).sum(axis=2)
    expected = np.exp(-squared / anchors.squared_width_)
    np.testing.assert_allclose(anchors.transform(X[:20]), expected, rtol=1e-4)
    doubled = AnchorFeatures(50).fit(2 * X)
    np.testing.assert_allclose(doubled.squared_width_, 4 * anchors.squared_width_, rtol=1e-4)


def test_the_svm_learns_from_the_codes_that_the_encoder_predicts(digits):
    X, y = digits
    method = on_codes(SDHEncoder(32), 0).fit(X, y)
    codes = SDHEncoder(32).fit(X, y).transform(X)
    svm = linear_svm("crammer_singer", 0).fit(codes, y)
    np.testing.assert_array_equal(method.predict(X), svm.predict(codes))
    assert method.score(X, y) > 0.85


def test_penalties_increase_until_one_is_worse_on_held_out_rows(digits, monkeypatch):
    X, y = digits
    numbered = np.column_stack([np.arange(len(y)), X])
    scores = dict(zip(PENALTIES, [0.7, 0.7, 0.8, 0.8, 0.7, 0.9, 0.9], strict=True))
    tried, seen = [], {}

    class Scored(LinearSVC):
        def fit(self, X, y):
            seen["learned"] = set(X[:, 0])
            return self

        def score(self, X, y):
            tried.append(self.C)
            seen["scored"] = set(X[:, 0])
            return scores[self.C]

    assert choose_penalty(Scored(), numbered, y) == 1e-1
    assert tried == [1e-3, 1e-2, 1e-1, 1.0, 1e1]
    assert not seen["learned"] & seen["scored"]
    assert len(seen["scored"]) == len(y) // 5
    monkeypatch.setattr(baselines, "PENALTIES", (1e-3, 1e-2))
    assert choose_penalty(on_codes(LSHEncoder(16), 0), X, y) in (1e-3, 1e-2)


@pytest.mark.parametrize("encoder", [LSHEncoder(16), CCAITQEncoder(16), SDHEncoder(16)])
def test_the_seed_decides_the_codes(digits, encoder):
    X, y = digits
    codes = [clone(encoder).set_params(random_state=s).fit(X, y).transform(X) for s in (0, 0, 1)]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert not np.array_equal(codes[0], codes[2])
    assert set(np.unique(codes[0])) == {-1.0, 1.0}
