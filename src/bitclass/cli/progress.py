"""Progress bars on a terminal; in a pipe, lines for the epochs of refinement alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

__all__ = ["Shown", "progress_of_passes"]


class _Note(ProgressColumn):
    def render(self, task: Task) -> Text:
        """The note of a task, or rows done and rows per second."""
        if "note" in task.fields:
            return Text(task.fields["note"])
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.0f} per second"
        return Text(f"{int(task.completed):,} rows{rate}")


class Shown:
    """Bars on a terminal; in a pipe, one line per epoch of refinement."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int | None, **fields: Any) -> None:
        """Show how many rows of a pass are done, or a ``note`` in the place of that number."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, **fields)
        self._progress.update(self._tasks[name], completed=done, total=total, **fields)

    def epoch(self, record: Any) -> None:
        """Show an epoch of refinement, as `fit` passes it to its callback."""
        note = f"epoch {record.epoch} of {record.n_epochs}, "
        if math.isnan(record.accuracy):  # wide rows are not judged until the end
            note += f"mean cross-entropy {record.objective:.3f}"
        else:
            note += f"held-out accuracy {record.accuracy:.2%}"
        self("refining", record.epoch, record.n_epochs, note=note)
        if self._progress.disable:
            print(f"bitclass: refining: {note}", file=sys.stderr, flush=True)


@contextmanager
def progress_of_passes() -> Iterator[Shown]:
    """Show passes over rows on standard error."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _Note(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Shown(progress)
