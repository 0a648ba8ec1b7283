"""Image datasets: the files of folders, and the class of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitclass.images.decoding import ImageError, printable
from bitclass.io import format_of

__all__ = ["ImageSet", "find_images", "open_images"]

#: Files with these suffixes, in upper or lower case, are treated as images.
SUFFIXES = (
    ".bmp", ".gif", ".jpeg", ".jpg", ".jp2", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif",
    ".tiff", ".webp",
)  # fmt: skip
# A folder that contains a file of another known format is a folder of feature files. Text tables
# do not count: many image datasets contain some.
_TABLES = (None, "csv", "jsonl", "lines")


@dataclass(frozen=True)
class ImageSet:
    """Image files and their classes, created by `open_images`.

    Attributes
    ----------
    names : sequence of str
        One unique name per image: its path, relative to the folder.
    labels : ndarray of shape (n_images,) or None
        Class names.
    files : sequence of str
        Path of each image.
    paths : tuple of Path
        Files and folders from which the dataset was opened.
    """

    names: Sequence[str]
    labels: NDArray[np.str_] | None
    files: Sequence[str]
    paths: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def read(self, row: int) -> bytes:
        """Read the content of an image file."""
        return Path(self.files[row]).read_bytes()

    def select(self, rows: ArrayLike) -> Self:
        """Select images by number, in the given order."""
        chosen = np.asarray(rows, dtype=np.intp).reshape(-1)
        return type(self)(
            tuple(self.names[row] for row in chosen.tolist()),
            None if self.labels is None else self.labels[chosen],
            tuple(self.files[row] for row in chosen.tolist()),
            self.paths,
        )


def open_images(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> ImageSet:
    """Open folders of images and single image files.

    Each direct subfolder of a folder is a class, which contains all images at any depth below it;
    images without subfolders have no classes. Images are sorted by path. Hidden files and files
    without an image suffix are ignored. Links are followed.

    Parameters
    ----------
    paths : path or sequence of paths

    Returns
    -------
    ImageSet
        With labels if every image has one.

    Raises
    ------
    ImageError
        If a path does not exist, a folder has no images, or only some of its images are in class
        folders.
    """
    roots = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(p) for p in paths]
    names: list[str] = []
    files: list[str] = []
    classes: list[str] = []
    for root in roots:
        if not root.exists():
            raise ImageError(f"{root}: no such file or folder")
        found = _images_in(root) if root.is_dir() else [""]
        prefix = "" if root.is_dir() and len(roots) == 1 else str(root)
        names += [printable(os.path.join(prefix, name) if name else prefix) for name in found]
        files += [str(root / name) for name in found]
        classes += [printable(name.partition("/")[0]) if "/" in name else "" for name in found]
    labels = np.array(classes) if files and all(classes) else None
    return ImageSet(tuple(names), labels, tuple(files), tuple(roots))


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
