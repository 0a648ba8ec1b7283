"""Text files as blocks of whole lines, plain or compressed with gzip.

The first pass over a text file counts its rows and notes where in the file they are, so that a run
that was stopped goes on without parsing what came before.
"""

from __future__ import annotations

import bisect
import importlib
from abc import abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from bitclass.data.errors import DataFileError, reading
from bitclass.data.limits import MAX_RECORD_BYTES
from bitclass.data.packed import open_unpacked
from bitclass.data.rowfile import Piece, RowFile

__all__ = ["TextRows", "arrow_csv", "blocks"]

_BLOCK_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@cache
def arrow_csv() -> Any:
    """The modules pyarrow.csv and pyarrow, the fast parser; None where it is not installed."""
    try:
        return importlib.import_module("pyarrow.csv"), importlib.import_module("pyarrow")
    except ImportError:
        return None


def blocks(
    path: Path, offset: int = 0, quoted: bool = False
) -> Generator[tuple[int, bytes], None, None]:
    """Yield (offset, block), each block some whole lines, from a line that begins at `offset`.

    Parameters
    ----------
    path : the file
    offset : of a line, in the unpacked text
    quoted : whether a line break between double quotes ends no line
    """
    with open_unpacked(path) as stream:
        stream.seek(offset)
        held = b""
        while chunk := stream.read(_BLOCK_BYTES):
            if offset == 0 and not held and chunk.startswith(_BYTE_ORDER_MARK):
                chunk, offset = chunk[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
            held += chunk
            end = _last_line_end(held, quoted)
            if end:
                yield offset, held[:end]
                offset, held = offset + end, held[end:]
            if len(held) > MAX_RECORD_BYTES:
                raise DataFileError(f"{path}: has a line of more than {MAX_RECORD_BYTES} bytes")
        if held:
            yield offset, held


def _last_line_end(text: bytes, quoted: bool) -> int:
    """Where the last complete line ends, 0 if there is none."""
    end = text.rfind(b"\n") + 1
    if not quoted or not end:
        return end
    n_quotes = text.count(b'"', 0, end)
    while end and n_quotes % 2:
        previous = text.rfind(b"\n", 0, end - 1) + 1
        n_quotes -= text.count(b'"', previous, end)
        end = previous
    return end


class TextRows(RowFile):
    """Rows of a text file. Who inherits parses blocks and, while scanning, notes them.

    Attributes
    ----------
    quoted : whether a line break between double quotes ends no line
    """

    quoted = False
    format_name = "text"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_rows = 0
        self._first_rows: list[int] = []
        self._offsets: list[int] = []

    def note(self, offset: int, n_rows: int) -> None:
        """Note a block of the first pass."""
        if n_rows:
            self._first_rows.append(self.n_rows)
            self._offsets.append(offset)
            self.n_rows += n_rows

    def check_not_empty(self) -> None:
        """Refuse a file without rows, after the first pass."""
        if self.n_rows == 0:
            raise DataFileError(f"{self.path}: is empty: there are no rows in it")

    @abstractmethod
    def parse(self, block: bytes, first_row: int) -> Piece:
        """All rows of a block; `first_row` is for errors."""

    def pieces(self, start_row: int, piece_rows: int, offset: int) -> Iterator[Piece]:
        """Rows from `start_row` on, in pieces of at most `piece_rows` rows."""
        if start_row >= self.n_rows:
            return
        place = bisect.bisect_right(self._first_rows, start_row) - 1
        row = self._first_rows[place]
        with (
            reading(self.path, self.format_name),
            closing(blocks(self.path, self._offsets[place], self.quoted)) as found,
        ):
            for _, block in found:
                piece = self.parse(block, row)
                for start in range(max(0, start_row - row), len(piece), piece_rows):
                    yield piece.rows(start, start + piece_rows)
                row += len(piece)
