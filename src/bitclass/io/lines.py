"""Text files: how they are opened, and files with one text or label per line."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from bitclass.io.labels import TEXT, infer_dtype
from bitclass.io.source import Batch, DataFileError, Request, Source, reading

__all__ = ["LinesSource", "open_text"]

_BLOCK_BYTES = 16 << 20
# The first bytes of files that would otherwise be read as text without an error.
_COMPRESSED = {
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\x00",
    "Zstandard": rb"\x28\xb5\x2f\xfd",
    "zip": rb"PK\x03\x04",
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def open_text(path: Path) -> IO[bytes]:
    """Open a text file for reading bytes, decompressed if its content is gzip.

    Parameters
    ----------
    path : Path

    Returns
    -------
    stream : binary file

    Raises
    ------
    DataFileError
        If the file is compressed in another way, or is UTF-16 or UTF-32 and not UTF-8.

    Examples
    --------
    >>> import os, tempfile
    >>> path = Path(tempfile.mkdtemp(), "rows")
    >>> _ = path.write_bytes(gzip.compress(b"x,label"))
    >>> with open_text(path) as stream:
    ...     stream.read()
    b'x,label'
    """
    with path.open("rb") as file:
        start = file.read(16)
    for name, pattern in _COMPRESSED.items():
        if re.match(pattern, start):
            raise DataFileError(
                f"{path}: is compressed by {name}; decompress it, or compress it by gzip"
            )
    open_file: Any = gzip.open if start.startswith(b"\x1f\x8b") else open
    stream = open_file(path, "rb")
    try:
        with reading(path, "gzip"):
            start = stream.peek(2)[:2]
        # With a byte order mark, or without one if it starts with an ASCII character.
        if start in (b"\xff\xfe", b"\xfe\xff") or (len(start) == 2 and 0 in start):
            raise DataFileError(
                f"{path}: is not UTF-8 but UTF-16 or UTF-32; convert it, for example with "
                "iconv -f UTF-16 -t UTF-8"
            )
    except DataFileError:
        stream.close()
        raise
    return cast("IO[bytes]", stream)


class LinesSource(Source):
    """A file with one text or one label per line, and no header."""

    format_name = "lines"

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        if request.features is not False:
            raise DataFileError(
                f"{path}: contains lines of text; set format= if it has another format"
            )
        is_label = request.only_labels
        self.label, self.columns = ("line" if is_label else None), ["line"] * len(request.columns)
        if any(name not in ("line", "0") for name in request.columns) or (
            isinstance(request.labels, str) and not is_label
        ):
            raise DataFileError(f"{path}: contains lines of text, and no columns")
        dtypes = set()
        with reading(path, self.format_name):
            for piece in self.read(0):
                self.n_rows += len(piece)
                if piece.labels is not None:
                    dtypes.add(infer_dtype(set(piece.labels.tolist())))
        if self.n_rows == 0:
            raise DataFileError(f"{path}: has no rows")
        if is_label:
            self.label_dtype = TEXT if TEXT in dtypes else next(iter(dtypes))

    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the lines; texts are bytes, which need not be valid UTF-8."""
        row = 0
        with reading(self.path, self.format_name), open_text(self.path) as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                if row == 0:
                    lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                lines = [line.rstrip(b"\r\n") for line in lines]
                labels, columns = None, {}
                if self.label is not None:
                    labels = np.array([line.decode() for line in lines])
                else:
                    columns["line"] = np.array([*lines, None], dtype=object)[:-1]
                yield Batch(None, labels, row, columns)
                row += len(lines)
