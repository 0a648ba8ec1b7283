"""Hamming search equals the NumPy reference, including ties and odd sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from bitclass._native import HammingIndex, _kernels, thread_limit

from . import reference

THREADS = (1, 2, 3, 7)


def random_bytes(rng, *shape, values=256):
    """Packed codes; few values make many equal distances."""
    return rng.integers(0, values, shape, dtype=np.uint8)


def random_bias(rng, n_classes, size):
    """Biases with ties and halves; none if their size is 0."""
    if not size:
        return None
    return np.rint(size * rng.standard_normal(n_classes) * 2).astype(np.float32) / 2


# Sizes for which distances fit 8, 16 and 32 bits, and do not.
BIASES = st.sampled_from([0, 0.3, 3, 30, 60, 1000, 100_000])


def assert_equal_pairs(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert_array_equal(one, other)


@given(
    n=st.one_of(st.integers(0, 9), st.just(300)),
    n_classes=st.one_of(st.integers(1, 70), st.just(300)),
    n_bytes=st.one_of(st.integers(1, 34), st.sampled_from([64, 125, 130, 257])),
    values=st.sampled_from([1, 2, 256]),
    size=BIASES,
    threads=st.sampled_from(THREADS),
    seed=st.integers(0, 2**32 - 1),
)
def test_nearest_and_top_k_equal_the_reference(
    level, n, n_classes, n_bytes, values, size, threads, seed
):
    rng = np.random.default_rng(seed)
    weights = random_bytes(rng, n_classes, n_bytes, values=values)
    codes = random_bytes(rng, n, n_bytes, values=values)
    bias = random_bias(rng, n_classes, size)
    index = HammingIndex(weights, bias)
    with thread_limit(threads):
        assert_equal_pairs(index.nearest(codes), reference.nearest(codes, weights, bias))
        for k in {1, min(3, n_classes), min(40, n_classes), n_classes}:
            assert_equal_pairs(index.top_k(codes, k), reference.top_k(codes, weights, k, bias))


@given(
    n=st.sampled_from([0, 1, 3, 130]),
    n_classes=st.one_of(st.integers(1, 70), st.just(700)),
    n_bits=st.one_of(st.integers(1, 270), st.just(1000)),
    threads=st.sampled_from(THREADS),
    size=BIASES,
    seed=st.integers(0, 2**32 - 1),
)
def test_scores_equal_the_reference(level, n, n_classes, n_bits, threads, size, seed):
    rng = np.random.default_rng(seed)
    weights = np.packbits(rng.random((n_classes, n_bits)) < 0.5, axis=1, bitorder="little")
    codes = np.packbits(rng.random((n, n_bits)) < 0.5, axis=1, bitorder="little")
    bias = random_bias(rng, n_classes, size)
    index, expected = HammingIndex(weights, bias), reference.scores(codes, weights, n_bits, bias)
    scores = thread_limit(threads)(index.scores)(codes, n_bits)
    assert scores.dtype == np.int32
    assert_array_equal(scores, expected)
    lists = np.random.default_rng(seed).permuted(np.tile(np.arange(n_classes), (n, 1)), axis=1)
    lists, width = lists[:, : n_classes // 2], 1 + n_bits // 2
    best, counts = thread_limit(threads)(index.counts)(codes, n_bits, lists, width)
    for row in range(n):
        others = np.delete(expected[row], lists[row])
        assert best[row] == others.max()
        bins = np.minimum((others.max() - others) // 2, width - 1)
        assert_array_equal(counts[row], np.bincount(bins, minlength=width))


@pytest.mark.parametrize("n_bytes", [16, 31, 32, 33])
@pytest.mark.parametrize("largest", [100, 127, 128, 254, 255, 300])
def test_a_handicap_at_the_limits_of_bytes(level, n_bytes, largest):
    rng = np.random.default_rng(largest)
    weights, codes = random_bytes(rng, 9000, n_bytes), random_bytes(rng, 70, n_bytes)
    codes[:9] = ~weights[0]
    bias = -rng.integers(0, 2 * largest + 1, 9000).astype(np.float32)
    bias[[0, 1, 8000]] = 0, -2 * largest, -2 * largest
    # In the second index, all but two classes are far behind.
    for biases in (bias, np.where(np.arange(9000) % 5000 == 7, np.float32(0), -2 * largest)):
        index = HammingIndex(weights, biases.astype(np.float32))
        expected = reference.top_k(codes, weights, 100, biases)
        assert_equal_pairs(index.top_k(codes, 100), expected)
        assert_equal_pairs(index.top_k(codes, 3), (part[:, :3] for part in expected))
        assert_equal_pairs(index.nearest(codes), (part[:, 0] for part in expected))


def test_biases_out_of_range_are_rejected():
    weights = np.zeros((2, 1), np.uint8)
    for wrong in (np.nan, np.inf, -1.1e6):
        with pytest.raises(ValueError, match="bias: expected numbers from -1048576 to 1048576"):
            HammingIndex(weights, np.array([0, wrong], np.float32))
    with pytest.raises(ValueError, match="bias: expected length 2"):
        HammingIndex(weights, np.zeros(3, np.float32))


@pytest.mark.parametrize("n_bytes", [1, 16, 32, 124, 125, 1000, 4100, 125_000])
def test_the_largest_distance_does_not_overflow(level, n_bytes):
    weights = np.zeros((18, n_bytes), dtype=np.uint8)
    codes = np.full((5, n_bytes), 255, dtype=np.uint8)
    indices, distances = HammingIndex(weights).nearest(codes)
    assert_array_equal(indices, np.zeros(5))
    assert_array_equal(distances, np.full(5, 8 * n_bytes))
    assert_array_equal(HammingIndex(weights).top_k(codes, 2)[1], np.full((5, 2), 8 * n_bytes))


def test_a_class_after_many_blocks_is_found(level):
    # More classes than one block of a scan, the best one near the end, followed by ties.
    rng = np.random.default_rng(0)
    weights = random_bytes(rng, 150_001, 4)
    codes = np.array([[1, 2, 3, 4], [9, 9, 9, 9]], dtype=np.uint8)
    weights[(weights == codes[0]).all(axis=1) | (weights == codes[1]).all(axis=1)] = 77
    weights[[140_003, 150_000]] = codes[0]
    weights[[65_536, 131_072]] = codes[1]
    index = HammingIndex(weights)
    assert_equal_pairs(index.nearest(codes), reference.nearest(codes, weights))
    assert index.nearest(codes)[0].tolist() == [140_003, 65_536]
    assert_equal_pairs(index.top_k(codes, 50), reference.top_k(codes, weights, 50))


def test_any_strides_and_alignment_are_read(level):
    rng = np.random.default_rng(2)
    wide = random_bytes(rng, 40, 33)
    weights, codes = wide[::2, 1::2], wide[1::2, 32:0:-2]
    assert not codes.flags.c_contiguous
    assert_equal_pairs(HammingIndex(weights).nearest(codes), reference.nearest(codes, weights))
    unaligned = np.frombuffer(wide.tobytes(), np.uint8)[3 : 3 + 320].reshape(20, 16)
    assert not unaligned.flags.writeable
    assert_equal_pairs(
        HammingIndex(unaligned).nearest(unaligned), reference.nearest(unaligned, unaligned)
    )


def test_an_index_keeps_the_simd_level_it_was_created_with(level):
    # Its layout is specific to one level: changing the level later must not mix them.
    rng = np.random.default_rng(4)
    weights, codes = random_bytes(rng, 50, 16), random_bytes(rng, 20, 16)
    index = HammingIndex(weights)
    for other in _kernels.available_levels():
        _kernels._use_level(other)
        assert_equal_pairs(index.nearest(codes), reference.nearest(codes, weights))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros((0, 2), np.uint8), "weights: .*classes, found 0"),
        (np.zeros((2, 0), np.uint8), "weights: .*bytes per class, found 0"),
        (np.zeros((1, 125_001), np.uint8), "weights: .*found 125001"),
    ],
)
def test_invalid_weights_are_rejected(weights, message):
    with pytest.raises(ValueError, match=message):
        HammingIndex(weights)
