"""The development kit of ILSVRC 2012: its synsets, and the classes of the validation pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bitclass.data.errors import DataFileError, reading
from bitclass.data.matlab_structs import read_structs
from bitclass.data.packed import open_unpacked
from bitclass.data.picture_sets.splits import file_content, text_lines
from bitclass.data.picture_sets.tar_files import read_member, tar_members

__all__ = ["Devkit", "has_devkit", "open_devkit"]

_NAME = "ILSVRC2012_devkit_t12"
_META = "meta.mat"
_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_MOST_UNPACKED = 64 << 20
_N_CLASSES = 1000
_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class Devkit:
    """What the development kit tells.

    Attributes
    ----------
    wnids : WordNet number of each class, by its ILSVRC2012_ID, for the 1,000 classes of the task
    words : words of each class, by its WordNet number
    truth : ILSVRC2012_ID of each validation picture, in their order
    """

    wnids: Mapping[int, str]
    words: Mapping[str, str]
    truth: tuple[int, ...]


def open_devkit(folder: str | os.PathLike[str]) -> Devkit:
    """Read the development kit.

    Parameters
    ----------
    folder : with ``ILSVRC2012_devkit_t12.tar.gz``, the folder in that, or the two files themselves

    Raises
    ------
    DataFileError
        If there is none, or if it is damaged.
    """
    place, contents = _contents(Path(folder))
    with reading(place, "the synsets of ILSVRC 2012, " + _META):
        wnids, words = {}, {}
        for entry in read_structs(contents[_META], "synsets"):
            number, wnid, name = entry["ILSVRC2012_ID"], entry["WNID"], entry["words"]
            if not (isinstance(number, float) and isinstance(wnid, str) and isinstance(name, str)):
                raise ValueError("a synset without number or name")
            if not _WNID.fullmatch(wnid):
                raise ValueError(f"the WordNet number {wnid!r:.40}")
            words[wnid] = name
            # The entries after the first thousand are not classes but what lies above them.
            if entry.get("num_children") == 0 and number <= _N_CLASSES:
                wnids[int(number)] = wnid
    truth = text_lines(place, contents[_TRUTH])
    unknown = [line for line in truth if not line.isdecimal() or int(line[:9]) not in wnids]
    if unknown:
        raise DataFileError(
            f"{place}: the ground truth has the class {unknown[0]!r:.40}, which is none of the "
            f"{len(wnids)} classes in {_META}"
        )
    return Devkit(wnids, words, tuple(map(int, truth)))


def has_devkit(folder: Path) -> bool:
    """Whether the development kit is in a folder, packed or not."""
    return _unpacked(folder) is not None or _archive(folder).is_file()


def _unpacked(folder: Path) -> Path | None:
    """Where the two files themselves are."""
    places = (folder / _NAME / "data", folder / "data", folder)
    files = (_META, _TRUTH)
    return next((at for at in places if all((at / file).is_file() for file in files)), None)


def _archive(folder: Path) -> Path:
    return folder / f"{_NAME}.tar.gz"


def _contents(folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Where the kit is, and the content of its two files."""
    place = _unpacked(folder)
    if place is not None:
        with reading(place, "the development kit"):
            return place, {
                name: file_content(place / name, _MOST_UNPACKED) for name in (_META, _TRUTH)
            }
    archive = _archive(folder)
    if not archive.is_file():
        raise DataFileError(
            f"{folder}: the classes of the validation pictures are in {archive.name}, which is not "
            "there; nor are " + f"{_META} and {_TRUTH}"
        )
    wanted = {f"{_NAME}/data/{name}": name for name in (_META, _TRUTH)}
    found = {}
    with reading(archive, "the development kit"), open_unpacked(archive) as stream:
        for member in tar_members(stream, most_bytes=_MOST_UNPACKED):
            if member.name in wanted:
                found[wanted[member.name]] = read_member(stream, member)
    if len(found) < len(wanted):
        raise DataFileError(f"{archive}: has no {' or no '.join(wanted)}")
    return archive, found
