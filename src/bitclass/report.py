"""What training reports about itself, in memory and as JSON in a model file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Epoch", "Report"]


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

        Parameters
        ----------
        entry : dict
            The result of `to_dict`; entries with other names are ignored.

        Raises
        ------
        ValueError
            If an entry is missing or has another type.
        """
        epochs = _entry(entry, "epochs", lambda value: isinstance(value, list), "a list")
        return cls(
            n_rows=_count(entry, "n_rows"),
            n_judged=_count(entry, "n_judged"),
            accuracy=_number(entry, "accuracy"),
            accuracy_closed_form=_number(entry, "accuracy_closed_form"),
            refined=_entry(entry, "refined", lambda value: isinstance(value, bool), "a boolean"),
            alpha=_number(entry, "alpha"),
            epochs=tuple(
                Epoch(
                    epoch=_count(each, "epoch"),
                    n_epochs=_count(each, "n_epochs"),
                    accuracy=_number(each, "accuracy"),
                    objective=_number(each, "objective"),
                )
                for each in epochs
            ),
            stopped=_entry(
                entry,
                "stopped",
                lambda value: value in (None, "callback", "max_time"),
                "'callback', 'max_time' or null",
            ),
            n_added=_count(entry, "n_added"),
        )


def _entry(entries: Any, name: str, is_valid: Callable[[Any], bool], expected: str) -> Any:
    if not isinstance(entries, Mapping):
        raise ValueError(f"a report must be an object, found {type(entries).__name__}")
    if name not in entries:
        raise ValueError(f"a report must have an entry {name!r}")
    if not is_valid(entries[name]):
        raise ValueError(f"a report's {name!r} must be {expected}, found {entries[name]!r:.60}")
    return entries[name]


def _count(entries: Any, name: str) -> int:
    value: int = _entry(
        entries, name, lambda value: type(value) is int and value >= 0, "a count of at least 0"
    )
    return value


def _number(entries: Any, name: str) -> float | None:
    def is_valid(value: Any) -> bool:
        return value is None or (type(value) in (int, float) and abs(value) <= sys.float_info.max)

    value = _entry(entries, name, is_valid, "a finite number or null")
    return None if value is None else float(value)
