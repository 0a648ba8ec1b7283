"""Parquet files, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bitclass.data.arrow_columns import Columns
from bitclass.data.errors import DataFileError, check_extra, import_extra, reading
from bitclass.data.isolation import IsolatedRows
from bitclass.data.limits import Library
from bitclass.data.rowfile import Piece, Request, RowFile, described

__all__ = ["LIBRARY", "ParquetRows", "open_parquet"]

# Much of it for the stacks of threads, which are never filled.
LIBRARY = Library("pyarrow.parquet", room_bytes=192 << 20)

# Shared among the columns that are read at the same time.
_BUFFER_BYTES = 8 << 20
# What a column needs however little it holds.
_COLUMN_BYTES = 1 << 16


class ParquetRows(RowFile):
    """Rows of a Parquet file; pages are read as they are needed, never a whole row group."""

    format_name = "Parquet"

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        self._parquet = import_extra("pyarrow.parquet", "parquet", path, self.format_name)
        with reading(path, self.format_name), self._open(1) as file:
            self._columns = Columns(path, file.schema_arrow, request)
            metadata = file.metadata
            self._group_rows = [
                metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
            ]
            self.n_rows = sum(self._group_rows)
            if self.n_rows != metadata.num_rows or min(self._group_rows, default=0) < 0:
                raise DataFileError(f"{path}: its numbers of rows do not add up; it is damaged")
            if self.n_rows == 0:
                raise DataFileError(f"{path}: is empty: there are no rows in it")
            largest = max(
                metadata.row_group(group).total_byte_size
                for group in range(metadata.num_row_groups)
            )
            # Every column holds pages and a dictionary, packed and unpacked: with very many columns
            # that comes to some times the row group.
            self.buffer_bytes = 4 * min(largest, 64 * path.stat().st_size)
            self.buffer_bytes += _COLUMN_BYTES * len(self._columns.names)
            self.choice = self._columns.choice
            self.dtype = self._columns.dtype
            self.text_labels = self._columns.text_labels
            self.n_features = self._width(file, request)
        shape = (self.n_rows, self.n_features)
        what = described(self.choice, shape, self.dtype, sparse=False)
        self.description = f"Parquet: {what}"

    def _open(self, n_columns: int) -> Any:
        size = self.path.stat().st_size
        return self._parquet.ParquetFile(
            self.path,
            buffer_size=max(_BUFFER_BYTES // n_columns, 1 << 14),
            pre_buffer=False,
            # No text and no list of the footer can be longer than the file.
            thrift_string_size_limit=max(size, 1),
            thrift_container_size_limit=max(size, 1),
            page_checksum_verification=True,
        )

    def _width(self, file: Any, request: Request) -> int:
        if self._columns.n_features is not None:
            return self._columns.n_features
        self._check_claimed_width(file, request)
        name = self.choice.features[0]
        for batch in file.iter_batches(batch_size=1, columns=[name], use_threads=False):
            if batch.num_rows:
                width = self._columns.first_width(batch)
                self._columns.check_width(width, request)
                return width
        raise DataFileError(f"{self.path}: is empty: there are no rows in it")

    def _check_claimed_width(self, file: Any, request: Request) -> None:
        """Look at the mean length of the lists before the first one is read."""
        name = str(self.choice.features[0])
        for group, rows in enumerate(self._group_rows):
            metadata = file.metadata.row_group(group)
            for place in range(metadata.num_columns):
                column = metadata.column(place)
                if column.path_in_schema.split(".")[0] == name and rows:
                    self._columns.check_width(column.num_values // rows, request)

    def pieces(self, start_row: int, piece_rows: int, offset: int) -> Iterator[Piece]:
        """Rows from `start_row` on; row groups before it are not read."""
        first_group, row = 0, 0
        while first_group < len(self._group_rows) and (
            row + self._group_rows[first_group] <= start_row
        ):
            row += self._group_rows[first_group]
            first_group += 1
        groups = list(range(first_group, len(self._group_rows)))
        if not groups:
            return
        with reading(self.path, self.format_name), self._open(self._n_leaves()) as file:
            batches = file.iter_batches(
                batch_size=min(piece_rows, self.n_rows),
                row_groups=groups,
                columns=self._columns.names,
            )
            for batch in batches:
                skipped = min(max(0, start_row - row), batch.num_rows)
                row += batch.num_rows
                if skipped < batch.num_rows:
                    kept = batch.slice(skipped)
                    yield self._columns.piece(kept, row - kept.num_rows, self.n_features)

    def _n_leaves(self) -> int:
        return max(1, len(self._columns.names))


def open_parquet(path: Path, request: Request) -> RowFile:
    """Open a Parquet file."""
    check_extra("pyarrow", "parquet", path, ParquetRows.format_name)
    return IsolatedRows(("parquet", "ParquetRows"), path, request)
