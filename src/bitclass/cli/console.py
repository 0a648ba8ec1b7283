"""What is shown: lines, tables and progress. Labels and names of files may contain anything."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
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
from rich.table import Table
from rich.text import Text

from bitclass.cli.errors import printable

__all__ = [
    "ShownProgress",
    "counted",
    "describe_training",
    "say",
    "show_table",
    "shown_progress",
    "size",
]


def say(text: str) -> None:
    """Print lines as they are, never wrapped."""
    print("\n".join(map(printable, text.splitlines())))


def show_table(title: str, columns: list[str], rows: list[list[str]], n_names: int) -> None:
    """Print a table whose first columns are names, and all others numbers."""
    table = Table(title=title, title_justify="left")
    for j, column in enumerate(columns):
        table.add_column(column, justify="left" if j < n_names else "right")
    for row in rows:
        table.add_row(*(Text(printable(value)) for value in row))  # brackets are not markup
    Console().print(table)


def counted(number: object, noun: str) -> str:
    """A number, which may come from a file, with what it counts.

    Examples
    --------
    >>> counted(1, "round"), counted(2500, "row"), counted(None, "row")
    ('1 round', '2,500 rows', 'None rows')
    """
    shown = f"{number:,}" if isinstance(number, int) else str(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


def size(n_bytes: int) -> str:
    """Size of a file.

    Examples
    --------
    >>> size(2217), size(2_150_000)
    ('2.2 kB', '2.15 MB')
    """
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes < 100_000 else f"{n_bytes / 1e6:.2f} MB"


def describe_training(summary: Mapping[str, Any]) -> str:
    """How a model was trained, from the summary in its file, which need not be trusted.

    Examples
    --------
    >>> describe_training({"loss": "hinge", "n_rounds": 1})
    'hinge loss, closed form'
    >>> describe_training({"loss": "exponential", "n_rounds": 3})
    'exponential loss, 3 rounds'
    """
    loss, refinement = summary.get("loss"), summary.get("refinement")
    how = "closed form" if loss == "hinge" else counted(summary.get("n_rounds"), "round")
    text = f"{loss} loss, {how}"
    if isinstance(refinement, dict):
        before, after = (refinement.get(f"accuracy_{when}") for when in ("before", "after"))
        epochs = counted(refinement.get("epochs"), "epoch")
        if "columns" in refinement:  # of wide rows, which have no closed form
            text = f"sparse mini-batches, {epochs}, {counted(refinement['columns'], 'column')} kept"
            if isinstance(after, float):
                text += f"; {after:.2%} of the held-out rows"
        elif isinstance(before, float) and isinstance(after, float):
            rows = counted(refinement.get("held_out_rows"), "held-out row")
            text += f"; refinement {epochs}, accuracy on {rows} {before:.2%} to {after:.2%}"
            if refinement.get("taken") is False:
                text += ", not taken"
    return text


class _Note(ProgressColumn):
    def render(self, task: Task) -> Text:
        """The note of a task, or rows done and rows per second."""
        if "note" in task.fields:
            return Text(task.fields["note"])
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.0f} per second"
        return Text(f"{int(task.completed):,} rows{rate}")


class ShownProgress:
    """Bars on a terminal; in a pipe, one line per step, such as an epoch of refinement."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int | None, **fields: Any) -> None:
        """Show how many rows of a pass are done, or a ``note`` in the place of that number."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, **fields)
        self._progress.update(self._tasks[name], completed=done, total=total, **fields)

    def batches(self, name: str, rows: Any, start_row: int = 0) -> Iterator[Any]:
        """Show a pass over the batches of rows."""
        self(name, start_row, rows.n_rows)
        for batch in rows.batches(start_row):
            yield batch
            self(name, batch.first_row + len(batch), rows.n_rows)

    def epoch(self, record: Any) -> None:
        """Show an epoch of refinement, as `fit` passes it to its callback."""
        note = f"epoch {record.epoch} of {record.n_epochs}, "
        if math.isnan(record.accuracy):  # wide rows are not judged until the end
            note += f"mean cross-entropy {record.objective:.3f}"
        else:
            note += f"held-out accuracy {record.accuracy:.2%}"
        self.step("refining", record.epoch, record.n_epochs, note)

    def step(self, name: str, done: int, total: int, note: str) -> None:
        """Show a step of a task, and what it does."""
        self(name, done, total, note=note)
        if self._progress.disable:
            print(f"bitclass: {name}: {note}", file=sys.stderr, flush=True)


@contextmanager
def shown_progress() -> Iterator[ShownProgress]:
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
        yield ShownProgress(progress)
