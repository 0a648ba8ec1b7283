"""Kernel anchors: rows as similarities to chosen rows, so that a linear hash function can bend."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RbfAnchors", "squared_distances"]


def squared_distances(X: NDArray[Any], anchors: NDArray[Any]) -> NDArray[Any]:
    """Squared distances of rows (n, d) to anchors (m, d), shape (n, m)."""
    of_rows = np.einsum("nd,nd->n", X, X)
    of_anchors = np.einsum("md,md->m", anchors, anchors)
    return np.asarray(np.maximum(of_rows[:, None] - 2 * (X @ anchors.T) + of_anchors, 0))


_FARTHEST = 1e9


class RbfAnchors:
    """The feature map ``exp(-gamma |z - a|^2)`` to m anchors, for standardised rows z.

    Parameters
    ----------
    anchors : (m, d) float32, standardised
    centre, scale : (d,) float32, what standardises the rows
    gamma : float

    Examples
    --------
    >>> import numpy as np
    >>> anchors = np.array([[0.0], [1.0]], dtype=np.float32)
    >>> anchors = RbfAnchors(anchors, np.zeros(1, np.float32), np.ones(1, np.float32), gamma=1.0)
    >>> anchors.similarities(np.array([[1.0]], dtype=np.float32)).round(3)
    array([[0.368, 1.   ]], dtype=float32)
    """

    def __init__(
        self,
        anchors: NDArray[np.float32],
        centre: NDArray[np.float32],
        scale: NDArray[np.float32],
        gamma: float,
    ) -> None:
        self.anchors = anchors
        self.centre = centre
        self.scale = scale
        self.gamma = gamma
        # The distance as sums: -gamma |z - a|^2 = 2 gamma z.a - gamma |z|^2 - gamma |a|^2.
        self._factors = np.ascontiguousarray((2.0 * gamma * anchors).T, dtype=np.float32)
        self._lengths = (gamma * np.einsum("md,md->m", anchors, anchors)).astype(np.float32)

    @property
    def n_features(self) -> int:
        """Features d of a row."""
        return int(self.anchors.shape[1])

    def fingerprint(self) -> str:
        """Equal for two maps that give every row the same similarities."""
        parts = (self.anchors, self.centre, self.scale, np.float64(self.gamma))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def similarities(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Similarities of a block of dense rows (n, d) to the anchors, shape (n, m)."""
        with np.errstate(over="ignore"):
            far: NDArray[Any] = (X - self.centre) / self.scale
        # Farther away than that nothing is like any anchor, and squares would be infinite.
        Z = np.clip(far, -_FARTHEST, _FARTHEST, out=far).astype(np.float32, copy=False)
        found: NDArray[np.float32] = Z @ self._factors
        found -= self._lengths
        found -= np.float32(self.gamma) * np.einsum("nd,nd->n", Z, Z)[:, None]
        np.minimum(found, 0.0, out=found)  # rounding must not make a row nearer than near
        np.exp(found, out=found)
        return found
