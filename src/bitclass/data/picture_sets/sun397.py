"""SUN397: a tree of folders, a list of classes, and files that part it for training and testing."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bitclass.data.errors import DataFileError, reading
from bitclass.data.labels import text_array
from bitclass.data.picture_sets.splits import Split, check_split, read_lines
from bitclass.data.pictures import PictureSet, open_folder, printable

__all__ = ["find_sun397", "open_sun397"]

_NAME = "SUN397"
_CLASSES = "ClassName.txt"
_N_PARTITIONS = 10


def open_sun397(
    path: str | os.PathLike[str], split: Split = "train", partition: int = 1
) -> PictureSet:
    """Open SUN397.

    Parameters
    ----------
    path : the folder with ``ClassName.txt`` and the folders ``a`` to ``z``, or the one that has it
        as ``SUN397``; ``ClassName.txt`` may then lie beside it too
    split : {"train", "test", "all"}
        "all" is every picture of the tree; the other two need the partition files
        (``Training_01.txt``), beside ``ClassName.txt`` or in a folder ``Partitions``.
    partition : int from 1 to 10
        Which of the published partitions.

    Returns
    -------
    PictureSet
        With labels such as ``abbey`` and ``apartment_building/outdoor``.

    Raises
    ------
    DataFileError
        If this is not SUN397, or if pictures are missing.
    """
    root = _root_of(Path(path))
    if root is None:
        raise DataFileError(f"{path}: is not SUN397; expected a folder with {_CLASSES}")
    return _open_part(root, partition, split)


def find_sun397(path: Path) -> Callable[[str | None], PictureSet] | None:
    """What opens a part of SUN397 where it is at this path; None where it is not."""
    root = _root_of(path)
    return None if root is None else partial(_open_part, root, 1)


def _root_of(path: Path) -> Path | None:
    """The folder that the folders of letters are in."""
    within = path / _NAME
    # The list of classes comes with the partitions too, which are unpacked beside the pictures.
    if within.is_dir() and _classes_file(within).is_file():
        return within
    return path if (path / _CLASSES).is_file() else None


def _classes_file(root: Path) -> Path:
    """The list of classes, in the folder of the pictures or beside it."""
    own = root / _CLASSES
    return own if own.is_file() or root.name != _NAME else root.parent / _CLASSES


def _open_part(root: Path, partition: int, part: str | None) -> PictureSet:
    split = check_split(root, part)
    pictures = _all_pictures(root)
    if split == "all":
        return pictures
    return _part(pictures, _partition_file(root, split, partition))


def _all_pictures(root: Path) -> PictureSet:
    """Pictures of the classes that the list names, in the order of their paths."""
    file = _classes_file(root)
    with reading(file, "the list of classes of SUN397"):
        folders = {line.strip("/"): _label(file, line) for line in read_lines(file)}
    pictures = open_folder(root, follow_links=False)
    labels = [folders.get(name.rpartition("/")[0]) for name in pictures.names]
    chosen = [row for row, label in enumerate(labels) if label is not None]
    if not chosen:
        raise DataFileError(f"{root}: has no pictures of the classes in {_CLASSES}")
    names = [label for label in labels if label is not None]
    part = pictures.select(chosen)
    return PictureSet(part.names, text_array(file, names, 0), part.source)


def _label(file: Path, line: str) -> str:
    """``/a/apartment_building/outdoor`` without the letter."""
    letter, _, name = line.strip("/").partition("/")
    if len(letter) != 1 or not name:
        raise DataFileError(
            f"{file}: has the line {printable(line)!r:.80}; expected one such as '/a/abbey'"
        )
    return printable(name)


def _partition_file(root: Path, split: Split, partition: int) -> Path:
    if not 1 <= partition <= _N_PARTITIONS:
        raise DataFileError(f"{root}: partition={partition}; it is 1 to {_N_PARTITIONS}")
    name = f"{'Training' if split == 'train' else 'Testing'}_{partition:02d}.txt"
    places = (root, root / "Partitions", root.parent, root.parent / "Partitions")
    found = next((place / name for place in places if (place / name).is_file()), None)
    if found is None:
        raise DataFileError(
            f"{root}: there is no {name} in it; unpack Partitions.zip there, or ask for split='all'"
        )
    return found


def _part(pictures: PictureSet, file: Path) -> PictureSet:
    """The pictures that a partition file lists, in its order.

    Its lines are looked up among the pictures that are there, and never opened as a path.
    """
    rows = {name: row for row, name in enumerate(pictures.names)}
    with reading(file, "a partition of SUN397"):
        listed = list(dict.fromkeys(line.strip("/") for line in read_lines(file)))
    missing = [name for name in listed if name not in rows]
    if missing:
        raise DataFileError(
            f"{file}: {len(missing)} of its {len(listed)} pictures are not there, such as "
            f"{printable(missing[0])!r:.120}"
        )
    return pictures.select(np.array([rows[name] for name in listed], dtype=np.intp))
