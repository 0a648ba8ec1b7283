"""Outcomes over seeds and splits: mean and spread, or why there is none."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bitclass.experiments.cells import Cell, Outcome
from bitclass.experiments.datasets import DATA_SETS
from bitclass.experiments.methods import METHODS
from bitclass.experiments.plan import TABLE_BITS

__all__ = ["Results", "Statistic"]


@dataclass(frozen=True)
class Statistic:
    """A number measured several times.

    Attributes
    ----------
    mean : float
    spread : float, the standard deviation over seeds and splits; 0 for one
    n : int, how many there are
    """

    mean: float
    spread: float
    n: int


class Results:
    """All outcomes of a run.

    Parameters
    ----------
    outcomes : by cell
    """

    def __init__(self, outcomes: Mapping[Cell, Outcome]) -> None:
        self.outcomes = dict(outcomes)
        self.data_sets = [name for name in DATA_SETS if any(cell.data == name for cell in outcomes)]

    def real_data_sets(self) -> list[str]:
        """Names of the data sets that accuracies are read off."""
        return [name for name in self.data_sets if not DATA_SETS[name].synthetic]

    def of(self, method: str, data: str, n_bits: int | None = None) -> list[Outcome]:
        """Outcomes of a method on a data set, one a seed; 128 bits where none are named."""
        wanted = self._bits(method, n_bits)
        return [
            outcome
            for cell, outcome in self.outcomes.items()
            if (cell.method, cell.data, cell.n_bits) == (method, data, wanted)
        ]

    def values(self, method: str, data: str, field: str, n_bits: int | None = None) -> list[Any]:
        """What was measured, one a seed that is done and has it."""
        found = (outcome.values.get(field) for outcome in self.of(method, data, n_bits))
        return [value for value in found if value is not None]

    def statistic(
        self, method: str, data: str, field: str, n_bits: int | None = None
    ) -> Statistic | None:
        """Mean and spread of a number over the seeds that are done; None where there are none."""
        values = self.values(method, data, field, n_bits)
        if not values:
            return None
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return Statistic(statistics.fmean(values), spread, len(values))

    def mean(self, method: str, data: str, field: str, n_bits: int | None = None) -> float | None:
        """Mean of a number; None where there is none."""
        found = self.statistic(method, data, field, n_bits)
        return None if found is None else found.mean

    def not_done(
        self, methods: Iterable[str], data: str, field: str, n_bits: int | None = None
    ) -> list[str]:
        """Titles of methods without a number of every seed: not run, failed, or over the limit."""
        missing = []
        for name in methods:
            found = self.of(name, data, n_bits)
            if not found or any(one.values.get(field) is None for one in found):
                missing.append(METHODS[name].title)
        return missing

    def limit(self, method: str, data: str, n_bits: int | None = None) -> float | None:
        """The time limit that a method passed; None where it did not."""
        limits = [o.limit for o in self.of(method, data, n_bits) if o.status == "timeout"]
        return max(limits) if limits else None

    def shape(self, data: str) -> tuple[int, int, int] | None:
        """Rows, features and classes of a data set, if anything was measured on it."""
        for cell, outcome in self.outcomes.items():
            if cell.data == data and outcome.status == "done":
                found = outcome.values
                return found["n_rows"], found["n_features"], found["n_classes"]
        return None

    def lengths(self, method: str, data: str) -> list[int]:
        """Code lengths at which a method was to run on a data set, ascending."""
        return sorted(
            {c.n_bits for c in self.outcomes if (c.method, c.data) == (method, data) and c.n_bits}
        )

    def curves(self) -> list[str]:
        """Data sets with more code lengths than those of the tables."""
        return [
            name
            for name in self.data_sets
            if any(len(self.lengths(method, name)) > 2 for method in METHODS)
        ]

    def _bits(self, method: str, n_bits: int | None) -> int:
        if not METHODS[method].has_bits:
            return 0
        return TABLE_BITS if n_bits is None else n_bits
