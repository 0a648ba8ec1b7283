"""Linear support vector machines by LibLinear, as LibLinear is by default."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted, validate_data

from bitclass.baselines.penalty import held_out, peak
from bitclass.rows import Features

__all__ = ["LinearSVM"]

# Solver (dual) and tolerance are LibLinear's own defaults. The tolerance of scikit-learn is a
# thousand times smaller and costs many times the time for the same accuracy.
_KINDS = ("ovr", "crammer_singer")
_TOLERANCE = 0.1
_MOST_ITERATIONS = 1000


class LinearSVM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear support vector machine, one-vs-all or of Crammer and Singer.

    Parameters
    ----------
    multi_class : {"ovr", "crammer_singer"}, default="ovr"
    C : float, default=1.0
        Weight of the losses against the norm; `best_C` chooses one.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    svm_ : LinearSVC
    converged_ : bool, whether LibLinear came to its end within 1,000 iterations
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = LinearSVM("crammer_singer", C=0.01, random_state=0).fit(X, y)
    >>> bool(svm.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        multi_class: str = "ovr",
        *,
        C: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.multi_class = multi_class
        self.C = C
        self.random_state = random_state

    def fit(self, X: Features, y: ArrayLike) -> Self:
        """Learn from X of shape (n_samples, n_features) and labels y of shape (n_samples,)."""
        if self.multi_class not in _KINDS:
            raise ValueError(
                f"multi_class must be one of {list(_KINDS)}, found {self.multi_class!r}"
            )
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        svm = LinearSVC(
            C=self.C,
            multi_class=self.multi_class,
            tol=_TOLERANCE,
            dual=True,
            max_iter=_MOST_ITERATIONS,
            random_state=self.random_state,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.svm_ = svm.fit(X, y)
        self.converged_ = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
        self.classes_ = svm.classes_
        return self

    def predict(self, X: Features) -> NDArray[Any]:
        """Predict labels of shape (n_samples,) for X of shape (n_samples, n_features)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.asarray(self.svm_.predict(X))

    def best_C(self, X: NDArray[Any], y: NDArray[Any]) -> float:  # noqa: N802 (LibLinear's name)
        """The best C of 1e-3 to 1e3 on a held-out slice of the rows to learn from.

        Parameters
        ----------
        X : (n, d)
        y : (n,)
        """
        return self.best_C_on(*held_out(X, y))

    def best_C_on(  # noqa: N802
        self, X: NDArray[Any], y: NDArray[Any], X_scored: NDArray[Any], y_scored: NDArray[Any]
    ) -> float:
        """The best C for learning from X (n, d), y (n,) and scoring on X_scored, y_scored."""

        def score(penalty: float) -> float:
            svm = LinearSVM(self.multi_class, C=penalty, random_state=self.random_state)
            return float(np.mean(svm.fit(X, y).predict(X_scored) == y_scored))

        return peak(score)

    @property
    def nbytes_(self) -> int:
        """Bytes of the model: C x d coefficients and C intercepts in float64."""
        check_is_fitted(self)
        return int(self.svm_.coef_.nbytes + np.asarray(self.svm_.intercept_).nbytes)
