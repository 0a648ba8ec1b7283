"""No two classes may end with the same weights while a spare pattern exists."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import warn
from bitclass.codes import pack

__all__ = ["CodeWarning", "make_distinct"]


class CodeWarning(UserWarning):
    """Two classes came out with the same weights, or too few bits were given to tell all apart."""


def make_distinct(
    weights: NDArray[np.int8], code_sums: NDArray[np.float64], classes: Sequence[Any]
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
        If two classes had the same weights.
    """
    n_classes, n_bits = weights.shape
    packed = pack(weights)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.ravel()
    if len(first) == n_classes:
        return weights

    weights = weights.copy()
    taken = {packed[c].tobytes() for c in first}
    repeated = [c for c in range(n_classes) if first[inverse[c]] != c]
    # By the linear loss, what flipping a bit of class c would cost.
    costs = np.abs(n_classes * code_sums - code_sums.sum(axis=0))
    n_left = 0
    for c in repeated:
        if n_bits < 63 and len(taken) == 2**n_bits:
            n_left += 1
            continue
        for bits in _cheapest_subsets(costs[c]):
            candidate = weights[c].copy()
            candidate[bits] *= -1
            key = pack(candidate[None]).tobytes()
            if key not in taken:
                taken.add(key)
                weights[c] = candidate
                break
    twin = repeated[0]
    message = (
        f"{len(repeated)} of {n_classes} classes had the weights of another class, the first "
        f"{classes[twin]!r}, those of {classes[first[inverse[twin]]]!r}"
    )
    if n_left:
        message += (
            f"; {n_left} of them still have, for n_bits={n_bits} makes only {2**n_bits} "
            "patterns; raise n_bits"
        )
    else:
        message += "; they were given the nearest spare patterns: a larger n_bits tells them apart"
    warn(message, CodeWarning)
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
