"""Tables read by pyarrow, with columns of numbers or one column of lists: Parquet and Arrow."""

from __future__ import annotations

import bisect
import itertools
from abc import abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.columns import choose_columns, find_column
from bitclass.io.errors import DataFileError, listed, reading, require
from bitclass.io.labels import TEXT
from bitclass.io.source import Batch, Request, Source

__all__ = ["ArrowSource", "ParquetSource", "TableSource"]

_PIECE_BYTES = 8 << 20


class TableSource(Source):
    """A table, divided into parts; reading can start at any part."""

    _schema: Any = None
    _named = True  # whether the file has column names
    _examples: Mapping[str, str] = {}  # values of text columns, for error messages

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        require("pyarrow.compute", "parquet", path, self.format_name)
        with reading(path, self.format_name):
            self._read_schema(request)
            names = self._schema.names
            duplicates = [name for name, count in Counter(names).items() if count > 1]
            if duplicates:
                raise DataFileError(
                    f"{path}: several columns have the same name: {listed(duplicates)}"
                )
            self._columns = [find_column(path, names, wanted) for wanted in request.columns]
            request = replace(request, columns=tuple(self._columns))
            kinds = {field.name: self._kind(field.type) for field in self._schema}
            index = (self._schema.pandas_metadata or {}).get("index_columns", [])
            index = [name for name in index if isinstance(name, str)]
            chosen = choose_columns(path, kinds, index, request, self._named, self._examples)
            self.features, self.label, notes = chosen
            self.notes += notes
            self._is_list = [kinds[name] for name in self.features] == ["list"]
            self.has_names = self._named and bool(self.features) and not self._is_list
            self._ends = self._part_ends()
            self.n_rows = self._ends[-1] if self._ends else 0
            if self.n_rows == 0:
                raise DataFileError(f"{path}: has no rows")
            self._set_types()

    @property
    def _pa(self) -> Any:
        # Not an attribute, so that rows can be pickled.
        return require("pyarrow", "parquet", self.path, self.format_name)

    @property
    def _wanted(self) -> list[str]:
        """The columns to read; at least one, to count the rows."""
        label = [] if self.label is None else [self.label]
        wanted = list(dict.fromkeys([*self.features, *self._columns, *label]))
        return wanted or [self._schema.names[0]]

    @abstractmethod
    def _read_schema(self, request: Request) -> None:
        """Set `_schema`, and `_named` if the file has no column names."""

    @abstractmethod
    def _part_ends(self) -> list[int]:
        """End row of each part; sets `label_dtype` if the file does not store types."""

    @abstractmethod
    def _record_batches(self, first_part: int = 0) -> Generator[Any, None, None]:
        """Yield record batches of the wanted columns, starting at a part."""

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        """Yield record batches of bounded size, starting at a row."""
        part = bisect.bisect_right(self._ends, start_row)
        skipped = start_row - (self._ends[part - 1] if part else 0)
        size = self._rows_per_piece()
        for batch in self._record_batches(part):
            for start in range(skipped, batch.num_rows, size):
                yield batch.slice(start, size)
            skipped = max(0, skipped - batch.num_rows)

    def _kind(self, kind: Any) -> str:
        """Convert a pyarrow type to the kinds of `choose_columns`."""
        types = self._pa.types
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return "list" if self._kind(kind.value_type) == "number" else str(kind)
        if types.is_dictionary(kind):
            return self._kind(kind.value_type)
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            return "number"
        is_text = str(kind) in ("string", "large_string", "string_view")
        return "text" if is_text else str(kind)

    def _set_types(self) -> None:
        """Set the types of labels and features, and the number of features."""
        if self.label is not None and self.label_dtype is None:
            kind = self._schema.field(self.label).type
            if self._kind(kind) not in ("text", "number"):
                raise DataFileError(
                    f"{self.path}: labels {self.label!r} have type {kind}; "
                    "labels must be integers, floats, booleans or text"
                )
            self.label_dtype = TEXT if self._kind(kind) == "text" else _numpy_type(kind)
        if not self.features:
            return
        kinds = [self._schema.field(name).type for name in self.features]
        self.n_features = len(kinds)
        if self._is_list:
            self.n_features = getattr(kinds[0], "list_size", 0)
            kinds = [kinds[0].value_type]
        if self.n_features == 0:
            batch = next(self._batches(0))
            batch.validate(full=True)  # as in `read`
            self.n_features = len(batch.column(self.features[0])[0].as_py() or ())
        if self.n_features == 0:
            raise DataFileError(f"{self.path}: column {self.features[0]!r} contains empty lists")
        self.dtype = np.result_type(*map(_numpy_type, kinds))

    def _rows_per_piece(self) -> int:
        if self._is_list and self.n_features == 0:
            return 16  # the length of the lists is still unknown
        row_bytes = max(1, self.n_features * self.dtype.itemsize)
        return int(max(1, min(_PIECE_BYTES // row_bytes, 65_536)))

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Yield rows from `start_row` on, in pieces of any size."""
        row = start_row
        with reading(self.path, self.format_name):
            for batch in self._batches(start_row):
                batch.validate(full=True)  # a corrupt offset would crash the process
                columns = {name: self._values(batch.column(name)) for name in self._columns}
                X, labels = self._read_features(batch, row), self._read_labels(batch, row)
                yield Batch(X, labels, row, columns)
                row += batch.num_rows

    def _values(self, column: Any) -> NDArray[Any]:
        """Values of an additional column: Python objects if NumPy would convert nulls or times."""
        kind = column.type
        if self._pa.types.is_timestamp(kind) and kind.unit == "ns":
            # Python's times have microseconds.
            column = column.cast(self._pa.timestamp("us", kind.tz), safe=False)
        if column.null_count or self._pa.types.is_temporal(kind):
            return np.fromiter(column.to_pylist(), dtype=object, count=len(column))
        return np.asarray(column.to_numpy(zero_copy_only=False))

    def _read_features(self, batch: Any, row: int) -> NDArray[Any] | None:
        if not self.features:
            return None
        if self._is_list:
            column = batch.column(self.features[0])
            lengths = self._pa.compute.list_value_length(column).fill_null(0).to_numpy()
            wrong = lengths != self.n_features
            if wrong.any():
                first = int(np.argmax(wrong))
                raise DataFileError(
                    f"{self.path}: row {row + first} has {lengths[first]} values in column "
                    f"{self.features[0]!r}, but the first row has {self.n_features}"
                )
            values = column.flatten()
            self._check_no_nulls(values, row, self.features[0], self.n_features)
            return np.reshape(values.to_numpy(zero_copy_only=False), (-1, self.n_features))
        X = np.empty((batch.num_rows, self.n_features), self.dtype)
        for place, name in enumerate(self.features):
            column = batch.column(name)
            self._check_no_nulls(column, row, name)
            X[:, place] = column.to_numpy(zero_copy_only=False)
        return X

    def _read_labels(self, batch: Any, row: int) -> NDArray[Any] | None:
        if self.label is None:
            return None
        column = batch.column(self.label)
        if self._pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            raise DataFileError(f"{self.path}: row {row + _first_null(column)} has no label")
        values = column.to_numpy(zero_copy_only=False)
        return values.astype(np.str_) if values.dtype.kind == "O" else np.asarray(values)

    def _check_no_nulls(self, values: Any, row: int, name: str, values_per_row: int = 1) -> None:
        if values.null_count:
            raise DataFileError(
                f"{self.path}: row {row + _first_null(values) // values_per_row} has no value in "
                f"column {name!r}; features must be finite numbers"
            )


def _first_null(column: Any) -> int:
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))


def _numpy_type(kind: Any) -> np.dtype[Any]:
    """NumPy type of a numeric pyarrow type, also in a dictionary."""
    dtype: np.dtype[Any] = np.dtype(getattr(kind, "value_type", kind).to_pandas_dtype())
    return dtype


class ParquetSource(TableSource):
    """A Parquet file, read page by page."""

    format_name = "Parquet"
    seeks = False

    def _file(self, n_columns: int = 1) -> Any:
        parquet = require("pyarrow.parquet", "parquet", self.path, self.format_name)
        return parquet.ParquetFile(
            self.path, buffer_size=max(_PIECE_BYTES // n_columns, 1 << 14), pre_buffer=False
        )

    def _read_schema(self, request: Request) -> None:
        with self._file() as file:
            self._schema = file.schema_arrow

    def _part_ends(self) -> list[int]:
        with self._file() as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            return list(itertools.accumulate(group.num_rows for group in groups))

    def _record_batches(self, first_part: int = 0) -> Generator[Any, None, None]:
        groups, wanted = range(first_part, len(self._ends)), self._wanted
        with self._file(len(wanted)) as file:
            yield from file.iter_batches(self._rows_per_piece(), list(groups), wanted)


class ArrowSource(TableSource):
    """An Arrow IPC file or stream (Feather version 2, Hugging Face datasets), memory-mapped."""

    format_name = "Arrow"

    def _read_schema(self, request: Request) -> None:
        next(self._record_batches(), None)

    def _part_ends(self) -> list[int]:
        return list(itertools.accumulate(batch.num_rows for batch in self._record_batches()))

    def _record_batches(self, first_part: int = 0) -> Generator[Any, None, None]:
        ipc = self._pa.ipc
        options = ipc.IpcReadOptions()
        batches: Iterator[Any]
        if self._schema is not None:
            places = sorted(self._schema.get_field_index(name) for name in self._wanted)
            options = ipc.IpcReadOptions(included_fields=places)
        with self._pa.memory_map(str(self.path)) as mapped:
            try:
                file = ipc.open_file(mapped, options=options)
                batches = map(file.get_batch, range(first_part, file.num_record_batches))
            except self._pa.ArrowInvalid:
                mapped.seek(0)
                file = ipc.open_stream(mapped, options=options)
                batches = itertools.islice(file, first_part, None)
            self._schema = self._schema or file.schema
            yield from batches
