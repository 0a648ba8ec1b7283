"""CIFAR-10 and CIFAR-100, from the archives as they are published or the folders within them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError, listed, reading
from bitclass.data.labels import text_array
from bitclass.data.packed import open_unpacked
from bitclass.data.picture_sets.pickles import load_plain
from bitclass.data.picture_sets.splits import Split, check_split, file_content, text_lines
from bitclass.data.picture_sets.tar_files import read_member, tar_members
from bitclass.data.pictures import PictureError, PictureSet

__all__ = ["find_cifar", "open_cifar"]

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
# All of CIFAR takes 185 MB, one file of it 154 MB.
_MOST_UNPACKED = 256 << 20
_ARCHIVES = (".tar.gz", ".tgz", ".tar")


@dataclass(frozen=True)
class _Layout:
    """One of the four forms: the files of each part, where the names of the classes are, and how.

    Attributes
    ----------
    folder : that the archive holds
    meta : file with the names of the classes
    labels : key of the labels in a pickle
    names : key of the names of the classes in a pickle
    label_bytes : bytes before the pixels of a record, the class being the last of them; 0 for
        pickles
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: str = ""
    names: str = ""
    label_bytes: int = 0

    def files(self, split: Split) -> tuple[str, ...]:
        """The files of a part."""
        return {"train": self.train, "test": self.test, "all": self.train + self.test}[split]


_LAYOUTS = (
    _Layout(
        "cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",),
        "batches.meta", labels="labels", names="label_names",
    ),
    _Layout(
        "cifar-100-python", ("train",), ("test",),
        "meta", labels="fine_labels", names="fine_label_names",
    ),
    _Layout(
        "cifar-10-batches-bin", tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",), "batches.meta.txt", label_bytes=1,
    ),
    _Layout(
        "cifar-100-binary", ("train.bin",), ("test.bin",), "fine_label_names.txt", label_bytes=2
    ),
)  # fmt: skip


def open_cifar(path: str | os.PathLike[str], split: Split = "train") -> PictureSet:
    """Open CIFAR-10 or CIFAR-100: the python or the binary version.

    Parameters
    ----------
    path : the archive (``cifar-10-python.tar.gz``), the folder in it, or a folder with either
    split : {"train", "test", "all"}

    Returns
    -------
    PictureSet
        Of 32 x 32 pixels, with the names of the (fine) classes as labels.

    Raises
    ------
    DataFileError
        If this is not CIFAR, or damaged.
    """
    open_part = find_cifar(Path(path))
    if open_part is None:
        raise DataFileError(
            f"{path}: is not CIFAR; expected an archive such as cifar-10-python.tar.gz, or a "
            f"folder with one of {listed(layout.folder for layout in _LAYOUTS)}"
        )
    return open_part(split)


def find_cifar(path: Path) -> Callable[[str | None], PictureSet] | None:
    """What opens a part of CIFAR where it is at this path; None where it is not."""
    place, layout = _place_of(path)
    return None if layout is None else partial(_open_part, place, layout)


def _open_part(place: Path, layout: _Layout, part: str | None) -> PictureSet:
    split = check_split(place, part)
    with reading(place, f"CIFAR ({layout.folder})"):
        source = _Pictures(place, layout, split)
        names = source.load()
    return PictureSet(names, source.labels, source)


def _place_of(path: Path) -> tuple[Path, _Layout | None]:
    """The archive or folder that holds the files themselves, and in which form."""
    if path.is_file():
        return path, _layout_in_archive(path)
    for layout in _LAYOUTS:
        for folder in (path, path / layout.folder):
            if (folder / layout.meta).is_file() and (folder / layout.test[0]).is_file():
                return folder, layout
    for archive in sorted(path.glob("cifar-10*")) if path.is_dir() else ():
        if archive.is_file() and (layout_within := _layout_in_archive(archive)) is not None:
            return archive, layout_within
    return path, None


def _layout_in_archive(path: Path) -> _Layout | None:
    """The form that the first file of an archive belongs to."""
    if not path.name.lower().endswith(_ARCHIVES):
        return None
    try:
        with open_unpacked(path) as stream:
            first = next(tar_members(stream, most_bytes=_MOST_UNPACKED), None)
    except (OSError, EOFError, ValueError, zlib.error):
        return None  # what is wrong with it, the format that it is of may tell
    top = "" if first is None else first.name.partition("/")[0]
    return next((layout for layout in _LAYOUTS if layout.folder == top), None)


class _Pictures:
    """All pictures of a part, in memory; each process that opens them reads the files itself."""

    def __init__(self, place: Path, layout: _Layout, split: Split) -> None:
        self._place, self._layout, self._split = place, layout, split
        self._pixels: NDArray[np.uint8] | None = None
        self._ends: NDArray[np.intp] = np.empty(0, dtype=np.intp)  # of the rows of each file
        self.labels: NDArray[np.str_] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pixels": None}

    def read(self, row: int) -> NDArray[np.uint8]:
        """Pixels of one picture, (32, 32, 3)."""
        if self._pixels is None:
            with reading(self._place, "CIFAR"):
                self.load()
        assert self._pixels is not None
        if row >= len(self._pixels):
            raise PictureError(f"{self._place}: has no picture {row} any more")
        planes = self._pixels[row].reshape(3, _SIDE, _SIDE)
        return np.ascontiguousarray(planes.transpose(1, 2, 0))

    def file_of(self, row: int) -> Path:
        """The archive, or the file of the folder that a picture lies in."""
        if not self._place.is_dir():
            return self._place
        which = int(np.searchsorted(self._ends, row, side="right"))
        return self._place / self._layout.files(self._split)[which]

    def load(self) -> tuple[str, ...]:
        """Read the files; names of the pictures."""
        layout = self._layout
        wanted = layout.files(self._split)
        contents = _contents(self._place, layout, (layout.meta, *wanted))
        classes = _class_names(self._place / layout.meta, layout, contents[layout.meta])
        pixels, numbers, names = [], [], []
        for name in wanted:
            rows, labels = _rows_of(self._place / name, layout, contents.pop(name))
            if labels.max(initial=0) >= len(classes) or labels.min(initial=0) < 0:
                raise DataFileError(
                    f"{self._place / name}: has the class {labels.max()}, but there are "
                    f"{len(classes)}, counted from 0"
                )
            pixels.append(rows)
            numbers.append(labels)
            names += [f"{name}/{row}" for row in range(len(rows))]
        self._pixels = np.concatenate(pixels)
        self._ends = np.cumsum([len(rows) for rows in pixels])
        self.labels = text_array(self._place, classes, 0)[np.concatenate(numbers)]
        return tuple(names)


def _contents(place: Path, layout: _Layout, wanted: tuple[str, ...]) -> dict[str, bytes]:
    """Content of the wanted files, from a folder or an archive."""
    if place.is_dir():
        return {name: file_content(place / name, _MOST_UNPACKED) for name in wanted}
    found: dict[str, bytes] = {}
    within = {f"{layout.folder}/{name}": name for name in wanted}
    with open_unpacked(place) as stream:
        for member in tar_members(stream, most_bytes=_MOST_UNPACKED):
            if member.name in within and within[member.name] not in found:
                found[within[member.name]] = read_member(stream, member)
            if len(found) == len(wanted):
                return found
    missing = [name for name in within if within[name] not in found]
    raise DataFileError(f"{place}: has no {listed(missing)}")


def _class_names(path: Path, layout: _Layout, content: bytes) -> list[str]:
    if layout.label_bytes:
        return text_lines(path, content)
    names = _loaded(path, content).get(layout.names)
    if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
        raise DataFileError(f"{path}: has no names of classes, {layout.names!r}")
    return [name.decode() for name in names]


def _rows_of(
    path: Path, layout: _Layout, content: bytes
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels (n, 3072) and class numbers (n,) of one file."""
    if layout.label_bytes:
        return _records(path, layout.label_bytes, content)
    batch = _loaded(path, content)
    pixels, labels = batch.get("data"), batch.get(layout.labels)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        shape = pixels.shape if isinstance(pixels, np.ndarray) else "none"
        raise DataFileError(f"{path}: its pixels are of shape {shape}; expected (n, {_PIXELS})")
    if not isinstance(labels, list) or not all(
        type(label) is int and abs(label) < 1 << 31 for label in labels
    ):
        raise DataFileError(f"{path}: has no class numbers {layout.labels!r}")
    if len(labels) != len(pixels):
        raise DataFileError(f"{path}: has {len(labels)} class numbers for {len(pixels)} pictures")
    return pixels, np.array(labels, dtype=np.int64)


def _loaded(path: Path, content: bytes) -> Mapping[str, Any]:
    with reading(path, "the pickle of CIFAR"):
        return load_plain(content)


def _records(
    path: Path, label_bytes: int, content: bytes
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    size = label_bytes + _PIXELS
    if not content or len(content) % size:
        raise DataFileError(
            f"{path}: has {len(content)} bytes, which is no whole number of records of {size} "
            "bytes; it is cut short or of another format"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)
