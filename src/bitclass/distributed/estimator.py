"""The estimator that learns on a Dask cluster, and predicts lazily on its workers."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from sklearn.utils.validation import check_is_fitted

from bitclass._native import thread_limit
from bitclass.arrays import as_features, is_foreign, to_host
from bitclass.classifier import BinaryCodeClassifier
from bitclass.codes import packed_width
from bitclass.distributed.cluster import (
    current_client,
    named_errors,
    results,
    worker_addresses,
    worker_threads,
)
from bitclass.distributed.fitting import Progress, fit_collections, fit_files, open_on_worker
from bitclass.distributed.partitions import (
    FeatureFiles,
    Partition,
    collection_partitions,
    file_partitions,
    is_files,
    row_batches,
)
from bitclass.validation import check_initial_codes

__all__ = ["DaskBinaryCodeClassifier"]

#: Shape of one row's part of a result, and its type.
Output = tuple[tuple[int, ...], Any]

_FILE_PARTITIONS_PER_WORKER = 4


class DaskBinaryCodeClassifier(BinaryCodeClassifier):
    """`BinaryCodeClassifier` on a Dask cluster: the same parameters, the same model.

    Workers sum their partitions, the sums are merged, and the client solves. It uses the cluster of
    the current `distributed.Client`.

    Parameters and attributes are those of `BinaryCodeClassifier`, except that `class_weight` cannot
    be "balanced", `initial_codes` cannot be an array, and "projection" and "cca_itq" need
    ``loss="hinge"``. `n_jobs` is the number of threads of a task, by default as many as its worker
    has.

    Standardisation, anchors and starting codes are set up on a random sample of at most about
    10,000 rows, the same for the same `random_state` and partitions. With ``refine=False`` the
    model is that of a `BinaryCodeClassifier` that gets this sample, and the partitions by
    `fit_batches`. Refinement runs on the client, on at most about 256 MB of rows, which are chosen
    by their numbers, however they are partitioned.

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

    def fit(  # type: ignore[override]  # no groups: rows that are held out are on the client
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from Dask collections, or from files that the workers read.

        Parameters
        ----------
        X : Dask array of shape (n_samples, n_features), Dask frame, list of delayed values or \
                futures (arrays, CSR matrices or frames), FeatureFiles, or list of paths
            An array must not be split along the features. What is not in the memory of the workers
            is computed twice, once for the sample and once for the sums: persist it if it fits.
        y : the same of shape (n_samples,), or an array
            Labels, in the same partitions as X; None where X is files.
        sample_weight : the same of shape (n_samples,), optional
        progress : callable, optional
            Called now and then with the name of the pass, how much of it is done, and how much
            there is: partitions of "sampling", rows of "learning".

        Returns
        -------
        self
            If anything is raised, the estimator is as it was before the call.

        Raises
        ------
        PartitionError
            If a partition cannot be used; the message has its number.
        ClusterError
            If the cluster cannot be used, or was lost.
        """
        local = BinaryCodeClassifier(**self.get_params(deep=False))
        settings = local._checked_settings(in_batches=True)
        codes = check_initial_codes(self.initial_codes, None, self.n_bits)
        if not settings.loss.closed_form and codes in ("projection", "cca_itq"):
            raise ValueError(
                f"initial_codes={codes!r} gives each row a code of its own, which only "
                f"loss='hinge' can sum on a cluster, found loss={settings.loss.name!r}; use "
                "initial_codes='means' or 'random'"
            )
        client = current_client()
        if is_files(X):
            if y is not None or sample_weight is not None:
                raise ValueError("y and sample_weight must be None where X is files")
            fit_files(local, client, _files(X), progress)
        else:
            if y is None:
                raise ValueError("y must be given where X is not files")
            fit_collections(local, client, collection_partitions(X, y, sample_weight), progress)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(local.__dict__)
        return self

    def to_local(self) -> BinaryCodeClassifier:
        """The ordinary classifier, fitted as this one is.

        Returns
        -------
        BinaryCodeClassifier
            It shares the arrays of this one.
        """
        check_is_fitted(self)
        local = BinaryCodeClassifier()
        local.__dict__.update(self.__dict__)
        return local

    def predict(self, X: Any) -> da.Array:
        """Predict the class at the smallest Hamming distance, lazily, on the workers.

        Parameters
        ----------
        X : as in `fit`
            Columns of frames and files are selected by name, where `fit` had names.

        Returns
        -------
        Dask array of shape (n_samples,)
        """
        check_is_fitted(self)
        return self._lazy(X, "predict", {}, [((), self.classes_.dtype)])[0]

    def encode(self, X: Any) -> da.Array:
        """Codes of samples, packed, lazily.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        Dask array of shape (n_samples, ceil(n_bits / 8)), uint8
        """
        return self._lazy(X, "encode", {}, [((packed_width(self.n_bits),), np.uint8)])[0]

    def top_classes(self, X: Any, k: int, *, probabilities: bool = False) -> tuple[da.Array, ...]:
        """The k nearest classes, lazily.

        Parameters
        ----------
        X : as in `predict`
        k : int in [1, n_classes]
        probabilities : bool, default=False
            Whether to return the probabilities of these classes as well.

        Returns
        -------
        labels : Dask array of shape (n_samples, k)
        distances : Dask array of shape (n_samples, k), int32
        probabilities : Dask array of shape (n_samples, k), where asked for
        """
        n_classes = len(self.packed().classes)
        if not isinstance(k, Integral) or not 1 <= k <= n_classes:
            raise ValueError(
                f"k must be an integer from 1 to the number of classes, {n_classes}, found {k!r}"
            )
        outputs: list[Output] = [((int(k),), self.classes_.dtype), ((int(k),), np.int32)]
        if probabilities:
            outputs.append(((int(k),), np.float64))
        arguments = {"k": int(k), "probabilities": bool(probabilities)}
        return self._lazy(X, "top_classes", arguments, outputs)

    def decision_function(self, X: Any) -> da.Array:
        """Inner products of class weights and codes, lazily.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        Dask array of shape (n_samples, n_classes), or (n_samples,) for two classes
            See `BinaryCodeClassifier.decision_function`.
        """
        check_is_fitted(self)
        shape = () if len(self.classes_) == 2 else (len(self.classes_),)
        return self._lazy(X, "decision_function", {}, [(shape, np.float64)])[0]

    def predict_proba(self, X: Any) -> da.Array:
        """Class probabilities, lazily.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        Dask array of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self._lazy(X, "predict_proba", {}, [((len(self.classes_),), np.float64)])[0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on labelled rows, computed on the workers.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`

        Returns
        -------
        float
        """
        predictor = self._predictor()
        client = current_client()
        partitions = self._partitions(X, y, sample_weight)
        tasks = [dask.delayed(_hits)(predictor, part.name, *part.parts) for part in partitions]
        found = results(client, client.compute(tasks), [part.name for part in partitions])
        hits, total = np.sum(found, axis=0)
        return float(hits / total)

    def _lazy(
        self, X: Any, method: str, arguments: dict[str, Any], outputs: list[Output]
    ) -> list[da.Array]:
        """What a method of the estimator gives for each partition, as Dask arrays."""
        predictor = self._predictor()
        columns: list[list[da.Array]] = [[] for _ in outputs]
        for partition in self._partitions(X):
            found = dask.delayed(_predicted, nout=len(outputs))(
                predictor, partition.name, method, arguments, outputs, *partition.parts
            )
            n_rows = np.nan if partition.n_rows is None else partition.n_rows
            for column, part, (shape, dtype) in zip(columns, found, outputs, strict=True):
                column.append(da.from_delayed(part, (n_rows, *shape), dtype=dtype))
        return [da.concatenate(column, allow_unknown_chunksizes=True) for column in columns]

    def _predictor(self) -> Delayed:
        """The fitted estimator without its sums, as one task that others depend on."""
        local = self.solve().to_local()
        return dask.delayed(_Predictor(local), traverse=False)

    def _partitions(self, X: Any, y: Any = None, sample_weight: Any = None) -> list[Partition]:
        """Rows to predict, checked as far as possible before any are computed."""
        names = getattr(self, "feature_names_in_", None)
        feature_names = None if names is None else tuple(names.tolist())
        if is_files(X):
            client, files = current_client(), _files(X)
            opened = open_on_worker(client, files, feature_names)
            n_features: int | None = opened.n_features
            n_partitions = _FILE_PARTITIONS_PER_WORKER * len(worker_addresses(client))
            partitions = file_partitions(
                files, opened.n_rows, n_partitions, feature_names, self.classes_
            )
        else:
            n_features = X.shape[1] if isinstance(X, da.Array) else None
            partitions = collection_partitions(X, y, sample_weight)
        if n_features is not None and n_features != self.n_features_in_:
            raise ValueError(
                f"X has {n_features} features, but the model takes {self.n_features_in_}"
            )
        return partitions


class _Predictor:
    """A fitted classifier that predicts rows of partitions, on a worker."""

    def __init__(self, classifier: BinaryCodeClassifier) -> None:
        names = classifier.__dict__.pop("feature_names_in_", None)
        self.names = None if names is None else tuple(names.tolist())
        self.classifier = classifier

    def ask(self, method: str, X: Any, **arguments: Any) -> Any:
        """What a method of the classifier gives for rows with columns in any order."""
        if not is_foreign(X):
            X = as_features(X, self.classifier.n_features_in_, self.names)
        with thread_limit(worker_threads(self.classifier.n_jobs)):
            found = getattr(self.classifier, method)(X, **arguments)
        return tuple(map(to_host, found)) if isinstance(found, tuple) else to_host(found)


def _predicted(
    predictor: _Predictor,
    name: str,
    method: str,
    arguments: dict[str, Any],
    outputs: list[Output],
    *parts: Any,
) -> tuple[Any, ...]:
    """Results for the rows of a partition, one array per output."""
    answers = [tuple(np.empty((0, *shape), dtype=dtype) for shape, dtype in outputs)]
    with named_errors(name):
        for X, _, _ in row_batches(parts):
            if X.shape[0]:
                found = predictor.ask(method, X, **arguments)
                answers.append(found if isinstance(found, tuple) else (found,))
    return tuple(np.concatenate(part) for part in zip(*answers, strict=True))


def _hits(predictor: _Predictor, name: str, *parts: Any) -> tuple[float, float]:
    """Weight of the rows of a partition that are predicted rightly, and of all."""
    hits = total = 0.0
    with named_errors(name):
        for X, y, sample_weight in row_batches(parts):
            if y is None:
                raise ValueError("no labels to compare with")
            weights = np.ones(X.shape[0]) if sample_weight is None else sample_weight
            for what, values in (("labels", y), ("sample weights", weights)):
                # Of another shape they would be compared each with each.
                if values.shape != (X.shape[0],):
                    raise ValueError(f"has {X.shape[0]} rows and {what} of shape {values.shape}")
            if X.shape[0]:
                hits += float(np.sum(weights[predictor.ask("predict", X) == y]))
                total += float(np.sum(weights))
    return hits, total


def _files(X: Any) -> FeatureFiles:
    return X if isinstance(X, FeatureFiles) else FeatureFiles(X)
