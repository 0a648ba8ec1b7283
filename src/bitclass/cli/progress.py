"""Progress on a terminal: what is done, how fast, time left. Nothing at all in a pipe."""

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

__all__ = ["passes_progress", "rows_progress"]


class _RowsASecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Rows done, and how many a second."""
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.0f} a second"
        return Text(f"{int(task.completed):,} rows{rate}")


@contextmanager
def rows_progress(n_rows: int | None) -> Iterator[Callable[[str, int], None]]:
    """Show passes over rows on the terminal behind standard error.

    Yields
    ------
    function
        To be called with the name of the pass and how many of its rows are done.
    """
    with passes_progress() as tell:
        yield lambda name, done: tell(name, done, n_rows)


@contextmanager
def passes_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show passes on the terminal behind standard error.

    Yields
    ------
    function
        To be called with the name of the pass, how many of its rows are done, and of how many.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _RowsASecond(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks = {}

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done)

        yield tell
