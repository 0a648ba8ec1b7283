"""`bitclass download`: public data sets of pictures."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from bitclass.data.picture_sets import download

__all__ = ["run_download"]


def run_download(name: str, folder: Path) -> None:
    """Fetch and check one data set."""
    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        path = download(name, folder, lambda done, n: bar.update(task, completed=done, total=n))
    print(f"{path}: complete, its checksum is right")
