"""Where the members of a tar file are, without unpacking it.

Only plain files are told of, by the name in their own header: their content is read in place and
never written anywhere, so that a name such as ``../../etc/passwd`` can do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bitclass.data.pictures import MOST_FILE_BYTES, PictureError

__all__ = ["Member", "StoredFiles", "read_member", "tar_members"]

_BLOCK = 512
_PLAIN_FILES = (b"0", b"\0", b"7")


@dataclass(frozen=True)
class Member:
    """A plain file in a tar file: its name, and where its content is."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class StoredFiles:
    """Pictures that lie in one or several files as they are, not packed.

    Attributes
    ----------
    paths : the files
    which : (n,) index of the file of each picture
    offsets, sizes : (n,) where each picture is, and its bytes
    """

    paths: tuple[Path, ...]
    which: NDArray[np.intp]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def read(self, row: int) -> bytes:
        """Content of one picture."""
        path, size = self.file_of(row), int(self.sizes[row])
        if size > MOST_FILE_BYTES:
            raise PictureError(f"{path}: picture {row} has {size} bytes, too much for a picture")
        with path.open("rb") as file:
            file.seek(int(self.offsets[row]))
            content: bytes = file.read(size)
        if len(content) < size:
            raise PictureError(f"{path}: picture {row} is cut short")
        return content

    def file_of(self, row: int) -> Path:
        """The file that a picture lies in."""
        return self.paths[int(self.which[row])]


def tar_members(
    stream: IO[bytes], start: int = 0, stop: int | None = None, *, most_bytes: int | None = None
) -> Iterator[Member]:
    """Yield the plain files of a tar file in their order.

    Parameters
    ----------
    stream : that can go forward to a place, as a file opened with gzip can
    start, stop : where in the stream the tar file is, if it lies within another one
    most_bytes : how far in the stream members may lie, against small files that unpack to huge ones

    Raises
    ------
    ValueError, EOFError
        If it is no tar file, or cut short.
    """
    at = start
    while True:
        stream.seek(at)
        header = stream.read(_BLOCK)
        if len(header) == _BLOCK and not any(header):
            return
        if len(header) < _BLOCK or (stop is not None and at + _BLOCK > stop):
            raise EOFError("the tar file is cut short: its end is missing")
        size = _size_in(header)
        at += _BLOCK
        if stop is not None and at + size > stop:
            raise EOFError("the tar file is cut short")
        if most_bytes is not None and at + size > most_bytes:
            raise ValueError(f"it unpacks to more than {most_bytes >> 20} MB")
        if header[156:157] in _PLAIN_FILES:
            yield Member(_name_in(header), at, size)
        at += -(-size // _BLOCK) * _BLOCK


def read_member(stream: IO[bytes], member: Member) -> bytes:
    """Content of a member; its size was checked by whoever asks."""
    stream.seek(member.offset)
    content = stream.read(member.size)
    if len(content) < member.size:
        raise EOFError(f"{member.name!r} is cut short")
    return content


def _size_in(header: bytes) -> int:
    """Size of a member, in a header of which the checksum is right."""
    blank = header[:148] + b" " * 8 + header[156:]
    if sum(blank) != _octal(header[148:156]):
        raise ValueError("a header of the tar file is damaged, its checksum is wrong")
    return _octal(header[124:136])


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits.isdigit():
        raise ValueError("a header of the tar file has a number that is none")
    return int(digits, 8)


def _name_in(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    if header[257:263] == b"ustar\0" and header[345] != 0:
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return name.decode("utf-8", "backslashreplace").removeprefix("./")
