"""Encoding equals the NumPy reference: bit for bit in int8, and in float if sums are exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from bitclass._native import HammingIndex, _kernels, thread_limit
from bitclass.hash_function import HashFunction

from . import reference

FEATURE_TYPES = (np.float16, np.float32, np.float64)
THREADS = (1, 2, 3, 7)


def integers(rng, *shape):
    """Small integers: every sum of their products is exact, so its order does not matter."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def problem(seed, n, d, r, dtype=np.float32):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * rng.choice([0.01, 1, 50], (n, 1))).astype(dtype)
    projection = rng.standard_normal((d, r)).astype(np.float32)
    return X, projection, rng.standard_normal(r), rng


def standardising(rng, d, standardise=True):
    """Arguments of a hash function that standardises rows, or none."""
    if not standardise:
        return {}
    centre = rng.standard_normal(d).astype(np.float32)
    return {"centre": centre, "scale": rng.uniform(0.1, 10, d).astype(np.float32)}


def assert_equals_the_twin(hash_function, X):
    if hash_function.precision == "int8":
        expected = reference.encode_int8(X, hash_function.quantised())
    else:
        expected = reference.encode(X, hash_function.projection, hash_function.intercept)
    assert_array_equal(hash_function.encode(X), expected)


@given(
    n=st.integers(0, 40),
    d=st.integers(1, 200),
    r=st.integers(1, 140),
    dtype=st.sampled_from(FEATURE_TYPES),
    standardise=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_int8_equals_the_reference(level, n, d, r, dtype, standardise, seed):
    X, projection, intercept, rng = problem(seed, n, d, r, dtype)
    projection[:, rng.random(r) < 0.1] = 0  # a column of zeros has the sign of its intercept
    X[rng.random(n) < 0.1] = 0
    options = standardising(rng, d, standardise)
    assert_equals_the_twin(HashFunction(projection, intercept, precision="int8", **options), X)


@given(
    n=st.integers(0, 20),
    d=st.integers(1, 70),
    r=st.integers(1, 140),
    dtype=st.sampled_from(FEATURE_TYPES),
    seed=st.integers(0, 2**32 - 1),
)
def test_float_equals_the_reference_if_sums_are_exact(level, n, d, r, dtype, seed):
    rng = np.random.default_rng(seed)
    X, projection = integers(rng, n, d).astype(dtype), integers(rng, d, r)
    intercept = rng.integers(-2, 3, r).astype(np.float64)
    hash_function = HashFunction(projection, intercept, precision="float32")
    assert_equals_the_twin(hash_function, X)
    assert_array_equal(hash_function.encode(X.astype(np.float64)), hash_function.encode(X))


def test_zeros_of_both_signs_are_positive_and_nan_is_not(level):
    scores = np.array([[0.0, -0.0, -1e-30, np.nan, np.inf, -np.inf, 1, -1, 0.0, -0.0, -1]], "f4")
    codes, first_bad = _kernels.pack_signs(scores, np.zeros(11, np.float32))
    assert first_bad == 0  # the first row that is not finite
    assert codes.tolist() == [[0b01010011, 0b011]]


def test_every_half_float_is_read_exactly(level):
    """In rows of numbers of about the same size."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].reshape(-1, 16)
    _, projection, intercept, _ = problem(0, 1, 16, 40)
    hash_function = HashFunction(projection, intercept)
    expected = hash_function.encode(halves.astype(np.float32))
    assert_array_equal(hash_function.encode(halves), expected)


def test_int8_sums_at_the_extremes_are_exact(level):
    # Every product is 127 * 127 or its negative, which saturates or wraps in a careless kernel.
    for d in (64, 4096, 66_000, 133_000):
        X = np.array([np.ones(d), -np.ones(d)], dtype=np.float32)
        projection = np.ones((d, 16), dtype=np.float32)
        projection[:, 8:] = -1
        for intercept in (-float(d), -float(d) - 0.01):
            hash_function = HashFunction(projection, np.full(16, intercept), precision="int8")
            assert_equals_the_twin(hash_function, X)
        assert hash_function.encode(X).tolist() == [[0, 0], [0, 0]]


def test_ties_of_the_rounding_go_to_even(level):
    # With a row maximum of 127 entries are rounded as they are: halves between integers.
    X = np.zeros((1, 64), dtype=np.float32)
    X[0, :7] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]
    for feature in range(64):
        projection = np.zeros((64, 8), dtype=np.float32)
        projection[feature] = 1
        for target in (-3, -2, -1, 1, 2, 3):
            intercept = np.full(8, -target * 1.0)
            assert_equals_the_twin(HashFunction(projection, intercept, precision="int8"), X)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("dtype", FEATURE_TYPES)
def test_results_do_not_depend_on_threads_or_neighbours(level, precision, dtype):
    rng = np.random.default_rng(5)
    X, projection = integers(rng, 500, 65).astype(dtype), integers(rng, 65, 33)
    hash_function = HashFunction(projection, np.zeros(33), precision=precision)
    codes = thread_limit(1)(hash_function.encode)(X)
    for threads in THREADS:
        assert_array_equal(thread_limit(threads)(hash_function.encode)(X), codes)
    assert_array_equal([hash_function.encode(row[None])[0] for row in X], codes)


@pytest.mark.parametrize("dtype", FEATURE_TYPES)
@pytest.mark.parametrize(
    ("precision", "n", "d", "r"),
    [("float32", 2100, 5, 1001), ("float32", 90, 50_000, 9), ("int8", 70, 100_000, 9)],
)
def test_blocks_of_rows_are_joined_correctly(precision, dtype, n, d, r):
    # Enough scores, or enough features of rows that have to be copied, for several blocks.
    rng = np.random.default_rng(10)
    X = np.asfortranarray(integers(rng, n, d).astype(dtype))
    projection = integers(rng, d, r)
    assert_equals_the_twin(HashFunction(projection, np.zeros(r), precision=precision), X)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("dtype", FEATURE_TYPES)
def test_any_strides_and_alignment_are_read(level, precision, dtype):
    rng = np.random.default_rng(6)
    hash_function = HashFunction(integers(rng, 50, 20), np.zeros(20), precision=precision)
    wide = integers(rng, 31, 151).astype(dtype)
    unaligned = np.frombuffer(b"\0" + wide.tobytes(), np.uint8)[1:].view(dtype).reshape(31, 151)
    assert not unaligned.flags.aligned
    for X in (
        wide[:, :50],
        wide[::3, 7:57],
        wide[::-2, :50],
        wide[:, ::3][:, :50],
        wide[:, 149::-3],
        np.asfortranarray(wide[:, :50]),
        unaligned[:, 1:51],
        np.broadcast_to(wide[:1, :50], (9, 50)),
    ):
        assert_equals_the_twin(hash_function, X)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("dtype", FEATURE_TYPES)
def test_the_first_entry_that_is_not_finite_is_named(level, dtype, standardise, precision):
    # At any position: first, last, or followed by others in the same lane of a register.
    X, projection, intercept, rng = problem(7, 400, 130, 40, dtype)
    options = standardising(rng, 130, standardise)
    hash_function = HashFunction(projection, intercept, precision=precision, **options)
    index = HammingIndex(hash_function.encode(X[:9]))
    for row, column, value in ((0, 0, np.nan), (17, 3, np.inf), (399, 129, -np.inf)):
        bad = X.copy()
        bad[row, column] = value
        bad[row, column + 1 :] = np.nan
        bad[row + 1 :, 5] = np.nan
        found = "NaN" if np.isnan(value) else rf"infinity \({value}\)"
        message = f"X must be finite: row {row}, feature {column} is {found}$"
        for threads in (1, 3):
            with pytest.raises(ValueError, match=message):
                thread_limit(threads)(hash_function.encode)(bad)
            with pytest.raises(ValueError, match=message):
                thread_limit(threads)(hash_function.nearest)(bad, index)
        with pytest.raises(ValueError, match=message):
            hash_function.encode(np.asfortranarray(bad))


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("n", [1, 3])
def test_rows_that_overflow_are_rejected(level, precision, n):
    _, projection, intercept, _ = problem(7, 6, 130, 40)
    scale = np.full(130, 1e-3, np.float32)
    hash_function = HashFunction(projection, intercept, precision=precision, scale=scale)
    X = np.zeros((n, 130), np.float32)
    X[-1] = 3e38
    with pytest.raises(ValueError, match=f"X: row {n - 1}, feature 0 is 3e\\+38, too large"):
        hash_function.encode(X)
    wide = X.astype(np.float64)
    wide[-1] = 1
    wide[-1, 7] = -1e200
    with pytest.raises(ValueError, match=f"X: row {n - 1}, feature 7 is -1e\\+200, too large"):
        hash_function.encode(wide)


@pytest.mark.parametrize("dtype", FEATURE_TYPES)
def test_a_row_of_tiny_entries_counts_as_zeros(level, dtype):
    _, projection, intercept, _ = problem(7, 6, 130, 40)
    hash_function = HashFunction(projection, intercept, precision="int8")
    zeros = np.zeros((1, 130), dtype)
    assert_array_equal(hash_function.encode(zeros + dtype(1e-40)), hash_function.encode(zeros))


def test_int8_follows_float32_for_features_of_very_different_sizes():
    rng = np.random.default_rng(8)
    sizes = np.geomspace(1e-3, 1e4, 256).astype(np.float32)
    means = (10 * sizes * rng.standard_normal(256)).astype(np.float32)
    X = (rng.standard_normal((400, 256)) * sizes + means).astype(np.float32)
    projection = (rng.standard_normal((256, 64)) / sizes[:, None]).astype(np.float32)
    intercept = -(means.astype(np.float64) @ projection.astype(np.float64))
    exact = HashFunction(projection, intercept, precision="float32").encode(X.astype(np.float64))

    def differing(**how):
        codes = HashFunction(projection, intercept, precision="int8", **how).encode(X)
        return np.bitwise_count(codes ^ exact).sum() / (len(X) * 64)

    assert differing(centre=means, scale=sizes) < 0.01
    assert differing() > 0.2  # the case for which rows are standardised


PROJECTION = np.zeros((4, 9), np.float32)
INTERCEPT = np.zeros(9)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((PROJECTION, INTERCEPT), {"columns": np.arange(4, dtype=np.int32)}, "need n_features"),
        ((np.zeros((133_001, 1), np.float32), np.zeros(1)), {}, "1 to 133000 features"),
        ((PROJECTION + np.float32(1e-38), INTERCEPT + 1e300), {}, "intercept: too large"),
    ],
)
def test_invalid_hash_functions_are_rejected(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        HashFunction(*arguments, **options)
