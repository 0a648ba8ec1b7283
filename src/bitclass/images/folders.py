"""The images in folders, and the class of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import printable
from bitclass.images.decoding import ImageError
from bitclass.io import format_of

#: Files with these suffixes, in upper or lower case, are treated as images.
SUFFIXES = (
    ".bmp", ".gif", ".jpeg", ".jpg", ".jp2", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif",
    ".tiff", ".webp",
)  # fmt: skip
# A folder that contains a file of another known format is a folder of feature files. Text tables
# do not count: many image datasets contain some.
_TABLES = (None, "csv", "jsonl", "lines")


def list_images(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[list[str], list[str], NDArray[np.str_] | None]:
    """List the images in folders, and single image files: see `open_images`.

    Returns their unique names, which are paths relative to the folder if there is only one; their
    paths; and class names (n,), or None unless every image has one.
    """
    roots = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    names: list[str] = []
    files: list[str] = []
    classes: list[str] = []
    for root in map(Path, roots):
        if not root.exists():
            raise ImageError(f"{root}: no such file or folder")
        found = _images_in(root) if root.is_dir() else [""]
        prefix = "" if root.is_dir() and len(roots) == 1 else str(root)
        names += [printable(os.path.join(prefix, name) if name else prefix) for name in found]
        files += [str(root / name) for name in found]
        classes += [printable(name.partition("/")[0]) if "/" in name else "" for name in found]
    return names, files, np.array(classes) if files and all(classes) else None


def _images_in(root: Path) -> list[str]:
    """Sorted relative paths of the images in a folder: all in class folders, or none."""
    names = sorted(_walk(root))
    if not names:
        raise ImageError(f"{root}: no images found, with suffixes {', '.join(SUFFIXES)}")
    loose = [name for name in names if "/" not in name]
    if loose and len(loose) < len(names):
        raise ImageError(
            f"{root}: {len(names) - len(loose)} images are in class folders and {len(loose)} are "
            f"not, such as {printable(loose[0])!r}"
        )
    return names


def _walk(root: Path) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise ImageError(f"{error.filename}: {error.strerror}") from error

    for folder, folders, files in os.walk(root, onerror=refuse, followlinks=True):
        here = Path(folder).resolve()
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and not here.is_relative_to(Path(folder, name).resolve())  # a link to a parent
        ]
        for name in files:
            path = Path(folder, name)
            # Broken links count, and are reported when they are read; pipes and devices do not.
            if _is_image_name(name) and (path.is_file() or path.is_symlink()):
                yield path.relative_to(root).as_posix()


def _is_image_name(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def find_images(paths: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether paths are images rather than feature files.

    A folder is a folder of images if it contains images at any depth, and no feature file directly.
    If some paths are images and others are not, an `ImageError` is raised.
    """
    roots = [Path(path) for path in paths]
    found = [_has_images(path) for path in roots]
    if any(found) and not all(found):
        images, other = roots[found.index(True)], roots[found.index(False)]
        raise ImageError(f"{other}: no images found, but {images} has images")
    return any(found)


def _has_images(path: Path) -> bool:
    if not path.is_dir():
        return path.exists() and _is_image_name(path.name)
    if any(format_of(file) not in _TABLES for file in path.iterdir()):
        return False
    return next(_walk(path), None) is not None
