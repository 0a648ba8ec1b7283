"""The compiled training kernels equal their NumPy references, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitclass import _native as native
from bitclass._native import thread_limit

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
def test_class_sums(
    level: str,
    n: int,
    n_features: int,
    n_classes: int,
    dtype: Any,
    weighted: bool,
    ordered: bool,
    seed: int,
    n_threads: int,
) -> None:
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
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (10, 300), (50_000, 33)])
def test_gram(dtype: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    Z = rng.standard_normal(shape).astype(dtype)
    exact = Z.T.astype(np.float64) @ Z.astype(np.float64)
    for layout in (np.asarray, strided, np.asfortranarray):
        gram = np.zeros((shape[1], shape[1]))
        native.add_gram([layout(Z), Z[:5]], gram)
        expected = exact + Z[:5].T.astype(np.float64) @ Z[:5].astype(np.float64)
        tolerance = np.finfo(dtype).eps * 10 * max(1, shape[0])
        np.testing.assert_allclose(gram, expected, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(gram, gram.T)
        by_one_thread = np.zeros_like(gram)
        thread_limit(1)(native.add_gram)([layout(Z), Z[:5]], by_one_thread)
        np.testing.assert_array_equal(by_one_thread, gram)
