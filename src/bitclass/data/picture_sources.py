"""Where the pictures of a set are: files, parts of other sources, and what tells them apart."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError

__all__ = [
    "MOST_FILE_BYTES",
    "Confined",
    "Files",
    "Joined",
    "PictureError",
    "PictureSource",
    "Selected",
    "confined",
    "file_of",
    "fingerprint",
    "printable",
    "read_picture_file",
]

#: A larger file is not read as a picture.
MOST_FILE_BYTES = 256 << 20


class PictureError(DataFileError):
    """A picture cannot be read; the message is one line that names it."""


class PictureSource(Protocol):
    """Where the pictures of a set are; can be pickled, for the processes that open them.

    One that also has ``file_of(row)``, the path of the file that a picture lies in, lets a run
    that was stopped find out whether its pictures are still the same.
    """

    def read(self, row: int) -> bytes | NDArray[np.uint8]:
        """Content of one picture.

        Parameters
        ----------
        row : int, from 0

        Returns
        -------
        bytes of a picture file, or uint8 pixels of shape (h, w) or (h, w, 3)

        Raises
        ------
        OSError, PictureError
            If this picture cannot be read; others may.
        """
        ...


def file_of(source: PictureSource, row: int) -> Path | None:
    """The file that a picture lies in, alone or with others; None for a source that tells none."""
    tell: Callable[[int], Path | None] | None = getattr(source, "file_of", None)
    return None if tell is None else tell(row)


@dataclass(frozen=True)
class Selected:
    """Some of the pictures of a source."""

    source: PictureSource
    rows: NDArray[np.intp]

    def read(self, row: int) -> bytes | NDArray[np.uint8]:
        """Content of one picture."""
        return self.source.read(int(self.rows[row]))

    def file_of(self, row: int) -> Path | None:
        """The file that a picture lies in."""
        return file_of(self.source, int(self.rows[row]))


@dataclass(frozen=True)
class Joined:
    """Sources one after another; `starts` are the rows at which each begins, (k,)."""

    sources: tuple[PictureSource, ...]
    starts: NDArray[np.intp]

    def _place(self, row: int) -> tuple[PictureSource, int]:
        at = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.sources[at], row - int(self.starts[at])

    def read(self, row: int) -> bytes | NDArray[np.uint8]:
        """Content of one picture."""
        source, within = self._place(row)
        return source.read(within)

    def file_of(self, row: int) -> Path | None:
        """The file that a picture lies in."""
        return file_of(*self._place(row))


@dataclass(frozen=True)
class Files:
    """Pictures that are files of a folder."""

    folder: Path
    paths: tuple[str, ...]

    def read(self, row: int) -> bytes:
        """Content of one picture."""
        return read_picture_file(self.file_of(row))

    def file_of(self, row: int) -> Path:
        """The file that a picture is."""
        return self.folder / self.paths[row]


def read_picture_file(path: Path) -> bytes:
    """Content of a picture file, unless it is too large for one.

    Parameters
    ----------
    path : the file

    Raises
    ------
    OSError, PictureError
    """
    with path.open("rb") as file:
        content = file.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise PictureError(
            f"{printable(str(path))}: has more than {MOST_FILE_BYTES >> 20} MB, too much for a "
            "picture"
        )
    return content


def printable(name: str) -> str:
    r"""A file name as text that can be printed and stored, whatever bytes it has on disk.

    Examples
    --------
    >>> printable("caf\udce9.png"), printable("a\nb")
    ('caf\\udce9.png', 'a\\nb')
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in name)


def fingerprint(source: PictureSource, n_pictures: int) -> str:
    """What changes if the files of some pictures are others, or are written anew.

    Parameters
    ----------
    source : PictureSource
        One that tells no files has the same fingerprint always.
    n_pictures : int

    Returns
    -------
    str
        SHA-256 of where each file really is, its size and when it was last written.
    """
    real_folder = functools.cache(os.path.realpath)
    digest, last, stamp = hashlib.sha256(), None, b""
    for row in range(n_pictures):
        path = file_of(source, row)
        if path is None:
            continue
        if path != last:  # one archive has many pictures
            last, stamp = path, _stamp(path, real_folder)
        digest.update(stamp + b"\n")
    return digest.hexdigest()


def _stamp(path: Path, real_folder: Callable[[Path], str]) -> bytes:
    try:
        found, real = os.lstat(path), f"{real_folder(path.parent)}/{path.name}"
        if stat.S_ISLNK(found.st_mode):
            found, real = os.stat(path), os.path.realpath(path)
    except OSError:  # a picture that cannot be read is left out, until it can
        return os.fsencode(path) + b"\0absent"
    return os.fsencode(real) + f"\0{found.st_size}\0{found.st_mtime_ns}".encode()


@dataclass(frozen=True)
class Confined:
    """Pictures that are read only while their files lie in a folder; made by `confined`.

    Attributes
    ----------
    source : PictureSource
    within : real paths of what pictures may be, or lie in
    """

    source: PictureSource
    within: tuple[str, ...]

    def read(self, row: int) -> bytes | NDArray[np.uint8]:
        """Content of one picture, unless its file has become a link that leads elsewhere."""
        path = file_of(self.source, row)
        if path is not None and not self.holds(os.path.realpath(path)):
            raise PictureError(f"{printable(str(path))}: is a link that leads out of the folder")
        return self.source.read(row)

    def file_of(self, row: int) -> Path | None:
        """The file that a picture lies in."""
        return file_of(self.source, row)

    def holds(self, real: str) -> bool:
        """Whether a real path lies in the folder."""
        return any(real == place or real.startswith(_with_slash(place)) for place in self.within)


def _with_slash(place: str) -> str:
    return place if place.endswith(os.sep) else place + os.sep


def confined(source: PictureSource, n_pictures: int, named: Path) -> Confined:
    """Pictures of a source, none of which may lie outside the folder that a user named.

    Parameters
    ----------
    source : PictureSource
    n_pictures : int
    named : the folder, or a file in it, which may itself be a link

    Raises
    ------
    DataFileError
        If one lies elsewhere, where a link leads.
    """
    root = named if named.is_dir() else named.parent
    within = (os.path.realpath(root), os.path.realpath(named))
    held = Confined(source, within)
    real_folder = functools.cache(os.path.realpath)
    last = None
    for row in range(n_pictures):
        path = file_of(source, row)
        if path is None or path == last:
            continue
        last = path
        inside = held.holds(real_folder(path.parent)) and not path.is_symlink()
        if not inside and not held.holds(os.path.realpath(path)):
            above = [folder for folder in path.parents if folder.is_relative_to(root)]
            places = [*reversed(above), path]
            way_out = next(place for place in places if not held.holds(os.path.realpath(place)))
            raise DataFileError(
                f"{printable(str(way_out))}: leads out of {printable(str(root))}, and links that "
                "do are not followed here; name the folder or file that it leads to"
            )
    return held
