"""Smaller projections of wide rows: what is dropped, and who decides."""

import numpy as np
import pytest
import scipy.sparse as sp

from bitclass import BinaryCodeClassifier
from bitclass.hash_function import MAX_IN_FOUR_BITS, HashFunction
from bitclass.training.candidate import Candidate
from bitclass.training.compact import with_columns
from bitclass.training.sums import Sums


def wide_function(k=50, r=21, seed=0):
    rng = np.random.default_rng(seed)
    P = (rng.standard_normal((k, r)) * 10.0 ** rng.uniform(-3, 3, (k, 1))).astype(np.float32)
    P[3] = 0
    columns = np.sort(rng.choice(5000, k, replace=False)).astype(np.int32)
    scale = rng.uniform(0.1, 10, k).astype(np.float32)
    return HashFunction(P, rng.standard_normal(r), scale=scale, columns=columns, n_features=5000)


def wide_rows(columns, n=40, seed=1):
    rng = np.random.default_rng(seed)
    X = np.zeros((n, 5000), np.float32)
    X[:, columns] = rng.standard_normal((n, len(columns))) * (rng.random((n, len(columns))) < 0.3)
    return X


@pytest.mark.parametrize("bits", [4, 1])
def test_few_bits_are_as_close_as_they_can_be_and_the_kernel_computes_with_them(bits):
    h = wide_function()
    small = h.in_few_bits(bits)
    entries = small.quantised().weights
    assert (h.entry_bits, small.entry_bits) == (8, bits)
    assert np.abs(entries).max() == (MAX_IN_FOUR_BITS if bits == 4 else 1)
    largest = np.abs(h.projection).max(axis=1, keepdims=True)
    error = ((small.projection - h.projection) ** 2).sum(axis=1)
    if bits == 4:  # at least as close as in units of the largest entry
        units = np.where(largest > 0, largest / MAX_IN_FOUR_BITS, 1)
        simple = np.rint(h.projection / units) * units
    else:  # the mean magnitude is the best unit of signs
        simple = np.where(h.projection >= 0, largest, -largest) / 2
    assert (error <= ((simple - h.projection) ** 2).sum(axis=1) * (1 + 1e-5) + 1e-30).all()
    X = wide_rows(h.columns)
    expected = X[:, h.columns].astype(float) @ small.projection.astype(float) + h.intercept
    clear = np.abs(expected) > 1e-5 * np.abs(expected).max()
    bits_found = np.unpackbits(small.encode(X), axis=1, count=21, bitorder="little")
    np.testing.assert_array_equal(bits_found[clear], (expected >= 0)[clear])


def test_some_columns_of_a_function_are_those_columns():
    h = wide_function()
    kept = np.array([0, 3, 7, 49])
    X = wide_rows(h.columns)
    only = np.zeros_like(X)
    only[:, h.columns[kept]] = X[:, h.columns[kept]]
    for function in (h, h.in_few_bits(4)):
        part = function.with_columns(kept)
        np.testing.assert_array_equal(part.columns, h.columns[kept])
        assert part.entry_bits == function.entry_bits
        if function is not h:  # units of eight bits depend on all columns
            np.testing.assert_array_equal(part.encode(X), function.encode(only))


def test_columns_that_matter_least_are_dropped_unless_rows_have_few_entries():
    h = wide_function()
    X = sp.csr_array(wide_rows(h.columns, n=300))
    sums = Sums.of_wide(5000)
    sums.add(X, np.arange(300) % 4, np.ones(300))
    candidate = Candidate(h, np.ones((4, 21), np.int8), np.zeros(4, np.float32), 1.0)
    found = with_columns(candidate, sums, 0.6).hash_function
    lost = np.setdiff1d(h.columns, found.columns)
    part = X.toarray()[:, h.columns]
    scores = [float(np.sum(np.outer(part[:, j], h.projection[j]) ** 2)) for j in range(50)]
    least = h.columns[np.argsort(scores, kind="stable")[:20]]
    np.testing.assert_array_equal(lost, np.sort(least))
    assert with_columns(candidate, sums, 0.2) is candidate  # 3 entries per row would be left


def test_judged_rows_decide(monkeypatch):
    """Half of the columns are noise, which nobody misses; if any loss is too much, all are kept."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=1500)
    informative = (np.arange(1500) % 10 == y[:, None]) & (rng.random((1500, 1500)) < 0.1)
    X = sp.csr_array(np.hstack([informative, rng.random((1500, 1500)) < 0.02]).astype(np.float32))
    parameters = {"n_bits": 32, "random_state": 0}
    monkeypatch.setattr("bitclass.training.compact._MIN_ROWS_TO_PRUNE", 1000)
    monkeypatch.setattr("bitclass.training.fit.spans", lambda *_: [])  # as with many rows
    small = BinaryCodeClassifier(**parameters).fit(X[:1200], y[:1200])
    h = small.packed().hash_function
    assert h.entry_bits == 4
    assert np.mean(h.columns < 1500) > 0.7
    for name in ("_MAX_LOSS_OF_COLUMNS", "_MAX_LOSS_OF_ROUNDING"):
        monkeypatch.setattr(f"bitclass.training.compact.{name}", -np.inf)
    whole = BinaryCodeClassifier(**parameters).fit(X[:1200], y[:1200])
    assert whole.packed().hash_function.entry_bits == 8
    assert len(whole.projection_) > 1.2 * len(small.projection_)
    assert small.score(X[1200:], y[1200:]) >= whole.score(X[1200:], y[1200:]) - 0.02
