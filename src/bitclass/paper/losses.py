"""Losses of the margin, equation (3) of the paper.

Training minimises ``sum_i sum_{c != y_i} loss(scale * m[i, c])`` with the margin
``m[i, c] = w_c.b_i - w_{y_i}.b_i``, an even integer in [-2r, 2r]. So 2r + 1 values define a loss,
and adding one means writing one monotone function: an entry of `LOSSES`, or any callable. The paper
also sums over c = y_i, which adds the constant loss(0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Margins = NDArray[np.float64]


def _linear(margins: Margins) -> Margins:
    return margins


def _logistic(margins: Margins) -> Margins:
    return np.logaddexp(0.0, margins)


def _clipped(margins: Margins) -> Margins:
    return np.maximum(0.0, 1.0 + margins)


def _squared(margins: Margins) -> Margins:
    return np.square(_clipped(margins))


#: Losses by name. "hinge" is the paper's, which is linear because it drops the clipping;
#: "exponential" is that of the paper's binary quadratic program; "crammer_singer" is the clipped
#: hinge loss of the multi-class support vector machine.
LOSSES: dict[str, Callable[[Margins], Any]] = {
    "hinge": _linear,
    "exponential": np.exp,
    "logistic": _logistic,
    "squared_hinge": _squared,
    "crammer_singer": _clipped,
}


@dataclass(frozen=True)
class LossTable:
    """A loss, tabulated at the margins of `n_bits` bits.

    Half margins h = m / 2 index the table, h in [-r, r].

    Attributes
    ----------
    name : str, name of the loss
    n_bits : int
    values : (4r + 1,) loss at half margins -2r .. 2r; for an additive loss only the inner 2r + 1
        are ever looked up
    log_step : float
        For a multiplicative loss, the logarithm of its growth per unit of half margin; `values` are
        then relative to an arbitrary half margin (`top`). 0 for an additive loss.
    convex : bool
        Whether the loss is convex on the grid.
    """

    name: str
    n_bits: int
    values: NDArray[np.float64]
    log_step: float
    convex: bool

    def grid(self) -> NDArray[np.float64]:
        """Values of an additive loss at half margins -r .. r, shape (2r + 1,)."""
        return self.values[self.n_bits : 3 * self.n_bits + 1]

    def quadratic_tables(self, top: int) -> NDArray[np.float64]:
        """Delta and beta of the one-bit quadratic form at half margins -r .. r, (2, 2r + 1).

        This is equation (8) for any loss. With m the margin without the bit, b the bit of the code,
        and p and q those of the weights of the other and the true class, the loss is
        ``alpha + beta b (p - q) + delta p q`` for
        ``delta = loss(m) / 2 - (loss(m + 2) + loss(m - 2)) / 4`` and
        ``beta = (loss(m + 2) - loss(m - 2)) / 4``. For the exponential loss, with the paper's u, v
        and gamma = exp(m), these are ``-v^2 gamma`` and ``-u v gamma``.

        Parameters
        ----------
        top : int
            Half margin at which a multiplicative loss is 1.
        """
        if self.log_step:
            step, half = self.log_step, np.arange(-self.n_bits, self.n_bits + 1)
            gamma = np.exp(np.minimum(step * (half - top), 700.0 - 2.0 * step))
            # 1 - cosh(x) = -2 sinh(x / 2)^2 is precise for small x.
            return np.stack([-(np.sinh(step / 2) ** 2) * gamma, np.sinh(step) / 2 * gamma])
        padded = np.pad(self.grid(), 1, mode="edge")
        below, here, above = padded[:-2], padded[1:-1], padded[2:]
        delta = here / 2 - (above + below) / 4
        if self.convex:
            # Positive values are rounding error, which the minimum cut does not accept.
            delta = np.minimum(delta, 0.0)
        return np.stack([delta, (above - below) / 4])

    def log_sum(self, histogram: NDArray[np.float64]) -> float:
        """Logarithm of the loss summed over a histogram of half margins -r .. r."""
        filled = np.flatnonzero(histogram)
        if filled.size == 0:
            return -np.inf
        with np.errstate(divide="ignore"):
            if self.log_step:
                logs = np.log(histogram[filled]) + self.log_step * (filled - self.n_bits)
                return float(np.logaddexp.reduce(logs))
            return float(np.log(histogram[filled] @ self.grid()[filled]))


def tabulate(loss: str | Callable[[Margins], Any], n_bits: int, scale: float) -> LossTable:
    """Tabulate a loss, and raise an error if it is not finite and non-decreasing.

    Parameters
    ----------
    loss : name of a loss, or callable that returns one value per margin
    n_bits : int
    scale : float, factor on the margins

    Returns
    -------
    LossTable

    Examples
    --------
    >>> tabulate("crammer_singer", n_bits=2, scale=1.0).grid()
    array([0., 0., 1., 3., 5.])
    """
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    if loss == "exponential":  # exp(a + b) = exp(a) exp(b): values matter only up to a factor
        log_step = 2.0 * scale
        relative = log_step * np.arange(-2 * n_bits, 2 * n_bits + 1, dtype=np.float64)
        return LossTable(name, n_bits, np.exp(np.minimum(relative, 700.0)), log_step, convex=True)

    margins = 2.0 * np.arange(-n_bits, n_bits + 1, dtype=np.float64)
    function = LOSSES[loss] if isinstance(loss, str) else loss
    values = np.asarray(function(scale * margins), dtype=np.float64)
    if values.shape != margins.shape:
        raise ValueError(
            f"loss {name!r} must return one value per margin: an array of shape {margins.shape}, "
            f"found {values.shape}"
        )
    infinite = np.flatnonzero(~np.isfinite(values))
    if infinite.size:
        at = infinite[0]
        raise ValueError(
            f"loss {name!r} is {values[at]} at margin {margins[at]:g} (scale={scale:g}); it "
            f"must be finite at every even margin in [{-2 * n_bits}, {2 * n_bits}]: try a smaller "
            "scale"
        )
    falls = np.flatnonzero(np.diff(values) < 0)
    if falls.size:
        at = falls[0]
        raise ValueError(
            f"loss {name!r} must not decrease, but falls from {values[at]:g} at margin "
            f"{margins[at]:g} to {values[at + 1]:g} at margin {margins[at + 1]:g} "
            f"(scale={scale:g})"
        )
    if values[-1] == values[0]:
        raise ValueError(
            f"loss {name!r} is {values[0]:g} at every margin of {n_bits} bits "
            f"(scale={scale:g}); it must increase somewhere"
        )
    # Adding a constant changes no bit. The logarithm needs a non-negative loss, and a large offset
    # would cost digits.
    if values[0] < 0 or values[0] > values[-1] - values[0]:
        values = values - values[0]
    sizes = np.abs(values)
    rounding = 1e-12 * (sizes[:-2] + 2 * sizes[1:-1] + sizes[2:])
    convex = bool(np.all(np.diff(values, 2) >= -rounding))
    return LossTable(name, n_bits, np.pad(values, n_bits, mode="edge"), 0.0, convex)
