"""Tables inside pages that people write: each block between two marks is made by a script."""

from __future__ import annotations

from pathlib import Path

from bitclass.storage import atomic_write


def fill(page: Path, block: str, text: str) -> None:
    """Put text between ``<!-- block: begin -->`` and ``<!-- block: end -->``."""
    begin, end = f"<!-- {block}: begin -->", f"<!-- {block}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} must have the lines {begin} and {end}")
    with atomic_write(page) as file:
        file.write(f"{before}{begin}\n{text.strip()}\n{end}{after}".encode())
