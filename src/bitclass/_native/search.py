"""Nearest classes by Hamming distance: of codes, or of rows that are encoded on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.encoding import Encoder, adjacent_rows, require_finite
from bitclass._native.reference import MAX_ACTIVATION
from bitclass._native.threads import effective_threads

__all__ = ["HammingIndex", "predict", "predict_rescored"]

# The kernels hand out this many codes, or rows to encode, at a time: fewer keep one thread busy.
_CODES_PER_CHUNK = 128
_ROWS_PER_CHUNK = 96


class HammingIndex:
    """Packed class weights, prepared for search.

    Results equal those of :func:`bitclass._native.reference.top_k`, for every number of threads.

    Parameters
    ----------
    weights : (C, bytes) uint8
        Packed weights of C >= 1 classes.

    Examples
    --------
    >>> import numpy as np
    >>> index = HammingIndex(np.array([[0b0000], [0b0111], [0b1111]], dtype=np.uint8))
    >>> index.nearest(np.array([[0b0110], [0b1111]], dtype=np.uint8))
    (array([1, 2]), array([1, 0], dtype=int32))
    """

    __slots__ = ("_prepared", "_weights")

    def __init__(self, weights: NDArray[np.uint8]) -> None:
        self._weights = np.ascontiguousarray(weights)
        self._prepared = _kernels.HammingIndex(self._weights)

    @property
    def weights(self) -> NDArray[np.uint8]:
        """Packed weights, (C, bytes)."""
        return self._weights

    @property
    def prepared(self) -> _kernels.HammingIndex:
        """The compiled index, which writes to arrays of the caller."""
        return self._prepared

    def nearest(self, codes: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Find the class at the smallest distance of each code, the lowest index among equals.

        Parameters
        ----------
        codes : (n, bytes) uint8

        Returns
        -------
        indices : (n,) int64
        distances : (n,) int32
        """
        codes = np.ascontiguousarray(codes)
        threads = threads_for(len(codes), _CODES_PER_CHUNK)
        indices = np.empty(len(codes), dtype=np.int64)
        distances = np.empty(len(codes), dtype=np.int32)
        self._prepared.nearest(codes, indices, distances, threads)
        return indices, distances

    def top_k(
        self, codes: NDArray[np.uint8], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Find the k nearest classes of each code, ordered by distance, then by class index.

        Parameters
        ----------
        codes : (n, bytes) uint8
        k : int in [1, C]

        Returns
        -------
        indices : (n, k) int64
        distances : (n, k) int32
        """
        k = self.check_k(k)
        codes = np.ascontiguousarray(codes)
        indices = np.empty((len(codes), k), dtype=np.int64)
        distances = np.empty((len(codes), k), dtype=np.int32)
        threads = effective_threads()
        self._prepared.top_k(codes, indices, distances, threads)
        return indices, distances

    def scores(self, codes: NDArray[np.uint8], n_bits: int) -> NDArray[np.int32]:
        """Inner products of all codes with the weights of all classes.

        Parameters
        ----------
        codes : (n, bytes) uint8
        n_bits : int
            Number of bits r of a code, of which the last byte may hold fewer than 8.

        Returns
        -------
        (n, C) int32
            ``r - 2 * Hamming distance``.
        """
        codes = np.ascontiguousarray(codes)
        scores = np.empty((len(codes), self._prepared.n_classes), dtype=np.int32)
        threads = effective_threads()
        self._prepared.scores(codes, n_bits, scores, threads)
        return scores

    def check_k(self, k: Any, name: str = "k") -> int:
        """`k` as an int, or a ValueError if it is no number of classes from 1 to C."""
        n_classes = self._prepared.n_classes
        is_integer = isinstance(k, (int, np.integer)) and not isinstance(k, bool)
        if not is_integer or not 1 <= k <= n_classes:
            raise ValueError(
                f"{name}: expected an integer from 1 to {n_classes}, the number of classes, "
                f"found {k!r}"
            )
        return int(k)

    def __reduce__(self) -> tuple[Any, ...]:
        return HammingIndex, (self._weights,)


def threads_for(n_items: int, items_per_chunk: int) -> int:
    """Threads for so many items; a single chunk needs one."""
    return 1 if n_items <= items_per_chunk else effective_threads()


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
