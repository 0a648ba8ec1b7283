"""Rows of a given shape, for times and memory where the real data is not at hand.

Class means lie in a subspace of few dimensions with a spectrum that decays, as those of real
features do. With means in all directions alike, r bits would keep only r/d of the signal; no
accuracy is read off such rows in any case.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw"]

_DIMENSIONS = 64
_N_TEST = 10_000
_ROWS_A_BLOCK = 4096


def draw(
    n: int, d: int, n_classes: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.float32], NDArray[np.intp]]:
    """Rows to learn from (n, d), and at most 10,000 to test, classes alike in number.

    Memory is that of the rows, which are drawn block by block.

    Examples
    --------
    >>> X, y, X_test, y_test = draw(500, 20, 4, seed=0)
    >>> X.shape, X.dtype.name, len(np.unique(y))
    ((500, 20), 'float32', 4)
    """
    rng = np.random.default_rng(seed)
    k = min(_DIMENSIONS, d)
    spectrum = (1.0 + np.arange(k, dtype=np.float32)) ** -0.5
    basis = rng.standard_normal((k, d), dtype=np.float32) * spectrum[:, None]
    means = rng.standard_normal((n_classes, k), dtype=np.float32)
    parts = []
    for n_rows in (n, min(_N_TEST, n) if n else 2000):
        y = rng.permutation(np.arange(n_rows) % n_classes)
        X = np.empty((n_rows, d), dtype=np.float32)
        for start in range(0, n_rows, _ROWS_A_BLOCK):
            block = X[start : start + _ROWS_A_BLOCK]
            rng.standard_normal(dtype=np.float32, out=block)
            within = rng.standard_normal((len(block), k), dtype=np.float32)
            block += (means[y[start : start + _ROWS_A_BLOCK]] + 0.5 * within) @ basis
        parts += [X, y]
    return parts[0], parts[1], parts[2], parts[3]
