"""The fused prediction equals encoding and searching one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bitclass._native import HammingIndex, Projection, predict, reference


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
    hash_function = Projection(projection, intercept, precision=precision)
    index = HammingIndex(weights)
    for rows in (X, X[:0], X[:1], X[::-3], X[:, ::-1]):
        expected = reference.nearest(hash_function.encode(rows), weights)
        for threads in (None, 1, 2, 3, 7):
            found = predict(hash_function, index, rows, n_threads=threads)
            for one, other in zip(found, expected, strict=True):
                assert one.dtype == other.dtype
                assert_array_equal(one, other)


def test_blocks_of_copied_rows_meet_without_gaps(level):
    # Rows that have to be copied come in blocks; this many features make several of them.
    rng = np.random.default_rng(1)
    X = np.asfortranarray(rng.integers(-3, 4, (70, 100_000)).astype(np.float32))
    projection = rng.integers(-1, 2, (100_000, 9)).astype(np.float32)
    hash_function = Projection(projection, np.zeros(9), precision="int8")
    assert_array_equal(hash_function.encode(X), hash_function.encode(np.ascontiguousarray(X)))


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_index_of_another_code_length_is_refused(precision):
    X, projection, intercept, weights = small_problem()
    hash_function = Projection(projection, intercept, precision=precision)
    with pytest.raises(ValueError, match=r"index|codes"):
        predict(hash_function, HammingIndex(weights[:, :3]), X)


def test_a_wrong_number_of_threads_is_refused():
    X, projection, intercept, weights = small_problem()
    with pytest.raises(ValueError, match="n_threads: 0"):
        predict(Projection(projection, intercept), HammingIndex(weights), X, n_threads=0)
