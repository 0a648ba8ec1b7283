"""Arrow files (also called IPC or Feather version 2) and Arrow streams, by pyarrow.

The file is mapped, and what was read is given back to the system after each piece, so that a record
batch of any size costs no memory unless it is compressed.
"""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bitclass.data.arrow_columns import Columns
from bitclass.data.errors import DataFileError, import_extra, reading
from bitclass.data.rowfile import Piece, Request, RowFile, described

__all__ = ["ArrowRows", "open_arrow"]


class _Mapping:
    """A mapped file, whose pages can be given back while it is in use."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            self.memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def give_back(self) -> None:
        """Stop counting the pages as memory of this process; they can still be read."""
        if hasattr(self.memory, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED)


class ArrowRows(RowFile):
    """Rows of an Arrow file or stream."""

    format_name = "Arrow"

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        self._pa = import_extra("pyarrow", "parquet", path, self.format_name)
        self._ipc = importlib.import_module("pyarrow.ipc")
        with reading(path, self.format_name):
            if path.stat().st_size == 0:
                raise DataFileError(f"{path}: is empty")
            mapping = _Mapping(path)
            self._is_file = mapping.memory[:6] == b"ARROW1"
            schema = self._reader(mapping, None).schema
            self._columns = Columns(path, schema, request)
            self._fields = [schema.get_field_index(name) for name in self._columns.names]
            self._count(mapping, schema)
            self.choice = self._columns.choice
            self.dtype = self._columns.dtype
            self.text_labels = self._columns.text_labels
            self.n_features = self._width(mapping, request)
        shape = (self.n_rows, self.n_features)
        what = described(self.choice, shape, self.dtype, sparse=False)
        self.description = f"Arrow: {what}"

    def _reader(self, mapping: _Mapping, fields: list[int] | None) -> Any:
        source = self._pa.BufferReader(self._pa.py_buffer(mapping.memory))
        options = self._ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        open_reader = self._ipc.open_file if self._is_file else self._ipc.open_stream
        return open_reader(source, options=options)

    def _batches(
        self, mapping: _Mapping, first: int = 0, fields: list[int] | None = None
    ) -> Iterator[Any]:
        """Record batches; to ask for some of their fields unpacks these alone, but copies them."""
        reader = self._reader(mapping, fields)
        if self._is_file:
            for place in range(first, reader.num_record_batches):
                yield reader.get_batch(place)
        else:
            for place, batch in enumerate(reader):
                if place >= first:
                    yield batch

    def _count(self, mapping: _Mapping, schema: Any) -> None:
        """Count the rows by one column that is not of lists, if there is one: it is soon read."""
        narrow = [at for at, kind in enumerate(schema.types) if kind.num_fields == 0]
        fields = [at for at in reversed(self._fields) if at in narrow] or narrow
        batches = self._batches(mapping, fields=fields[:1] or None)
        self._batch_rows = [batch.num_rows for batch in batches]
        self.n_rows = sum(self._batch_rows)
        if self.n_rows == 0:
            raise DataFileError(f"{self.path}: is empty: there are no rows in it")

    def _width(self, mapping: _Mapping, request: Request) -> int:
        if self._columns.n_features is not None:
            return self._columns.n_features
        first = next(place for place, rows in enumerate(self._batch_rows) if rows)
        batch = next(self._batches(mapping, first)).select(self._fields)
        batch.validate()
        row = batch.slice(0, 1)
        row.validate(full=True)
        width = self._columns.first_width(row)
        self._columns.check_width(width, request)
        return width

    def pieces(self, start_row: int, piece_rows: int, offset: int) -> Iterator[Piece]:
        """Rows from `start_row` on; record batches before it are not unpacked."""
        first, row = 0, 0
        while first < len(self._batch_rows) and row + self._batch_rows[first] <= start_row:
            row += self._batch_rows[first]
            first += 1
        with reading(self.path, self.format_name):
            mapping = _Mapping(self.path)
            for whole in self._batches(mapping, first):
                batch = whole.select(self._fields)
                # Arrow trusts its files; unchecked, wrong offsets would read outside of the file.
                batch.validate()
                start = max(0, start_row - row)
                while start < batch.num_rows:
                    stop = start + piece_rows - (offset + row + start) % piece_rows
                    part = batch.slice(start, stop - start)
                    part.validate(full=True)
                    piece = self._columns.piece(part, row + start, self.n_features)
                    if piece.X is not None and not piece.X.flags.owndata:
                        piece = Piece(piece.X.copy(), piece.labels)
                    mapping.give_back()
                    yield piece
                    start = stop
                row += batch.num_rows


def open_arrow(path: Path, request: Request) -> RowFile:
    """Open an Arrow file or stream."""
    return ArrowRows(path, request)
