"""Binary codes: packing of sign vectors into bytes, and resolution of duplicate codes.

sign(0) is +1. Bit k is set if entry k is +1, and is stored in byte k // 8 at position k % 8 (little
bit order). Padding bits of the last byte are always 0, so that

    w . b = r - 2 * Hamming(w, b)

holds for any number of bits r.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass._warn import warn

#: Maximum code length: half margins have 16 bits (native/paper/paper.hpp).
MAX_BITS = 8191
# With this many bits beyond 2 log2(C), some two of C random codes are equal in one of 256 models.
_SPARE_BITS = 7


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
    """Number of bytes for `n_bits` bits."""
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


class CodeWarning(UserWarning):
    """Two classes have the same weights, or there are too few bits to separate all classes."""


def make_distinct(
    weights: NDArray[np.int8], code_sums: NDArray[Any], classes: Sequence[Any] | NDArray[Any]
) -> NDArray[np.int8]:
    """Replace weights that equal those of an earlier class by the nearest unused pattern.

    The bits with the smallest effect on the loss of the class's samples are flipped.

    Parameters
    ----------
    weights : (C, r) int8 in {-1, +1}
    code_sums : (C, r), weighted sum of the codes of each class
    classes : (C,) labels, for the message

    Returns
    -------
    (C, r) int8; `weights` itself if all were distinct

    Warns
    -----
    CodeWarning
        If two classes had the same weights, and there are so few bits that this may be chance. With
        more bits, the classes themselves must be alike.
    """
    n_classes, n_bits = weights.shape
    packed = pack(weights)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    if len(first) == n_classes:
        return weights

    weights = weights.copy()
    earlier = first[inverse.ravel()]
    repeated = np.flatnonzero(earlier != np.arange(n_classes))
    used = {packed[c].tobytes() for c in first}
    total = code_sums.sum(axis=0, dtype=np.float64)
    # Classes with the same pattern and the same costs try the same patterns in the same order, so
    # they share a generator: k such classes would otherwise try k^2 patterns.
    _, index_of_sums = np.unique(code_sums[repeated], axis=0, return_inverse=True)
    kinds = list(zip(inverse.ravel()[repeated].tolist(), index_of_sums.ravel(), strict=True))
    n_left, subsets = Counter(kinds), {}
    for c, kind in zip(repeated[: 2**n_bits - len(used)], kinds, strict=False):
        if kind not in subsets:
            # Cost of flipping each bit of class c, by the linear loss.
            costs = np.abs(n_classes * code_sums[c].astype(np.float64) - total)
            subsets[kind] = _cheapest_subsets(costs)
        n_left[kind] -= 1
        for bits in subsets[kind] if n_left[kind] else subsets.pop(kind):
            candidate = weights[c].copy()
            candidate[bits] *= -1
            key = pack(candidate).tobytes()
            if key not in used:
                used.add(key)
                weights[c] = candidate
                break
    if n_bits >= 2 * math.log2(n_classes) + _SPARE_BITS:
        return weights
    one, other = (np.asarray(classes)[[c]].tolist()[0] for c in (repeated[0], earlier[repeated[0]]))
    advice = "they were assigned the nearest unused patterns; increase n_bits to separate them"
    if n_classes > len(used):
        advice = (
            f"{n_classes - len(used)} of them still do, because n_bits={n_bits} allows only "
            f"{2**n_bits} patterns; increase n_bits"
        )
    warn(
        f"{len(repeated)} of {n_classes} classes had the same weights as another class, for "
        f"example {one!r} and {other!r}; {advice}",
        CodeWarning,
    )
    return weights


def _cheapest_subsets(costs: NDArray[np.float64]) -> Iterator[list[int]]:
    """Yield non-empty subsets of positions by ascending total cost."""
    order = np.argsort(costs, kind="stable")
    sorted_costs = costs[order]
    # Successors of a subset: add the position after its last member, or replace that member by it.
    heap: list[tuple[float, list[int]]] = [(float(sorted_costs[0]), [0])]
    while heap:
        cost, members = heapq.heappop(heap)
        yield [int(order[j]) for j in members]
        last = members[-1]
        if last + 1 < len(costs):
            step = float(sorted_costs[last + 1])
            heapq.heappush(heap, (cost + step, [*members, last + 1]))
            replaced = cost + step - float(sorted_costs[last])
            heapq.heappush(heap, (replaced, [*members[:-1], last + 1]))
