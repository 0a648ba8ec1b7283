"""Which files of a folder are pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ENDINGS", "is_picture_name", "picture_paths"]

#: Endings of the files that are taken for pictures, in upper or lower case.
ENDINGS = (
    ".bmp", ".gif", ".jpeg", ".jpg", ".jp2", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif",
    ".tiff", ".webp",
)  # fmt: skip


def is_picture_name(name: str) -> bool:
    """Whether a file is called like a picture.

    Examples
    --------
    >>> is_picture_name("cat.JPEG"), is_picture_name("readme.txt"), is_picture_name(".cat.png")
    (True, False, False)
    """
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def picture_paths(root: Path, outside: list[str] | None = None) -> Iterator[str]:
    """Pictures in a folder and below, relative to it.

    Links that lead out of the folder are followed, unless there is a list that takes them. A link
    named like a picture that leads nowhere is told too: reading it will say what is wrong.
    """
    waiting = [("", frozenset[tuple[int, int]]())]
    while waiting:
        within, above = waiting.pop()
        place = os.stat(root / within)
        here = (place.st_dev, place.st_ino)
        if here in above:  # a link back to a folder that this one is in
            continue
        with os.scandir(root / within) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if outside is not None and entry.is_symlink() and not _is_within(root, entry):
                    outside.append(within + entry.name)
                elif _leads_nowhere(entry):
                    if is_picture_name(entry.name):
                        yield within + entry.name
                elif entry.is_dir():
                    waiting.append((f"{within}{entry.name}/", above | {here}))
                elif entry.is_file() and is_picture_name(entry.name):
                    yield within + entry.name


def _is_within(root: Path, entry: os.DirEntry[str]) -> bool:
    """Whether what a link leads to is in a folder."""
    return Path(os.path.realpath(entry.path)).is_relative_to(os.path.realpath(root))


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    """Whether this is a link to nothing, to itself, or to where one may not look."""
    if not entry.is_symlink():
        return False
    try:
        entry.stat()
    except OSError:
        return True
    return False
