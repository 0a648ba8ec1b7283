"""The compiled kernels of the paper's method equal their NumPy references, to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitclass._native import paper as native
from bitclass._native import thread_limit

from . import reference
from .training_problems import Problem, losses, strided

N_BITS = [1, 7, 64, 127, 128, 200]


@st.composite
def sizes(draw):
    return {
        "n": draw(st.sampled_from([0, 1, 2, 33, 70, 150, 300])),
        "n_classes": draw(st.sampled_from([1, 2, 3, 31, 33, 70, 100])),
        "n_bits": draw(st.sampled_from(N_BITS)),
        "seed": draw(st.integers(0, 2**32 - 1)),
        "n_threads": draw(st.sampled_from([1, 2, 3, 7])),
    }


@given(size=sizes(), spread=st.booleans())
def test_half_margins(level, size, spread):
    p = Problem(**size)
    p.rng.shuffle(p.y)
    expected = reference.half_margins(p.codes, p.weights, p.y)
    layout = strided if spread else np.asarray
    found = thread_limit(p.n_threads)(native.half_margins)(
        layout(p.codes), layout(p.weights), layout(p.y)
    )
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@given(size=sizes(), n_tables=st.integers(1, 3), spread=st.booleans(), data=st.data())
def test_pair_sums(level, size, n_tables, spread, data):
    p = Problem(**size)
    bit = p.n_bits - 1
    tables = p.rng.standard_normal((n_tables, 2 * p.n_bits + 1))
    expected = p.rng.standard_normal((2, n_tables, p.n_classes, p.n_classes))
    found = expected.copy()
    reference.pair_sums(p.codes, p.weights, bit, p.y, p.row_weights, tables, expected)
    cuts = sorted(data.draw(st.lists(st.integers(0, p.n), max_size=3)))
    layout = strided if spread else np.asarray
    for begin, end in zip([0, *cuts], [*cuts, p.n], strict=True):
        rows = slice(begin, end)
        thread_limit(p.n_threads)(native.pair_sums)(
            layout(p.codes[rows]),
            layout(p.weights),
            bit,
            layout(p.y[rows]),
            layout(p.row_weights[rows]),
            layout(tables),
            found,
        )
    np.testing.assert_array_equal(found, expected)


def test_pair_sums_of_many_rows_and_threads(level):
    p = Problem(n=5000, n_classes=130, n_bits=65, seed=3)
    tables = np.exp(np.linspace(-3, 3, 2 * p.n_bits + 1))[None]
    arguments = (p.codes, p.weights, 7, p.y, p.row_weights, tables)
    expected = np.zeros((2, 1, p.n_classes, p.n_classes))
    reference.pair_sums(*arguments, expected)
    for n_threads in (1, 2, 3, 7):
        sums = np.zeros_like(expected)
        thread_limit(n_threads)(native.pair_sums)(*arguments, sums)
        np.testing.assert_array_equal(sums, expected)


@given(
    n_classes=st.sampled_from([1, 2, 3, 15, 16, 17, 100, 600]),
    seed=st.integers(0, 2**32 - 1),
    n_threads=st.sampled_from([1, 2, 3, 7]),
    rounded=st.booleans(),
)
def test_flip_bits(level, n_classes, seed, n_threads, rounded):
    p = Problem(0, n_classes, 1, seed)
    H = p.rng.standard_normal((n_classes, n_classes))
    g = p.rng.standard_normal(n_classes)
    if rounded:  # many equal gains: the lowest index flips first
        H, g = np.round(H), np.round(g)
    H = H + H.T
    np.fill_diagonal(H, 0.0)
    w, decrease = reference.flip_bits(H, g, p.weight_bits)
    found, found_decrease = thread_limit(n_threads)(native.flip_bits)(H, g, p.weight_bits)
    np.testing.assert_array_equal(found, w)
    assert found_decrease == decrease
    assert found.dtype == np.int8


def test_flip_bits_stops_at_undefined_numbers(level):
    H = np.zeros((3, 3))
    g = np.array([1.0, np.nan, 1.0])
    w, decrease = native.flip_bits(H, g, np.ones(3, dtype=np.int8))
    assert w.tolist() == [1, 1, 1]
    assert decrease == 0.0
    np.fill_diagonal(H, np.nan)
    w, decrease = native.flip_bits(H, np.ones(3), np.ones(3, dtype=np.int8))
    assert w.tolist() == [1, 1, 1]
    assert decrease == 0.0


@pytest.mark.parametrize("flip", [native.flip_bits, reference.flip_bits])
@pytest.mark.parametrize("entry", [1.0, -1.0, 1e-300, np.inf])
def test_flip_bits_rejects_a_nonzero_diagonal(level, flip, entry):
    H = np.zeros((3, 3))
    H[1, 1] = entry
    with pytest.raises(ValueError, match="H: expected a diagonal of zeros"):
        flip(H, np.zeros(3), np.ones(3, dtype=np.int8))


@pytest.mark.parametrize("flip", [native.flip_bits, reference.flip_bits])
def test_flip_bits_terminates_without_symmetry(level, flip):
    H = np.array([[0.0, 1.0], [-1.0, 0.0]])  # each flip makes another one improve
    with pytest.raises(ValueError, match="H: expected a symmetric matrix"):
        flip(H, np.array([-2.0, 2.0]), np.ones(2, dtype=np.int8))


@given(size=sizes(), scale=st.sampled_from([1.0, 0.3, 0.05]), spread=st.booleans())
def test_update_codes(level, size, scale, spread):
    p = Problem(**size)
    if p.rng.random() < 0.3:
        p.rng.shuffle(p.y)
    layout = strided if spread else np.asarray
    for values, log_step in losses(p.n_bits, scale):
        expected, logs = reference.update_codes(
            p.codes, p.weights, p.y, p.row_weights, p.n_bits, values, log_step
        )
        found, found_logs = thread_limit(p.n_threads)(native.update_codes)(
            layout(p.codes),
            layout(p.weights),
            layout(p.y),
            layout(p.row_weights),
            p.n_bits,
            layout(values),
            log_step,
        )
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(found_logs, logs, rtol=1e-9, atol=1e-12)


def test_update_codes_is_the_same_for_every_thread_count(level):
    p = Problem(n=3000, n_classes=20, n_bits=128, seed=5)
    values, log_step = losses(p.n_bits, 0.1)[1]
    arguments = (p.codes, p.weights, p.y, p.row_weights, p.n_bits, values, log_step)
    expected, logs = thread_limit(1)(native.update_codes)(*arguments)
    for n_threads in (2, 3, 7):
        found, found_logs = thread_limit(n_threads)(native.update_codes)(*arguments)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(found_logs, logs)


@given(
    n=st.sampled_from([0, 1, 2, 50, 1000]),
    n_bytes=st.sampled_from([1, 2, 7, 8, 9, 16, 25]),
    n_codes=st.sampled_from([1, 3, 1000]),
    span=st.sampled_from([1, 5, 300, 2**62]),
    ordered=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    n_threads=st.sampled_from([1, 2, 3, 7]),
)
def test_group_rows(n, n_bytes, n_codes, span, ordered, seed, n_threads):
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 256, (n_codes, n_bytes), dtype=np.uint8)
    codes = pool[rng.integers(0, n_codes, n)]
    labels = rng.integers(-span, span, n).astype(np.intp)
    if ordered:
        labels.sort()
    expected = reference.group_rows(labels, codes)
    for layout in (np.asarray, strided):
        found = thread_limit(n_threads)(native.group_rows)(layout(labels), layout(codes))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == np.intp


def test_group_rows_in_several_tasks():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (100_000, 2), dtype=np.uint8)
    labels = rng.integers(0, 5, len(codes)).astype(np.intp)
    found = thread_limit(3)(native.group_rows)(labels, codes)
    for a, b in zip(found, reference.group_rows(labels, codes), strict=True):
        np.testing.assert_array_equal(a, b)
