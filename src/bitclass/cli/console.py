"""Terminal output: lines, tables and progress, with control characters in labels escaped."""

from __future__ import annotations

import io
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from bitclass._warn import printable
from bitclass.report import Epoch, Report

if TYPE_CHECKING:
    from bitclass.model import PackedModel


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


def print_model(path: Path, model: PackedModel) -> None:
    """Print what was written."""
    print_lines(
        f"wrote   {path}, {format_size(path.stat().st_size)}: {len(model.classes):,} classes, "
        f"{model.n_bits} bits"
    )


def describe_training(summary: Mapping[str, Any]) -> str:
    """Describe how a model was trained, from the summary in its file.

    Examples
    --------
    >>> report = Report(n_rows=900, n_judged=100, accuracy=0.91)
    >>> describe_training({"report": report.to_dict()})
    '900 rows, closed form, accuracy 91.00% on 100 held-out rows'
    >>> report = Report(n_rows=90, n_judged=90, accuracy=0.91, epochs=(Epoch(1, 1, None, 0.5),))
    >>> describe_training({"report": report.to_dict()})
    '90 rows, closed form, which refinement did not improve, accuracy 91.00% by cross-validation'
    """
    if "report" not in summary:
        return "not recorded"
    report = Report.from_dict(summary["report"])
    parts = [pluralise(report.n_rows, "row"), "closed form"]
    if report.refined:
        parts[-1] = f"refined for {pluralise(len(report.epochs), 'epoch')}"
    elif report.epochs:
        parts[-1] = "closed form, which refinement did not improve"
    if report.n_added:
        parts[-1] = f"{report.n_added:,} of them added to an earlier model"
    if report.stopped == "max_time":
        parts.append("stopped by max_time")
    if report.accuracy is not None:
        judged = f"on {pluralise(report.n_judged, 'held-out row')}"
        if 2 * report.n_judged > report.n_rows:  # of each class, one part is at most half
            judged = "by cross-validation"
        parts.append(f"accuracy {report.accuracy:.2%} {judged}")
    return ", ".join(parts)


class ProgressBars:
    """Progress bars on a terminal; otherwise one line per step, such as a refinement epoch."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int | None, note: str | None = None) -> None:
        """Show how many rows of a pass are done, or a note instead of that number."""
        note = note or f"{done:,} rows"
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, note=note)
        self._progress.update(self._tasks[name], completed=done, total=total, note=note)

    def batches(self, name: str, rows: Any) -> Generator[Any, None, None]:
        """Iterate over batches of rows and show the progress.

        If this generator is closed, so are the files: their libraries read ahead in threads, which
        must have ended when Python exits.
        """
        self(name, 0, rows.n_rows)
        with closing(rows.batches()) as batches:
            for batch in batches:
                yield batch
                self(name, batch.first_row + len(batch), rows.n_rows)

    def epoch(self, epoch: Epoch) -> None:
        """Show an epoch of refinement; the `callback` of `fit`."""
        note = f"epoch {epoch.epoch} of {epoch.n_epochs}"
        if epoch.accuracy is not None:  # not every epoch is judged
            note += f", accuracy {epoch.accuracy:.2%}"
        elif epoch.objective is not None:
            note += f", objective {epoch.objective:.3f}"
        self.step("refining", epoch.epoch, epoch.n_epochs, note)

    def step(self, name: str, done: int, total: int, note: str) -> None:
        """Show a step of a task with a note that describes it."""
        self(name, done, total, note)
        if self._progress.disable:
            print(f"bitclass: {name}: {note}", file=sys.stderr, flush=True)


@contextmanager
def as_text(file: IO[Any]) -> Iterator[IO[str]]:
    """A text file, or a wrapper of a binary one that writes UTF-8 to it."""
    if isinstance(file, io.TextIOBase):
        yield file
        return
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    yield text
    text.detach()


@contextmanager
def progress_bars() -> Iterator[ProgressBars]:
    """Show progress on standard error."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(16),  # so that a line fits into 80 columns
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield ProgressBars(progress)
