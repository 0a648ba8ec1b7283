"""The alternation: W-step and B-step against brute force, and descent."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bitclass.codes import pack, unpack
from bitclass.paper.alternation import (
    Groups,
    alternate,
    b_step,
    hinge_weights,
    quadratic_program,
    solve_hinge,
)
from bitclass.paper.bqp import SOLVERS
from bitclass.paper.losses import tabulate

from ..brute_force import (
    EVERY_LOSS,
    all_signs,
    log_exponential_objective,
    objective,
    random_problem,
    sample_codes,
)

problems = st.tuples(
    st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 9), st.sampled_from(EVERY_LOSS)
)


def grouped(codes, labels, row_weights=None):
    row_weights = np.ones(len(labels)) if row_weights is None else row_weights
    return Groups.of_samples(labels, pack(codes), row_weights)


def values_of(H, g, columns):
    return np.einsum("ij,jk,ik->i", columns, H, columns) / 2 + columns @ g


def sums_of(codes, labels):
    return np.array([codes[labels == c].sum(axis=0) for c in range(labels.max() + 1)], dtype=float)


# -- W-step


def program(codes, weights, labels, name, scale, k, row_weights=None):
    table = tabulate(name, codes.shape[1], scale)
    rows = grouped(codes, labels, row_weights)
    return quadratic_program(rows, weights, k, table.quadratic_tables(0))


@given(problems, st.sampled_from([1.0, 0.3]))
def test_differences_of_the_program_are_differences_of_the_objective(problem, scale):
    seed, n_classes, n_bits, name = problem
    rng = np.random.default_rng(seed)
    codes, weights, labels = random_problem(rng, 3 * n_classes, n_classes, n_bits)
    row_weights = rng.integers(0, 4, len(labels)).astype(float)
    k = int(rng.integers(n_bits))
    H, g = program(codes, weights, labels, name, scale, k, row_weights)
    assert np.all(np.diag(H) == 0)
    columns = all_signs(n_classes)
    values, truth = values_of(H, g, columns), []
    for column in columns:
        changed = weights.copy()
        changed[:, k] = column
        truth.append(objective(codes, changed, labels, name, scale, row_weights))
    atol = 1e-9 * max(1.0, np.max(np.abs(truth)))
    np.testing.assert_allclose(values - values[0], np.array(truth) - truth[0], 1e-9, atol)


@given(problems)
def test_after_bit_flipping_no_single_flip_improves(problem):
    seed, n_classes, n_bits, name = problem
    rng = np.random.default_rng(seed)
    codes, weights, labels = random_problem(rng, 4 * n_classes, n_classes, n_bits)
    k = int(rng.integers(n_bits))
    H, g = program(codes, weights, labels, name, 1.0, k)
    reached = weights.copy()
    reached[:, k], decrease = SOLVERS["flip"](H, g, weights[:, k].copy())
    before, value = (objective(codes, w, labels, name) for w in (weights, reached))
    scale = max(abs(before), 1.0)
    assert before - value == pytest.approx(decrease, rel=1e-6, abs=1e-9 * scale)
    for c in range(n_classes):
        flipped = reached.copy()
        flipped[c, k] *= -1
        assert objective(codes, flipped, labels, name) >= value - 1e-9 * scale


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("n_classes", [2, 5, 10])
def test_mincut_equals_brute_force_and_flip_is_never_below(name, n_classes):
    rng = np.random.default_rng(n_classes)
    n_worse = 0
    for _ in range(20):
        codes, weights, labels = random_problem(rng, 5 * n_classes, n_classes, 8)
        H, g = program(codes, weights, labels, name, 1.0, 3)
        start = np.ascontiguousarray(weights[:, 3])
        cut, cut_decrease = SOLVERS["mincut"](H, g, start)
        _, flip_decrease = SOLVERS["flip"](H, g, start)
        size = np.abs(H).sum() + np.abs(g).sum()
        least = values_of(H, g, all_signs(n_classes)).min()
        assert values_of(H, g, cut[None])[0] == pytest.approx(least, abs=1e-11 * size)
        assert flip_decrease <= cut_decrease + 1e-11 * size
        n_worse += flip_decrease < cut_decrease - 1e-9 * size
    if name == "exponential" and n_classes == 10:
        # Otherwise the comparison above would also hold for two equal solvers.
        assert n_worse > 0


def test_mincut_resolves_couplings_many_orders_apart():
    """Capacities are integers; what one pass rounds away, the next must find."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        H = -np.exp(rng.uniform(-30, 0, (8, 8)))
        H = H + H.T
        np.fill_diagonal(H, 0.0)
        g = rng.standard_normal(8) * np.exp(rng.uniform(-25, 0, 8))
        columns = all_signs(8)
        best, _ = SOLVERS["mincut"](H, g, columns[0])
        excess = values_of(H, g, best[None])[0] - values_of(H, g, columns).min()
        assert excess <= 1e-13 * (np.abs(H).sum() + np.abs(g).sum())


@pytest.mark.parametrize("noise", [0.0, 4e-16, -4e-16])
def test_flips_with_equal_gains_up_to_rounding_go_by_index(noise):
    H, g = np.ones((3, 3)) - np.eye(3), np.array([-1.1, -1.1 + noise, -1.1 - noise])
    # Each flip improves, but the first one removes the gains of the others.
    column, _ = SOLVERS["flip"](H, g, np.ones(3, dtype=np.int8))
    assert column.tolist() == [-1, 1, 1]


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3))
def test_closed_forms_of_the_hinge_loss_equal_brute_force(seed, n_classes, n_bits):
    rng = np.random.default_rng(seed)
    codes, _, labels = random_problem(rng, 3 * n_classes, n_classes, n_bits)
    weights = hinge_weights(sums_of(codes, labels))
    best = min(
        objective(codes, w.reshape(n_classes, n_bits), labels, "hinge")
        for w in all_signs(n_classes * n_bits)
    )
    assert objective(codes, weights, labels, "hinge") == best
    found = solve_hinge(grouped(codes, labels), sums_of(codes, labels))
    np.testing.assert_array_equal(found.weights, weights)
    np.testing.assert_array_equal(unpack(sample_codes(found), n_bits), weights[labels])
    # The history has the objectives after both steps, relative to the lowest possible one.
    lowest = -2 * n_bits * (n_classes - 1) * len(labels)
    after_b = objective(weights[labels], weights, labels, "hinge")
    expected = np.array([best, after_b]) - lowest
    np.testing.assert_allclose(np.exp(found.history["log_objective"]), expected, atol=1e-6)
    for c in range(n_classes):  # the code of a row is the weights of its class
        of_codes = [objective(b[None], weights, np.array([c]), "hinge") for b in all_signs(n_bits)]
        assert objective(weights[c : c + 1], weights, np.array([c]), "hinge") == min(of_codes)


# -- B-step


def codes_after(codes, weights, labels, name, scale=1.0, row_weights=None):
    """B-step on rows that are not grouped."""
    row_weights = np.ones(len(labels)) if row_weights is None else row_weights
    rows = Groups(labels, pack(codes), row_weights, np.arange(len(labels)))
    packed, log_decreases = b_step(rows, weights, tabulate(name, codes.shape[1], scale))
    return unpack(packed, codes.shape[1]), log_decreases


@given(problems, st.sampled_from([1.0, 0.3]))
def test_every_bit_takes_the_sign_with_the_smaller_loss_and_ties_keep_it(problem, scale):
    seed, n_classes, n_bits, name = problem
    codes, weights, labels = random_problem(
        np.random.default_rng(seed), 3 * n_classes, n_classes, n_bits
    )
    found, _ = codes_after(codes, weights, labels, name, scale)
    expected = codes.copy()
    for k in range(n_bits):
        for i in range(len(labels)):
            row, y = expected[i : i + 1], labels[i : i + 1]
            flipped = row.copy()
            flipped[0, k] *= -1
            present = objective(row, weights, y, name, scale)
            other = objective(flipped, weights, y, name, scale)
            if other < present - 1e-9 * max(abs(present), abs(other)):
                expected[i] = flipped[0]
    np.testing.assert_array_equal(found, expected)


# -- Alternation


def run(groups, weights, name, scale=1.0, solver="flip", max_rounds=20):
    table = tabulate(name, weights.shape[1], scale)
    return alternate(groups, weights, table, SOLVERS[solver], max_rounds, lambda line: None)


def clustered(rng, n_rows, n_classes, n_bits, noise=0.2):
    """Codes that scatter around one centre per class, as real starting codes do."""
    codes, centres, labels = random_problem(rng, n_rows, n_classes, n_bits)
    flips = rng.random(codes.shape) < noise
    return np.where(flips, -centres[labels], centres[labels]).astype(np.int8), labels


@pytest.mark.parametrize("solver", ["flip", "mincut"])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_the_objective_decreases_at_every_bit_update_and_the_history_is_correct(name, solver):
    rng = np.random.default_rng(1)
    codes, labels = clustered(rng, 80, 6, 24, noise=0.4)
    weights = hinge_weights(sums_of(codes, labels))
    rows = Groups.of_samples(labels, pack(codes), np.ones(80))
    # A scale so small that no loss is zero, whose logarithm would be -inf.
    found = run(rows, weights, name, scale=0.02, solver=solver)
    assert found.converged
    logs = found.history["log_objective"]
    assert np.all(np.diff(logs) <= 1e-12)
    assert len(logs) == 2 * 24 * found.n_rounds
    assert found.history["step"][:24].tolist() == ["W"] * 24

    # Every entry of the first round, against the objective recomputed after each update.
    lowest = 2 * 24 * 0.02 * 80 * 5 if name == "hinge" else 0.0
    first = run(rows, weights, name, scale=0.02, solver=solver, max_rounds=1)
    after = unpack(sample_codes(first), 24)
    truth = []
    mixed_weights, mixed_codes = weights.copy(), codes.copy()
    for k in range(24):
        mixed_weights[:, k] = first.weights[:, k]
        truth.append(objective(codes, mixed_weights, labels, name, 0.02))
    for k in range(24):
        mixed_codes[:, k] = after[:, k]
        truth.append(objective(mixed_codes, first.weights, labels, name, 0.02))
    np.testing.assert_allclose(logs[:48], np.log(np.array(truth) + lowest), rtol=0, atol=1e-9)


def test_the_history_is_precise_when_the_objective_falls_by_hundreds_of_orders_of_magnitude():
    rng = np.random.default_rng(2)
    codes, weights, labels = random_problem(rng, 60, 5, 1000)
    found = run(Groups.of_samples(labels, pack(codes), np.ones(60)), weights, "exponential")
    logs = found.history["log_objective"]
    assert np.all(np.diff(logs) <= 1e-9)
    assert logs[0] - logs[-1] > 500
    final = unpack(sample_codes(found), 1000)
    assert logs[-1] == pytest.approx(
        log_exponential_objective(final, found.weights, labels), rel=1e-12
    )


@given(st.integers(0, 10_000), st.sampled_from(EVERY_LOSS), st.sampled_from(["flip", "mincut"]))
@example(93, "hinge", "flip")  # two sums that cancel
@example(9134, "crammer_singer", "flip")  # two gains that are equal
def test_grouping_equal_codes_does_not_change_results(seed, name, solver):
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
    np.testing.assert_array_equal(sample_codes(one), sample_codes(other))
    assert one.n_rounds == other.n_rounds
    if one.converged:  # another round changes nothing
        again = run(one.groups, one.weights, name, 0.3, solver, max_rounds=1)
        assert again.converged
        np.testing.assert_array_equal(again.weights, one.weights)
