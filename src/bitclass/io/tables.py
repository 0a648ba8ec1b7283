"""Tables by pyarrow: columns of numbers or one column of lists; Parquet and Arrow files."""

from __future__ import annotations

import bisect
import itertools
import re
from abc import abstractmethod
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.columns import Column, choose_columns
from bitclass.io.errors import DataFileError, reading, require
from bitclass.io.labels import TEXT
from bitclass.io.source import Batch, Request, Source

__all__ = ["ArrowSource", "ParquetSource", "TableSource", "TypedSource"]

_PIECE_BYTES = 8 << 20
# The name that pandas gives to a column without one, such as the index in a CSV file.
UNNAMED = re.compile(r"Unnamed: [0-9.]+")


class TableSource(Source):
    """A file of columns. Subclasses say which there are and give record batches."""

    _schema: Any = None
    _named = True

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        require("pyarrow.compute", "parquet", path, self.format_name)
        with reading(path, self.format_name):
            columns = self._find_columns(request)
            choice = choose_columns(path, columns, request, named=self._named)
            self.features, self.label = tuple(choice.features), choice.label
            self._columns = choice.columns
            kinds = {column.name: column.kind for column in columns}
            self._is_list = [kinds[name] for name in self.features] == ["list"]
            self.has_names = self._named and bool(self.features) and not self._is_list
            self.notes += choice.notes
            self._count_rows()
            if self.n_rows == 0:
                raise DataFileError(f"{path}: has no rows")
            self._set_label_type()
            if self.features:
                self._set_feature_type()

    @property
    def _pa(self) -> Any:
        # Not an attribute, so that rows can be pickled.
        return require("pyarrow", "parquet", self.path, self.format_name)

    @property
    def _wanted(self) -> list[str]:
        """The columns that are read; at least one, by which the rows are counted."""
        label = [] if self.label is None else [self.label]
        wanted = list(dict.fromkeys([*self.features, *self._columns, *label]))
        return wanted or [self._schema.names[0]]

    @abstractmethod
    def _find_columns(self, request: Request) -> list[Column]:
        """Find the columns and set `_schema`."""

    @abstractmethod
    def _count_rows(self) -> None:
        """Set `n_rows`, and `label_type` if labels are text without a type."""

    @abstractmethod
    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        """Record batches of the wanted columns from a row on."""

    def _set_label_type(self) -> None:
        if self.label is None or self.label_type is not None:
            return
        types, kind = self._pa.types, self._schema.field(self.label).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if is_text(kind):
            self.label_type = TEXT
        elif is_number(types, kind):
            self.label_type = np.dtype(kind.to_pandas_dtype())
        else:
            raise DataFileError(
                f"{self.path}: labels {self.label!r} are of type {kind}; "
                "labels are integers, floats, booleans or text"
            )

    def _set_feature_type(self) -> None:
        found = [self._schema.field(name).type for name in self.features]
        self.n_features = len(found)
        if self._is_list:
            self.n_features = getattr(found[0], "list_size", -1)
            found = [found[0].value_type]
            if self.n_features < 0:
                lists = (batch.column(self.features[0]) for batch in self._batches(0))
                first = next((one for one in lists if len(one)), None)
                self.n_features = len(first[0]) if first is not None and first[0].is_valid else 0
        self.dtype = np.result_type(*(np.dtype(kind.to_pandas_dtype()) for kind in found))
        if self.n_features < 1:
            raise DataFileError(f"{self.path}: column {self.features[0]!r} has empty lists")

    def _piece_rows(self) -> int:
        row_bytes = max(1, self.n_features * self.dtype.itemsize)
        return int(max(1, min(_PIECE_BYTES // row_bytes, 65_536)))

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Rows from `start_row` on, in pieces of any size."""
        row = start_row
        with reading(self.path, self.format_name):
            for batch in self._batches(start_row):
                if batch.num_rows:
                    batch.validate(full=True)  # a damaged offset would crash what follows
                    columns = {
                        name: batch.column(name).to_numpy(zero_copy_only=False)
                        for name in self._columns
                    }
                    X, labels = self._read_features(batch, row), self._read_labels(batch, row)
                    yield Batch(X, labels, row, columns)
                    row += batch.num_rows

    def _read_features(self, batch: Any, row: int) -> Any:
        if not self.features:
            return None
        if self._is_list:
            return self._read_lists(batch.column(self.features[0]), row)
        X = np.empty((batch.num_rows, self.n_features), self.dtype)
        for place, name in enumerate(self.features):
            column = batch.column(name)
            if column.null_count:
                raise DataFileError(
                    f"{self.path}: row {row + _first_null(column)} has no value in column "
                    f"{name!r}; features must be finite numbers"
                )
            X[:, place] = column.to_numpy(zero_copy_only=False)
        return X

    def _read_lists(self, column: Any, row: int) -> NDArray[Any]:
        name = self.features[0]
        lengths = self._pa.compute.list_value_length(column).fill_null(0).to_numpy()
        wrong = lengths != self.n_features
        if wrong.any():
            first = int(np.argmax(wrong))
            raise DataFileError(
                f"{self.path}: row {row + first} has {lengths[first]} values in column {name!r}, "
                f"the first row has {self.n_features}"
            )
        values = column.flatten()
        if values.null_count:
            missing = row + _first_null(values) // self.n_features
            raise DataFileError(
                f"{self.path}: row {missing} has a list with a missing value in column {name!r}; "
                "features must be finite numbers"
            )
        X: NDArray[Any] = values.to_numpy(zero_copy_only=False).reshape(-1, self.n_features)
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


def _first_null(column: Any) -> int:
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))


def is_text(kind: Any) -> bool:
    """Whether a type of pyarrow is text."""
    return str(kind) in ("string", "large_string", "string_view")


def is_number(types: Any, kind: Any) -> bool:
    """Whether a type of pyarrow is a number or boolean."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


class TypedSource(TableSource):
    """A file whose columns have types."""

    def _find_columns(self, request: Request) -> list[Column]:
        """Columns of the schema; pandas writes down which of them are an index."""
        self._read_schema()
        index = (self._schema.pandas_metadata or {}).get("index_columns", [])
        return [self._column(field, field.name in index) for field in self._schema]

    @abstractmethod
    def _read_schema(self) -> None:
        """Set `_schema`."""

    def _column(self, field: Any, is_index: bool) -> Column:
        types, kind = self._pa.types, field.type
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        shown = f"its type is {kind}"
        if types.is_integer(kind):
            is_index = is_index or bool(UNNAMED.fullmatch(field.name))
            return Column(field.name, "integer", is_index, shown)
        if is_number(types, kind):
            return Column(field.name, "number", is_index, shown)
        if is_list and is_number(types, kind.value_type):
            return Column(field.name, "list", is_index, shown)
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return Column(field.name, "text" if is_text(kind) else "other", is_index, shown)


class ParquetSource(TypedSource):
    """A Parquet file, read page by page."""

    format_name = "Parquet"
    seeks = False

    def _file(self, n_columns: int = 1) -> Any:
        parquet = require("pyarrow.parquet", "parquet", self.path, self.format_name)
        return parquet.ParquetFile(
            self.path, buffer_size=max(_PIECE_BYTES // n_columns, 1 << 14), pre_buffer=False
        )

    def _read_schema(self) -> None:
        with self._file() as file:
            self._schema = file.schema_arrow
            metadata = file.metadata
            self._group_rows = [
                metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
            ]

    def _count_rows(self) -> None:
        self.n_rows = sum(self._group_rows)

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        ends, wanted = list(itertools.accumulate(self._group_rows)), self._wanted
        groups = [group for group, end in enumerate(ends) if end > start_row]
        if not groups:
            return
        skipped = start_row - (ends[groups[0]] - self._group_rows[groups[0]])
        with self._file(len(wanted)) as file:
            for batch in file.iter_batches(self._piece_rows(), row_groups=groups, columns=wanted):
                yield batch.slice(skipped)
                skipped = max(0, skipped - batch.num_rows)


class ArrowSource(TypedSource):
    """An Arrow IPC file or stream (Feather version 2, Hugging Face datasets), memory-mapped."""

    format_name = "Arrow"

    def _record_batches(self, first: int = 0) -> Generator[Any, None, None]:
        """Record batches from number `first` on; of the wanted columns once the schema is known."""
        ipc = self._pa.ipc
        options = ipc.IpcReadOptions()
        batches: Iterator[Any]
        if self._schema is not None:
            places = sorted(self._schema.get_field_index(name) for name in self._wanted)
            options = ipc.IpcReadOptions(included_fields=places)
        with self._pa.memory_map(str(self.path)) as mapped:
            try:
                file = ipc.open_file(mapped, options=options)
                batches = (file.get_batch(at) for at in range(first, file.num_record_batches))
            except self._pa.ArrowInvalid:
                mapped.seek(0)
                file = ipc.open_stream(mapped, options=options)
                batches = itertools.islice(file, first, None)
            self._schema = self._schema or file.schema
            yield from batches

    def _read_schema(self) -> None:
        next(self._record_batches(), None)

    def _count_rows(self) -> None:
        self._ends = list(itertools.accumulate(b.num_rows for b in self._record_batches()))
        self.n_rows = self._ends[-1] if self._ends else 0

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        size = self._piece_rows()
        first = bisect.bisect_right(self._ends, start_row)
        skipped = start_row - (self._ends[first - 1] if first else 0)
        for batch in self._record_batches(first):
            for start in range(skipped, batch.num_rows, size):
                yield batch.slice(start, size)
            skipped = 0
