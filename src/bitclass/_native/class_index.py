"""Clusters of class weights, for a search that visits a few of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.search import HammingIndex

__all__ = ["ClusteredIndex", "cluster_codes"]

# Clusters per square root of the number of classes: the scan of the centres then costs less than
# that of the classes in the clusters visited.
_CLUSTERS_PER_ROOT = 4
_ROUNDS = 6
# Classes per cluster that centres are learned from.
_CLASSES_PER_CENTRE = 32


def cluster_codes(weights: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Group classes of similar weights: k-means with Hamming distances and majority bits.

    It computes with integers only, so that clusters are the same on every machine.

    Parameters
    ----------
    weights : (C, bytes) uint8
        Packed weights of C >= 1 classes.

    Returns
    -------
    centres : (K, bytes) uint8
        About four times the square root of C of them, and no more than C.
    clusters : (C,) int64
        The nearest centre of each class.
    """
    n_classes = len(weights)
    n_centres = min(n_classes, _CLUSTERS_PER_ROOT * math.isqrt(n_classes))
    order = np.random.default_rng(0).permutation(n_classes)
    sample = np.ascontiguousarray(weights[order[: _CLASSES_PER_CENTRE * n_centres]])
    centres = sample[:n_centres]
    for _ in range(_ROUNDS):
        own, _ = HammingIndex(centres).nearest(sample)
        centres = _majorities(sample, own, centres)
    return centres, HammingIndex(centres).nearest(weights)[0]


def _majorities(
    codes: NDArray[np.uint8], own: NDArray[np.int64], before: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """The bits that at least half of the codes of each cluster have; an empty one keeps its own."""
    order = np.argsort(own, kind="stable")
    sizes = np.bincount(own, minlength=len(before))
    filled = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[filled]
    bits = np.unpackbits(codes[order], axis=1)
    n_set = np.add.reduceat(bits, starts, axis=0, dtype=np.int64)
    centres = before.copy()
    centres[filled] = np.packbits(2 * n_set >= sizes[filled, None], axis=1)
    return centres


class ClusteredIndex(HammingIndex):
    """Packed class weights in clusters, of which a search visits the nearest few.

    Searches are approximate: a class is found only if its cluster is visited. What is found equals
    :func:`bitclass._native.reference.top_k_of_clusters`.

    Parameters
    ----------
    weights : (C, bytes) uint8
        Packed weights of C >= 1 classes.
    n_probe : int of at least 1
        Number of clusters to visit; more than there are stands for all.

    Examples
    --------
    >>> import numpy as np
    >>> index = ClusteredIndex(np.array([[0b0000], [0b0111], [0b1111]], dtype=np.uint8), 1)
    >>> index.nearest(np.array([[0b0111], [0b1111]], dtype=np.uint8))
    (array([1, 2]), array([0, 0], dtype=int32))
    """

    __slots__ = ("_n_probe",)

    def __init__(self, weights: NDArray[np.uint8], n_probe: int) -> None:
        self._n_probe = n_probe
        self._weights = np.ascontiguousarray(weights)
        centres, clusters = cluster_codes(self._weights)
        self._prepared = _kernels.HammingIndex(
            self._weights, centres, clusters, min(n_probe, len(centres))
        )

    @property
    def n_probe(self) -> int:
        """Number of clusters to visit."""
        return self._n_probe

    def __reduce__(self) -> tuple[Any, ...]:
        return ClusteredIndex, (self._weights, self._n_probe)
