"""How far probabilities can be trusted: the expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_BINS", "Calibration"]

#: Bins of confidence, equally wide.
N_BINS = 15


@dataclass
class Calibration:
    """Confidence beside accuracy, in 15 bins of confidence.

    Examples
    --------
    >>> import numpy as np
    >>> calibration = Calibration()
    >>> calibration.add(np.array([0.9, 0.9]), np.array([True, False]))
    >>> round(calibration.expected_error, 3)
    0.4
    """

    n_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(N_BINS, dtype=np.int64))
    n_right: NDArray[np.int64] = field(default_factory=lambda: np.zeros(N_BINS, dtype=np.int64))
    confidence: NDArray[np.float64] = field(default_factory=lambda: np.zeros(N_BINS))

    def add(self, confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
        """Count rows by the probability of their prediction (n,) and whether it is right (n,)."""
        bins = np.minimum((confidence * N_BINS).astype(np.intp), N_BINS - 1)
        self.n_rows += np.bincount(bins, minlength=N_BINS)
        self.n_right += np.bincount(bins[right], minlength=N_BINS)
        self.confidence += np.bincount(bins, weights=confidence, minlength=N_BINS)

    @property
    def expected_error(self) -> float:
        """Mean distance of confidence and accuracy over bins, by their rows."""
        return float(np.abs(self.n_right - self.confidence).sum() / max(self.n_rows.sum(), 1))
