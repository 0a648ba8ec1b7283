"""Prediction kernels: quantisation of P to eight-bit integers, search among class weights."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads

#: Arithmetic in which codes are computed.
Precision = Literal["float32", "int8"]

#: The largest magnitude of a quantised entry, and of an activation in steps of 1/127. -128 is
#: excluded, which keeps sums of two products within 16 bits.
QUANTISED_MAX = np.float32(127)
#: A row whose largest entry is smaller is treated as a row of zeros.
MIN_ENTRY = np.float32(1e-30)
#: Standardised entries are clipped at this magnitude. Otherwise one huge value would round all
#: others of its row to 0. No feature that is present in at least one of 1,000 rows reaches it.
MAX_DEVIATIONS = np.float32(32)

# Clusters per square root of the number of classes: scanning the centres then costs less than
# scanning the classes of the visited clusters.
_CLUSTERS_PER_ROOT = 4
_ROUNDS = 6
# Classes per cluster in the sample on which k-means is run.
_CLASSES_PER_CENTRE = 32


def threads_for(n_items: int, items_per_chunk: int) -> int:
    """Number of threads for `n_items` items, in chunks of `items_per_chunk`.

    A single chunk needs one thread, and querying the number of CPUs would take longer than
    searching for one row.
    """
    return 1 if n_items <= items_per_chunk else effective_threads()


class QuantisedProjection(NamedTuple):
    """A hash function in eight-bit integers."""

    weights: NDArray[np.int8]  # (d, r) columns of P, each scaled by its largest magnitude
    thresholds: NDArray[np.float64]  # (r,) the intercept in units of each column
    # (d,) standardisation of rows before quantisation; the inverse scale is 0 for features without
    # weight, whose values must not decide the step.
    centre: NDArray[np.float32] | None
    inverse_scale: NDArray[np.float32] | None
    steps: NDArray[np.float64]  # (r,) scale of each column: the value of one unit

    def without_idle_features(self) -> QuantisedProjection:
        """The same function, with an `inverse_scale` of 0 for features whose weights are all 0."""
        if self.inverse_scale is None:
            return self
        is_idle = ~self.weights.any(axis=1)
        return self._replace(
            inverse_scale=np.where(is_idle, np.float32(0), self.inverse_scale),
        )


def quantise(
    projection: NDArray[np.float32],
    intercept: NDArray[np.float64],
    centre: NDArray[np.float32] | None = None,
    scale: NDArray[np.float32] | None = None,
) -> QuantisedProjection:
    """Quantise a hash function of rows x to eight-bit integers for rows (x - centre) / scale.

    Standardisation does not change the function; it makes the entries of a row similar in
    magnitude, so that one quantisation step per row suits all of them.

    Parameters
    ----------
    projection : (d, r) float32
    intercept : (r,) float64
    centre, scale : (d,) float32 or None
        None means 0 and 1.
    """
    folded = projection.astype(np.float64)
    inverse_scale = None
    if centre is not None or scale is not None:
        centre = np.zeros(len(projection), np.float32) if centre is None else centre
        scale = np.ones(len(projection), np.float32) if scale is None else scale
        intercept = intercept + (folded * centre[:, None]).sum(axis=0)
        folded *= scale[:, None]
        inverse_scale = np.float32(1) / scale
    largest = np.abs(folded).max(axis=0)
    unit = float(QUANTISED_MAX) / np.where(largest > 0, largest, QUANTISED_MAX)
    weights = np.rint(folded * unit).astype(np.int8)
    return QuantisedProjection(weights, intercept * unit, centre, inverse_scale, 1.0 / unit)


class HammingIndex:
    """Search index over packed class weights.

    Results are the same for every number of threads.

    Parameters
    ----------
    weights : (C, bytes) uint8
        Packed weights of C >= 1 classes.
    bias : (C,) float32, optional
        Added to the scores of the classes, at most 2^20 in magnitude. Searches then rank by
        ``w_c.b + e_c``, with `even_bias` e, instead of the distance alone.
    n_probe : int >= 1, optional
        Search only this many clusters of classes (all if there are fewer), those nearest by
        distance alone; a class is found only if its cluster is visited. By default all classes are
        searched.

    Attributes
    ----------
    kernel : the compiled index

    Examples
    --------
    >>> import numpy as np
    >>> index = HammingIndex(np.array([[0b0000], [0b0111], [0b1111]], dtype=np.uint8))
    >>> index.nearest(np.array([[0b0110], [0b1111]], dtype=np.uint8))
    (array([1, 2]), array([1, 0], dtype=int32))
    """

    __slots__ = ("bias", "kernel", "n_probe", "weights")

    def __init__(
        self,
        weights: NDArray[np.uint8],
        bias: NDArray[np.float32] | None = None,
        n_probe: int | None = None,
    ) -> None:
        self.weights = np.ascontiguousarray(weights)
        self.bias, self.n_probe = bias, n_probe
        if n_probe is None:
            self.kernel = _kernels.HammingIndex(self.weights, bias)
        else:
            centres, clusters = cluster_codes(self.weights)
            self.kernel = _kernels.HammingIndex(
                self.weights, bias, centres, clusters, min(n_probe, len(centres))
            )

    @property
    def even_bias(self) -> NDArray[np.int32] | None:
        """Biases rounded to even integers (C,), as inner products of codes differ by 2."""
        return None if self.bias is None else 2 * np.rint(self.bias / 2.0).astype(np.int32)

    def nearest(self, codes: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Indices (n,) of the nearest classes of codes (n, bytes), and their Hamming distances.

        Ties go to the lowest index.
        """
        threads = threads_for(len(codes), _kernels.QUERIES_PER_CHUNK)
        return self.kernel.nearest(np.ascontiguousarray(codes), threads)

    def top_k(
        self, codes: NDArray[np.uint8], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Indices (n, k) of the k nearest classes, nearest first, ties by index, and distances."""
        return self.kernel.top_k(np.ascontiguousarray(codes), k, effective_threads())

    def scores(self, codes: NDArray[np.uint8], n_bits: int) -> NDArray[np.int32]:
        """Scores ``r - 2 * Hamming distance + e_c`` (n, C) of all classes for codes of r bits."""
        return self.kernel.scores(np.ascontiguousarray(codes), n_bits, effective_threads())

    def counts(
        self, codes: NDArray[np.uint8], n_bits: int, lists: NDArray[np.int64], width: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Count the scores of classes that are not on a list.

        Parameters
        ----------
        codes : (n, bytes), of r bits
        n_bits : int, r
        lists : (n, m) distinct classes for each code, fewer than there are
        width : int

        Returns
        -------
        best : (n,) the largest of the other scores
        counts : (n, width) number of others that are 0, 2, 4, ... below it; the last number is that
            of all that are lower
        """
        codes, lists = np.ascontiguousarray(codes), np.ascontiguousarray(lists)
        return self.kernel.counts(codes, n_bits, lists, width, effective_threads())

    def __reduce__(self) -> tuple[Any, ...]:
        return HammingIndex, (self.weights, self.bias, self.n_probe)


def cluster_codes(weights: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Cluster classes with similar weights: k-means with Hamming distances and majority bits.

    Only integers are used, so that clusters are the same on every machine. Returns about
    ``4 sqrt(C)`` centres (K, bytes), and the index (C,) of the nearest centre of each class.
    """
    n_classes = len(weights)
    n_centres = min(n_classes, _CLUSTERS_PER_ROOT * math.isqrt(n_classes))
    order = np.random.default_rng(0).permutation(n_classes)
    sample = np.ascontiguousarray(weights[order[: _CLASSES_PER_CENTRE * n_centres]])
    centres = sample[:n_centres]
    for _ in range(_ROUNDS):
        clusters, _ = HammingIndex(centres).nearest(sample)
        centres = _majorities(sample, clusters, centres)
    return centres, HammingIndex(centres).nearest(weights)[0]


def _majorities(
    codes: NDArray[np.uint8], clusters: NDArray[np.int64], before: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Majority bits of the codes of each cluster; the centre of an empty cluster is kept."""
    order = np.argsort(clusters, kind="stable")
    sizes = np.bincount(clusters, minlength=len(before))
    filled = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[filled]
    bits = np.unpackbits(codes[order], axis=1)
    n_set = np.add.reduceat(bits, starts, axis=0, dtype=np.int64)
    centres = before.copy()
    centres[filled] = np.packbits(2 * n_set >= sizes[filled, None], axis=1)
    return centres
