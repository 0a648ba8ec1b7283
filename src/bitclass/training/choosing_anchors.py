"""Which rows become kernel anchors, and how wide the kernel is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitclass.anchors import RbfAnchors, squared_distances
from bitclass.rows import Features, dense_rows, sample_rows

__all__ = ["choose_anchors"]

_ROWS_FOR_WIDTH = 1000


def choose_anchors(
    X: Features,
    n_anchors: int,
    gamma: float | str,
    centre: NDArray[np.float64],
    scale: NDArray[np.float64],
    random: np.random.RandomState,
) -> RbfAnchors:
    """Draw anchors from rows.

    Parameters
    ----------
    X : (n, d)
    n_anchors : int, at most n
    gamma : {"scale", "median"} or float
        "scale" is 1 / d for standardised rows, "median" the inverse of the median of the squared
        distances between rows and anchors.
    centre, scale : (d,), what standardises the rows
    random : source of randomness
    """
    chosen = np.sort(random.choice(X.shape[0], n_anchors, replace=False))
    anchors = ((dense_rows(X, chosen) - centre) / scale).astype(np.float32)
    if gamma == "scale":
        width = 1.0 / anchors.shape[1]
    elif gamma == "median":
        rows = sample_rows(X.shape[0], _ROWS_FOR_WIDTH)
        Z = ((dense_rows(X, rows) - centre) / scale).astype(np.float32)
        width = 1.0 / max(float(np.median(squared_distances(Z, anchors))), 1e-12)
    else:
        width = float(gamma)
    return RbfAnchors(anchors, centre.astype(np.float32), scale.astype(np.float32), width)
