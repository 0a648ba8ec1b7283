"""Terminal output: lines, tables and progress, with control characters in labels escaped."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
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
    "ProgressBars",
    "describe_training",
    "format_size",
    "pluralise",
    "print_lines",
    "progress_bars",
    "show_table",
]


def print_lines(text: str) -> None:
    """Print lines without wrapping them."""
    print("\n".join(map(printable, text.splitlines())))


def show_table(title: str, columns: list[str], rows: list[list[str]], n_names: int) -> None:
    """Print a table whose first `n_names` columns hold names and whose others hold numbers."""
    table = Table(title=title, title_justify="left")
    for j, column in enumerate(columns):
        table.add_column(column, justify="left" if j < n_names else "right")
    for row in rows:
        table.add_row(*(Text(printable(value)) for value in row))  # brackets are not markup
    Console().print(table)


def pluralise(number: object, noun: str) -> str:
    """Format a count with its noun; `number` may be any value read from a file.

    Examples
    --------
    >>> pluralise(1, "round"), pluralise(2500, "row"), pluralise(None, "row")
    ('1 round', '2,500 rows', 'None rows')
    """
    shown = f"{number:,}" if isinstance(number, int) else str(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


def format_size(n_bytes: int) -> str:
    """Format a number of bytes in kB or MB.

    Examples
    --------
    >>> format_size(2217), format_size(2_150_000)
    ('2.2 kB', '2.15 MB')
    """
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes < 100_000 else f"{n_bytes / 1e6:.2f} MB"


def describe_training(summary: Mapping[str, Any]) -> str:
    """Describe how a model was trained, from the untrusted summary in its file.

    Examples
    --------
    >>> describe_training({"loss": "hinge", "n_rounds": 1})
    'hinge loss, closed form'
    >>> describe_training({"loss": "exponential", "n_rounds": 3})
    'exponential loss, 3 rounds'
    """
    loss, refinement = summary.get("loss"), summary.get("refinement")
    how = "closed form" if loss == "hinge" else pluralise(summary.get("n_rounds"), "round")
    text = f"{loss} loss, {how}"
    if isinstance(refinement, dict):
        before, after = (refinement.get(f"accuracy_{when}") for when in ("before", "after"))
        epochs = pluralise(refinement.get("epochs"), "epoch")
        if "columns" in refinement:  # wide rows, which have no closed form
            text = (
                f"sparse mini-batches, {epochs}, {pluralise(refinement['columns'], 'column')} kept"
            )
            if isinstance(after, float):
                text += f"; held-out accuracy {after:.2%}"
        elif isinstance(before, float) and isinstance(after, float):
            rows = pluralise(refinement.get("held_out_rows"), "held-out row")
            text += f"; refined for {epochs}, accuracy on {rows} from {before:.2%} to {after:.2%}"
            if refinement.get("taken") is False:
                text += ", discarded"
    return text


class _Note(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Show the task's note, or else the number of rows done and the rate."""
        if "note" in task.fields:
            return Text(task.fields["note"])
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.0f} per second"
        return Text(f"{int(task.completed):,} rows{rate}")


class ProgressBars:
    """Progress bars on a terminal; otherwise one line per step, such as a refinement epoch."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int | None, **fields: Any) -> None:
        """Show how many rows of a pass are done, or a ``note`` instead of that number."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, **fields)
        self._progress.update(self._tasks[name], completed=done, total=total, **fields)

    def batches(self, name: str, rows: Any, start_row: int = 0) -> Iterator[Any]:
        """Iterate over batches of rows and show the progress."""
        self(name, start_row, rows.n_rows)
        with closing(rows.batches()) as batches:
            for batch in batches:
                if batch.first_row + len(batch) > start_row:
                    yield batch.slice(max(0, start_row - batch.first_row))
                    self(name, batch.first_row + len(batch), rows.n_rows)

    def epoch(self, record: Any) -> None:
        """Show an epoch of refinement; the `callback` of `fit`."""
        note = f"epoch {record.epoch} of {record.n_epochs}, "
        if math.isnan(record.accuracy):  # wide rows are evaluated only at the end
            note += f"mean cross-entropy {record.objective:.3f}"
        else:
            note += f"held-out accuracy {record.accuracy:.2%}"
        self.step("refining", record.epoch, record.n_epochs, note)

    def step(self, name: str, done: int, total: int, note: str) -> None:
        """Show a step of a task with a note that describes it."""
        self(name, done, total, note=note)
        if self._progress.disable:
            print(f"bitclass: {name}: {note}", file=sys.stderr, flush=True)


@contextmanager
def progress_bars() -> Iterator[ProgressBars]:
    """Show progress on standard error."""
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
        yield ProgressBars(progress)
