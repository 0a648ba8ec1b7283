"""The compiled kernels of the paper's method equal their NumPy references, to the last bit."""

import numpy as np
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


@given(size=sizes(), spread=st.booleans(), data=st.data())
def test_pair_sums(level, size, spread, data):
    p = Problem(**size)
    bit = p.n_bits - 1
    tables = p.rng.standard_normal((2, 2 * p.n_bits + 1))
    expected = p.rng.standard_normal((2, 2, p.n_classes, p.n_classes))
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
    tables = np.exp(np.linspace([-3, -2], [3, 1], 2 * p.n_bits + 1).T)
    arguments = (p.codes, p.weights, 7, p.y, p.row_weights, tables)
    expected = np.zeros((2, 2, p.n_classes, p.n_classes))
    reference.pair_sums(*arguments, expected)
    for n_threads in (1, 2, 3, 7):
        sums = np.zeros_like(expected)
        thread_limit(n_threads)(native.pair_sums)(*arguments, sums)
        np.testing.assert_array_equal(sums, expected)


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
