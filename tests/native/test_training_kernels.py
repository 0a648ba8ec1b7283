"""The compiled training kernels equal their NumPy references, to the last bit."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitclass import _native as native
from bitclass._native import _kernels, thread_limit, threads

from . import reference
from .training_problems import strided


@given(
    n=st.sampled_from([0, 1, 2, 100, 700]),
    n_features=st.sampled_from([1, 7, 64, 300, 600]),
    n_classes=st.sampled_from([1, 2, 50]),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
    ordered=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    n_threads=st.sampled_from([1, 2, 3, 7]),
)
def test_class_sums(level, n, n_features, n_classes, dtype, weighted, ordered, seed, n_threads):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features)).astype(dtype)
    labels = rng.integers(0, n_classes, n).astype(np.intp)
    if ordered:
        labels.sort()
    row_weights = rng.random(n) if weighted else None
    expected = rng.standard_normal((n_classes, n_features))
    found = expected.copy()
    reference.class_sums(X, labels, row_weights, expected)
    thread_limit(n_threads)(native.class_sums)(strided(X), strided(labels), row_weights, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_standardise(level, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 301)).astype(dtype)
    shift, scale = rng.standard_normal(301), rng.uniform(0.1, 9.0, 301)
    rows = rng.integers(700, size=650)
    expected = (X[rows] - shift.astype(dtype)) * (1.0 / scale).astype(dtype)
    for n_threads in (1, 5):
        for out in (None, np.empty_like(expected)):
            found = thread_limit(n_threads)(native.standardise)(strided(X), rows, shift, scale, out)
            np.testing.assert_array_equal(found, expected)
            assert out is None or found is out


def with_threads(function, *arguments):
    """The result with 1 thread, which that with 2, 5 and 16 must equal."""
    expected = thread_limit(1)(function)(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "available_cpus", lambda: 16)
        for n_threads in (2, 5, 16):
            found = thread_limit(n_threads)(function)(*arguments)
            np.testing.assert_array_equal(found, expected)
    return expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (10, 300), (9000, 33), (70, 1100)])
def test_gram(dtype, shape):
    rng = np.random.default_rng(1)
    Z = rng.standard_normal(shape).astype(dtype)
    exact = Z.T.astype(np.float64) @ Z.astype(np.float64)

    def gram(Z):
        sums = exact.copy()
        native.add_gram(Z, sums)
        return sums

    for layout in (np.asarray, strided, np.asfortranarray):
        found = with_threads(gram, layout(Z))
        tolerance = np.finfo(dtype).eps * 10 * max(1, shape[0])
        np.testing.assert_allclose(found, 2 * exact, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (300, 40, 3), (70, 5, 1100), (9, 0, 4)])
def test_product(dtype, m, k, n):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
    for one, other in itertools.product((np.asarray, strided, np.asfortranarray), repeat=2):
        found = with_threads(native.product, one(a), other(b))
        tolerance = 10 * np.finfo(dtype).eps * (1 + k)
        np.testing.assert_allclose(found, a.astype(float) @ b.astype(float), atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 7, 512, 700, 1300])
def test_cholesky_and_triangular_solutions(d, dtype):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((d, d + 5))
    matrix, b = root @ root.T / d + np.eye(d), rng.standard_normal((d, 300)).astype(dtype)
    tolerance = 1e3 * np.finfo(dtype).eps
    lower = with_threads(native.cholesky, matrix.astype(dtype))
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=0, atol=tolerance)
    assert not np.triu(lower, 1).any()
    for transposed in (False, True):
        solve = functools.partial(native.solve_triangular, transposed=transposed)
        found = with_threads(solve, lower, b)
        np.testing.assert_allclose(
            (lower.T if transposed else lower) @ found, b, rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("at", [0, 300, 699])
def test_a_matrix_that_is_not_positive_definite_has_no_factor(at):
    matrix = np.eye(700)
    matrix[at, at] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="positive"):
        native.cholesky(matrix)


@pytest.mark.parametrize("n_classes", [1, 15, 16, 17, 100])
def test_refinement_is_the_same_at_every_level(n_classes):
    """Products are the same; the loops beside them do not depend on the width of vectors."""
    rng, m, r = np.random.default_rng(0), 150, 37
    F = (3 * rng.standard_normal((m, r))).astype(np.float32)
    F[0] = [0.0, -0.0, 60.0, -60.0, 1e-6] * 7 + [1.0, -1.0]
    W = np.where(rng.random((n_classes, r)) < 0.5, np.float32(-1), np.float32(1))
    bias, shares = rng.standard_normal((2, n_classes)).astype(np.float32)
    y, factors = rng.integers(0, n_classes, m), rng.random(m).astype(np.float32)
    found = []
    before = _kernels.current_level()
    try:
        for level in _kernels.available_levels():
            _kernels._use_level(level)
            by_scores, latent = F.copy(), 0.9 * W
            moments = np.zeros_like(latent), np.zeros_like(latent)
            signs = np.zeros_like(latent)
            loss, inputs, slopes = native.class_gradients(
                by_scores, W, bias, shares, y, factors, (0.3, 0.4), 70
            )
            native.adam_step(slopes, inputs, 0.1, (0.9, 0.99), 1e-9, latent, *moments, signs)
            found.append([np.float64(loss), inputs, slopes, by_scores, latent, *moments, signs])
    finally:
        _kernels._use_level(before)
    np.testing.assert_allclose(found[0][1][70:], np.tanh(F[70:]), rtol=0, atol=2e-7)
    assert np.isfinite(found[0][2]).all()
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)
