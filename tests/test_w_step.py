"""The W-step against brute force and against the objective recomputed from scratch."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.codes import pack
from bitclass.losses import LOSSES, tabulate
from bitclass.training import SOLVERS, Groups, Margins, hinge_weights, w_step
from bitclass.training.w_step import is_at_rest, quadratic_program
from brute_force import EVERY_LOSS, all_signs, objective, random_problem

LARGE = 1 << 30


def grouped(codes, labels, row_weights=None):
    row_weights = np.ones(len(labels)) if row_weights is None else row_weights
    return Groups.of_samples(labels, pack(codes), row_weights)


def program(codes, weights, labels, name, scale, k, row_weights=None):
    table = tabulate(LOSSES[name], codes.shape[1], scale)
    margins = Margins(grouped(codes, labels, row_weights), weights.copy(), LARGE)
    return quadratic_program(margins, k, *table.quadratic_tables(0))


problems = st.tuples(
    st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 9), st.sampled_from(EVERY_LOSS)
)


@given(problems, st.sampled_from([1.0, 0.3]))
@settings(max_examples=60, deadline=None)
def test_program_differences_are_objective_differences(problem, scale):
    """f(w) - f(w') equals the change of the true objective, for every pair of columns."""
    seed, n_classes, n_bits, name = problem
    rng = np.random.default_rng(seed)
    codes, weights, labels = random_problem(rng, 3 * n_classes, n_classes, n_bits)
    row_weights = rng.integers(0, 4, len(labels)).astype(float)
    k = int(rng.integers(n_bits))
    coupling, field = program(codes, weights, labels, name, scale, k, row_weights)
    assert np.all(np.diag(coupling) == 0)
    columns = all_signs(n_classes)
    values = np.einsum("ij,jk,ik->i", columns, coupling, columns) / 2 + columns @ field
    truth = []
    for column in columns:
        changed = weights.copy()
        changed[:, k] = column
        truth.append(objective(codes, changed, labels, name, scale, row_weights))
    np.testing.assert_allclose(
        values - values[0],
        np.array(truth) - truth[0],
        rtol=1e-9,
        atol=1e-9 * max(1.0, np.max(np.abs(truth))),
    )


@given(problems)
@settings(max_examples=60, deadline=None)
def test_after_flip_no_single_flip_improves(problem):
    seed, n_classes, n_bits, name = problem
    rng = np.random.default_rng(seed)
    codes, weights, labels = random_problem(rng, 4 * n_classes, n_classes, n_bits)
    k = int(rng.integers(n_bits))
    coupling, field = program(codes, weights, labels, name, 1.0, k)
    column, decrease = SOLVERS["flip"](coupling, field, weights[:, k].copy())
    reached = weights.copy()
    reached[:, k] = column
    value = objective(codes, reached, labels, name)
    before = objective(codes, weights, labels, name)
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
        coupling, field = program(codes, weights, labels, name, 1.0, 3)
        columns = all_signs(n_classes)
        values = np.einsum("ij,jk,ik->i", columns, coupling, columns) / 2 + columns @ field
        start = np.ascontiguousarray(weights[:, 3])
        cut, cut_decrease = SOLVERS["mincut"](coupling, field, start)
        flip, flip_decrease = SOLVERS["flip"](coupling, field, start)
        value = cut @ coupling @ cut / 2 + field @ cut
        size = np.abs(coupling).sum() + np.abs(field).sum()
        assert value == pytest.approx(values.min(), abs=1e-11 * size)
        assert flip_decrease <= cut_decrease + 1e-11 * size
        n_worse += flip_decrease < cut_decrease - 1e-9 * size
        assert flip.shape == cut.shape
    if name == "exponential" and n_classes == 10:
        # Otherwise the comparison above would hold for two solvers that do the same.
        assert n_worse > 0


def test_mincut_resolves_couplings_many_orders_apart():
    """Capacities are counted in integers; what one pass rounds away, the next must find."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        size = 8
        coupling = -np.exp(rng.uniform(-30, 0, (size, size)))
        coupling = coupling + coupling.T
        np.fill_diagonal(coupling, 0.0)
        field = rng.standard_normal(size) * np.exp(rng.uniform(-25, 0, size))
        columns = all_signs(size)
        values = np.einsum("ij,jk,ik->i", columns, coupling, columns) / 2 + columns @ field
        best, _ = SOLVERS["mincut"](coupling, field, columns[0])
        value = best @ coupling @ best / 2 + field @ best
        total = np.abs(coupling).sum() + np.abs(field).sum()
        assert value - values.min() <= 1e-13 * total


@given(problems)
@settings(max_examples=40, deadline=None)
def test_every_bit_update_of_the_w_step_lowers_the_true_objective(problem):
    seed, n_classes, n_bits, name = problem
    rng = np.random.default_rng(seed)
    codes, weights, labels = random_problem(rng, 4 * n_classes, n_classes, n_bits)
    table = tabulate(LOSSES[name], n_bits, 1.0)
    margins = Margins(grouped(codes, labels), weights.copy(), LARGE)
    seen = [objective(codes, weights, labels, name)]
    original = margins.set_bit

    def recording(k, column):
        original(k, column)
        seen.append(objective(codes, margins.weights, labels, name))

    margins.set_bit = recording
    w_step(margins, table, SOLVERS["flip"])
    assert all(after < before for before, after in pairwise(seen)), (
        "an update that was made did not lower the objective"
    )


def test_a_tied_sum_gives_plus_one():
    sums = np.array([[2.0, -1.0], [2.0, 1.0]])
    np.testing.assert_array_equal(hinge_weights(sums), [[1, -1], [1, 1]])


@pytest.mark.parametrize("noise", [0.0, 4e-16, -4e-16])
def test_flips_that_gain_alike_but_for_rounding_go_by_index(noise):
    coupling = np.ones((3, 3)) - np.eye(3)
    field = np.array([-1.1, -1.1 + noise, -1.1 - noise])
    # Each flip gains; whichever comes first, it takes the others' gains away.
    column, _ = SOLVERS["flip"](coupling, field, np.ones(3, dtype=np.int8))
    assert column.tolist() == [-1, 1, 1]


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_hinge_weights_equal_brute_force(seed, n_classes, n_bits):
    rng = np.random.default_rng(seed)
    codes, _, labels = random_problem(rng, 3 * n_classes, n_classes, n_bits)
    sums = np.array([codes[labels == c].sum(axis=0) for c in range(n_classes)], dtype=float)
    weights = hinge_weights(sums)
    best = min(
        objective(codes, w.reshape(n_classes, n_bits), labels, "hinge")
        for w in all_signs(n_classes * n_bits)
    )
    assert objective(codes, weights, labels, "hinge") == best


def test_flip_ends_in_a_local_optimum_where_mincut_finds_the_global_one():
    coupling = np.array([[0.0, -3.0], [-3.0, 0.0]])
    field = np.array([1.0, 1.0])
    w = np.array([1, 1], dtype=np.int8)
    column, decrease = SOLVERS["flip"](coupling, field, w)
    assert column.tolist() == [1, 1]  # both flips at once would gain, one alone would not
    assert decrease == 0.0
    column, decrease = SOLVERS["mincut"](coupling, field, w)
    assert column.tolist() == [-1, -1]
    assert decrease == 4.0


@pytest.mark.parametrize("max_bytes", [1, 100, 1000])
@pytest.mark.parametrize("name", ["exponential", "logistic"])
def test_the_w_step_does_not_depend_on_the_memory_it_may_use(name, max_bytes):
    rng = np.random.default_rng(3)
    codes, weights, labels = random_problem(rng, 60, 7, 40)
    table = tabulate(LOSSES[name], 40, 1.0)
    groups = grouped(codes, labels, rng.random(60))
    results = []
    for limit in (LARGE, max_bytes):
        margins = Margins(groups, weights.copy(), limit)
        decreases = w_step(margins, table, SOLVERS["flip"])
        results.append((margins.weights, decreases, margins.log_objective(table)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert results[0][2] == pytest.approx(results[1][2], rel=1e-12)


def changes_by_flips(codes, weights, labels, name, scale, row_weights):
    """What each flip of a single weight changes of the objective, (C, r), by its definition."""
    here = objective(codes, weights, labels, name, scale, row_weights)
    changes = np.empty(weights.shape)
    for c, k in np.ndindex(*weights.shape):
        flipped = weights.copy()
        flipped[c, k] *= -1
        changes[c, k] = objective(codes, flipped, labels, name, scale, row_weights) - here
    return changes, here


@given(problems, st.booleans(), st.sampled_from([1, LARGE]))
@settings(max_examples=150, deadline=None)
def test_at_rest_is_where_every_flip_raises_the_true_objective(problem, own_codes, max_bytes):
    seed, n_classes, n_bits, name = problem
    rng = np.random.default_rng(seed)
    codes, weights, labels = random_problem(rng, 2 * n_classes, n_classes, n_bits)
    if own_codes:  # or nearly none would be at rest
        codes = weights[labels]
    row_weights = rng.integers(1, 4, len(labels)).astype(float)
    scale = 0.1  # so that no term outweighs all others
    changes, here = changes_by_flips(codes, weights, labels, name, scale, row_weights)
    table = tabulate(LOSSES[name], n_bits, scale)
    margins = Margins(grouped(codes, labels, row_weights), weights.copy(), max_bytes)
    doubt = 1e-8 * max(1.0, abs(here))
    if is_at_rest(margins, table):
        assert np.all(changes >= -doubt)
    else:
        assert np.any(changes <= doubt)


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_rest_spares_the_programs_of_all_bits(name, monkeypatch):
    rng = np.random.default_rng(0)
    weights = np.where(rng.random((12, 40)) < 0.5, -1, 1).astype(np.int8)
    table = tabulate(LOSSES[name], 40, 1.0)
    margins = Margins(grouped(weights, np.arange(12)), weights.copy(), LARGE)
    slowly = w_step(margins, table, SOLVERS["mincut"])
    np.testing.assert_array_equal(margins.weights, weights)

    monkeypatch.delattr(Margins, "pair_sums")  # fails where a program is asked for
    quickly = w_step(margins, table, SOLVERS["flip"])
    np.testing.assert_array_equal(margins.weights, weights)
    np.testing.assert_array_equal(quickly, slowly)
    margins.weights[3] *= -1
    with pytest.raises(AttributeError):
        w_step(Margins(margins.groups, margins.weights, LARGE), table, SOLVERS["flip"])


@pytest.mark.parametrize(("n_bits", "scale", "unit"), [(1024, 1.0, 1e5), (128, 6.0, 1.0)])
def test_own_classes_far_above_all_margins_do_not_overflow(n_bits, scale, unit):
    """Warnings of NumPy are errors here."""
    rng = np.random.default_rng(0)
    weights = np.where(rng.random((20, n_bits)) < 0.5, -1, 1).astype(np.int8)
    table = tabulate(LOSSES["exponential"], n_bits, scale)
    groups = grouped(weights, np.arange(20), np.full(20, unit))
    assert is_at_rest(Margins(groups, weights, LARGE), table)


def test_margins_stay_within_the_memory_they_are_given():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (20_000, 2), dtype=np.uint8)
    labels = np.sort(rng.integers(0, 100, 20_000))
    groups = Groups.of_samples(labels, codes, np.ones(20_000))
    weights = rng.choice(np.array([-1, 1], dtype=np.int8), size=(100, 16))
    table = tabulate(LOSSES["exponential"], 16, 1.0)
    size = 2 * len(groups.labels) * 100
    for limit in (size, size // 8):
        tracemalloc.start()
        margins = Margins(groups, weights.copy(), limit)
        margins.top()
        margins.log_objective(table)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < limit + (40 << 20)
