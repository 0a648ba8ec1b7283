"""Solvers of problem (9), the binary quadratic program ``f(w) = w' H w / 2 + g.w`` of one bit.

H, which is symmetric and has the diagonal 0, and g are computed by `alternation.quadratic_program`.

*Bit flipping*, the paper's Algorithm 1, flips the bit of steepest descent until no flip improves f.

*Minimum cut*: for a convex loss every entry of H is <= 0, so the program is submodular, and the
global minimum is a minimum cut between the classes with bit +1 and those with bit -1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from bitclass._native.paper import RELATIVE_TOLERANCE

#: Takes H (C, C), g (C,) and the current bits (C,); returns better bits and the decrease of f.
Solver = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]],
    tuple[NDArray[np.int8], float],
]

# `maximum_flow` takes int32 capacities. Each pass pushes whole units of flow; the next one works on
# the residual in finer units, so a few passes reach double precision.
_MAX_UNITS = float(1 << 29)
_PRECISION = 1e-15


def flip_bits(
    H: NDArray[np.float64], g: NDArray[np.float64], w: NDArray[np.int8]
) -> tuple[NDArray[np.int8], float]:
    """Algorithm 1: minimise ``f(w) = w' H w / 2 + g . w`` over -1/+1 vectors by single flips.

    Parameters
    ----------
    H : (C, C) symmetric, diagonal 0
    g : (C,)
    w : (C,) the current bits

    Returns
    -------
    w : (C,) a point that no single flip improves
    decrease : float, decrease of f (>= 0)
    """
    w, decrease = w.copy(), 0.0
    # Sums along rows, not a product: that of BLAS depends on the number of threads.
    slope = (H * w).sum(axis=1) + g
    tolerance = RELATIVE_TOLERANCE * (np.abs(H).sum(axis=1) + np.abs(g))
    while True:
        gains = w * slope  # flipping c changes f by -2 * gains[c]
        gains[gains <= tolerance] = 0.0
        best = int(np.argmax(gains))
        if not gains[best] > 0:
            return w, decrease
        # Among gains that are equal up to rounding, take the lowest index: noise must not choose.
        c = int(np.argmax(gains >= gains[best] - tolerance[best]))
        decrease += 2.0 * float(gains[c])
        w[c] = -w[c]
        slope += H[c] * (2.0 * w[c])


def _maximum_flow_residual(
    capacity: NDArray[np.float64], source: int, sink: int
) -> NDArray[np.float64]:
    """Residual capacities (m, m) under a maximum flow from source to sink."""
    residual = capacity.copy()
    largest = capacity.max()
    unit = min(capacity[source].sum(), capacity[:, sink].sum()) / _MAX_UNITS
    while unit > _PRECISION * largest / _MAX_UNITS:
        quantised = np.minimum(np.floor(residual / unit), _MAX_UNITS).astype(np.int32)
        flow = maximum_flow(csr_array(quantised), source, sink).flow
        np.maximum(residual - flow.toarray() * unit, 0.0, out=residual)
        # Rounding down hid less than one unit on each edge of a cut, which bounds the flow left.
        unit *= len(capacity) ** 2 / 4 / _MAX_UNITS
    return residual


def cut_bits(
    H: NDArray[np.float64], g: NDArray[np.float64], w: NDArray[np.int8]
) -> tuple[NDArray[np.int8], float]:
    """Minimise ``f(w) = w' H w / 2 + g . w`` over -1/+1 vectors, globally.

    As `flip_bits`, for H whose entries are <= 0; returns the current bits unless f decreases.
    """
    n_classes = len(g)
    source, sink = n_classes, n_classes + 1
    # Two classes that disagree cost -2 * H. A bit of -1 costs -2 * g if g is negative; a bit of +1
    # costs 2 * g if g is positive. The source side of the cut is +1.
    capacity = np.zeros((n_classes + 2, n_classes + 2))
    capacity[:n_classes, :n_classes] = np.maximum(-2.0 * H, 0.0)
    capacity[source, :n_classes] = np.maximum(-2.0 * g, 0.0)
    capacity[:n_classes, sink] = np.maximum(2.0 * g, 0.0)
    if not capacity[source].any() or not capacity[:, sink].any():
        best = np.full(n_classes, 1 if capacity[source].any() else -1, dtype=np.int8)
    else:
        residual = _maximum_flow_residual(capacity, source, sink)
        open_edges = csr_array((residual > capacity.max() * _PRECISION).astype(np.int8))
        reached = breadth_first_order(open_edges, source, return_predecessors=False)
        best = np.full(n_classes + 2, -1, dtype=np.int8)
        best[reached] = 1
        best = best[:n_classes]
    before, after = (float(bits @ H @ bits / 2 + g @ bits) for bits in (w, best))
    decrease = before - after
    magnitude = np.abs(H).sum() / 2 + np.abs(g).sum()
    if decrease <= RELATIVE_TOLERANCE * magnitude:
        return w.copy(), 0.0
    return best, decrease


#: Solvers by name.
SOLVERS: dict[str, Solver] = {"flip": flip_bits, "mincut": cut_bits}
