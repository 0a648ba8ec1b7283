"""Locality-sensitive hashing: signs of random projections."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from bitclass.baselines.linear_encoder import LinearEncoder, check_n_bits
from bitclass.rows import Features

__all__ = ["LSHEncoder"]


class LSHEncoder(LinearEncoder):
    """Codes from signs of Gaussian random projections of the centred features.

    Parameters
    ----------
    n_bits : int, default=128
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    projection_ : ndarray of shape (n_features, n_bits), float32
    intercept_ : ndarray of shape (n_bits,), float32
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((20, 5))
    >>> LSHEncoder(8, random_state=0).fit(X).transform(X).shape
    (20, 8)
    """

    def __init__(
        self, n_bits: int = 128, *, random_state: int | np.random.RandomState | None = None
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, X: Features, y: Any = None) -> Self:
        """Draw the projections, for X of shape (n_samples, n_features); labels are not used."""
        check_n_bits(self.n_bits)
        X = validate_data(self, X, dtype=[np.float32, np.float64])
        random = check_random_state(self.random_state)
        self._set_map(
            random.standard_normal((X.shape[1], self.n_bits)), X.mean(axis=0, dtype=np.float64)
        )
        return self
