"""Radial basis functions at anchors: the features on which SDH was published."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bitclass.anchors import squared_distances
from bitclass.rows import Features, row_blocks

__all__ = ["AnchorFeatures"]


class AnchorFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Map x to ``exp(-|x - a_j|^2 / width^2)`` for anchors a_j drawn from the rows.

    Parameters
    ----------
    n_anchors : int, default=1000
        All rows serve where there are fewer.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    anchors_ : ndarray of shape (n_anchors, n_features), float32
    squared_width_ : float
        Mean squared distance of rows to anchors, so that the features of typical rows lie about
        1/e whatever the units of X. The width 0.4 that SDH was published with, for rows of length
        1, is about the same.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((20, 5))
    >>> AnchorFeatures(7, random_state=0).fit_transform(X).shape
    (20, 7)
    """

    def __init__(
        self, n_anchors: int = 1000, *, random_state: int | np.random.RandomState | None = None
    ) -> None:
        self.n_anchors = n_anchors
        self.random_state = random_state

    def fit(self, X: Features, y: Any = None) -> Self:
        """Draw the anchors from X of shape (n_samples, n_features); labels are not used."""
        if isinstance(self.n_anchors, bool) or self.n_anchors < 1:
            raise ValueError(f"n_anchors must be a positive integer, found {self.n_anchors!r}")
        X = validate_data(self, X, dtype=[np.float32, np.float64])
        random = check_random_state(self.random_state)
        chosen = random.choice(X.shape[0], min(self.n_anchors, X.shape[0]), replace=False)
        self.anchors_ = X[chosen].astype(np.float32)
        sample = X[random.choice(X.shape[0], min(2000, X.shape[0]), replace=False)]
        mean = float(np.mean(self._squared_distances(sample)))
        self.squared_width_ = mean if mean > 0 else 1.0
        return self

    def transform(self, X: Features) -> NDArray[np.float32]:
        """Features of shape (n_samples, n_anchors) for X of shape (n_samples, n_features)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float32, np.float64])
        features = np.empty((X.shape[0], len(self.anchors_)), dtype=np.float32)
        for rows, block in row_blocks(X):
            features[rows] = np.exp(-self._squared_distances(block) / self.squared_width_)
        return features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _squared_distances(self, X: NDArray[Any]) -> NDArray[Any]:
        return squared_distances(X, self.anchors_.astype(X.dtype))

    @property
    def nbytes_(self) -> int:
        """Bytes of the anchors."""
        check_is_fitted(self)
        return int(self.anchors_.nbytes)
