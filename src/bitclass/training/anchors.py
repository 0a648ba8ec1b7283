"""Choice of the kernel anchors and of the kernel width."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitclass._native import class_sums
from bitclass.arrays import Features, dense_rows, sample_rows
from bitclass.hash_function import RbfAnchors, squared_distances

# Default number of anchors: more for rows with few features, where they are cheap and most needed.
_DEFAULT_ANCHORS, _DEFAULT_ANCHORS_FEW_FEATURES = 1000, 2000
_FEW_FEATURES = 128

_ROWS_FOR_WIDTH = 1000
# Rounds of k-means: more move anchors little, and do not improve models.
_ROUNDS = 4
_ROWS_PER_ANCHOR = 16
_ROWS_PER_BLOCK = 4096
# Scale of features that are constant: whatever their values will be, they stay at the anchors'.
_SCALE_OF_CONSTANT = 1e30


def anchor_count(n_anchors: int | str, n_rows: int, n_features: int) -> int:
    """Number of kernel anchors; raises an error if it exceeds the number of rows."""
    if isinstance(n_anchors, str):
        few = n_features <= _FEW_FEATURES
        return min(n_rows, _DEFAULT_ANCHORS_FEW_FEATURES if few else _DEFAULT_ANCHORS)
    if n_anchors > n_rows:
        raise ValueError(
            f"n_anchors={n_anchors} anchors cannot be drawn from {n_rows} rows; set a smaller "
            "n_anchors, or pass more rows in the first batch"
        )
    return n_anchors


def choose_anchors(
    X: Features,
    n_anchors: int,
    gamma: float | str,
    centre: NDArray[np.float64],
    scale: NDArray[np.float64],
    random: np.random.RandomState,
    *,
    ignore_constant: bool = False,
) -> RbfAnchors:
    """Choose anchors by k-means: random rows, then moved to the means of the rows around them.

    Rows (n, d) are standardised by `centre` and `scale` (d,). With `gamma` "scale" the coefficient
    is 1 / d, with "median" the inverse of the median squared distance between rows and anchors.
    With `ignore_constant`, features with one value for all anchors have no say, because no other
    rows follow: if one of them changed, every row would be far from every anchor.
    """
    chosen = np.sort(random.choice(X.shape[0], n_anchors, replace=False))
    anchors = ((dense_rows(X, chosen) - centre) / scale).astype(np.float32)
    n_rows = min(X.shape[0], _ROWS_PER_ANCHOR * n_anchors)
    around = np.sort(random.choice(X.shape[0], n_rows, replace=False))
    for _ in range(_ROUNDS):
        anchors = _k_means_round(X, around, anchors, centre, scale)
    if ignore_constant:
        constant = (scale == 1.0) & (np.ptp(anchors, axis=0) <= 1e-6 * np.abs(anchors[0]))
        anchors[:, constant] = 0.0
        scale = np.where(constant, _SCALE_OF_CONSTANT, scale)
    if gamma == "scale":
        width = 1.0 / anchors.shape[1]
    elif gamma == "median":
        rows = sample_rows(X.shape[0], _ROWS_FOR_WIDTH)
        Z = ((dense_rows(X, rows) - centre) / scale).astype(np.float32)
        width = 1.0 / max(float(np.median(squared_distances(Z, anchors))), 1e-12)
    else:
        width = float(gamma)
    return RbfAnchors(anchors, centre.astype(np.float32), scale.astype(np.float32), width)


def _k_means_round(
    X: Features,
    rows: NDArray[np.intp],
    anchors: NDArray[np.float32],
    centre: NDArray[np.float64],
    scale: NDArray[np.float64],
) -> NDArray[np.float32]:
    """One round of k-means: move each anchor to the mean of the rows that are nearest to it."""
    sums = np.zeros(anchors.shape)
    counts = np.zeros(len(anchors), dtype=np.intp)
    for start in range(0, len(rows), _ROWS_PER_BLOCK):
        block = dense_rows(X, rows[start : start + _ROWS_PER_BLOCK])
        Z = ((block - centre) / scale).astype(np.float32)
        nearest = np.argmin(squared_distances(Z, anchors), axis=1)
        class_sums(Z, nearest, None, sums)
        counts += np.bincount(nearest, minlength=len(anchors))
    middles = sums / np.maximum(counts, 1)[:, None]
    return np.where(counts[:, None] > 0, middles, anchors).astype(np.float32)
