"""The bit contract: how a vector of signs becomes bytes, and back.

sign(0) is +1. Bit k is set where entry k is +1, and sits in byte k // 8 at position k % 8 (little
bit order). Padding bits of the last byte are 0, on both sides of every comparison, so that

    w . b = r - 2 * Hamming(w, b)

holds for any number of bits r.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MAX_BITS", "hamming", "pack", "packed_width", "sign", "unpack"]

#: Longest code that is learned: the look-ups of training have 16-bit indices (native/training.hpp).
MAX_BITS = 8191


def sign(values: ArrayLike) -> NDArray[np.int8]:
    """Sign of each value as -1 or +1, with sign(0) = +1.

    Examples
    --------
    >>> sign([-2.5, 0.0, 1.0])
    array([-1,  1,  1], dtype=int8)
    """
    positive = np.asarray(values) >= 0
    return positive.astype(np.int8) * np.int8(2) - np.int8(1)


def packed_width(n_bits: int) -> int:
    """Bytes that hold `n_bits` bits."""
    return -(-n_bits // 8)


def pack(codes: NDArray[Any]) -> NDArray[np.uint8]:
    """Pack codes of shape (n, r) with entries -1/+1 (or booleans) into (n, ceil(r / 8)) bytes.

    Examples
    --------
    >>> import numpy as np
    >>> pack(np.array([[1, -1, 1, 1, -1, -1, -1, -1, 1]]))
    array([[13,  1]], dtype=uint8)
    """
    return np.packbits(codes > 0, axis=-1, bitorder="little")


def unpack(packed: NDArray[np.uint8], n_bits: int) -> NDArray[np.int8]:
    """Inverse of :func:`pack`: (n, ceil(r / 8)) bytes to (n, r) entries -1/+1.

    Examples
    --------
    >>> import numpy as np
    >>> unpack(np.array([[13, 1]], dtype=np.uint8), 9)
    array([[ 1, -1,  1,  1, -1, -1, -1, -1,  1]], dtype=int8)
    """
    bits = np.unpackbits(packed, axis=-1, count=n_bits, bitorder="little")
    return bits.view(np.int8) * np.int8(2) - np.int8(1)


def hamming(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Hamming distances between two packed arrays, with broadcasting over the leading axes.

    Examples
    --------
    >>> import numpy as np
    >>> hamming(np.array([[0b1011]], dtype=np.uint8), np.array([[0b0001]], dtype=np.uint8))
    array([2], dtype=int32)
    """
    distances: NDArray[np.int32] = np.bitwise_count(a ^ b).sum(axis=-1, dtype=np.int32)
    return distances
