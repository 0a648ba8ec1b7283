"""Encode and search in one go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native.encoding import Projection, adjacent_rows, require_finite
from bitclass._native.search import HammingIndex, threads_for

__all__ = ["predict"]

# The kernels hand out this many rows at a time: fewer keep one thread busy.
_ROWS_A_CHUNK = 96


def predict(
    projection: Projection,
    index: HammingIndex,
    X: NDArray[Any],
    *,
    n_threads: int | None = None,
    first_row: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Find the nearest class of each row of features, block by block.

    Equals ``index.nearest(projection.encode(X))`` without the array of all codes.

    Parameters
    ----------
    projection : Projection
    index : HammingIndex
        Of classes with as many bits as `projection` gives.
    X : (n, d) float16, float32 or float64
    n_threads : int or None
        See :func:`bitclass._native.threads.effective_threads`.
    first_row : int
        Number of the first row, for errors.

    Returns
    -------
    indices : (n,) int64
    distances : (n,) int32

    Raises
    ------
    ValueError
        If a row is not finite.
    """
    projection.check(X)
    threads = threads_for(len(X), _ROWS_A_CHUNK, n_threads)
    indices = np.empty(len(X), dtype=np.int64)
    distances = np.empty(len(X), dtype=np.int32)
    if projection.quantised is not None:
        for rows, block in adjacent_rows(X):
            bad = projection.quantised.predict(
                index.prepared, block, indices[rows], distances[rows], threads
            )
            require_finite(block, bad, first_row + rows.start)
    else:
        for rows, codes in projection.float_blocks(X, threads, first_row):
            index.prepared.nearest(codes, indices[rows], distances[rows], threads)
    return indices, distances
