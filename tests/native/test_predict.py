"""Fused prediction equals encoding followed by searching."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass._native import (
    HammingIndex,
    thread_limit,
)
from bitclass.hash_function import FeatureBlock, HashFunction

from . import reference


def small_problem(dtype=np.float32, n=300, d=70, r=45, n_classes=90):
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (n, d)).astype(dtype)
    projection = rng.integers(-3, 4, (d, r)).astype(np.float32)
    weights = reference.encode(
        rng.integers(-3, 4, (n_classes, d)).astype(np.float32), projection, np.zeros(r)
    )
    return X, projection, np.zeros(r), weights


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_predict_is_encode_then_search(level, precision, dtype):
    X, projection, intercept, weights = small_problem(dtype)
    hash_function = HashFunction(projection, intercept, precision=precision)
    index = HammingIndex(weights)
    for rows in (X, X[:0], X[:1], X[::-3], X[:, ::-1]):
        expected = reference.nearest(hash_function.encode(rows), weights)
        for threads in (None, 1, 2, 3, 7):
            found = thread_limit(threads)(hash_function.nearest)(rows, index)
            for one, other in zip(found, expected, strict=True):
                assert one.dtype == other.dtype
                assert_array_equal(one, other)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_index_with_a_different_code_length_is_rejected(precision):
    X, projection, intercept, weights = small_problem()
    hash_function = HashFunction(projection, intercept, precision=precision)
    with pytest.raises(ValueError, match=r"index|codes"):
        hash_function.nearest(X, HammingIndex(weights[:, :3]))


def packed_bits(rng, *shape):
    return np.packbits(rng.random(shape) < 0.5, axis=-1, bitorder="little")


def assert_rescored(found, expected):
    indices, scores, distances = found
    assert scores.dtype == np.float32
    assert_array_equal(indices, expected[0])
    assert_array_equal(scores, expected[1].astype(np.float32) / np.float32(127))
    assert_array_equal(distances, expected[2])


@given(
    n=st.sampled_from([0, 1, 3, 5, 100]),
    d=st.integers(1, 70),
    r=st.one_of(st.integers(1, 140), st.just(300)),
    n_classes=st.one_of(st.integers(1, 70), st.sampled_from([200, 1500])),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    standardise=st.booleans(),
    bias_size=st.sampled_from([0, 2, 40]),
    threads=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_int8_rescoring_equals_the_reference(
    level, n, d, r, n_classes, dtype, standardise, bias_size, threads, seed
):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * rng.choice([0.01, 1, 50], (n, 1))).astype(dtype)
    X[rng.random(n) < 0.1] = 0
    steepness = rng.uniform(0.01, 2)
    projection = (steepness * rng.standard_normal((d, r))).astype(np.float32)
    projection[:, rng.random(r) < 0.1] = 0
    options = {}
    if standardise:
        options["centre"] = rng.standard_normal(d).astype(np.float32)
        options["scale"] = rng.uniform(0.1, 10, d).astype(np.float32)
    intercept = steepness * rng.standard_normal(r)
    hash_function = HashFunction(projection, intercept, precision="int8", **options)
    quantised = hash_function.quantised()
    weights = packed_bits(rng, n_classes, r)
    bias = (bias_size * rng.standard_normal(n_classes)).astype(np.float32) if bias_size else None
    codes = reference.encode_int8(X, quantised)
    active = reference.activations_int8(X, quantised)
    for m in {1, min(16, n_classes), min(70, n_classes), n_classes}:
        for k in {1, min(3, m), m}:
            expected = reference.rescored(codes, active, weights, m, k, bias)
            index = HammingIndex(weights, bias)
            found = thread_limit(threads)(hash_function.rescored)(X, index, m, k)
            assert_rescored(found, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_rescoring_equals_the_reference(level, dtype):
    X, projection, intercept, weights = small_problem(dtype)  # sums are exact
    bias = np.linspace(-3, 3, len(weights), dtype=np.float32)
    for power in (4, 7, 10):  # a power of two, with which sums stay exact
        scaled = projection / np.float32(1 << power)
        hash_function = HashFunction(scaled, intercept, precision="float32")
        active = reference.activations(X.astype(np.float32) @ scaled)
        codes = reference.encode(X, scaled, intercept)
        for n in (300, 1, 0):
            expected = reference.rescored(codes[:n], active[:n], weights, 16, 5, bias)
            found = hash_function.rescored(X[:n], HammingIndex(weights, bias), 16, 5)
            assert_rescored(found, expected)


def test_activations_are_tanh():
    x = np.linspace(-30, 30, 100_001).astype(np.float32)
    active = reference.activations(x)
    assert np.abs(active / 127 - np.tanh(x)).max() < 0.5 / 127 + 0.0024
    assert (np.diff(active.astype(int)) >= 0).all()
    assert_array_equal(
        reference.activations(np.float32([np.inf, -np.inf, 0, -0.0])), [127, -127, 0, 0]
    )


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_rescoring_rejects_non_finite_rows_and_invalid_counts(precision):
    X, projection, intercept, weights = small_problem()
    hash_function = HashFunction(projection, intercept, precision=precision)
    index = HammingIndex(weights)
    X[17, 3] = np.nan
    with pytest.raises(ValueError, match="X must be finite: row 117, feature 3 is NaN"):
        hash_function.rescored(FeatureBlock(100, X), index, 16)
    for m, k, name in (
        (0, 1, "n_candidates"),
        (91, 1, "n_candidates"),
        (16, 17, "k"),
        (16, 0, "k"),
    ):
        with pytest.raises(ValueError, match=f"{name}: "):
            hash_function.rescored(X, index, m, k)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_blocks_of_all_scores_are_joined_correctly(precision, monkeypatch):
    X, projection, intercept, weights = small_problem()
    hash_function = HashFunction(projection, intercept, precision=precision)
    packed = PackedModel(np.arange(90), weights, hash_function, rescore=8)
    whole = packed.predict_log_proba(X), *packed.top_classes(X, 20, probabilities=True)[:3]
    monkeypatch.setattr("bitclass.model._SCORES_PER_BLOCK", 7 * 90)
    in_blocks = packed.predict_log_proba(X), *packed.top_classes(X, 20, probabilities=True)[:3]
    for one, other in zip(in_blocks, whole, strict=True):
        assert_array_equal(one, other)
    X[23, 3] = np.nan
    with pytest.raises(ValueError, match="row 23, feature 3"):
        packed.predict_proba(X)


# -- Values at prediction that training did not see


def fitted(rng, n_idle=0, n=3000):
    """A model of 20 classes, test rows, and their classes; the last features are constant."""
    means = 0.7 * rng.standard_normal((20, 64))
    y = rng.integers(0, 20, n)
    X = np.concatenate([means[y] + rng.standard_normal((n, 64)), np.zeros((n, n_idle))], axis=1)
    model = BinaryCodeClassifier(64, refine=False, random_state=0).fit(X[:2000], y[:2000]).packed()
    return model, X[2000:], y[2000:]


@pytest.mark.parametrize("value", [300.0, 1e5, 1e30])
def test_a_feature_that_was_constant_has_no_say(value):
    model, X, _ = fitted(np.random.default_rng(0), n_idle=1)
    expected = model.scores(X)
    X[:, -1] = value
    assert_array_equal(model.scores(X), expected)
    X[5, -1] = np.nan
    with pytest.raises(ValueError, match="row 5, feature 64"):
        model.predict(X)


def test_a_huge_value_counts_as_32_standard_deviations():
    model, X, y = fitted(np.random.default_rng(1))
    at = np.arange(len(X)), np.random.default_rng(2).integers(0, 64, len(X))
    h, clipped = model.hash_function, X.copy()
    clipped[at] = (h.centre + np.float32(32.001) * h.scale)[at[1]]
    expected = model.scores(clipped)
    for value in (100, 1e6, 1e25):
        X[at] = value
        assert_array_equal(model.scores(X), expected)
    assert np.mean(model.predict(X) == y) > 0.1  # without the limit, 1 of 20 is right


def test_heavy_tails_at_prediction_cost_few_digits():
    rng = np.random.default_rng(3)
    model, X, _ = fitted(rng)
    X = X + (rng.random(X.shape) < 0.02) * rng.standard_t(1.5, X.shape)
    h = model.hash_function
    exact = X.astype(np.float64) @ h.projection.astype(np.float64) + h.intercept
    bits = np.unpackbits(h.encode(X), axis=1, bitorder="little")
    assert np.mean(bits != (exact >= 0)) < 0.01
