import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bitclass.codes import hamming, pack, packed_width, sign, unpack

signs = st.integers(1, 70).flatmap(
    lambda r: st.tuples(
        arrays(np.int8, (3, r), elements=st.sampled_from([-1, 1])),
        arrays(np.int8, (3, r), elements=st.sampled_from([-1, 1])),
    )
)


@given(signs)
def test_unpacking_restores_what_was_packed(pair):
    codes, _ = pair
    packed = pack(codes)
    assert packed.shape == (3, packed_width(codes.shape[1]))
    np.testing.assert_array_equal(unpack(packed, codes.shape[1]), codes)


@given(signs)
def test_inner_product_is_n_bits_minus_twice_the_distance(pair):
    a, b = pair
    inner = (a.astype(int) * b).sum(axis=1)
    np.testing.assert_array_equal(inner, a.shape[1] - 2 * hamming(pack(a), pack(b)))


@pytest.mark.parametrize("k", [0, 7, 8, 63, 64, 130])
def test_bit_k_sits_in_byte_k_div_8_at_position_k_mod_8(k):
    codes = np.full((1, 131), -1, dtype=np.int8)
    codes[0, k] = 1
    packed = pack(codes)[0]
    assert packed[k // 8] == 1 << (k % 8)
    assert packed.sum() == 1 << (k % 8)


def test_packed_bytes_seen_as_words_hold_bit_k_at_position_k():
    codes = np.full((1, 128), -1, dtype=np.int8)
    codes[0, 70] = 1
    words = pack(codes).view("<u8")[0]
    assert words.tolist() == [0, 1 << 6]


def test_padding_bits_are_zero():
    assert pack(np.ones((1, 9), dtype=np.int8)).tolist() == [[255, 1]]


def test_sign_of_zero_is_plus_one():
    assert sign([0.0, -0.0, -1e-300]).tolist() == [1, 1, -1]
