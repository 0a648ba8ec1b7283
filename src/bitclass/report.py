"""What training reports about itself, in memory and as JSON in the summary of a model file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import NoneType
from typing import Any

import numpy as np

from bitclass import __version__

# A longer dict of class weights is not stored, to keep summaries small.
MAX_PAIRS = 10_000
# Larger integers in a file could not be formatted.
_MAX_COUNT = 1 << 62
# Parameters of the run rather than of the model.
_NOT_STORED = {"max_time", "n_jobs", "verbose"}


@dataclass(frozen=True)
class Epoch:
    """An epoch of refinement.

    Attributes
    ----------
    epoch : int
        Number of the epoch, from 1.
    n_epochs : int
        Number of epochs that are planned.
    accuracy : float or None
        Accuracy on rows held out; None if the epoch was not judged.
    objective : float or None
        Mean loss of the rows visited.
    """

    epoch: int
    n_epochs: int
    accuracy: float | None
    objective: float | None


@dataclass(frozen=True)
class Report:
    """Result of training.

    Attributes
    ----------
    n_rows : int
        Number of training rows.
    n_judged : int
        Number of rows that the model was judged on.
    accuracy : float or None
        Accuracy of the model on rows that it had not seen when it was judged.
    accuracy_closed_form : float or None
        The same before refinement.
    refined : bool
        Whether the result of refinement was accepted.
    alpha : float or None
        Penalty of the closed form.
    epochs : tuple of Epoch
    stopped : {"callback", "max_time", None}
        What ended refinement early.
    n_added : int
        Number of the rows that were added to an earlier model, from which training continued; 0 if
        it began anew.

    Examples
    --------
    >>> report = Report(n_rows=600, alpha=0.1)
    >>> Report.from_dict(report.to_dict()) == report
    True
    """

    n_rows: int
    n_judged: int = 0
    accuracy: float | None = None
    accuracy_closed_form: float | None = None
    refined: bool = False
    alpha: float | None = None
    epochs: tuple[Epoch, ...] = ()
    stopped: str | None = None
    n_added: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self) | {"epochs": [asdict(epoch) for epoch in self.epochs]}

    @classmethod
    def from_dict(cls, entry: Any) -> Report:
        """Restore a report from JSON values, which may be untrusted.

        Entries with other names are ignored; one that is missing or invalid is a ValueError.
        """
        report: Report = _checked(cls, entry)
        return replace(report, epochs=tuple(_checked(Epoch, each) for each in report.epochs))


# By annotation: the types of values from a file.
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (bool,),
    "float | None": (float, int, NoneType),
    "str | None": (str, NoneType),
    "tuple[Epoch, ...]": (list,),
}


def _checked(kind: type[Any], entries: Any) -> Any:
    """A `Report` or an `Epoch` of JSON values, which may be untrusted."""
    if not isinstance(entries, Mapping):
        raise ValueError(f"a report must be an object, found {type(entries).__name__}")
    values = {}
    for field in fields(kind):
        if field.name not in entries:
            raise ValueError(f"a report must have an entry {field.name!r}")
        value = entries[field.name]
        is_valid = type(value) in _TYPES[str(field.type)]
        if not is_valid or (type(value) is int and not 0 <= value <= _MAX_COUNT):
            raise ValueError(f"a report's {field.name!r} must be {field.type}, found {value!r:.60}")
        values[field.name] = value
    return kind(**values)


def make_summary(
    parameters: Mapping[str, Any],
    report: Report | None = None,
    feature_names: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Create the summary of a model from the parameters of its estimator by name."""
    stored = {name: _plain(value) for name, value in parameters.items() if name not in _NOT_STORED}
    summary: dict[str, Any] = {"bitclass": __version__, "parameters": stored}
    if report is not None:
        summary["report"] = report.to_dict()
    if feature_names is not None:
        summary["feature_names"] = [str(name) for name in feature_names]
    return summary


def read_parameters(summary: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Restore the `known` parameters of the estimator from the summary of a file that was loaded.

    An object that `make_summary` does not write is a ValueError.
    """
    stored = summary.get("parameters", {})
    names = [name for name in known if name in stored and name not in _NOT_STORED]
    return {name: _restored(stored[name]) for name in names}


def _plain(value: Any) -> Any:
    """JSON form of a parameter; other types become a description, which `fit` rejects."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, dict) and len(value) <= MAX_PAIRS:
        pairs = [[_plain(key), _plain(weight)] for key, weight in value.items()]
        return {"pairs": pairs}
    if isinstance(value, np.ndarray | list | tuple) and len(value) <= MAX_PAIRS:
        return {"list": np.asarray(value).tolist()}
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {shape}"


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("list"), list):
        return value["list"]
    pairs = value.get("pairs")
    if not isinstance(pairs, list):
        raise ValueError("the summary's 'parameters' contain an object without 'pairs'")
    try:
        return {key: weight for key, weight in pairs}  # noqa: C416 - checks that these are pairs
    except (TypeError, ValueError):
        raise ValueError("the summary's 'parameters' contain invalid 'pairs'") from None
