"""Fetching data sets that are public, and making sure that they are what they should be."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bitclass.data.errors import DataFileError, listed

__all__ = ["DOWNLOADS", "Download", "download"]

_CHUNK = 1 << 20
_PATIENCE_SECONDS = 60.0
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_PRINCETON = "https://vision.princeton.edu/projects/2010/SUN/"


@dataclass(frozen=True)
class Download:
    """A public file.

    Attributes
    ----------
    url : where it is
    checksum : ``md5:...`` or ``sha256:...``
    size : bytes, where they are known
    """

    url: str
    checksum: str
    size: int | None = None

    @property
    def name(self) -> str:
        """Name of the file."""
        return urlsplit(self.url).path.rpartition("/")[2]


#: ILSVRC 2012 is not among them: it is handed out after registration only.
DOWNLOADS = {
    "cifar10": Download(
        _TORONTO + "cifar-10-python.tar.gz",
        "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        170_498_071,
    ),
    "cifar10-binary": Download(
        _TORONTO + "cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", 170_052_171
    ),
    "cifar100": Download(
        _TORONTO + "cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85"
    ),
    "cifar100-binary": Download(
        _TORONTO + "cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8", 168_513_733
    ),
    "sun397": Download(
        _PRINCETON + "SUN397.tar.gz",
        "sha256:f404130965a7ad77bed5ececc71e720ab50f3cc1e1bb257257610d38f3b928ec",
    ),
    "sun397-partitions": Download(
        _PRINCETON + "download/Partitions.zip",
        "sha256:e3311ea5f812d4cc6faef194688343d1111f6cd6f70f2c62f393c2b8d6ba1ec9",
    ),
    "tiny-imagenet": Download(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "md5:90528d7ca1a48142e341f4ef8d21d0de",
        248_100_043,
    ),
}

Progress = Callable[[int, int | None], None]


def download(
    source: str | Download, folder: str | os.PathLike[str], progress: Progress | None = None
) -> Path:
    """Fetch a data set into a folder, and check it.

    What has come so far is kept as ``NAME.part``, and a later call goes on from there. The file
    itself appears only when its checksum is right. One that is there already is checked, and not
    fetched again.

    Parameters
    ----------
    source : name, one of `DOWNLOADS`, or a Download
    folder : that the file is put into; made where there is none
    progress : called with the bytes that have come, and how many there are if that is known

    Returns
    -------
    Path of the file

    Raises
    ------
    DataFileError
        If it cannot be fetched, or is not what it should be.
    """
    if isinstance(source, str):
        if source not in DOWNLOADS:
            raise DataFileError(f"{source}: is not known; there are {listed(DOWNLOADS)}")
        source = DOWNLOADS[source]
    target = Path(folder) / source.name
    if target.exists():
        _check(target, source)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        _fetch(source, part, progress or (lambda done, total: None))
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        kept = f"; what has come is kept in {part}, and the next call goes on from there"
        raise DataFileError(
            f"{source.url}: cannot be fetched ({getattr(error, 'reason', None) or error})"
            f"{kept if part.exists() else ''}"
        ) from error
    try:
        _check(part, source)
    except DataFileError:
        part.unlink()
        raise
    os.replace(part, target)
    return target


def _fetch(source: Download, part: Path, progress: Progress) -> None:
    """Append to the part what is missing of it."""
    done = part.stat().st_size if part.exists() else 0
    if source.size is not None and done == source.size:
        return
    request = urllib.request.Request(source.url, headers={"User-Agent": "bitclass"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not done:
            raise
        return  # nothing is missing; the checksum tells whether that is so
    with answer, part.open("ab") as file:
        if answer.status != http.client.PARTIAL_CONTENT:
            done = 0  # the server sends all of it again
            file.truncate(0)
        _copy(source, answer, file, done, progress)


def _copy(source: Download, answer: Any, file: Any, done: int, progress: Progress) -> None:
    left = answer.headers.get("Content-Length")
    total = done + int(left) if left is not None and left.isdecimal() else source.size
    if source.size is not None and total != source.size:
        raise DataFileError(f"{source.url}: has {total} bytes; expected {source.size}")
    while chunk := answer.read(_CHUNK):
        file.write(chunk)
        done += len(chunk)
        if total is not None and done > total:
            break
        progress(done, total)
    file.flush()
    os.fsync(file.fileno())
    if total is not None and done < total:
        raise ConnectionError(f"it ended after {done} of {total} bytes")


def _check(path: Path, source: Download) -> None:
    """Refuse a file of another size or checksum."""
    found_size = path.stat().st_size
    if source.size is not None and found_size != source.size:
        raise DataFileError(
            f"{path}: has {found_size} bytes, and {source.url} has {source.size}; "
            "remove it, and fetch it again"
        )
    kind, _, expected = source.checksum.partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, kind).hexdigest()
    if found != expected:
        raise DataFileError(
            f"{path}: has the {kind} checksum {found}, and {source.url} has {expected}; "
            "it is damaged or another file: fetch it again"
        )
