"""Tiny-ImageNet-200, from the zip file as it is published or the folder in it."""

from __future__ import annotations

import os
import re
import threading
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bitclass.data.errors import DataFileError, reading
from bitclass.data.labels import text_array
from bitclass.data.picture_sets.splits import (
    Split,
    check_split,
    read_lines,
    text_lines,
)
from bitclass.data.pictures import (
    MOST_FILE_BYTES,
    PictureError,
    PictureSet,
    joined,
    open_folder,
    printable,
)

__all__ = ["find_tiny_imagenet", "open_tiny_imagenet", "tiny_imagenet_words"]

_NAME = "tiny-imagenet-200"
_TRAIN = re.compile(_NAME + r"/train/(n\d{8})/images/([^/]+\.JPEG)")
_VALIDATION = re.compile(_NAME + r"/val/images/([^/]+\.JPEG)")
_ANNOTATIONS = "val/val_annotations.txt"
_WNID = re.compile(r"n\d{8}")
_MOST_TEXT_BYTES = 64 << 20


def open_tiny_imagenet(path: str | os.PathLike[str], split: Split = "train") -> PictureSet:
    """Open Tiny-ImageNet-200.

    Parameters
    ----------
    path : ``tiny-imagenet-200.zip``, the folder in it, or the folder that it is in
    split : {"train", "test", "all"}
        "test" is the 10,000 validation pictures: the classes of the others were not published.

    Returns
    -------
    PictureSet
        Of 64 x 64 pixels, with WordNet numbers (``n01443537``) as labels.

    Raises
    ------
    DataFileError
        If this is not Tiny-ImageNet-200, or damaged.
    """
    return _open_part(_known_place(Path(path)), split)


def find_tiny_imagenet(path: Path) -> Callable[[str | None], PictureSet] | None:
    """What opens a part of Tiny-ImageNet-200 where it is at this path; None where it is not."""
    place = _place_of(path)
    return None if place is None else partial(_open_part, place)


def _open_part(place: Path, part: str | None) -> PictureSet:
    split = check_split(place, part)
    with reading(place, "Tiny-ImageNet-200"):
        opened = _folder_part if place.is_dir() else _zip_part
        if split != "all":
            return opened(place, split)
        return joined([opened(place, "train"), opened(place, "test")], ("train/", "test/"))


def tiny_imagenet_words(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Words of each WordNet number, from ``words.txt``, such as ``goldfish, Carassius auratus``."""
    place = _known_place(Path(path))
    with reading(place, "the words of Tiny-ImageNet-200"):
        lines = _text(place, "words.txt")
    return {number: words for number, _, words in (line.partition("\t") for line in lines)}


def _place_of(path: Path) -> Path | None:
    if path.is_file():
        return path if path.name.lower().startswith(_NAME) and zipfile.is_zipfile(path) else None
    for folder in (path, path / _NAME):
        if (folder / _ANNOTATIONS).is_file():
            return folder
    archive = path / f"{_NAME}.zip"
    return archive if archive.is_file() else None


def _known_place(path: Path) -> Path:
    place = _place_of(path)
    if place is None:
        raise DataFileError(f"{path}: is not Tiny-ImageNet-200; expected {_NAME}.zip or its folder")
    return place


def _folder_part(root: Path, split: Split) -> PictureSet:
    if split == "train":
        return open_folder(root / "train", follow_links=False)
    pictures = open_folder(root / "val" / "images", follow_links=False)
    return _validation(root / _ANNOTATIONS, _text(root, _ANNOTATIONS), pictures)


def _zip_part(archive: Path, split: Split) -> PictureSet:
    with zipfile.ZipFile(archive) as file:
        members = file.namelist()
    pattern = _TRAIN if split == "train" else _VALIDATION
    found = sorted({name: match for name in members if (match := pattern.fullmatch(name))}.items())
    if not found:
        raise DataFileError(f"{archive}: has no pictures for split={split!r}")
    source = _Zipped(archive, tuple(name for name, _ in found))
    names = tuple(printable(match[match.re.groups]) for _, match in found)
    if split == "train":
        labels = text_array(archive, [match[1] for _, match in found], 0)
        # As in the folder, where the class of a picture is part of its name too.
        names = tuple(f"{match[1]}/images/{match[2]}" for _, match in found)
        return PictureSet(names, labels, source)
    return _validation(archive, _text(archive, _ANNOTATIONS), PictureSet(names, None, source))


def _validation(place: Path, lines: list[str], pictures: PictureSet) -> PictureSet:
    """Give the validation pictures the classes that the annotations name."""
    classes = {}
    for line in lines:
        name, _, rest = line.partition("\t")
        number = rest.partition("\t")[0]
        if not _WNID.fullmatch(number):
            raise DataFileError(
                f"{place}: has the line {printable(line)!r:.80}; expected a picture, a tab and a "
                "WordNet number"
            )
        classes[name] = number
    without = [name for name in pictures.names if name not in classes]
    if without:
        raise DataFileError(
            f"{place}: tells no class of {len(without)} pictures, such as {without[0]!r:.80}"
        )
    labels = text_array(place, [classes[name] for name in pictures.names], 0)
    return PictureSet(pictures.names, labels, pictures.source)


def _text(place: Path, name: str) -> list[str]:
    """Lines of a text file of the set."""
    if place.is_dir():
        return read_lines(place / name)
    with zipfile.ZipFile(place) as archive, archive.open(f"{_NAME}/{name}") as file:
        return text_lines(place, file.read(_MOST_TEXT_BYTES + 1))


class _Zipped:
    """Pictures in a zip file, which each process opens for itself."""

    def __init__(self, archive: Path, members: tuple[str, ...]) -> None:
        self._archive, self._members = archive, members
        self._lock = threading.Lock()
        self._opened: zipfile.ZipFile | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Zipped, (self._archive, self._members)

    def read(self, row: int) -> bytes:
        """Content of one picture."""
        name = self._members[row]
        try:
            with self._lock:
                if self._opened is None:
                    self._opened = zipfile.ZipFile(self._archive)
            with self._opened.open(name) as file:
                content = file.read(MOST_FILE_BYTES + 1)
        except OSError:
            raise
        except Exception as error:  # of many types, on a damaged file
            raise PictureError(f"{self._archive}: {name} cannot be read ({error})") from error
        if len(content) > MOST_FILE_BYTES:
            raise PictureError(f"{self._archive}: {name} is too large for a picture")
        return content

    def file_of(self, row: int) -> Path:
        """The zip file, whichever picture it is."""
        return self._archive
