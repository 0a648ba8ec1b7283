"""The alternation: descent, grouping, lengths, and weights that tell classes apart."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bitclass.codes import pack, unpack
from bitclass.losses import LOSSES, tabulate
from bitclass.training import (
    SOLVERS,
    CodeWarning,
    Groups,
    alternate,
    hinge_weights,
    make_distinct,
)
from brute_force import EVERY_LOSS, log_exponential_objective, objective, random_problem

LARGE = 1 << 30


def silent(line):
    pass


def run(groups, weights, name, scale=1.0, solver="flip", max_rounds=20):
    table = tabulate(LOSSES[name], weights.shape[1], scale)
    return alternate(groups, weights, table, SOLVERS[solver], max_rounds, LARGE, silent)


def clustered(rng, n_rows, n_classes, n_bits, noise=0.2):
    """Codes that scatter around one centre a class, as real starting codes do."""
    codes, centres, labels = random_problem(rng, n_rows, n_classes, n_bits)
    flips = rng.random(codes.shape) < noise
    return np.where(flips, -centres[labels], centres[labels]).astype(np.int8), labels


def sums_of(codes, labels):
    return np.array([codes[labels == c].sum(axis=0) for c in range(labels.max() + 1)], dtype=float)


@pytest.mark.parametrize("solver", ["flip", "mincut"])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_the_objective_falls_at_every_bit_update_and_the_history_is_true(name, solver):
    rng = np.random.default_rng(1)
    codes, labels = clustered(rng, 80, 6, 24, noise=0.4)
    weights = hinge_weights(sums_of(codes, labels))
    rows = Groups.of_samples(labels, pack(codes), np.ones(80))
    # So small a scale that no loss reaches zero, whose logarithm says nothing.
    found = run(rows, weights, name, scale=0.02, solver=solver)
    assert found.converged
    logs = found.history["log_objective"]
    assert np.all(np.diff(logs) <= 1e-12)
    assert len(logs) == 2 * 24 * found.n_rounds
    assert found.history["step"][:24].tolist() == ["W"] * 24

    # Every entry of the first round, against the objective recomputed after each update.
    lowest = 2 * 24 * 0.02 * 80 * 5 if name == "hinge" else 0.0
    first = run(rows, weights, name, scale=0.02, solver=solver, max_rounds=1)
    after = unpack(first.groups.codes[first.groups.inverse], 24)
    truth = []
    mixed_weights, mixed_codes = weights.copy(), codes.copy()
    for k in range(24):
        mixed_weights[:, k] = first.weights[:, k]
        truth.append(objective(codes, mixed_weights, labels, name, 0.02))
    for k in range(24):
        mixed_codes[:, k] = after[:, k]
        truth.append(objective(mixed_codes, first.weights, labels, name, 0.02))
    np.testing.assert_allclose(logs[:48], np.log(np.array(truth) + lowest), rtol=0, atol=1e-9)


def test_the_history_holds_while_the_objective_falls_by_hundreds_of_orders():
    rng = np.random.default_rng(2)
    codes, weights, labels = random_problem(rng, 60, 5, 1000)
    found = run(Groups.of_samples(labels, pack(codes), np.ones(60)), weights, "exponential")
    logs = found.history["log_objective"]
    assert np.all(np.diff(logs) <= 1e-9)
    assert logs[0] - logs[-1] > 500
    final = unpack(found.groups.codes[found.groups.inverse], 1000)
    assert logs[-1] == pytest.approx(
        log_exponential_objective(final, found.weights, labels), rel=1e-12
    )


@given(st.integers(0, 10_000), st.sampled_from(EVERY_LOSS), st.sampled_from(["flip", "mincut"]))
@example(93, "hinge", "flip")  # two sums that cancel
@example(9134, "crammer_singer", "flip")  # two gains that are equal
@settings(max_examples=60, deadline=None)
def test_grouping_equal_codes_changes_nothing_bit_for_bit(seed, name, solver):
    rng = np.random.default_rng(seed)
    few, labels = clustered(rng, 12, 4, 10, noise=0.3)
    repeat = rng.integers(1, 5, size=12)
    codes, labels = np.repeat(few, repeat, axis=0), np.repeat(labels, repeat)
    weights = hinge_weights(sums_of(codes, labels))
    packed = pack(codes)
    grouped = Groups.of_samples(labels, packed, np.ones(len(labels)))
    assert len(grouped.labels) <= 12
    apart = Groups(labels, packed, np.ones(len(labels)), np.arange(len(labels)))
    one, other = (run(g, weights, name, 0.3, solver) for g in (grouped, apart))
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(
        one.groups.codes[one.groups.inverse], other.groups.codes[other.groups.inverse]
    )
    assert one.n_rounds == other.n_rounds


@pytest.mark.parametrize("n_bits", [1, 7, 64, 127, 128, 1000, 2048])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_any_length_learns_without_overflow(name, n_bits):
    rng = np.random.default_rng(n_bits)
    codes, labels = clustered(rng, 40, 4, n_bits, noise=0.3)
    found = run(
        Groups.of_samples(labels, pack(codes), np.ones(40)),
        hinge_weights(sums_of(codes, labels)),
        name,
    )
    assert not np.isnan(found.history["log_objective"]).any()
    assert np.all(np.abs(found.weights) == 1)
    if n_bits >= 64:
        final = unpack(found.groups.codes[found.groups.inverse], n_bits).astype(int)
        assert np.array_equal((final @ found.weights.T).argmax(axis=1), labels)


def test_most_frequent_codes_go_by_weight():
    codes = pack(np.array([[1, 1], [1, 1], [-1, 1], [-1, -1]], dtype=np.int8))
    groups = Groups.of_samples(np.array([0, 0, 0, 1]), codes, np.array([1.0, 1.0, 3.0, 1.0]))
    np.testing.assert_array_equal(unpack(groups.most_frequent_codes(), 2), [[-1, 1], [-1, -1]])


class TestDistinctWeights:
    def test_distinct_weights_are_left_alone(self):
        weights = np.array([[1, 1], [1, -1]], dtype=np.int8)
        assert make_distinct(weights, np.ones((2, 2)), ["a", "b"]) is weights

    def test_a_twin_changes_in_the_bit_its_samples_care_least_about(self):
        weights = np.array([[1, 1, 1], [1, 1, 1]], dtype=np.int8)
        sums = np.array([[9.0, 9.0, 9.0], [9.0, 8.5, 9.0]])
        # |2 * sum - total| is 0, 0.5, 0 for the first bits: the cheapest is bit 0.
        with pytest.warns(CodeWarning, match="'b', those of 'a'"):
            distinct = make_distinct(weights, sums, ["a", "b"])
        np.testing.assert_array_equal(distinct, [[1, 1, 1], [-1, 1, 1]])

    @given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 40))
    @settings(max_examples=60, deadline=None)
    def test_no_two_classes_share_a_pattern_while_a_spare_one_exists(self, seed, n_bits, n):
        rng = np.random.default_rng(seed)
        weights = rng.choice(np.array([-1, 1], dtype=np.int8), size=(n, n_bits))
        weights[: n // 2] = weights[0]
        sums = rng.standard_normal((n, n_bits))
        repeated = len(np.unique(weights, axis=0)) < n
        with pytest.warns(CodeWarning) if repeated else nullcontext():
            distinct = make_distinct(weights, sums, list(range(n)))
        assert len(np.unique(distinct, axis=0)) == min(n, 2**n_bits)

    def test_too_few_bits_are_named(self):
        weights = np.ones((3, 1), dtype=np.int8)
        with pytest.warns(CodeWarning, match="n_bits=1 makes only 2 patterns"):
            make_distinct(weights, np.ones((3, 1)), [0, 1, 2])
