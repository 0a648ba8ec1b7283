"""Cells, and what came of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bitclass.experiments.methods import METHODS, settings_of
from bitclass.storage import ModelFileError, atomic_write, parse_json

__all__ = ["Cell", "Outcome", "cell_key", "read_outcome", "write_outcome"]

# Of the results: a change of what is measured, or how, makes those of before no longer fit.
_FORMAT = 3

Status = Literal["done", "timeout", "failed"]


@dataclass(frozen=True)
class Cell:
    """One method on one data set at one code length with one seed.

    Attributes
    ----------
    method, data : str, names in `METHODS` and `DATA_SETS`
    n_bits : int, 0 for methods that have no codes
    seed : int, of the method, and of the split where it is drawn
    """

    method: str
    data: str
    n_bits: int
    seed: int

    def __str__(self) -> str:
        bits = f", {self.n_bits} bits" if self.n_bits else ""
        return f"{self.method} on {self.data}{bits}, seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Attributes
    ----------
    status : "done", "timeout" for one that passed the limit, "failed"
    limit : float, seconds that the cell was given
    values : what was measured, see `measure`; `learned_for`, seconds of learning, where it passed
        the limit while learning
    reason : str, why it failed
    """

    status: Status
    limit: float
    values: dict[str, Any]
    reason: str = ""


def cell_key(cell: Cell, data_fingerprint: str) -> str:
    """Name of the file of a cell: other settings, other data or another format, another name."""
    estimator = METHODS[cell.method].build(max(1, cell.n_bits), cell.seed)
    parts = [_FORMAT, asdict(cell), data_fingerprint, settings_of(estimator)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def write_outcome(path: Path, cell: Cell, outcome: Outcome) -> None:
    """Write an outcome, whole or not at all."""
    content = {"format": _FORMAT, "cell": asdict(cell), "outcome": asdict(outcome)}
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")


def read_outcome(path: Path, cell: Cell) -> Outcome | None:
    """The outcome in a file; None where there is none, or it is not what it should be."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"), str(path))
        if content["format"] != _FORMAT or content["cell"] != asdict(cell):
            return None
        found = Outcome(**content["outcome"])
    except (OSError, UnicodeDecodeError, ModelFileError, KeyError, TypeError):
        return None
    return found if isinstance(found.values, dict) else None
