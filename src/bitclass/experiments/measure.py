"""The one objective that scores all methods."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.classifier import BinaryCodeClassifier
from bitclass.experiments.cells import Cell
from bitclass.experiments.datasets import DATA_SETS
from bitclass.experiments.methods import METHODS, AsInThePaper, model_bytes
from bitclass.experiments.untrained import made_up

__all__ = ["measure"]

_LEAST_ROUNDS, _MOST_ROUNDS, _ENOUGH_SECONDS = 3, 50, 0.5


def measure(
    cell: Cell, folder: Path | None, tell: Callable[[str], None] = lambda moment: None
) -> dict[str, Any]:
    """Learn, predict and score, in this process.

    Whatever a method has to choose, it chooses on rows to learn from, before its time is taken.
    Test rows are used once, for the predictions that are compared here with their labels.
    `tell` is called with "begun" when the time of learning begins, and "learned" when it ends.

    Returns
    -------
    dict of
        n_rows, n_features, n_classes : the shape of the rows to learn from
        accuracy : share of test rows predicted rightly; None for synthetic rows
        train_seconds, choice_seconds, test_seconds : learning, choosing C, predicting a row
        train_cpu_seconds : of all threads together
        model_bytes, peak_bytes : of the model, and of this process at its largest
        C, converged, n_rounds, history : where the method has them
    """
    data = DATA_SETS[cell.data]
    method = METHODS[cell.method]
    split = data.load(folder, cell.seed)
    values: dict[str, Any] = {
        "n_rows": len(split.y),
        "n_features": split.X.shape[1],
        "n_classes": len(np.unique(split.y)) if len(split.y) else data.n_classes,
    }
    if len(split.y) == 0:
        shape = values["n_features"], values["n_classes"]
        predictor: Any = made_up(cell, *shape)
        values |= {"accuracy": None, "model_bytes": predictor.model_bytes}
    else:
        predictor = method.build(max(1, cell.n_bits), cell.seed)
        values |= _learn(predictor, split.X, split.y, tell)
        predicted = predictor.predict(split.X_test)
        values["accuracy"] = None if data.synthetic else float(np.mean(predicted == split.y_test))
    values["test_seconds"] = _seconds_a_row(predictor, split.X_test)
    values["peak_bytes"] = _peak_bytes()
    return values


def _learn(
    estimator: Any, X: NDArray[np.float32], y: NDArray[Any], tell: Callable[[str], None]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if hasattr(estimator, "best_C"):
        start = time.perf_counter()
        values["C"] = estimator.best_C(X, y)
        values["choice_seconds"] = time.perf_counter() - start
        estimator.set_params(C=values["C"])
    tell("begun")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, start_cpu = time.perf_counter(), time.process_time()
        estimator.fit(X, y)
        values["train_seconds"] = time.perf_counter() - start
        values["train_cpu_seconds"] = time.process_time() - start_cpu
    tell("learned")
    values["model_bytes"] = model_bytes(estimator)
    if hasattr(estimator, "converged_"):
        values["converged"] = estimator.converged_
    own = estimator.classifier_ if isinstance(estimator, AsInThePaper) else estimator
    if isinstance(own, BinaryCodeClassifier):
        values["n_rounds"] = own.n_iter_
        values["history"] = {
            step: _logarithms(own.objective_history_[own.objective_history_["step"] == step])
            for step in ("W", "B")
        }
    return values


def _logarithms(history: NDArray[np.void]) -> list[float | None]:
    """Logarithms of the objective; None stands for that of 0, which JSON cannot hold."""
    return [None if value == -np.inf else value for value in history["log_objective"].tolist()]


def _seconds_a_row(predictor: Any, X: NDArray[np.float32]) -> float:
    """Median over several predictions of all rows."""
    taken: list[float] = []
    while len(taken) < _LEAST_ROUNDS or (
        sum(taken) < _ENOUGH_SECONDS and len(taken) < _MOST_ROUNDS
    ):
        start = time.perf_counter()
        predictor.predict(X)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) / len(X)


def _peak_bytes() -> int | None:
    """The most memory that this process has had; what getrusage tells may be its parent's."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return 1024 * int(found[0]) if found else None
