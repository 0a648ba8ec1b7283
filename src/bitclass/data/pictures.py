"""Former names of `bitclass.images`, until the data sets of the paper leave the package."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.images.image_set import ImageError as PictureError
from bitclass.images.image_set import ImageSet as PictureSet
from bitclass.images.image_set import (
    ImageSource,
    find_images,
    is_image_name,
    open_images,
    printable,
)

__all__ = [
    "MOST_FILE_BYTES",
    "PictureError",
    "PictureSet",
    "find_pictures",
    "joined",
    "open_folder",
    "open_pictures",
    "printable",
]

MOST_FILE_BYTES = 256 << 20

_FORMATS: tuple[tuple[str, str], ...] = (
    ("bitclass.data.picture_sets.cifar", "find_cifar"),
    ("bitclass.data.picture_sets.tiny_imagenet", "find_tiny_imagenet"),
    ("bitclass.data.picture_sets.sun397", "find_sun397"),
    ("bitclass.data.picture_sets.ilsvrc2012", "find_ilsvrc2012"),
)


@dataclass(frozen=True)
class _Joined:
    sources: tuple[ImageSource, ...]
    starts: NDArray[np.intp]

    def _place(self, row: int) -> tuple[ImageSource, int]:
        at = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.sources[at], row - int(self.starts[at])

    def read(self, row: int) -> bytes | NDArray[np.uint8]:
        source, within = self._place(row)
        return source.read(within)

    def file_of(self, row: int) -> Path | None:
        source, within = self._place(row)
        return source.file_of(within)


def joined(sets: Sequence[PictureSet], prefixes: Sequence[str]) -> PictureSet:
    """Images of several sets one after another; with labels if all have some."""
    names = tuple(
        prefix + name
        for prefix, images in zip(prefixes, sets, strict=True)
        for name in images.names
    )
    known = [images.labels for images in sets if images.labels is not None]
    starts = np.cumsum([0, *(len(images) for images in sets[:-1])]).astype(np.intp)
    labels = np.concatenate(known) if len(known) == len(sets) else None
    return PictureSet(names, labels, _Joined(tuple(images.source for images in sets), starts))


def open_folder(folder: str | os.PathLike[str], *, follow_links: bool = True) -> PictureSet:
    """Open a folder; links are always followed."""
    if not Path(folder).is_dir():
        raise PictureError(f"{folder}: no such folder")
    return open_images(folder)


def open_pictures(path: str | os.PathLike[str], split: str | None = None) -> PictureSet:
    """Open a data set, a folder or an image file."""
    open_part = _find_data_set(Path(path))
    if open_part is not None:
        return open_part(split)
    if split is not None and Path(path).exists():
        raise DataFileError(f"{path}: split={split!r} is for data sets, and this is none")
    if not Path(path).exists():
        raise DataFileError(f"{path}: there is no such file or folder")
    if Path(path).is_file() and not is_image_name(Path(path).name):
        raise DataFileError(f"{path}: is neither a picture nor a data set that is known")
    return open_images(path)


def _find_data_set(path: Path) -> Callable[[str | None], PictureSet] | None:
    for module, function in _FORMATS:
        open_part: Callable[[str | None], PictureSet] | None
        open_part = getattr(importlib.import_module(module), function)(path)
        if open_part is not None:
            return open_part
    return None


def find_pictures(paths: Sequence[Path], split: str | None = None) -> PictureSet | None:
    """Images at these paths, None if there are none."""
    if len(paths) == 1 and paths[0].exists() and _find_data_set(paths[0]) is not None:
        return open_pictures(paths[0], split)
    if not find_images(paths):
        return None
    return open_pictures(paths[0], split) if len(paths) == 1 else open_images(paths)
