"""The estimator that trains on a Dask cluster and predicts lazily on its workers."""

from __future__ import annotations

from typing import Any, Self

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bitclass._native import thread_limit
from bitclass.arrays import as_features, is_foreign, to_host
from bitclass.classifier import BinaryCodeClassifier
from bitclass.distributed.cluster import (
    FeatureFiles,
    Partition,
    collection_partitions,
    current_client,
    file_partitions,
    files_of,
    named_errors,
    results,
    row_batches,
    worker_addresses,
    worker_threads,
)
from bitclass.distributed.fitting import Progress, fit_on_workers
from bitclass.validation import check_initial_codes

__all__ = ["DaskBinaryCodeClassifier"]

_FILE_PARTITIONS_PER_WORKER = 4


class DaskBinaryCodeClassifier(BinaryCodeClassifier):
    """`BinaryCodeClassifier` on a Dask cluster, with the same parameters and the same model.

    The workers sum over their partitions, the sums are merged, and the client solves for the model.
    The cluster is that of the current `distributed.Client`.

    Parameters and attributes are those of `BinaryCodeClassifier`, except that `class_weight` cannot
    be "balanced", `initial_codes` cannot be an array, and "projection" and "cca_itq" require
    ``loss="hinge"``. `n_jobs` is the number of threads per task, by default that of its worker.

    Standardisation, anchors and starting codes are computed from a random sample of at most about
    10,000 rows, the same for the same `random_state` and partitions. With ``refine=False``, the
    model is that of `BinaryCodeClassifier.fit_batches` with this sample and the partitions as
    batches. Refinement runs on the client, on at most about 256 MB of rows; which rows these are
    does not depend on the partitions.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from distributed import Client
    >>> from bitclass.distributed import DaskBinaryCodeClassifier
    >>> X = da.random.default_rng(0).standard_normal((600, 8), chunks=(200, 8))
    >>> y = da.where(X[:, 0] > 0, "right", "left")
    >>> with Client(processes=False, n_workers=2, dashboard_address=None) as client:
    ...     classifier = DaskBinaryCodeClassifier(n_bits=32, random_state=0).fit(X, y)
    ...     accuracy = classifier.score(X, y)
    >>> accuracy > 0.9
    True
    >>> classifier.to_local()
    BinaryCodeClassifier(n_bits=32, random_state=0)
    """

    def fit(  # type: ignore[override]  # without groups: held-out rows are split on the client
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Train on Dask collections, or on files read by the workers.

        Parameters
        ----------
        X : Dask array of shape (n_samples, n_features), Dask data frame, FeatureFiles, or list \
                of paths
            An array must not be split along the features; its blocks may be CSR matrices or tensors
            of other libraries. Data that are not in the memory of the workers are computed twice,
            once for the sample and once for the sums; persist them if they fit.
        y : Dask array or series of shape (n_samples,), or NumPy array
            Labels, in the same partitions as X; None if X is files.
        sample_weight : as y, optional
        progress : callable, optional
            Called periodically with the name of the pass, the amount done and the total:
            partitions in "sampling", rows in "learning".

        Returns
        -------
        self
            If an error is raised, the estimator is unchanged.

        Raises
        ------
        PartitionError
            If a partition cannot be used; the message contains its number.
        ClusterError
            If the cluster cannot be used, or the connection was lost.
        """
        local = BinaryCodeClassifier(**self.get_params(deep=False))
        settings = local._checked_settings(in_batches=True)
        codes = check_initial_codes(self.initial_codes, None, self.n_bits)
        if settings.table is not None and codes in ("projection", "cca_itq"):
            raise ValueError(
                f"initial_codes={codes!r} gives each row its own code, which requires "
                f"loss='hinge' on a cluster, found loss={settings.loss!r}; use "
                "initial_codes='means' or 'random'"
            )
        if files_of(X) is None:
            if y is None:
                raise ValueError("y is required unless X is files")
        elif y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight must be None if X is files")
        fit_on_workers(local, current_client(), X, y, sample_weight, progress)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(local.__dict__)
        return self

    def to_local(self) -> BinaryCodeClassifier:
        """Convert to a fitted `BinaryCodeClassifier`.

        Returns
        -------
        BinaryCodeClassifier
            A classifier that shares the arrays of this one.
        """
        check_is_fitted(self)
        local = BinaryCodeClassifier()
        local.__dict__.update(self.__dict__)
        return local

    def predict(self, X: Any) -> da.Array:
        """Predict classes, lazily, on the workers.

        Parameters
        ----------
        X : as in `fit`
            Columns of data frames and files are selected by name if `fit` had feature names.

        Returns
        -------
        Dask array of shape (n_samples,)
        """
        return self._lazy(X, "predict")[0]

    def encode(self, X: Any) -> da.Array:
        """Encode samples as packed codes, lazily.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        Dask array of shape (n_samples, ceil(n_bits / 8)), uint8
        """
        return self._lazy(X, "encode")[0]

    def top_classes(self, X: Any, k: int, *, probabilities: bool = False) -> tuple[da.Array, ...]:
        """Find the k nearest classes, lazily.

        Parameters
        ----------
        X : as in `predict`
        k : int in [1, n_classes]
        probabilities : bool, default=False
            Whether to also return the probabilities of these classes.

        Returns
        -------
        labels : Dask array of shape (n_samples, k)
        distances : Dask array of shape (n_samples, k), int32
        probabilities : Dask array of shape (n_samples, k)
            Only if `probabilities` is True.
        """
        return self._lazy(X, "top_classes", k=k, probabilities=probabilities)

    def decision_function(self, X: Any) -> da.Array:
        """Compute class scores, lazily; the predicted class has the largest.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        Dask array of shape (n_samples, n_classes), or (n_samples,) for two classes
            See `BinaryCodeClassifier.decision_function`.
        """
        return self._lazy(X, "decision_function")[0]

    def predict_proba(self, X: Any) -> da.Array:
        """Compute class probabilities, lazily.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        Dask array of shape (n_samples, n_classes)
        """
        return self._lazy(X, "predict_proba")[0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on labelled rows, computed on the workers.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`

        Returns
        -------
        float
        """
        client, partitions = current_client(), self._partitions(X, y, sample_weight)
        tasks = self._tasks(partitions, "score", (np.empty((0, 2)),))
        names = [partition.name for partition in partitions]
        found = results(client, client.compute(tasks), names)
        hits, total = sum(counts.sum(axis=0) for (counts,) in found)
        return float(hits / total)

    def _lazy(self, X: Any, method: str, **arguments: Any) -> tuple[da.Array, ...]:
        """Results of a method of the estimator for all partitions, as Dask arrays."""
        partitions = self._partitions(X)
        example = np.zeros((1, self.n_features_in_), dtype=np.float32)
        found = getattr(self._without_names(), method)(example, **arguments)
        empty = tuple(array[:0] for array in (found if isinstance(found, tuple) else (found,)))
        columns: list[list[da.Array]] = [[] for _ in empty]
        tasks = self._tasks(partitions, method, empty, **arguments)
        for partition, task in zip(partitions, tasks, strict=True):
            n_rows = np.nan if partition.n_rows is None else partition.n_rows
            for column, part, array in zip(columns, task, empty, strict=True):
                shape = (n_rows, *array.shape[1:])
                column.append(da.from_delayed(part, shape, dtype=array.dtype))
        return tuple(da.concatenate(column, allow_unknown_chunksizes=True) for column in columns)

    def _tasks(
        self,
        partitions: list[Partition],
        method: str,
        empty: tuple[NDArray[Any], ...],
        **arguments: Any,
    ) -> list[Any]:
        # A single task that all others depend on.
        predictor = dask.delayed(self._without_names(), traverse=False)
        answers, names = dask.delayed(_answers, nout=len(empty)), self._feature_names()
        return [
            answers(part.name, part.rows, predictor, names, method, empty, arguments)
            for part in partitions
        ]

    def _without_names(self) -> BinaryCodeClassifier:
        """The local classifier without feature names: columns are selected before."""
        local = self.solve().to_local()
        local.__dict__.pop("feature_names_in_", None)
        return local

    def _feature_names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names.tolist())

    def _partitions(self, X: Any, y: Any = None, sample_weight: Any = None) -> list[Partition]:
        """Partitions of X, checked as far as possible without computing them."""
        check_is_fitted(self)
        files, names = files_of(X), self._feature_names()
        if files is not None:
            client = current_client()
            n_partitions = _FILE_PARTITIONS_PER_WORKER * len(worker_addresses(client))
            # The client may not have access to the files.
            future = client.submit(_sizes, files, names, pure=False)
            n_rows, n_features = results(client, [future], ["files"])[0]
            partitions = file_partitions(files, n_rows, n_partitions, names, self.classes_)
        else:
            n_features = X.shape[1] if isinstance(X, da.Array) else self.n_features_in_
            partitions = collection_partitions(X, y, sample_weight)
        if n_features != self.n_features_in_:
            raise ValueError(
                f"X has {n_features} features, but the model takes {self.n_features_in_}"
            )
        return partitions


def _sizes(files: FeatureFiles, feature_names: tuple[str, ...] | None) -> tuple[int, int]:
    with named_errors("files"):
        rows = files.open(feature_names)
        return rows.n_rows, rows.n_features


def _answers(
    name: str,
    rows: Any,
    classifier: BinaryCodeClassifier,
    feature_names: tuple[str, ...] | None,
    method: str,
    empty: tuple[NDArray[Any], ...],
    arguments: dict[str, Any],
) -> tuple[NDArray[Any], ...]:
    """Results of a method for the rows of a partition; `empty` if there are no rows."""
    answers = [empty]
    with named_errors(name), thread_limit(worker_threads(classifier.n_jobs)):
        for X, y, sample_weight in row_batches(rows):
            if not X.shape[0]:
                continue
            if not is_foreign(X):
                X = as_features(X, classifier.n_features_in_, feature_names)
            if method == "score":
                found = _hits(to_host(classifier.predict(X)), y, sample_weight)
            else:
                found = getattr(classifier, method)(X, **arguments)
            answers.append(tuple(map(to_host, found if isinstance(found, tuple) else (found,))))
    return tuple(np.concatenate(part) for part in zip(*answers, strict=True))


def _hits(predicted: Any, y: Any, sample_weight: Any) -> Any:
    """Total weight of correctly predicted rows and of all rows, shape (1, 2)."""
    if y is None:
        raise ValueError("no labels to compare with")
    weights = np.ones(len(y)) if sample_weight is None else sample_weight
    return np.array([[np.sum(weights[predicted == y]), np.sum(weights)]])
