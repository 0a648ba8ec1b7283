"""The B-step against brute force and against the objective recomputed from scratch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.codes import pack, unpack
from bitclass.losses import LOSSES, tabulate
from bitclass.training import Groups, b_step
from brute_force import EVERY_LOSS, all_signs, objective, random_problem

problems = st.tuples(
    st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 9), st.sampled_from(EVERY_LOSS)
)


def step(codes, weights, labels, name, scale=1.0, row_weights=None):
    """B-step on rows that are not grouped."""
    n_bits = codes.shape[1]
    row_weights = np.ones(len(labels)) if row_weights is None else row_weights
    rows = Groups(labels, pack(codes), row_weights, np.arange(len(labels)))
    packed, log_decreases = b_step(rows, weights, tabulate(LOSSES[name], n_bits, scale))
    return unpack(packed, n_bits), log_decreases


@given(problems, st.sampled_from([1.0, 0.3]))
@settings(max_examples=60, deadline=None)
def test_every_bit_takes_the_sign_of_smaller_loss_and_ties_keep_it(problem, scale):
    seed, n_classes, n_bits, name = problem
    codes, weights, labels = random_problem(
        np.random.default_rng(seed), 3 * n_classes, n_classes, n_bits
    )
    found, _ = step(codes, weights, labels, name, scale)
    expected = codes.copy()
    for k in range(n_bits):
        for i in range(len(labels)):
            row, own = expected[i : i + 1], labels[i : i + 1]
            flipped = row.copy()
            flipped[0, k] *= -1
            present = objective(row, weights, own, name, scale)
            other = objective(flipped, weights, own, name, scale)
            if other < present - 1e-9 * max(abs(present), abs(other)):
                expected[i] = flipped[0]
    np.testing.assert_array_equal(found, expected)


@given(problems)
@settings(max_examples=40, deadline=None)
def test_log_decreases_add_up_to_the_fall_of_the_true_objective(problem):
    seed, n_classes, n_bits, name = problem
    rng = np.random.default_rng(seed)
    codes, weights, labels = random_problem(rng, 4 * n_classes, n_classes, n_bits)
    row_weights = rng.integers(0, 3, len(labels)).astype(float)
    found, log_decreases = step(codes, weights, labels, name, row_weights=row_weights)
    mixed = codes.copy()
    before = objective(mixed, weights, labels, name, row_weights=row_weights)
    for k in range(n_bits):
        mixed[:, k] = found[:, k]
        after = objective(mixed, weights, labels, name, row_weights=row_weights)
        assert after <= before + 1e-9 * abs(before)
        assert np.exp(log_decreases[k]) == pytest.approx(
            before - after, rel=1e-6, abs=1e-9 * max(abs(before), abs(after), 1.0)
        )
        before = after


@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_hinge_codes_equal_brute_force(seed, n_classes, n_bits):
    """b_i = w_{y_i} is optimal for the linear loss, whatever the other classes are."""
    _, weights, labels = random_problem(np.random.default_rng(seed), n_classes, n_classes, n_bits)
    own = weights[labels]
    for i in range(n_classes):
        best = min(
            objective(code[None], weights, labels[i : i + 1], "hinge") for code in all_signs(n_bits)
        )
        assert objective(own[i : i + 1], weights, labels[i : i + 1], "hinge") == best


@pytest.mark.parametrize("n_bits", [1, 7, 64, 127, 128, 1000, 2048])
def test_long_codes_neither_overflow_nor_stall(n_bits):
    """Without a unit of its own, a row of 2048 bits would underflow to all ties."""
    codes, weights, labels = random_problem(np.random.default_rng(0), 12, 4, n_bits)
    found, log_decreases = step(codes, weights, labels, "exponential")
    assert not np.isnan(log_decreases).any()
    # A bit in which all classes agree is a tie, and stays as it was.
    matters = weights.min(axis=0) != weights.max(axis=0)
    np.testing.assert_array_equal(found[:, ~matters], codes[:, ~matters])
    agreement = (found == weights[labels])[:, matters].mean() if matters.any() else 1.0
    assert n_bits < 64 or agreement > 0.95
