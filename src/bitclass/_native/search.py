"""Nearest classes by Hamming distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads

__all__ = ["HammingIndex"]

# The kernels hand out this many codes at a time: fewer keep one thread busy.
_CODES_PER_CHUNK = 128


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
    """Threads for so many items; a single chunk needs one, and asks nobody."""
    return 1 if n_items <= items_per_chunk else effective_threads()
