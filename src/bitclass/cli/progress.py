"""Progress bars on a terminal; nothing in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

__all__ = ["progress_of_passes"]


class _RowsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Rows done, and rows per second."""
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.0f} per second"
        return Text(f"{int(task.completed):,} rows{rate}")


@contextmanager
def progress_of_passes() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show passes over rows on standard error, if that is a terminal.

    Yields
    ------
    callable
        To be called with the name of a pass, the number of its rows done, and their total.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _RowsPerSecond(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done)

        yield show
