"""CCA-ITQ: canonical directions of features and labels, rotated towards the corners of a cube."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from bitclass.baselines.linear_encoder import SupervisedEncoder
from bitclass.rows import Features
from bitclass.training import cca_itq_projection

__all__ = ["CCAITQEncoder"]


class CCAITQEncoder(SupervisedEncoder):
    """Iterative quantisation of canonical directions, with the published settings.

    C classes have at most C - 1 canonical directions; more bits than that come from a rotation into
    more dimensions. The covariance of the features is regularised by 1e-4 of its trace, and 50
    rotations are made.

    Parameters
    ----------
    n_bits : int, default=128
    random_state : int, RandomState instance or None, default=None
        Seed of the first rotation.

    Attributes
    ----------
    projection_ : ndarray of shape (n_features, n_bits), float32
    intercept_ : ndarray of shape (n_bits,), float32
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> CCAITQEncoder(32, random_state=0).fit(X, y).transform(X).shape
    (1797, 32)
    """

    def __init__(
        self, n_bits: int = 128, *, random_state: int | np.random.RandomState | None = None
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, X: Features, y: ArrayLike) -> Self:
        """Learn from X of shape (n_samples, n_features) and labels y of shape (n_samples,)."""
        centred, own, centre = self._checked(X, y)
        projection = cca_itq_projection(
            centred,
            own,
            np.ones(len(own)),
            self.n_bits,
            check_random_state(self.random_state),
        )
        self._set_map(projection, centre)
        return self
