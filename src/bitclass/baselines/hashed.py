"""A linear support vector machine on the codes of an encoder."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from bitclass.baselines.linear_svm import LinearSVM
from bitclass.baselines.lsh import LSHEncoder
from bitclass.baselines.penalty import held_out
from bitclass.rows import Features

__all__ = ["HashedClassifier"]


class HashedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Encoder, then the multi-class linear support vector machine of Crammer and Singer.

    The support vector machine learns from the codes that the encoder predicts for the rows, as a
    new row will have them.

    Parameters
    ----------
    encoder : transformer, default=None
        With codes in {-1, +1}; `LSHEncoder()` where None.
    C : float, default=1.0
        Of the support vector machine; `best_C` chooses one.
    random_state : int, RandomState instance or None, default=None
        Seed of the support vector machine; encoders have their own.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    encoder_ : the fitted encoder
    svm_ : LinearSVM
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from bitclass.baselines import CCAITQEncoder
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = HashedClassifier(CCAITQEncoder(32, random_state=0), C=0.01, random_state=0)
    >>> bool(classifier.fit(X, y).score(X, y) > 0.85)
    True
    """

    def __init__(
        self,
        encoder: Any = None,
        *,
        C: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.encoder = encoder
        self.C = C
        self.random_state = random_state

    def fit(self, X: Features, y: ArrayLike) -> Self:
        """Learn from X of shape (n_samples, n_features) and labels y of shape (n_samples,)."""
        X, y = validate_data(self, X, y, dtype=[np.float32, np.float64])
        self.encoder_ = self._new_encoder().fit(X, y)
        self.svm_ = self._new_svm().fit(_as_features(self.encoder_.transform(X)), y)
        self.classes_ = self.svm_.classes_
        return self

    def predict(self, X: Features) -> NDArray[Any]:
        """Predict labels of shape (n_samples,) for X of shape (n_samples, n_features)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float32, np.float64])
        return self.svm_.predict(_as_features(self.encoder_.transform(X)))

    def best_C(self, X: NDArray[Any], y: NDArray[Any]) -> float:  # noqa: N802 (LibLinear's name)
        """The best C of 1e-3 to 1e3 on a slice of the rows that the encoder has not seen.

        Parameters
        ----------
        X : (n, d)
        y : (n,)
        """
        X, y, X_scored, y_scored = held_out(X, y)
        encoder = self._new_encoder().fit(X, y)
        codes, scored = (_as_features(encoder.transform(part)) for part in (X, X_scored))
        return self._new_svm().best_C_on(codes, y, scored, y_scored)

    @property
    def converged_(self) -> bool:
        """Whether LibLinear came to its end."""
        return self.svm_.converged_

    @property
    def nbytes_(self) -> int:
        """Bytes of the encoder and of the support vector machine."""
        check_is_fitted(self)
        encoder = self.encoder_
        parts = [step for _, step in encoder.steps] if isinstance(encoder, Pipeline) else [encoder]
        return int(sum(part.nbytes_ for part in parts)) + self.svm_.nbytes_

    def _new_encoder(self) -> Any:
        return LSHEncoder() if self.encoder is None else clone(self.encoder)

    def _new_svm(self) -> LinearSVM:
        return LinearSVM("crammer_singer", C=self.C, random_state=self.random_state)


def _as_features(codes: NDArray[np.int8]) -> NDArray[np.float64]:
    """Codes as LibLinear takes them."""
    return codes.astype(np.float64)
