"""Packing of codes, and resolution of duplicates."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bitclass.codes import (
    CodeWarning,
    _cheapest_subsets,
    hamming,
    make_distinct,
    pack,
    packed_width,
    sign,
    unpack,
)


@given(
    st.integers(1, 70).flatmap(
        lambda r: arrays(np.int8, (2, 3, r), elements=st.sampled_from([-1, 1]))
    )
)
def test_packing_loses_nothing_and_distances_are_inner_products(pair):
    a, b = pair
    n_bits = a.shape[1]
    assert pack(a).shape == (3, packed_width(n_bits))
    np.testing.assert_array_equal(unpack(pack(a), n_bits), a)
    inner = (a.astype(int) * b).sum(axis=1)
    np.testing.assert_array_equal(inner, n_bits - 2 * hamming(pack(a), pack(b)))


@pytest.mark.parametrize("k", [0, 7, 8, 63, 64, 127])
def test_bit_k_is_in_byte_k_div_8_at_position_k_mod_8(k):
    codes = np.full((1, 128), -1, dtype=np.int8)
    codes[0, k] = 1
    packed = pack(codes)[0]
    assert packed[k // 8] == packed.sum() == 1 << (k % 8)
    assert packed.view("<u8")[k // 64] == 1 << (k % 64)


def test_padding_bits_are_zero_and_the_sign_of_zero_is_plus_one():
    assert pack(np.ones((1, 9), dtype=np.int8)).tolist() == [[255, 1]]
    assert sign([0.0, -0.0, -1e-300]).tolist() == [1, 1, -1]


# -- Distinct weights


def test_duplicate_weights_change_in_the_bit_of_least_cost():
    weights = np.array([[1, 1, 1], [1, 1, 1]], dtype=np.int8)
    sums = np.array([[9.0, 9.0, 9.0], [9.0, 8.5, 9.0]])
    # |2 * sum - total| is 0, 0.5, 0 for the first bits: the cheapest is bit 0.
    with pytest.warns(CodeWarning, match="1 of 2 .* 'b' and 'a'; they were assigned"):
        distinct = make_distinct(weights, sums, ["a", "b"])
    np.testing.assert_array_equal(distinct, [[1, 1, 1], [-1, 1, 1]])
    assert make_distinct(distinct, sums, ["a", "b"]) is distinct


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 40))
def test_no_two_classes_share_a_pattern_while_an_unused_one_exists(seed, n_bits, n):
    rng = np.random.default_rng(seed)
    weights = rng.choice(np.array([-1, 1], dtype=np.int8), size=(n, n_bits))
    weights[: n // 2] = weights[0]
    repeated = len(np.unique(weights, axis=0)) < n
    left = f"{n - 2**n_bits} of them still do, because n_bits={n_bits} allows only"
    message = left if n > 2**n_bits else "nearest unused patterns"
    with pytest.warns(CodeWarning, match=message) if repeated else nullcontext():
        distinct = make_distinct(weights, rng.standard_normal((n, n_bits)), list(range(n)))
    assert len(np.unique(distinct, axis=0)) == min(n, 2**n_bits)


def one_class_after_the_other(weights, code_sums):
    """Each class tries all patterns, nearest first, whatever others have tried."""
    weights, n = weights.copy(), len(weights)
    total = code_sums.sum(axis=0)
    taken = set(map(bytes, weights))
    for c in range(n):
        if any(np.array_equal(weights[c], earlier) for earlier in weights[:c]):
            for bits in _cheapest_subsets(np.abs(n * code_sums[c] - total)):
                candidate = weights[c].copy()
                candidate[bits] *= -1
                if bytes(candidate) not in taken:
                    break
            weights[c] = candidate
            taken.add(bytes(candidate))
    return weights


@pytest.mark.filterwarnings("ignore::bitclass.codes.CodeWarning")
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_equal_classes_get_the_patterns_of_a_separate_search_each(seed, n_kinds):
    rng = np.random.default_rng(seed)
    weights = rng.choice(np.array([-1, 1], dtype=np.int8), (n_kinds, 8))[
        rng.integers(n_kinds, size=40)
    ]
    code_sums = weights * rng.integers(1, 3, 40)[:, None].astype(np.float64)
    expected = one_class_after_the_other(weights, code_sums)
    np.testing.assert_array_equal(make_distinct(weights, code_sums, np.arange(40)), expected)


def test_very_many_equal_classes_do_not_try_the_same_patterns_again(monkeypatch):
    n_tried = 0

    def counted(costs):
        nonlocal n_tried
        for subset in _cheapest_subsets(costs):
            n_tried += 1
            yield subset

    monkeypatch.setattr("bitclass.codes._cheapest_subsets", counted)
    n = 20_000
    weights = np.ones((n, 64), dtype=np.int8)
    assert len(np.unique(make_distinct(weights, weights, np.arange(n)), axis=0)) == n
    assert n_tried == n - 1


def test_equal_classes_do_not_warn_if_there_are_many_bits():
    rng = np.random.default_rng(0)
    weights = np.repeat(rng.choice(np.array([-1, 1], dtype=np.int8), (200, 64)), 2, axis=0)
    distinct = make_distinct(weights, weights, np.arange(400))  # a warning is an error here
    assert len(np.unique(distinct, axis=0)) == 400
    by_floats = make_distinct(weights, weights.astype(np.float64), np.arange(400))
    np.testing.assert_array_equal(distinct, by_floats)
