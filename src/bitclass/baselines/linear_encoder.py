"""What the encoders share: codes are the signs of an affine map of the features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bitclass.codes import sign
from bitclass.rows import Features, row_blocks

__all__ = ["LinearEncoder", "SupervisedEncoder", "check_n_bits"]


def check_n_bits(n_bits: Any) -> None:
    """Refuse anything but a positive integer."""
    if isinstance(n_bits, bool) or not isinstance(n_bits, int | np.integer) or n_bits < 1:
        raise ValueError(f"n_bits must be a positive integer, found {n_bits!r}")


class LinearEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encoder with codes ``sign(P'x + t)``; what fits it sets `projection_` and `intercept_`."""

    projection_: NDArray[np.float32]
    intercept_: NDArray[np.float32]

    def transform(self, X: Features) -> NDArray[np.int8]:
        """Codes in {-1, +1}, of shape (n_samples, n_bits), for X (n_samples, n_features)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float32, np.float64])
        codes = np.empty((X.shape[0], self.projection_.shape[1]), dtype=np.int8)
        for rows, block in row_blocks(X):
            codes[rows] = sign(block @ self.projection_.astype(block.dtype) + self.intercept_)
        return codes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _set_map(self, projection: NDArray[np.float64], centre: NDArray[np.float64]) -> None:
        """Take the map ``P'(x - centre)``."""
        self.projection_ = projection.astype(np.float32)
        self.intercept_ = -(centre @ self.projection_.astype(np.float64)).astype(np.float32)

    @property
    def nbytes_(self) -> int:
        """Bytes of the map."""
        check_is_fitted(self)
        return self.projection_.nbytes + self.intercept_.nbytes


class SupervisedEncoder(LinearEncoder):
    """Encoder that learns from labels."""

    n_bits: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _checked(
        self, X: Features, y: ArrayLike
    ) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.float64]]:
        """Centred rows (n, d), the index of each row's class (n,), and the centre (d,)."""
        check_n_bits(self.n_bits)
        X, y = validate_data(self, X, y, dtype=[np.float32, np.float64])
        check_classification_targets(y)
        _, own = np.unique(y, return_inverse=True)
        centre = X.mean(axis=0, dtype=np.float64)
        return X - centre.astype(X.dtype), own, centre
