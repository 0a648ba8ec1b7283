"""Tables read by pyarrow, with columns of numbers or one column of lists.

Parquet and Arrow files store the types of their columns, CSV, TSV and JSON lines do not.
"""

from __future__ import annotations

import gzip
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from bitclass._warn import warn
from bitclass.io.columns import Request, choose_columns
from bitclass.io.labels import TEXT, common_dtype, infer_dtype, label_dtype
from bitclass.io.source import Batch, DataFileError, Source, listed, open_text, reading

_PIECE_BYTES = 8 << 20
# The largest row of a CSV file. pyarrow reads up to 32 blocks ahead.
_BLOCK_BYTES = 4 << 20


class TableSource(Source):
    """A table of a schema, read in record batches."""

    _named = True  # whether the file has column names
    _advice = ""  # for errors that a missing header explains
    _examples: Mapping[str, str] = {}  # values of text columns, for error messages

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        with reading(path, self.format_name):
            self._schema = self._read_schema(request)
            names = self._schema.names
            duplicates = [name for name, count in Counter(names).items() if count > 1]
            if duplicates:
                raise DataFileError(
                    f"{path}: several columns have the same name: {listed(duplicates)}"
                    + self._advice
                )
            kinds = {field.name: _kind(field.type) for field in self._schema}
            kinds |= {name: f"text, as {text!r:.60}" for name, text in self._examples.items()}
            if not self._named:  # features are matched by position
                request = replace(request, feature_names=None)
            choose_columns(self, kinds, request)
            self._is_list = [kinds[name] for name in self.features] == ["list"]
            self.has_names = self._named and bool(self.features) and not self._is_list
            self.n_rows = self._count_rows()
            if self.n_rows == 0:
                raise DataFileError(f"{path}: has no rows" + self._advice)
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

    def _set_types(self) -> None:
        """Set the types of labels and features, and the number of features."""
        if self.label is not None and self.label_dtype is None:
            kind = self._schema.field(self.label).type
            if _kind(kind) not in ("text", "number"):
                raise DataFileError(
                    f"{self.path}: labels {self.label!r} have type {kind}; "
                    "labels must be integers, booleans or text"
                )
            self.label_dtype = TEXT if _kind(kind) == "text" else label_dtype(_numpy_type(kind))
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


def _kind(kind: Any) -> str:
    """Convert a pyarrow type to the kinds of `choose_columns`."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list" if _kind(kind.value_type) == "number" else str(kind)
    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "number"
    return "text" if str(kind) in ("string", "large_string", "string_view") else str(kind)


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
    """An Arrow IPC file (Feather version 2), memory-mapped."""

    format_name = "Arrow"

    def _read_schema(self, request: Request) -> Any:
        with pa.memory_map(str(self.path)) as mapped:
            return pa.ipc.open_file(mapped).schema

    def _count_rows(self) -> int:
        return sum(batch.num_rows for batch in self._record_batches())

    def _record_batches(self) -> Generator[Any, None, None]:
        places = sorted(self._schema.get_field_index(name) for name in self._wanted)
        options = pa.ipc.IpcReadOptions(included_fields=places)
        with pa.memory_map(str(self.path)) as mapped:
            file = pa.ipc.open_file(mapped, options=options)
            yield from map(file.get_batch, range(file.num_record_batches))


class CsvSource(TableSource):
    """A CSV or TSV file. A first pass counts the rows and finds the type of the labels."""

    format_name = "CSV"

    def _read_schema(self, request: Request) -> Any:
        self._named = request.header
        if request.header:
            self._advice = "; if the first line is data, pass --no-header (header=False)"
        with open_text(self.path) as stream:
            self._is_gzip = isinstance(stream, gzip.GzipFile)
            first = next((line for line in stream if line.strip(b"\xef\xbb\xbf \r\n")), b"")
            while self._is_gzip and stream.read(1 << 20):
                pass  # raises an error if the file is truncated, which pyarrow does not notice
        self._delimiter = max(",;\t", key=first.decode("latin-1").count)
        if re.search(r"\.(tsv|tab)(\.|$)", self.path.name.lower()):
            self._delimiter = "\t"
        with self._reader() as reader:
            schema = reader.schema  # types are inferred from the first block
            head = next(iter(reader), None)
        self._raw_names = schema.names
        names = [
            (raw.strip() or f"Unnamed: column {place}") if self._named else str(place)
            for place, raw in enumerate(schema.names)
        ]
        # A column that is empty in the first block may contain numbers.
        numeric = [
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
            for kind in schema.types
        ]
        if head is not None:
            self._examples = {
                name: next((t for t in map(str, column.to_pylist()) if not _is_number(t)), "")
                for name, column, is_number in zip(names, head, numeric, strict=True)
                if not is_number
            }
        kinds = [pa.float64() if is_number else pa.string() for is_number in numeric]
        return pa.schema(zip(names, kinds, strict=True))

    def _count_rows(self) -> int:
        dtypes, n_rows, is_label = set(), 0, False
        for batch in self._stream({self.label or self._wanted[0]: pa.string()}):
            n_rows += batch.num_rows
            if self.label is not None:
                labels = pa.compute.unique(batch.column(0)).to_pylist()
                dtypes.add(infer_dtype(labels))
                is_label |= self.label in labels
        if self._named and is_label:
            warn(
                f"{self.path}: {self.label!r} is the name of the label column, and also a label"
                f"{self._advice}"
            )
        if dtypes:
            self.label_dtype = common_dtype([*dtypes])
        return n_rows

    def _record_batches(self) -> Generator[Any, None, None]:
        texts = dict.fromkeys(self._wanted, pa.string())
        yield from self._stream(texts | dict.fromkeys(self.features, pa.float64()))

    def _stream(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        """Yield record batches of the columns in `types`."""
        raw_names = dict(zip(self._schema.names, self._raw_names, strict=True))
        raw_types = {raw_names[name]: kind for name, kind in types.items()}
        with self._reader(raw_types) as reader:
            for batch in reader:
                yield batch.rename_columns(list(types))

    @contextmanager
    def _reader(self, types: dict[str, Any] | None = None) -> Iterator[Any]:
        """Open the file for reading in blocks.

        The file is opened by pyarrow, because its reader has a thread that reads ahead, and a
        thread that reads a Python file while the interpreter exits aborts the process.
        """
        read = pa.csv.ReadOptions(
            autogenerate_column_names=not self._named, block_size=_BLOCK_BYTES
        )
        parse = pa.csv.ParseOptions(
            delimiter=self._delimiter,
            # TSV has no quoting: a text may start with a quotation mark.
            quote_char=False if self._delimiter == "\t" else '"',
            newlines_in_values=self._delimiter != "\t",
        )
        convert = pa.csv.ConvertOptions(strings_can_be_null=False)
        if types is not None:
            convert.column_types, convert.include_columns = types, list(types)
        try:
            with pa.OSFile(str(self.path)) as file:
                stream = pa.CompressedInputStream(file, "gzip") if self._is_gzip else file
                with stream, pa.csv.open_csv(stream, read, parse, convert) as reader:
                    yield reader
        except pa.ArrowInvalid as error:
            reason = str(error)
            if "straddling" in reason:
                limit = _BLOCK_BYTES >> 20
                raise DataFileError(f"{self.path}: has a row of more than {limit} MB") from error
            if (place := re.search(r"In CSV column #(\d+)", reason)) and types is not None:
                name = f"in column {self._schema.names[int(place[1])]!r}"
                raise pa.ArrowInvalid(reason.replace(place[0], name)) from error
            raise


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class JsonSource(TableSource):
    """JSON lines, one object per line. Column types are inferred from the first block."""

    format_name = "JSON lines"
    _schema: Any = None

    def _blocks(self) -> Generator[list[bytes], None, None]:
        with open_text(self.path) as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                if lines := [line for line in lines if line.strip()]:
                    yield lines

    def _table(self, lines: Sequence[bytes]) -> Any:
        options = None
        if self._schema is not None:
            options = pa.json.ParseOptions(
                explicit_schema=self._schema, unexpected_field_behavior="ignore"
            )
        block = b"\n".join(lines)
        table = pa.json.read_json(
            pa.BufferReader(block),
            read_options=pa.json.ReadOptions(block_size=len(block) + 1),
            parse_options=options,
        )
        if table.num_rows != len(lines):
            raise DataFileError(f"{self.path}: must contain one JSON object per line")
        return table

    def _read_schema(self, request: Request) -> Any:
        first = next(self._blocks(), None)
        if first is None:
            raise DataFileError(f"{self.path}: is empty")
        # JSON has no dates, but pyarrow parses text such as 2020-01-31 as one.
        return pa.schema(
            field.with_type(pa.string()) if pa.types.is_timestamp(field.type) else field
            for field in self._table(first).schema
        )

    def _count_rows(self) -> int:
        # A feature that is an integer in the first rows may be a float later.
        for name in self.features:
            place = self._schema.get_field_index(name)
            is_list = pa.types.is_list(self._schema.field(place).type)
            kind = pa.list_(pa.float64()) if is_list else pa.float64()
            self._schema = self._schema.set(place, pa.field(name, kind))
        return sum(map(len, self._blocks()))

    def _record_batches(self) -> Generator[Any, None, None]:
        for lines in self._blocks():
            yield from self._table(lines).select(self._wanted).combine_chunks().to_batches()

    def _values(self, name: str, column: Any, row: int) -> NDArray[Any]:
        if pa.types.is_nested(column.type):
            raise DataFileError(f"{self.path}: column {name!r} must contain numbers or text")
        values = super()._values(name, column, row)
        if pa.types.is_floating(column.type):
            # pyarrow reads integers outside int64, and those beside floats, as doubles.
            wrong = np.abs(column.to_numpy(zero_copy_only=False)) >= 1 << 53
            if wrong.any():
                raise DataFileError(
                    f"{self.path}: row {row + int(np.argmax(wrong))} has a number in column "
                    f"{name!r} that would be rounded; write numbers from 2**53 on as text"
                )
        return values
