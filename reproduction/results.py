"""All outcomes of a run, with means and uncertainties, and the files that store them."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reproduction.datasets import DATASETS
from reproduction.methods import METHODS
from reproduction.plan import TABLE_BITS, Cell
from reproduction.runner import Outcome, write_whole

__all__ = ["Number", "Results", "read_results", "write_results"]

#: Minimum relative uncertainty of times: nine tenths of all cells vary less over seeds.
TIME_UNCERTAINTY = 0.1

_TEXT = ("method", "data", "status", "reason")
_COLUMNS = (
    "method", "data", "n_bits", "seed", "status", "limit", "reason", "n_rows", "n_test",
    "n_features", "n_classes", "accuracy", "train_seconds", "choice_seconds", "test_seconds",
    "model_bytes", "peak_bytes", "C", "converged", "n_rounds", "n_updates", "n_rises",
    "first_objective", "learned_for",
)  # fmt: skip


class Number(NamedTuple):
    """A measured value and its uncertainty, one standard deviation."""

    mean: float
    spread: float

    def minus(self, other: Number) -> Number:
        """Difference of two independent values."""
        return Number(self.mean - other.mean, math.hypot(self.spread, other.spread))

    def over(self, other: Number) -> Number:
        """Ratio of two independent positive values."""
        ratio = self.mean / other.mean
        relative = math.hypot(self.spread / self.mean, other.spread / other.mean)
        return Number(ratio, ratio * relative)


class Results:
    """All outcomes of a run.

    Parameters
    ----------
    outcomes : dict of Cell to Outcome
    history : dict, optional
        Objective of the first round by dataset: for each seed, values after each bit of W and B.
    """

    def __init__(
        self,
        outcomes: Mapping[Cell, Outcome],
        history: Mapping[str, list[dict[str, list[float]]]] | None = None,
    ) -> None:
        self.outcomes = dict(outcomes)
        self.history = dict(history or {})
        self.datasets = [name for name in DATASETS if any(cell.data == name for cell in outcomes)]

    @property
    def real_datasets(self) -> list[str]:
        """Datasets on which accuracy is measured."""
        return [name for name in self.datasets if not DATASETS[name].synthetic]

    @property
    def curves(self) -> list[str]:
        """Datasets with more code lengths than the tables."""
        return [d for d in self.datasets if any(len(self.lengths(m, d)) > 2 for m in METHODS)]

    def of(self, method: str, data: str, n_bits: int | None = None) -> list[Outcome]:
        """Outcomes of a method on a dataset, one per seed; at 128 bits by default."""
        bits = 0 if not METHODS[method].has_bits else TABLE_BITS if n_bits is None else n_bits
        return [
            outcome
            for cell, outcome in self.outcomes.items()
            if (cell.method, cell.data, cell.n_bits) == (method, data, bits)
        ]

    def values(self, method: str, data: str, field: str, n_bits: int | None = None) -> list[Any]:
        """Measured values, one per seed that has a value."""
        found = (outcome.get(field) for outcome in self.of(method, data, n_bits))
        return [value for value in found if value is not None]

    def mean(self, method: str, data: str, field: str, n_bits: int | None = None) -> float | None:
        """Mean over the seeds; None if there is no value."""
        values = self.values(method, data, field, n_bits)
        return statistics.fmean(values) if values else None

    def accuracy(self, method: str, data: str, n_bits: int | None = None) -> Number | None:
        """Accuracy in %, with the uncertainty from seeds and the size of the test set."""
        values = [100 * value for value in self.values(method, data, "accuracy", n_bits)]
        if not values:
            return None
        mean, over_seeds = statistics.fmean(values), _deviation(values)
        n_test = self.values(method, data, "n_test", n_bits)[0]
        sampling = math.sqrt(max(0.0, mean * (100 - mean)) / n_test)
        # If each seed has its own test rows, the deviation over seeds includes their sampling.
        own_split = DATASETS[data].split_by_seed
        spread = max(over_seeds, sampling) if own_split else math.hypot(over_seeds, sampling)
        return Number(mean, spread)

    def seconds(
        self, method: str, data: str, field: str, n_bits: int | None = None
    ) -> Number | None:
        """Mean time and its uncertainty, at least a tenth of it."""
        values = self.values(method, data, field, n_bits)
        if not values:
            return None
        mean = statistics.fmean(values)
        return Number(mean, max(_deviation(values), TIME_UNCERTAINTY * mean))

    def missing(
        self, methods: Iterable[str], data: str, field: str, n_bits: int | None = None
    ) -> list[str]:
        """Titles of methods without values for all seeds: not run, failed, or timed out."""
        return [
            METHODS[name].title
            for name in methods
            if not (found := self.of(name, data, n_bits))
            or any(outcome.get(field) is None for outcome in found)
        ]

    def shape(self, data: str) -> tuple[int, int, int] | None:
        """Number of rows, features and classes of a dataset; None if nothing was measured."""
        for cell, found in self.outcomes.items():
            if cell.data == data and found["status"] == "done":
                return found["n_rows"], found["n_features"], found["n_classes"]
        return None

    def lengths(self, method: str, data: str) -> list[int]:
        """Code lengths planned for a method on a dataset."""
        cells = (c for c in self.outcomes if (c.method, c.data) == (method, data))
        return sorted({cell.n_bits for cell in cells} - {0})


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def write_results(results: Results, run: Mapping[str, str], folder: Path) -> None:
    """Write ``results.csv`` (a line per cell), ``objective.csv`` (Figure 3) and ``run.json``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell, outcome in results.outcomes.items():
        row = {**vars(cell), **outcome}
        writer.writerow(_short(row.get(column)) for column in _COLUMNS)
    write_whole(folder / "results.csv", text.getvalue())
    lines = ["data,seed,step,update,log_objective"]
    for data, seeds in results.history.items():
        for seed, steps in enumerate(seeds):
            for step, values in steps.items():
                lines += [f"{data},{seed},{step},{k},{v:.6g}" for k, v in enumerate(values, 1)]
    write_whole(folder / "objective.csv", "\n".join(lines) + "\n")
    write_whole(folder / "run.json", json.dumps(dict(run), indent=1) + "\n")


def read_results(folder: Path) -> tuple[Results, dict[str, str]]:
    """Read what `write_results` wrote."""
    outcomes: dict[Cell, Outcome] = {}
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            row = {name: _value(name, text) for name, text in line.items() if text}
            cell = Cell(*(row.pop(name) for name in ("method", "data", "n_bits", "seed")))
            outcomes[cell] = row
    history: dict[str, list[dict[str, list[float]]]] = {}
    with (folder / "objective.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            seeds = history.setdefault(line["data"], [])
            if int(line["seed"]) == len(seeds):
                seeds.append({"W": [], "B": []})
            seeds[-1][line["step"]].append(float(line["log_objective"]))
    run: dict[str, str] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return Results(outcomes, history), run


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _value(name: str, text: str) -> Any:
    if name in _TEXT:
        return text
    if text in ("True", "False"):
        return text == "True"
    return float(text) if any(sign in text for sign in ".en") else int(text)
