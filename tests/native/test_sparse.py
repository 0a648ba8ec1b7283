"""Kernels of sparse rows equal SciPy's products and a loop in NumPy, at every level."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bitclass._native import SparseRows, quantise, sparse_scores, sparse_step, thread_limit
from bitclass.hash_function import FeatureBlock, HashFunction

THREADS = (1, 2, 3, 7)


def random_rows(rng, n, d, density=0.2):
    X = scipy.sparse.random_array((n, d), density=density, rng=rng, format="csr", dtype=np.float32)
    X.data[:] = rng.standard_normal(X.nnz)
    return X


def loop(X, table, factors=None):
    """The definition: entries are added one by one, in float32."""
    scores = np.zeros((X.shape[0], table.shape[1]), dtype=np.float32)
    for i in range(X.shape[0]):
        for e in range(X.indptr[i], X.indptr[i + 1]):
            j, x = X.indices[e], X.data[e]
            x = x if factors is None else factors[j] * x
            scores[i] += x * table[j].astype(np.float32)
    return scores


@given(
    n=st.integers(0, 40),
    d=st.integers(1, 50),
    n_bits=st.sampled_from([1, 7, 16, 33, 128, 150, 256]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_scores_equal_the_loop_bit_for_bit(level, n, d, n_bits, seed):
    rng = np.random.default_rng(seed)
    X, P = random_rows(rng, n, d), rng.standard_normal((d, n_bits)).astype(np.float32)
    expected = loop(X, P)
    for threads in THREADS:
        assert_array_equal(thread_limit(threads)(sparse_scores)(SparseRows.of(X), P), expected)
    assert_allclose(expected, X @ P, atol=1e-4)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("n_bits", [5, 64, 200])
def test_int8_scores_are_those_of_the_quantised_projection(level, n_bits, scaled):
    rng = np.random.default_rng(n_bits)
    X, kept = random_rows(rng, 30, 40), np.array([0, 3, 4, 9, 17, 38, 39], dtype=np.int32)
    P = rng.standard_normal((len(kept), n_bits)).astype(np.float32)
    t = rng.standard_normal(n_bits)
    scale = None
    if scaled:  # columns of very different sizes
        sizes = 10.0 ** rng.uniform(-3, 3, 40).astype(np.float32)
        X, scale = scipy.sparse.csr_array(X.multiply(sizes)), sizes[kept]
        P /= scale[:, None]
    hash_function = HashFunction(P, t, columns=kept, n_features=40, scale=scale)
    quantised = quantise(P, t, None, scale)
    few = scipy.sparse.csr_array(X[:, kept])
    expected = loop(few, quantised.weights, quantised.inverse_scale)
    expected *= quantised.steps.astype(np.float32)
    error = np.abs(expected - few @ P).max()
    assert 0 < error < 0.05 * np.abs(few @ P).max()  # rounded, and not far off
    bits = (expected + (quantised.thresholds * quantised.steps).astype(np.float32)) >= 0
    for threads in THREADS:
        codes = thread_limit(threads)(hash_function.encode)(X)
        assert_array_equal(codes, np.packbits(bits, axis=1, bitorder="little"))
        [block] = hash_function.blocks(X)
        assert_array_equal(hash_function._scores(block.features, threads)[0], expected)


def steps_in_numpy(X, G, size, P, squares, counts):
    """NumPy reference of `sparse_step`, in float64."""
    gradients = X.toarray().T.astype(np.float64) @ G
    for j in np.flatnonzero(np.diff(X.tocsc().indptr)):
        squares[j] = 0.99 * squares[j] + 0.01 * np.mean(gradients[j] ** 2)
        counts[j] += 1
        P[j] -= size * gradients[j] / np.sqrt(squares[j] / (1 - 0.99 ** counts[j]))


@pytest.mark.parametrize("n_bits", [3, 64, 130])
def test_a_step_equals_the_numpy_reference_for_any_number_of_threads(level, n_bits):
    rng = np.random.default_rng(n_bits)
    d = 3000  # more than one digit of the sort
    P = rng.standard_normal((d, n_bits)).astype(np.float32)
    results = []
    for threads in THREADS:
        rng = np.random.default_rng(1)
        mine = [P.copy(), np.zeros(d, np.float32), np.zeros(d, np.int32)]
        twin = [P.astype(np.float64), np.zeros(d), np.zeros(d, int)]
        for _ in range(3):
            X = random_rows(rng, 50, d, density=0.02)
            G = rng.standard_normal((50, n_bits)).astype(np.float32)
            thread_limit(threads)(sparse_step)(SparseRows.of(X), G, 0.1, *mine)
            steps_in_numpy(X, G, 0.1, *twin)
        for one, other in zip(mine, twin, strict=True):
            assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        results.append(mine)
    for other in results[1:]:
        for one, same in zip(results[0], other, strict=True):
            assert_array_equal(one, same)
    untouched = results[0][2] == 0
    assert untouched.any()
    assert_array_equal(results[0][0][untouched], P[untouched])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("column", [1, 2])  # kept, and not kept
def test_a_row_that_is_not_finite_is_refused_by_name(value, column):
    columns = np.array([1], dtype=np.int32)
    ones = np.ones((1, 8), dtype=np.float32)
    hash_function = HashFunction(ones, np.zeros(8), columns=columns, n_features=3)
    X = np.zeros((4, 3))
    X[2, column] = value
    with pytest.raises(ValueError, match=f"row 12, feature {column} is"):
        hash_function.encode(FeatureBlock(10, SparseRows.of(X)))


@pytest.mark.parametrize("columns", [[2, 1], [1, 1], [-1, 1], [1, 3], [1]])
def test_columns_must_ascend_and_exist(columns):
    with pytest.raises(ValueError, match="columns"):
        HashFunction(
            np.ones((2, 4), dtype=np.float32),
            np.zeros(4),
            columns=np.array(columns, dtype=np.int32),
            n_features=3,
        )


def test_slices_are_those_of_an_array():
    dense = np.array([[0, 1.5, 0], [0, 0, 0], [2, 0, -1], [3, 4, 5]], dtype=np.float32)
    rows = SparseRows.of(dense)
    assert SparseRows.of(rows) is rows
    assert_array_equal(rows.indices, [1, 0, 2, 0, 1, 2])
    for part in (slice(None), slice(1, 3), slice(-2, None), slice(3, 1), slice(2, 99)):
        found = rows[part]
        csr = scipy.sparse.csr_array((found.data, found.indices, found.indptr), found.shape)
        assert_array_equal(csr.toarray(), dense[part])


def test_an_explicit_zero_is_not_an_entry():
    columns = np.array([1, 3], dtype=np.int32)
    hash_function = HashFunction(
        np.ones((2, 8), np.float32), np.zeros(8), columns=columns, n_features=5
    )
    X = scipy.sparse.csr_array(np.array([[0, 1, 0, 1, 0], [1, 0, 1, 1, 0]], dtype=np.float32))
    X.data[X.indices == 3] = 0
    for rows in (SparseRows.of(X), SparseRows.of(X.toarray())):
        assert hash_function.has_columns(rows).tolist() == [True, False]
        assert hash_function.has_columns(rows, without=1).tolist() == [False, False]
