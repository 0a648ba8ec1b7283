"""NumPy twins of the training kernels that look at rows as such: groups, sums, margins in blocks.

Like `bitclass._native.reference`, they define what the kernels return.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native.reference import half_margins, pair_sums
from bitclass.codes import unpack

__all__ = ["class_sums", "group_rows", "pair_sums_from_codes"]


def pair_sums_from_codes(
    codes: NDArray[np.uint8],
    weights: NDArray[np.uint8],
    bit: int,
    own: NDArray[np.intp],
    row_weights: NDArray[np.float64],
    tables: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    """Do as `pair_sums` does, with the half margins counted from the codes.

    Parameters
    ----------
    codes : (n, bytes) packed
    weights : (C, bytes) packed
    bit : int, index of the bit
    own : (n,) index of each row's own class, in ascending order
    row_weights : (n,)
    tables : (K, 2r + 1); column j holds the value at half margin j - r
    sums : (2, K, C, C), changed in place
    """
    half = half_margins(codes, weights, own)
    bits = unpack(codes, bit + 1)[:, bit]
    weight_bits = unpack(weights, bit + 1)[:, bit]
    pair_sums(half, bits, weight_bits, own, row_weights, tables, sums)


def group_rows(
    labels: NDArray[np.intp], codes: NDArray[np.uint8]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the rows that share both label and code.

    Parameters
    ----------
    labels : (n,)
    codes : (n, bytes) packed

    Returns
    -------
    first : (g,) the row where each group appears first; groups are ordered by label, those of one
        label by first appearance
    inverse : (n,) each row's group
    """
    keys = np.concatenate([labels[:, None], codes.astype(np.intp)], axis=1)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    order = np.lexsort((first, labels[first]))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]


def class_sums(
    X: NDArray[Any],
    labels: NDArray[np.intp],
    row_weights: NDArray[np.float64] | None,
    sums: NDArray[np.float64],
) -> None:
    """Add each row to the sum of its class, in row order.

    Parameters
    ----------
    X : (n, d) float32 or float64
    labels : (n,) index of each row's class
    row_weights : (n,), or None for ones
    sums : (C, d), changed in place
    """
    terms = X.astype(np.float64)
    if row_weights is not None:
        terms *= row_weights[:, None]
    np.add.at(sums, labels, terms)
