"""The estimator that learns on a Dask cluster."""

from __future__ import annotations

from typing import Any, Self

import dask.array as da
import numpy as np
from sklearn.utils.validation import check_is_fitted

from bitclass.classifier import BinaryCodeClassifier
from bitclass.codes import packed_width
from bitclass.distributed.cluster import Run, current_client
from bitclass.distributed.fitting import Progress, fit_collections, fit_files, open_at_workers
from bitclass.distributed.partitions import (
    FeatureFiles,
    Partition,
    collection_partitions,
    file_partitions,
    is_files,
)
from bitclass.distributed.predicting import accuracy, check_names, lazy, model_at_workers
from bitclass.validation import check_named_codes, is_integer

__all__ = ["DaskBinaryCodeClassifier"]


class DaskBinaryCodeClassifier(BinaryCodeClassifier):
    """`BinaryCodeClassifier` on a Dask cluster: the same parameters, the same model.

    Workers add up sums over their partitions, the sums are merged, and the client solves. It works
    on whatever cluster the current `distributed.Client` is connected to.

    The parameters and attributes are those of `BinaryCodeClassifier`, with two exceptions:
    `class_weight` cannot be "balanced" and `initial_codes` cannot be an array, as in `partial_fit`.
    `n_jobs` is the number of threads of one task on a worker, by default as many as the worker has.

    Starting codes are set up on a fair sample of at most 10,000 rows, the same for the same
    `random_state` and partitions. With ``refine=False`` the model equals that of a
    `BinaryCodeClassifier` that began with this sample and got the partitions by `partial_fit`.
    Refinement runs on the client, on a sample of at most about 256 MB of rows.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from distributed import Client
    >>> from bitclass.distributed import DaskBinaryCodeClassifier
    >>> X = da.random.default_rng(0).standard_normal((600, 8), chunks=(200, 8))
    >>> y = da.where(X[:, 0] > 0, "right", "left")
    >>> with Client(processes=False, n_workers=2, dashboard_address=None) as client:
    ...     classifier = DaskBinaryCodeClassifier(n_bits=32, loss="hinge", random_state=0).fit(X, y)
    ...     accuracy = classifier.score(X, y)
    >>> accuracy > 0.9
    True
    >>> classifier.to_local()
    BinaryCodeClassifier(loss='hinge', n_bits=32, random_state=0)
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from Dask collections, or from files that the workers read.

        Parameters
        ----------
        X : Dask array of shape (n_samples, n_features), Dask frame, list of delayed values or \
                futures of arrays or frames, FeatureFiles, or list of paths
            An array must not be cut along the features. Collections that are not in the memory of
            workers are computed twice, once more for the refinement, and once more where rows
            have codes of their own and the loss is not "hinge": persist them where they fit.
        y : the same of shape (n_samples,), or an array
            Labels, in the same partitions as X; None where X is files.
        sample_weight : the same of shape (n_samples,), optional

        Returns
        -------
        self
        """
        return self.fit_with(X, y, sample_weight, progress=_no_progress)

    def fit_with(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: Progress
    ) -> Self:
        """Learn as `fit` does, and tell how far it is.

        Parameters
        ----------
        X, y, sample_weight : see `fit`
        progress : called with the name of the pass, how much of it is done, and of how much
        """
        self._check_parameters()
        check_named_codes(self.initial_codes)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; give the weights as a "
                "dict"
            )
        for name in ("_knowledge", "feature_names_in_"):
            self.__dict__.pop(name, None)
        local = BinaryCodeClassifier(**self.get_params(deep=False))
        run = Run(current_client())
        with run.minded():
            if is_files(X):
                if y is not None or sample_weight is not None:
                    raise ValueError("y and sample_weight must be None where X is files")
                fit_files(local, run, _files(X), progress)
            else:
                if y is None:
                    raise ValueError("y must be given where X is not files")
                fit_collections(local, run, X, y, sample_weight, progress)
        self.__dict__.update(local.__dict__)
        return self

    def to_local(self) -> BinaryCodeClassifier:
        """The ordinary classifier, fitted as this one is; it shares its arrays."""
        check_is_fitted(self)
        local = BinaryCodeClassifier(**self.get_params(deep=False))
        local.__dict__.update(self.__dict__)
        return local

    def predict(self, X: Any) -> da.Array:
        """Predict the class at the smallest Hamming distance, lazily, on the workers.

        Parameters
        ----------
        X : as `fit` takes it

        Returns
        -------
        Dask array of shape (n_samples,)
        """
        return self._lazy(X, "predict", {}, [((), self._label_dtype())])[0]

    def encode(self, X: Any) -> da.Array:
        """Packed codes, lazily: a Dask array of shape (n_samples, ceil(n_bits / 8)), uint8."""
        return self._lazy(X, "encode", {}, [((packed_width(self.n_bits),), np.uint8)])[0]

    def top_classes(self, X: Any, k: int, *, rescore: bool = False) -> tuple[da.Array, da.Array]:
        """Labels and distances of the k nearest classes, lazily.

        Parameters
        ----------
        X : as `fit` takes it
        k : int in [1, n_classes]
        rescore : bool, default=False
            See `BinaryCodeClassifier.top_classes`.

        Returns
        -------
        labels : Dask array of shape (n_samples, k)
        distances : Dask array of shape (n_samples, k), int32
        """
        check_is_fitted(self)
        n_classes = self._n_classes_with_samples()
        if not is_integer(k) or not 1 <= k <= n_classes:
            raise ValueError(
                f"k must be an integer from 1 to the number of classes, {n_classes}, found {k!r}"
            )
        outputs: list[tuple[tuple[int, ...], Any]] = [
            ((int(k),), self._label_dtype()),
            ((int(k),), np.int32),
        ]
        arguments = {"k": int(k), "rescore": bool(rescore)}
        labels, distances = self._lazy(X, "top_classes", arguments, outputs)
        return labels, distances

    def decision_function(self, X: Any) -> da.Array:
        """Inner products of class weights and codes, lazily; see `BinaryCodeClassifier`."""
        check_is_fitted(self)
        shape = () if len(self.classes_) == 2 else (len(self.classes_),)
        return self._lazy(X, "decision_function", {}, [(shape, np.float64)])[0]

    def predict_proba(self, X: Any) -> da.Array:
        """Class probabilities, lazily: a Dask array of shape (n_samples, n_classes)."""
        check_is_fitted(self)
        return self._lazy(X, "predict_proba", {}, [((len(self.classes_),), np.float64)])[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on labelled rows, computed on the workers.

        Parameters
        ----------
        X, y, sample_weight : Dask collections, as `fit` takes them

        Returns
        -------
        float
        """
        partitions = collection_partitions(X, y, sample_weight)
        check_is_fitted(self)
        run = Run(current_client())
        with run.minded():
            return accuracy(run, model_at_workers(run.client, self), partitions)

    def _label_dtype(self) -> np.dtype[Any]:
        check_is_fitted(self)
        return self.classes_.dtype

    def _lazy(
        self,
        X: Any,
        method: str,
        arguments: dict[str, Any],
        outputs: list[tuple[tuple[int, ...], Any]],
    ) -> tuple[da.Array, ...]:
        check_is_fitted(self)
        client = current_client()
        return lazy(model_at_workers(client, self), self._partitions(X), method, arguments, outputs)

    def _partitions(self, X: Any) -> list[Partition]:
        """Rows to predict, in partitions, checked as far as their width is known."""
        n_features: int | None = None
        if is_files(X):
            run = Run(current_client())
            with run.minded():
                reader, at_workers = open_at_workers(run, _files(X))
                found = file_partitions(reader, at_workers, len(run.present_workers()))
            n_features = reader.n_features
        else:
            found = collection_partitions(X)
            check_names(getattr(self, "feature_names_in_", None), X)
            if isinstance(X, da.Array):
                n_features = X.shape[1]
        if n_features is not None and n_features != self.n_features_in_:
            raise ValueError(
                f"X has {n_features} features, but the model takes {self.n_features_in_}"
            )
        return found


def _files(X: Any) -> FeatureFiles:
    return X if isinstance(X, FeatureFiles) else FeatureFiles(X)


def _no_progress(name: str, done: int, total: int) -> None:
    pass
