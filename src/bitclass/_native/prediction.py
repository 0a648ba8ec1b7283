"""Encode and search in one go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.encoding import Encoder, adjacent_rows, require_finite
from bitclass._native.reference import MAX_ACTIVATION
from bitclass._native.search import HammingIndex, threads_for

__all__ = ["predict", "predict_rescored"]

# The kernels hand out this many rows at a time: fewer keep one thread busy.
_ROWS_PER_CHUNK = 96


def predict(
    projection: Encoder,
    index: HammingIndex,
    X: Any,
    *,
    first_row: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Find the nearest class of each row of features, block by block.

    Equals ``index.nearest(projection.encode(X))`` without the array of all codes.

    Parameters
    ----------
    projection : Encoder
    index : HammingIndex
        Of classes with as many bits as `projection` gives.
    X : (n, d) float16, float32 or float64, or SparseRows
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
    threads = threads_for(len(X), _ROWS_PER_CHUNK)
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


def predict_rescored(
    projection: Encoder,
    index: HammingIndex,
    X: Any,
    n_candidates: int,
    k: int = 1,
    scale: float | NDArray[np.float32] = 1.0,
    *,
    first_row: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
    """Rank the nearest classes of each row by their inner products with its real-valued code.

    The `n_candidates` nearest classes by Hamming distance, of equals those of the lowest index, are
    ranked by ``w_c.q``, with ``q = tanh(scale * (P'x + t))`` in steps of 1/127. Results equal
    :func:`bitclass._native.reference.rescored`; with int8 precision they are the same on every
    machine.

    Parameters
    ----------
    projection : Encoder
    index : HammingIndex
        Of classes with as many bits as `projection` gives.
    X : (n, d) float16, float32 or float64, or SparseRows
    n_candidates : int in [1, C]
    k : int in [1, n_candidates]
        How many of them to return.
    scale : float or (r,) float32
    first_row : int
        Number of the first row, for errors.

    Returns
    -------
    indices : (n, k) int64
        Best first; of equal scores the nearer class, then the lower index.
    scores : (n, k) float32
    distances : (n, k) int32

    Raises
    ------
    ValueError
        If a row is not finite.
    """
    projection.check(X)
    n_candidates, k = index.check_k(n_candidates, "n_candidates"), index.check_k(k)
    if k > n_candidates:
        raise ValueError(f"k: expected at most n_candidates, {n_candidates}, found {k}")
    scales = np.empty(projection.n_bits, dtype=np.float32)
    scales[:] = scale
    threads = threads_for(len(X), _ROWS_PER_CHUNK)
    indices = np.empty((len(X), k), dtype=np.int64)
    scores = np.empty((len(X), k), dtype=np.int32)
    distances = np.empty((len(X), k), dtype=np.int32)
    if projection.quantised is not None:
        for rows, block in adjacent_rows(X):
            out = indices[rows], scores[rows], distances[rows], threads
            bad = projection.quantised.predict_rescored(
                index.prepared, block, scales, n_candidates, *out
            )
            require_finite(block, bad, first_row + rows.start)
    else:
        for rows, values, intercept in projection.score_blocks(X, threads):
            out = indices[rows], scores[rows], distances[rows], threads
            in_float32 = values.dtype == np.float32
            rescore = _kernels.rescore_float32 if in_float32 else _kernels.rescore_float64
            bad = rescore(index.prepared, values, intercept, scales, n_candidates, *out)
            require_finite(X[rows], bad, first_row + rows.start)
    return indices, scores.astype(np.float32) / MAX_ACTIVATION, distances
