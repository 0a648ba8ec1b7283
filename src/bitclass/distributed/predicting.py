"""Predicting on the workers: lazy collections, and the model sent to the cluster once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import dask
import dask.array as da
import numpy as np
from distributed import Client, Future

from bitclass._native import thread_limit
from bitclass.classifier import BinaryCodeClassifier
from bitclass.distributed.cluster import Run
from bitclass.distributed.errors import naming
from bitclass.distributed.partitions import Partition
from bitclass.distributed.sums import threads_here
from bitclass.model import PackedModel

__all__ = ["accuracy", "check_names", "lazy", "model_at_workers"]

# The model on each cluster; gone from there when it is gone from here.
_sent: WeakKeyDictionary[PackedModel, dict[str, Future]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Model:
    """What workers predict with.

    Attributes
    ----------
    predictor : the predicting half of an estimator, which gets rows without names
    names : of its features; None where the fit had none
    """

    predictor: BinaryCodeClassifier
    names: tuple[Any, ...] | None


def model_at_workers(client: Client, classifier: BinaryCodeClassifier) -> Future:
    """The predicting half of an estimator on the cluster, as a future."""
    model = classifier.packed()
    futures = _sent.setdefault(model, {})
    # A cluster that was restarted has forgotten the model.
    if client.id not in futures or futures[client.id].status not in ("pending", "finished"):
        predictor = BinaryCodeClassifier(**classifier.get_params(deep=False))
        predictor.classes_ = classifier.classes_
        predictor.n_features_in_ = classifier.n_features_in_
        predictor._take(classifier._solved())
        names = getattr(classifier, "feature_names_in_", None)
        sent = _Model(predictor, None if names is None else tuple(names.tolist()))
        run = Run(client)
        # A task and not scattered data: when its worker dies Dask can make it anew.
        task = dask.delayed(sent, name=run.key("model"), traverse=False)
        with run.minded():
            futures[client.id] = run.start(task)
    return futures[client.id]


def check_names(expected: Sequence[Any] | None, X: Any) -> None:
    """Refuse a frame whose columns are not those of the fit, where that had names.

    Examples
    --------
    >>> import pandas
    >>> check_names(("a", "b"), pandas.DataFrame({"b": [1.0], "a": [2.0]}))
    Traceback (most recent call last):
    ...
    ValueError: X must have the columns of the fit, a to b, in that order; found b to a
    """
    columns = getattr(X, "columns", None)
    if expected is None or columns is None or list(columns) == list(expected):
        return
    found = f"{columns[0]} to {columns[-1]}" if len(columns) else "none"
    raise ValueError(
        f"X must have the columns of the fit, {expected[0]} to {expected[-1]}, in that order; "
        f"found {found}"
    )


def lazy(
    model: Future,
    partitions: Sequence[Partition],
    method: str,
    arguments: dict[str, Any],
    outputs: Sequence[tuple[tuple[int, ...], Any]],
) -> tuple[da.Array, ...]:
    """What a method of the estimator gives for each partition, as Dask arrays.

    Parameters
    ----------
    model : as `model_at_workers` gives it
    method : name of the method
    arguments : what it takes beside X, by name
    outputs : of each array, the shape of one row's part, and the type
    """
    columns: list[list[da.Array]] = [[] for _ in outputs]
    for partition in partitions:
        found = dask.delayed(_asked, nout=len(outputs))(
            model,
            partition.described(),
            method,
            arguments,
            tuple(outputs),
            partition.rows,
            *partition.parts,
        )
        n_rows = np.nan if partition.n_rows is None else partition.n_rows
        for column, part, (shape, dtype) in zip(columns, found, outputs, strict=True):
            column.append(da.from_delayed(part, (n_rows, *shape), dtype=dtype))
    return tuple(da.concatenate(column, allow_unknown_chunksizes=True) for column in columns)


def _asked(
    model: _Model,
    partition: str,
    method: str,
    arguments: dict[str, Any],
    outputs: tuple[tuple[tuple[int, ...], Any], ...],
    rows: Callable[..., Any],
    *parts: Any,
) -> tuple[Any, ...]:
    """Ask the model about the rows of a partition, on a worker."""
    answers = [tuple(np.empty((0, *shape), dtype=dtype) for shape, dtype in outputs)]
    with naming(partition), thread_limit(threads_here(model.predictor.n_jobs)):
        check_names(model.names, parts[0])
        for X, _, _ in rows(*parts):
            if X.shape[0]:
                found = getattr(model.predictor, method)(X, **arguments)
                answers.append(found if isinstance(found, tuple) else (found,))
    return tuple(np.concatenate(part) for part in zip(*answers, strict=True))


def accuracy(run: Run, model: Future, partitions: Sequence[Partition]) -> float:
    """Weighted share of rows whose nearest class is their own."""
    tasks = [
        dask.delayed(_hits)(
            model,
            partition.described(),
            partition.rows,
            *partition.parts,
            dask_key_name=run.key("hits", partition.index),
        )
        for partition in partitions
    ]
    names = {task.key: part.described() for task, part in zip(tasks, partitions, strict=True)}
    found = run.results(run.client.compute(tasks), lambda one: names[one.key])
    hits, total = np.sum(found, axis=0)
    return float(hits / total)


def _hits(
    model: _Model, partition: str, rows: Callable[..., Any], *parts: Any
) -> tuple[float, float]:
    hits = total = 0.0
    with naming(partition), thread_limit(threads_here(model.predictor.n_jobs)):
        check_names(model.names, parts[0])
        for X, labels, weights in rows(*parts):
            own = np.asarray(labels)
            counts = np.ones(X.shape[0]) if weights is None else np.asarray(weights)
            for what, values in (("labels", own), ("weights", counts)):
                # Of another shape they would be compared each with each.
                if values.shape != (X.shape[0],):
                    raise ValueError(f"has {X.shape[0]} rows and {what} of shape {values.shape}")
            if X.shape[0]:
                hits += float(np.sum(counts[model.predictor.predict(X) == own]))
                total += float(np.sum(counts))
    return hits, total
