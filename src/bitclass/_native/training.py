"""The compiled training kernels.

Results are defined, to the last bit, by the functions of the same name in
tests/native/reference.py. Inputs may have any memory layout; arrays that are modified in place must
be C-contiguous. A wrong type raises TypeError, a wrong shape or content ValueError, with the name
of the argument. After an error about contents, an array that is modified in place is undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads

_T = TypeVar("_T")


def run_kernel(
    kernel: Callable[..., _T], *arguments: Any, changed: NDArray[Any] | None = None
) -> _T:
    """Call a kernel with contiguous arrays; `changed`, which it modifies, is never copied.

    Arrays that another process sent need not be aligned.
    """
    ready = [np.require(a, None, ["C", "A"]) if isinstance(a, np.ndarray) else a for a in arguments]
    return kernel(*ready, *(() if changed is None else (changed,)), effective_threads())


def class_sums(
    X: NDArray[Any],
    labels: NDArray[np.intp],
    row_weights: NDArray[np.float64] | None,
    sums: NDArray[np.float64],
) -> None:
    """Add each row to the sum of its class, in row order.

    Parameters
    ----------
    X : (n, d) float32 or float64
    labels : (n,) index of each row's class
    row_weights : (n,), or None for ones
    sums : (C, d), modified in place
    """
    if row_weights is None:
        row_weights = np.ones(X.shape[0])
    run_kernel(_kernels.class_sums, X, labels, row_weights, changed=sums)


def standardise(
    X: NDArray[Any],
    rows: NDArray[np.intp],
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Standardised features ``(x - shift) / scale`` of some rows, float32 or float64 as X.

    Parameters
    ----------
    X : (n, d)
    rows : (m,) indices of rows
    shift, scale : (d,)
    out : (m, d), optional
        The memory for the result, to be used again: that of a new large array must be cleared.
    """
    dtype = X.dtype
    found = np.empty((len(rows), X.shape[1]), dtype) if out is None else out
    shift, factor = shift.astype(dtype), (1.0 / scale).astype(dtype)
    run_kernel(_kernels.standardise, X, rows, shift, factor, changed=found)
    return found


def class_gradients(
    F: NDArray[np.float32],
    weights: NDArray[np.float32],
    bias: NDArray[np.float32],
    log_shares: NDArray[np.float32],
    y: NDArray[np.intp],
    factors: NDArray[np.float32],
    sharpness: tuple[float, float],
    n_signs: int = 0,
) -> tuple[float, NDArray[np.float32], NDArray[np.float32]]:
    """Softmax cross-entropy of rows over the classes, and its gradients.

    Parameters
    ----------
    F : (m, r) scores; overwritten by the gradient with respect to them
        Straight-through: the derivative of tanh also replaces that of sign.
    weights : (C, r) in {-1, +1}
    bias, log_shares : (C,)
    y : (m,) index of each row's class
    factors : (m,) weights of the rows
    sharpness : factors on the class scores of rows that are scored by sign, and by tanh
    n_signs : int
        The first rows, which are scored by w.sign(F); the others are by w.tanh(F).

    Returns
    -------
    loss : float
    inputs : (m, r) sign or tanh of the scores
    slopes : (m, C) gradient with respect to the class scores
    """
    return _kernels.class_gradients(
        F,
        np.ascontiguousarray(weights),
        np.ascontiguousarray(bias),
        np.ascontiguousarray(log_shares),
        np.ascontiguousarray(y),
        np.ascontiguousarray(factors),
        sharpness,
        n_signs,
        effective_threads(),
    )


def log_probabilities(
    scores: NDArray[np.float32],
    labels: NDArray[np.intp],
    shifts: NDArray[np.float32],
    sharpness: float,
) -> NDArray[np.float32]:
    """Logarithms of the probabilities of the labels by a softmax.

    Parameters
    ----------
    scores : (m, C)
    labels : (m,) index of each row's class
    shifts : (C,)
    sharpness : float
        The softmax is that of ``scores * sharpness + shifts``.

    Returns
    -------
    (m,)
    """
    return run_kernel(_kernels.log_probabilities, scores, labels, shifts, sharpness)


def adam_step(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    rate: float,
    decay: tuple[float, float],
    tiny: float,
    values: NDArray[np.float32],
    means: NDArray[np.float32],
    squares: NDArray[np.float32],
    signs: NDArray[np.float32] | None = None,
) -> None:
    """Move `values` (k, r) by a step of Adam against the gradient ``left' right``.

    Parameters
    ----------
    left : (m, k)
    right : (m, r)
    rate : float, with the bias corrections of both moments
    decay : of both moments
    tiny : float, added to the root of the second moment
    values, means, squares : (k, r), modified in place
    signs : (k, r), optional
        If given, values are clipped to [-1, 1], and their signs are written there.
    """
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    _kernels.adam_step(
        left, right, rate, decay, tiny, values, means, squares, signs, effective_threads()
    )
