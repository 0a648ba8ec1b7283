"""What both estimators share: prediction by a packed model, with scikit-learn's checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from bitclass._native import thread_limit
from bitclass.arrays import Features, check_no_texts, frame_columns, is_on_gpu, on_host
from bitclass.model import PackedModel, TopClasses

#: Options of scikit-learn's `validate_data`: any real dtype, unconverted, and CSR.
ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric"}


class PackedPredictor(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the estimators, which predict by the `PackedModel` that `packed` returns.

    They have the parameter `n_jobs` and the attribute `classes_`, the labels, sorted, some of which
    may be unknown to the model. Rows `X` are array-likes or CSR matrices of shape
    (n_samples, n_features).
    """

    @abstractmethod
    def packed(self) -> PackedModel:
        """The model without the estimator: all that prediction needs.

        Returns
        -------
        PackedModel
        """

    def _solved_model(self) -> PackedModel:
        """The model, for attributes: reading them never trains."""
        return self.packed()

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        """Restore all attributes if the block raises."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def predict(self, X: Features, *, reject: float | None = None) -> NDArray[Any]:
        """Predict the nearest class, or the best of the rescored short list.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            An array on a GPU is predicted there: see `PackedModel.predict`.
        reject : float in [0, 1], optional
            Rows with a `typicality` below it get `unknown_label`; by default the parameter `reject`
            of the estimator. `PaperClassifier` has no typicality, and cannot reject.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if is_on_gpu(X):
            return self.packed().predict(X, reject=reject)
        with self._predicting(X) as (model, X):
            return model.predict(X, reject=reject)

    def decision_function(self, X: Features) -> NDArray[np.float64]:
        """Class scores, of shape (n_samples, n_classes); the predicted class has the largest.

        Without rescoring ``w_c.h(x)``, in [-n_bits, n_bits]. With rescoring ``w_c.tanh(P'x + t)``
        for the classes on the short list, and lower scores for all others. Classes without samples
        have the lowest score of all. For two classes, the shape is (n_samples,), as in
        scikit-learn: half the difference of the two scores, positive for ``classes_[1]``.
        """
        with self._predicting(X) as (model, X):
            scores = self._for_all_classes(model.scores(X), -4.0 * model.n_bits)
        if scores.shape[1] == 2:
            return (scores[:, 1] - scores[:, 0]) / 2
        return scores

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Class probabilities, of shape (n_samples, n_classes).

        With many classes, `top_classes` returns those of the best ones without such an array.
        """
        with self._predicting(X) as (model, X):
            return self._for_all_classes(model.predict_proba(X), 0.0)

    def predict_log_proba(self, X: Features) -> NDArray[np.float64]:
        """Logarithms of the class probabilities, without underflow; -inf without samples."""
        with self._predicting(X) as (model, X):
            return self._for_all_classes(model.predict_log_proba(X), -np.inf)

    def top_classes(
        self, X: Features, k: int, *, probabilities: bool = False, typicality: bool = False
    ) -> TopClasses:
        """The k best classes, without computing all n_samples x n_classes scores.

        Parameters and result are those of `PackedModel.top_classes`.
        """
        with self._predicting(X) as (model, X):
            return model.top_classes(X, k, probabilities=probabilities, typicality=typicality)

    def typicality(self, X: Features) -> NDArray[np.float64]:
        """Share of known rows whose best score is at most that of each row, of shape (n_samples,).

        Rows below 0.05 are less typical than 95 % of the rows of known classes: they may belong to
        no known class.
        """
        with self._predicting(X) as (model, X):
            return model.typicality(X)

    def score(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean accuracy; rejected rows count as wrong.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        from sklearn.metrics import accuracy_score  # imported here because it takes 0.3 s

        y, found = on_host(y, "y"), on_host(self.predict(X), "X")
        sample_weight = on_host(sample_weight, "sample_weight")
        if self._solved_model().reject:  # labels and `unknown_label` may be of different types
            y, found = np.ones(len(found), bool), np.asarray(y) == found
        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def encode(self, X: Features) -> NDArray[np.uint8]:
        """Packed codes of samples, of shape (n_samples, ceil(n_bits / 8)), uint8.

        Bit k of a code is bit ``k % 8`` of byte ``k // 8``, set for +1.
        """
        with self._predicting(X) as (model, X):
            return model.encode(X)

    @contextmanager
    def _predicting(self, X: Features) -> Iterator[tuple[PackedModel, Features]]:
        """Model and checked rows; inside the block, kernels use `n_jobs` threads."""
        check_no_texts(X)
        model = self.packed()
        # The kernels reject non-finite values at no extra cost.
        X = frame_columns(on_host(X, "X"), getattr(self, "feature_names_in_", None))
        X = validate_data(self, X, reset=False, ensure_all_finite=False, **ACCEPTED)
        with thread_limit(self.n_jobs):
            yield model, X

    def _for_all_classes(self, values: NDArray[np.float64], fill: float) -> NDArray[np.float64]:
        """One column per entry of `classes_`, filled with `fill` for classes without samples."""
        if values.shape[1] == len(self.classes_):
            return values
        columns = np.full((values.shape[0], len(self.classes_)), fill)
        columns[:, np.searchsorted(self.classes_, self._solved_model().classes)] = values
        return columns

    @property
    def weights_(self) -> NDArray[np.int8]:
        """Class weights of shape (n_classes, n_bits) in {-1, +1}, 0 for classes without samples."""
        model = self._solved_model()
        weights = np.zeros((len(self.classes_), model.n_bits), dtype=np.int8)
        weights[np.searchsorted(self.classes_, model.classes)] = model.unpacked_weights()
        return weights

    @property
    def projection_(self) -> NDArray[np.float32]:
        """Matrix P of the hash function, shape (n_features, n_bits), or (n_anchors, n_bits)."""
        return self._solved_model().hash_function.projection

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Offset t of the hash function, shape (n_bits,)."""
        return self._solved_model().hash_function.intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
