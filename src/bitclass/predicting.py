"""The predicting half of the estimator: everything that asks the learned model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from bitclass._native import thread_limit
from bitclass.learning import Solution
from bitclass.model import PackedModel
from bitclass.rows import Features
from bitclass.storage import ModelFileError, ProjectionType, save
from bitclass.storage import load as load_model
from bitclass.summary import (
    restore_feature_names,
    restore_history,
    restore_parameters,
    restore_refinement,
)
from bitclass.validation import ACCEPTED, is_integer

__all__ = ["Predicting"]


class Predicting:
    """Methods and attributes of a fitted estimator; it says how to come by its solution."""

    n_jobs: int | None
    classes_: NDArray[Any]
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    get_params: Callable[..., dict[str, Any]]  # this and the next from scikit-learn
    set_params: Callable[..., Any]

    def _take(self, solution: Solution) -> None:
        """Become fitted by what was learned elsewhere."""
        raise NotImplementedError

    def _solved(self) -> Solution:
        """What was learned, learning it now if rows came since."""
        raise NotImplementedError

    def _n_classes_with_samples(self) -> int:
        """How many classes there are to be predicted."""
        raise NotImplementedError

    def _of_all_classes(self, values: NDArray[np.float64], of_others: float) -> NDArray[np.float64]:
        """Columns of `classes_` from those of the classes that have samples."""
        if values.shape[1] == len(self.classes_):
            return values
        spread = np.full((len(values), len(self.classes_)), of_others)
        spread[:, np.searchsorted(self.classes_, self._solved().model.classes)] = values
        return spread

    def predict(self, X: Features) -> NDArray[Any]:
        """Predict the class at the smallest Hamming distance.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        model, X = self._model_for(X)
        with thread_limit(self.n_jobs):
            return model.predict(X)

    def decision_function(self, X: Features) -> NDArray[np.float64]:
        """Inner products of class weights and codes.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            ``w_c.h(x)``, in [-n_bits, n_bits], and -n_bits for classes without samples. For two
            classes, as scikit-learn has it, of shape (n_samples,): half the difference of the
            two, positive for ``classes_[1]``.
        """
        model, X = self._model_for(X)
        with thread_limit(self.n_jobs):
            scores = self._of_all_classes(model.scores(X).astype(np.float64), -model.n_bits)
        if scores.shape[1] == 2:
            return (scores[:, 1] - scores[:, 0]) / 2
        return scores

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Class probabilities, from the distances.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        model, X = self._model_for(X)
        with thread_limit(self.n_jobs):
            return self._of_all_classes(model.predict_proba(X), 0.0)

    def top_classes(
        self, X: Features, k: int, *, rescore: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The k nearest classes, without ever holding all n_samples x n_classes distances.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        k : int in [1, n_classes]
        rescore : bool, default=False
            Whether to choose the k among the 4 k nearest by their inner products with
            ``tanh(2 (P'x + t))``, in which a bit counts by how sure it is; it costs one more
            product.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Nearest first; equal distances in the order of `classes_`. With `rescore`, best first.
        distances : ndarray of shape (n_samples, k), int32
            Hamming distances.
        """
        check_is_fitted(self)
        n_classes = self._n_classes_with_samples()
        if not is_integer(k) or not 1 <= k <= n_classes:
            raise ValueError(
                f"k must be an integer from 1 to the number of classes, {n_classes}, found {k!r}"
            )
        model, X = self._model_for(X)
        with thread_limit(self.n_jobs):
            return model.top_classes(X, int(k), rescore=rescore)

    def encode(self, X: Features) -> NDArray[np.uint8]:
        """Codes of samples, packed.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, ceil(n_bits / 8)), uint8
            Bit k of a code is bit ``k % 8`` of byte ``k // 8``, set for +1.
        """
        model, X = self._model_for(X)
        with thread_limit(self.n_jobs):
            return model.encode(X)

    def packed(self) -> PackedModel:
        """The model without the estimator: all that predicting needs.

        Returns
        -------
        PackedModel
        """
        return self._solved().model

    def save(self, path: str | os.PathLike[str], *, projection: ProjectionType = "float32") -> None:
        """Save the model to a file, whole or not at all.

        The file holds what predicting needs, the parameters, and a summary of the training; not
        the sums that `partial_fit` goes on from. `bitclass.load` reads it without scikit-learn,
        :meth:`load` gives an estimator.

        Parameters
        ----------
        path : str or path
            By custom ``*.safetensors``; a file that is there is replaced.
        projection : {"float32", "float16", "int8"}, default="float32"
            What to save `projection_` in. "float32" changes nothing at all; "float16" takes half
            the room; "int8" takes a quarter, and changes no prediction of an estimator whose
            `precision` is "int8".

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> from bitclass import BinaryCodeClassifier, load
        >>> X = np.random.default_rng(0).standard_normal((60, 5))
        >>> y = np.where(X[:, 0] > 0, "right", "left")
        >>> classifier = BinaryCodeClassifier(n_bits=16, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "sides.safetensors")
        ...     classifier.save(path, projection="int8")
        ...     model = load(path)
        >>> bool(np.all(model.predict(X) == classifier.predict(X)))
        True
        """
        save(path, self._solved().model, projection=projection)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator from a file that `save` wrote.

        It predicts as the one that was saved did (see there), and has its parameters, but for
        `n_jobs` and `verbose`; `objective_history_` has one entry a step. `partial_fit` cannot go
        on from it. To predict without scikit-learn, `bitclass.load` reads the same file.

        Parameters
        ----------
        path : str or path
            The file need not be trusted: nothing in it is run.

        Returns
        -------
        BinaryCodeClassifier

        Raises
        ------
        ModelFileError
            If this is not a model file, or damaged, or of a version that is not understood.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> from bitclass import BinaryCodeClassifier
        >>> X = np.random.default_rng(0).standard_normal((60, 5))
        >>> y = np.where(X[:, 0] > 0, "right", "left")
        >>> classifier = BinaryCodeClassifier(n_bits=16, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     classifier.save(os.path.join(folder, "sides.safetensors"))
        ...     read = BinaryCodeClassifier.load(os.path.join(folder, "sides.safetensors"))
        >>> read
        BinaryCodeClassifier(n_bits=16, random_state=0)
        """
        model = load_model(path)
        classifier = cls()
        try:
            parameters = restore_parameters(model.summary, classifier.get_params(deep=False))
            history, n_rounds = restore_history(model.summary, model.n_bits)
            refinement = restore_refinement(model.summary)
            names = restore_feature_names(model.summary, model.n_features)
        except ModelFileError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from None
        parameters["n_bits"] = model.n_bits
        by_default = "int8" if model.anchors is None else "float32"
        if parameters.get("precision") != "auto" or model.precision != by_default:
            parameters["precision"] = model.precision
        classifier.set_params(**parameters)
        classifier.classes_ = model.classes
        classifier.n_features_in_ = model.n_features
        if names is not None:
            classifier.feature_names_in_ = names
        classifier._take(Solution(model, history, n_rounds, refinement=refinement))
        return classifier

    def _model_for(self, X: Features) -> tuple[PackedModel, Features]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **ACCEPTED)
        return self._solved().model, X

    @property
    def weights_(self) -> NDArray[np.int8]:
        """Class weights of shape (n_classes, n_bits) in {-1, +1}, 0 for classes without samples."""
        model = self._solved().model
        weights = np.zeros((len(self.classes_), model.n_bits), dtype=np.int8)
        weights[np.searchsorted(self.classes_, model.classes)] = model.unpacked_weights()
        return weights

    @property
    def projection_(self) -> NDArray[np.float32]:
        """Matrix P of the hash function, shape (n_features, n_bits), or (n_anchors, n_bits)."""
        return self._solved().model.projection

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Offset t of the hash function, shape (n_bits,)."""
        return self._solved().model.intercept

    @property
    def objective_history_(self) -> NDArray[np.void]:
        """Logarithm of the objective after each bit update."""
        return self._solved().history

    @property
    def alpha_(self) -> float | None:
        """Penalty of the regression behind the hash function, where it is known."""
        return self._solved().alpha

    @property
    def refinement_(self) -> dict[str, Any] | None:
        """What refinement came to, None where there was none."""
        return self._solved().refinement

    @property
    def n_iter_(self) -> int:
        """Number of rounds of the alternation."""
        return self._solved().n_rounds
