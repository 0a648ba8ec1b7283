"""The bit contract: how a vector of signs becomes bytes, and back; and codes no two of which agree.

sign(0) is +1. Bit k is set where entry k is +1, and sits in byte k // 8 at position k % 8 (little
bit order). Padding bits of the last byte are 0, on both sides of every comparison, so that

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

__all__ = [
    "MAX_BITS",
    "CodeWarning",
    "hamming",
    "make_distinct",
    "pack",
    "packed_width",
    "sign",
    "unpack",
]

#: Longest code that is learned: the look-ups of training have 16-bit indices (native/training.hpp).
MAX_BITS = 8191
# With so many bits more than twice log2(C), two of C random codes are equal once in 256 models.
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


class CodeWarning(UserWarning):
    """Two classes came out with the same weights, or too few bits were given to tell all apart."""


def make_distinct(
    weights: NDArray[np.int8], code_sums: NDArray[Any], classes: Sequence[Any] | NDArray[Any]
) -> NDArray[np.int8]:
    """Give classes that share their weights with an earlier class the nearest spare pattern.

    The bits that change are those that the samples of the class care least about.

    Parameters
    ----------
    weights : (C, r) int8 in {-1, +1}
    code_sums : (C, r), the weighted sum of the codes of each class
    classes : (C,) labels, for the message

    Returns
    -------
    (C, r) int8; `weights` itself where nothing had to change

    Warns
    -----
    CodeWarning
        If two classes had the same weights, and so few bits would have given two of them the same
        by chance. With more bits it is the classes that are alike.
    """
    n_classes, n_bits = weights.shape
    packed = pack(weights)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    if len(first) == n_classes:
        return weights

    weights = weights.copy()
    earlier = first[inverse.ravel()]
    repeated = np.flatnonzero(earlier != np.arange(n_classes))
    taken = {packed[c].tobytes() for c in first}
    total = code_sums.sum(axis=0, dtype=np.float64)
    # Classes of one pattern and equal costs try the same patterns in the same order: each goes on
    # where the one before it ended, or k such classes would try k^2 patterns.
    _, of_equal_sums = np.unique(code_sums[repeated], axis=0, return_inverse=True)
    alike = list(zip(inverse.ravel()[repeated].tolist(), of_equal_sums.ravel(), strict=True))
    n_left, begun = Counter(alike), {}
    for c, kind in zip(repeated[: 2**n_bits - len(taken)], alike, strict=False):
        if kind not in begun:
            # By the linear loss, what flipping a bit of class c would cost.
            costs = np.abs(n_classes * code_sums[c].astype(np.float64) - total)
            begun[kind] = _cheapest_subsets(costs)
        n_left[kind] -= 1
        for bits in begun[kind] if n_left[kind] else begun.pop(kind):
            candidate = weights[c].copy()
            candidate[bits] *= -1
            key = pack(candidate).tobytes()
            if key not in taken:
                taken.add(key)
                weights[c] = candidate
                break
    if n_bits >= 2 * math.log2(n_classes) + _SPARE_BITS:
        return weights
    one, other = (np.asarray(classes)[[c]].tolist()[0] for c in (repeated[0], earlier[repeated[0]]))
    advice = "they were given the nearest spare patterns: a larger n_bits tells them apart"
    if n_classes > len(taken):
        advice = (
            f"{n_classes - len(taken)} of them still have, for n_bits={n_bits} makes only "
            f"{2**n_bits} patterns; raise n_bits"
        )
    warn(
        f"{len(repeated)} of {n_classes} classes had the weights of another class, the first "
        f"{one!r}, those of {other!r}; {advice}",
        CodeWarning,
    )
    return weights


def _cheapest_subsets(costs: NDArray[np.float64]) -> Iterator[list[int]]:
    """Yield non-empty subsets of positions by ascending total cost."""
    order = np.argsort(costs, kind="stable")
    sorted_costs = costs[order]
    # A subset grows from its largest member: the next position joins it, or takes its place.
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
