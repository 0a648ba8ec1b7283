"""Tables read by pyarrow, with columns of numbers or one column of lists: Parquet and Arrow."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from bitclass.io.columns import choose_columns, find_column
from bitclass.io.labels import label_dtype
from bitclass.io.source import Batch, DataFileError, Request, Source, listed, reading

__all__ = ["ArrowSource", "ParquetSource", "TableSource"]

_PIECE_BYTES = 8 << 20


class TableSource(Source):
    """A table of a schema, read in record batches."""

    _named = True  # whether the file has column names
    _examples: Mapping[str, str] = {}  # values of text columns, for error messages

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        with reading(path, self.format_name):
            self._schema = self._read_schema(request)
            names = self._schema.names
            duplicates = [name for name, count in Counter(names).items() if count > 1]
            if duplicates:
                raise DataFileError(
                    f"{path}: several columns have the same name: {listed(duplicates)}"
                    + self._advice(request)
                )
            self.columns = [find_column(path, names, wanted) for wanted in request.columns]
            request = replace(request, columns=tuple(self.columns))
            if not self._named:  # features are matched by position
                request = replace(request, feature_names=None)
            kinds = {field.name: self._kind(field.type) for field in self._schema}
            kinds |= {name: f"text, as {text!r:.60}" for name, text in self._examples.items()}
            index = (self._schema.pandas_metadata or {}).get("index_columns", [])
            index = [name for name in index if isinstance(name, str)]
            self.features, self.label, notes = choose_columns(path, kinds, index, request)
            self.notes += notes
            self._is_list = [kinds[name] for name in self.features] == ["list"]
            self.has_names = self._named and bool(self.features) and not self._is_list
            self.n_rows = self._count_rows()
            if self.n_rows == 0:
                raise DataFileError(f"{path}: has no rows" + self._advice(request))
            self._set_types()

    @abstractmethod
    def _read_schema(self, request: Request) -> Any:
        """The schema; sets `_named` if the file has no column names."""

    @abstractmethod
    def _count_rows(self) -> int:
        """The number of rows; sets `label_dtype` if the file does not store types."""

    @abstractmethod
    def _record_batches(self) -> Generator[Any, None, None]:
        """Yield record batches of the wanted columns."""

    def _advice(self, request: Request) -> str:
        """What to add to an error that a missing header explains."""
        return ""

    @property
    def _wanted(self) -> list[str]:
        """The columns to read; at least one, to count the rows."""
        label = [] if self.label is None else [self.label]
        wanted = list(dict.fromkeys([*self.features, *self.columns, *label]))
        return wanted or [self._schema.names[0]]

    def _pieces(self) -> Generator[Any, None, None]:
        """Yield record batches of bounded size."""
        size = self._rows_per_piece()
        with closing(self._record_batches()) as batches:
            for batch in batches:
                batch.validate(full=True)  # a corrupt offset would crash the process
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)

    def _kind(self, kind: Any) -> str:
        """Convert a pyarrow type to the kinds of `choose_columns`."""
        types = pa.types
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
                    "labels must be integers, booleans or text"
                )
            is_text = self._kind(kind) == "text"
            self.label_dtype = label_dtype(np.dtype(np.str_) if is_text else _numpy_type(kind))
        if not self.features:
            return
        kinds = [self._schema.field(name).type for name in self.features]
        self.n_features = len(kinds)
        if self._is_list:
            self.n_features = getattr(kinds[0], "list_size", 0)
            kinds = [kinds[0].value_type]
        if self.n_features == 0:
            with closing(self._pieces()) as pieces:
                self.n_features = len(next(pieces).column(self.features[0])[0].as_py() or ())
        if self.n_features == 0:
            raise DataFileError(f"{self.path}: column {self.features[0]!r} contains empty lists")
        self.dtype = np.result_type(*map(_numpy_type, kinds))

    def _rows_per_piece(self) -> int:
        if self._is_list and self.n_features == 0:
            return 16  # the length of the lists is still unknown
        row_bytes = max(1, self.n_features * self.dtype.itemsize)
        return int(max(1, min(_PIECE_BYTES // row_bytes, 65_536)))

    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the rows, in pieces of any size."""
        row = 0
        with reading(self.path, self.format_name), closing(self._pieces()) as pieces:
            for piece in pieces:
                columns = {
                    name: self._values(name, piece.column(name), row) for name in self.columns
                }
                X, labels = self._read_features(piece, row), self._read_labels(piece, row)
                yield Batch(X, labels, row, columns)
                row += piece.num_rows

    def _values(self, name: str, column: Any, row: int) -> NDArray[Any]:
        """Values of a further column: Python objects if NumPy would convert nulls or times."""
        kind = column.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            # Python's times have microseconds.
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        if column.null_count or pa.types.is_temporal(kind):
            return np.fromiter(column.to_pylist(), dtype=object, count=len(column))
        return np.asarray(column.to_numpy(zero_copy_only=False))

    def _read_features(self, piece: Any, row: int) -> NDArray[Any] | None:
        if not self.features:
            return None
        if self._is_list:
            column = piece.column(self.features[0])
            lengths = pa.compute.list_value_length(column).fill_null(0).to_numpy()
            wrong = lengths != self.n_features
            if wrong.any():
                first = int(np.argmax(wrong))
                raise DataFileError(
                    f"{self.path}: row {row + first} has {lengths[first]} values in column "
                    f"{self.features[0]!r}, but the first row has {self.n_features}"
                )
            values = column.flatten()
            missing = (
                f"has no value in column {self.features[0]!r}; features must be finite numbers"
            )
            self._check_no_nulls(values, row, missing, self.n_features)
            return np.reshape(values.to_numpy(zero_copy_only=False), (-1, self.n_features))
        X = np.empty((piece.num_rows, self.n_features), self.dtype)
        for place, name in enumerate(self.features):
            column = piece.column(name)
            missing = f"has no value in column {name!r}; features must be finite numbers"
            self._check_no_nulls(column, row, missing)
            X[:, place] = column.to_numpy(zero_copy_only=False)
        return X

    def _read_labels(self, piece: Any, row: int) -> NDArray[Any] | None:
        if self.label is None:
            return None
        column = piece.column(self.label)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        self._check_no_nulls(column, row, "has no label")
        values = column.to_numpy(zero_copy_only=False)
        return values.astype(np.str_) if values.dtype.kind == "O" else np.asarray(values)

    def _check_no_nulls(self, values: Any, row: int, missing: str, per_row: int = 1) -> None:
        if values.null_count:
            first = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise DataFileError(f"{self.path}: row {row + first // per_row} {missing}")


def _numpy_type(kind: Any) -> np.dtype[Any]:
    """NumPy type of a numeric pyarrow type, also in a dictionary."""
    dtype: np.dtype[Any] = np.dtype(getattr(kind, "value_type", kind).to_pandas_dtype())
    return dtype


class ParquetSource(TableSource):
    """A Parquet file, read page by page."""

    format_name = "Parquet"

    def _file(self, n_columns: int = 1) -> Any:
        buffer_size = max(_PIECE_BYTES // n_columns, 1 << 14)
        return pa.parquet.ParquetFile(self.path, buffer_size=buffer_size, pre_buffer=False)

    def _read_schema(self, request: Request) -> Any:
        with self._file() as file:
            return file.schema_arrow

    def _count_rows(self) -> int:
        with self._file() as file:
            return int(file.metadata.num_rows)

    def _record_batches(self) -> Generator[Any, None, None]:
        wanted = self._wanted
        with self._file(len(wanted)) as file:
            yield from file.iter_batches(self._rows_per_piece(), columns=wanted)


class ArrowSource(TableSource):
    """An Arrow IPC file or stream (Feather version 2, Hugging Face datasets), memory-mapped."""

    format_name = "Arrow"

    def _read_schema(self, request: Request) -> Any:
        with pa.memory_map(str(self.path)) as mapped:
            return _open_arrow(mapped, pa.ipc.IpcReadOptions())[0]

    def _count_rows(self) -> int:
        return sum(batch.num_rows for batch in self._record_batches())

    def _record_batches(self) -> Generator[Any, None, None]:
        places = sorted(self._schema.get_field_index(name) for name in self._wanted)
        with pa.memory_map(str(self.path)) as mapped:
            yield from _open_arrow(mapped, pa.ipc.IpcReadOptions(included_fields=places))[1]


def _open_arrow(mapped: Any, options: Any) -> tuple[Any, Iterator[Any]]:
    """Schema and record batches of a file or, if it is none, of a stream."""
    try:
        file = pa.ipc.open_file(mapped, options=options)
        return file.schema, map(file.get_batch, range(file.num_record_batches))
    except pa.ArrowInvalid:
        mapped.seek(0)
        stream = pa.ipc.open_stream(mapped, options=options)
        return stream.schema, iter(stream)
