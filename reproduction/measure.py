"""The function that measures every method; ``python -m reproduction.measure`` runs one cell.

As a program it reads a cell from standard input, and writes the times when training started and
ended, and the measurements as JSON, to standard output. All times are CPU times: methods run on one
thread, so that they do not depend on what else the machine does.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from bitclass.paper import PaperClassifier
from reproduction.baselines import PENALTIES, choose_penalty
from reproduction.datasets import DATASETS
from reproduction.methods import METHODS, model_bytes
from reproduction.plan import Cell

__all__ = ["measure"]


def measure(
    cell: Cell, folder: Path | None, on_event: Callable[[str], None] = lambda event: None
) -> dict[str, Any]:
    """Train, predict and score, in this process.

    Hyperparameters are chosen on training rows, before training is timed. Test rows are used only
    to score the predictions. `on_event` is called with "begun" and "learned" when training starts
    and ends. Returns n_rows, n_test, n_features, n_classes; accuracy (None for synthetic rows);
    train_seconds, choice_seconds (choosing C), test_seconds (per row); model_bytes, peak_bytes; and
    if applicable C, converged, n_rounds, n_updates, n_rises, first_objective, history.
    """
    data = DATASETS[cell.data]
    split = data.load(folder, cell.seed)
    values: dict[str, Any] = {
        "n_rows": len(split.y),
        "n_test": len(split.y_test),
        "n_features": split.X.shape[1],
        "n_classes": len(np.unique(split.y)),
    }
    estimator = METHODS[cell.method].build(max(1, cell.n_bits), cell.seed)
    # The accuracy on synthetic rows does not matter, and the smallest C is the fastest.
    C = PENALTIES[0] if data.synthetic else None
    values |= _train(estimator, split.X, split.y, C, on_event)
    predicted = estimator.predict(split.X_test)
    values["accuracy"] = None if data.synthetic else float(np.mean(predicted == split.y_test))
    values["test_seconds"] = cpu_seconds(lambda: estimator.predict(split.X_test), 0.2)
    values["test_seconds"] /= len(split.X_test)
    values["peak_bytes"] = _peak_bytes()
    return values


def _train(
    estimator: Any,
    X: NDArray[np.float32],
    y: NDArray[Any],
    C: float | None,
    on_event: Callable[[str], None],
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    svm = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(svm, LinearSVC):
        start = time.process_time()
        values["C"] = choose_penalty(estimator, X, y) if C is None else C
        values["choice_seconds"] = time.process_time() - start
        svm.set_params(C=values["C"])
    on_event("begun")
    values["train_seconds"] = cpu_seconds(lambda: estimator.fit(X, y), 0.2)
    on_event("learned")
    values["model_bytes"] = model_bytes(estimator)
    if isinstance(svm, LinearSVC):
        values["converged"] = bool(svm.n_iter_ < svm.max_iter)
    if isinstance(estimator, PaperClassifier):
        values |= _objective(estimator)
    return values


def _objective(classifier: PaperClassifier) -> dict[str, Any]:
    """Rounds, increases of the objective, and its values in the first round."""
    history, r = classifier.objective_history_, classifier.n_bits
    logs = {step: history["log_objective"][history["step"] == step] for step in ("W", "B")}
    values: dict[str, Any] = {"n_rounds": classifier.n_iter_}
    if not all(len(log) >= r and np.isfinite(log).all() for log in logs.values()):
        return values
    # Both steps alternate. Within a step the objective is updated incrementally, but every step
    # computes it anew, so that an error would show there.
    starts = range(0, len(logs["W"]), r)
    path = np.concatenate([logs[step][start : start + r] for start in starts for step in logs])
    return values | {
        "n_updates": len(path) - 1,
        "n_rises": int(np.count_nonzero(np.diff(path) > 1e-9 * np.abs(path[1:]))),
        "first_objective": float(logs["W"][r - 1]),
        "history": {step: log[:r].tolist() for step, log in logs.items()},
    }


def cpu_seconds(call: Callable[[], Any], at_least: float) -> float:
    """Mean CPU time of a call, repeated until at least so many seconds have passed.

    In a process with a limit of CPU time, the clock advances in steps of some milliseconds.
    """
    start, n = time.process_time(), 0
    while n == 0 or time.process_time() - start < at_least:
        call()
        n += 1
    return (time.process_time() - start) / n


def _peak_bytes() -> int | None:
    """Peak resident memory of this process; getrusage may return that of its parent."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)


def main() -> None:
    """Measure the cell on standard input."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with the results
    warnings.simplefilter("ignore")
    request = json.loads(sys.stdin.readline())
    folder = None if request["folder"] is None else Path(request["folder"])
    _, largest = resource.getrlimit(resource.RLIMIT_CPU)
    limits = math.ceil(request["time_limit"]), largest
    resource.setrlimit(resource.RLIMIT_CPU, limits)  # then SIGXCPU ends the process

    def on_event(event: str) -> None:
        print(event, time.process_time(), file=output, flush=True)

    print(json.dumps(measure(Cell(**request["cell"]), folder, on_event)), file=output, flush=True)


if __name__ == "__main__":
    main()
