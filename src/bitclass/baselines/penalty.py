"""Choosing LibLinear's C on a held-out slice of the rows to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PENALTIES", "held_out", "peak"]

#: The values of C that the paper tries.
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)

_MOST_ROWS = 10_000
_SHARE_HELD_OUT = 0.2


def held_out(
    X: NDArray[Any], y: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rows to learn from and rows to score on, a fifth, of at most 10,000; always the same.

    Parameters
    ----------
    X : (n, d)
    y : (n,)

    Returns
    -------
    X, y to learn from, X, y to score on
    """
    order = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
    n_scored = max(1, int(_SHARE_HELD_OUT * len(order)))
    scored, learned = order[:n_scored], order[n_scored:]
    return X[learned], y[learned], X[scored], y[scored]


def peak(score: Callable[[float], float], penalties: Sequence[float] = PENALTIES) -> float:
    """The value of best score; rising values are tried until one is worse.

    LibLinear takes longer the larger C is, up to hours, so values beyond the peak are left out.

    Examples
    --------
    >>> peak(lambda C: -abs(C - 0.1))
    0.1
    """
    best, best_score = penalties[0], -np.inf
    for penalty in penalties:
        found = score(penalty)
        if found < best_score:
            break
        if found > best_score:
            best, best_score = penalty, found
    return best
