"""Solvers of the binary quadratic program ``f(w) = w' H w / 2 + g.w`` in one bit of all classes.

*Bit flipping*, the paper's Algorithm 1, flips the bit of steepest descent until no flip improves;
it is the compiled kernel `flip_bits`; tests/native/reference.py has the NumPy reference. H and g
come from `alternation.quadratic_program`.

*Minimum cut*: for a convex loss every entry of H is <= 0, so the program is submodular: classes
that are coupled want to agree, and the best assignment is a minimum cut between +1 and -1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from bitclass._native import RELATIVE_TOLERANCE, flip_bits

__all__ = ["SOLVERS", "Solver", "cut_bits"]

#: Takes H (C, C), g (C,) and the present bits (C,); returns better bits, and by how much f fell.
Solver = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.int8]],
    tuple[NDArray[np.int8], float],
]

# `maximum_flow` counts in int32. Each pass pushes whole units of what is left; the next pass works
# on the residual in finer units, so a few passes reach the precision of doubles.
_MAX_UNITS = float(1 << 29)
_PRECISION = 1e-15


def _program_value(H: NDArray[np.float64], g: NDArray[np.float64], w: NDArray[np.int8]) -> float:
    return float(w @ H @ w / 2 + g @ w)


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
        # Rounding down hid less than a unit on each edge of a cut, and no more flow is left.
        unit *= len(capacity) ** 2 / 4 / _MAX_UNITS
    return residual


def cut_bits(
    H: NDArray[np.float64], g: NDArray[np.float64], w: NDArray[np.int8]
) -> tuple[NDArray[np.int8], float]:
    """Minimise ``f(w) = w' H w / 2 + g . w`` over -1/+1 vectors, globally.

    Parameters
    ----------
    H : (C, C) symmetric, entries <= 0, diagonal 0
    g : (C,)
    w : (C,) the present bits, kept where nothing is gained

    Returns
    -------
    w : (C,) a global minimum
    decrease : float, by how much f fell (>= 0)
    """
    n_classes = len(g)
    source, sink = n_classes, n_classes + 1
    # Disagreeing costs -2 * H; being -1 where g is negative costs -2 * g, and being
    # +1 where it is positive 2 * g. The source side of the cut is +1.
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
    decrease = _program_value(H, g, w) - _program_value(H, g, best)
    magnitude = np.abs(H).sum() / 2 + np.abs(g).sum()
    if decrease <= RELATIVE_TOLERANCE * magnitude:
        return w.copy(), 0.0
    return best, decrease


#: Solvers by name.
SOLVERS: dict[str, Solver] = {"flip": flip_bits, "mincut": cut_bits}
