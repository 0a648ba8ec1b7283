"""CSV, Parquet and Arrow files by pyarrow: columns of numbers or one column of lists."""

from __future__ import annotations

import bisect
import csv
import io
import itertools
import re
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.columns import Column, choose_columns, is_label_name
from bitclass.io.errors import DataFileError, reading, require
from bitclass.io.labels import TEXT, LabelRange
from bitclass.io.source import Piece, Request, Source
from bitclass.io.text import open_stream

__all__ = ["ArrowSource", "CsvSource", "ParquetSource"]

_CSV_BLOCK_BYTES = 16 << 20
_HEAD_RECORDS = 100
_PIECE_BYTES = 8 << 20
_PLAIN_INTEGER = re.compile(r"-?[0-9]+")
# The name that pandas gives to a column without one, such as the index in a CSV file.
_UNNAMED = re.compile(r"Unnamed: [0-9.]+")


class TableSource(Source):
    """A file of columns. Subclasses say which there are and give record batches."""

    _schema: Any = None
    _named = True

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        require("pyarrow.compute", "parquet", path, self.format_name)
        with reading(path, self.format_name):
            columns = self._open(request)
            choice = choose_columns(path, columns, request, named=self._named)
            self.features, self.labels = tuple(choice.features), choice.label
            kinds = {column.name: column.kind for column in columns}
            self._is_list = [kinds[name] for name in choice.features] == ["list"]
            self._wanted = [*choice.features, *([choice.label] if choice.label else [])]
            self._count_rows()
            if self.n_rows == 0:
                raise DataFileError(f"{path}: has no rows")
            self._set_types()
        if self._named and not self._is_list and not request.only_labels:
            self.feature_names = self.features
        if choice.by_name:
            choice.notes.append("features matched by name")
        self.details = "; ".join([*self._notes(), *choice.notes])

    @property
    def _pa(self) -> Any:
        # Not an attribute, so that rows can be pickled.
        return require("pyarrow", "parquet", self.path, self.format_name)

    def _notes(self) -> list[str]:
        return []

    @abstractmethod
    def _open(self, request: Request) -> list[Column]:
        """Find the columns and set `_schema`."""

    @abstractmethod
    def _count_rows(self) -> None:
        """Set `n_rows`, and `label_range` if labels are text without a type."""

    @abstractmethod
    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        """Record batches of the wanted columns from a row on."""

    def _set_types(self) -> None:
        types = self._pa.types
        if self.labels is not None and self.label_range is None:
            kind = self._schema.field(self.labels).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if _is_text(kind):
                self.label_dtype = TEXT
            elif _is_number(types, kind):
                self.label_dtype = np.dtype(kind.to_pandas_dtype())
            else:
                raise DataFileError(
                    f"{self.path}: labels {self.labels!r} are of type {kind}; "
                    "labels are integers, floats, booleans or text"
                )
        if not self.features:
            return
        found = [self._schema.field(name).type for name in self.features]
        if self._is_list:
            self.n_features = getattr(found[0], "list_size", -1)
            found = [found[0].value_type]
            if self.n_features < 0:
                with closing(self._batches(0)) as batches:
                    lists = (batch.column(self.features[0]) for batch in batches)
                    first = next((one for one in lists if len(one)), None)
                self.n_features = len(first[0]) if first is not None and first[0].is_valid else 0
        else:
            self.n_features = len(found)
        self.dtype = np.result_type(*(np.dtype(kind.to_pandas_dtype()) for kind in found))
        if self.n_features < 1:
            raise DataFileError(f"{self.path}: column {self.features[0]!r} has empty lists")

    def _piece_rows(self) -> int:
        return int(
            max(1, min(_PIECE_BYTES // max(1, self.n_features * self.dtype.itemsize), 65_536))
        )

    def read(self, start_row: int, first_rows: int, n_rows: int) -> Iterator[Piece]:
        """Rows from `start_row` on, in pieces of any size."""
        row = start_row
        with reading(self.path, self.format_name), closing(self._batches(start_row)) as batches:
            for batch in batches:
                if batch.num_rows:
                    batch.validate(full=True)  # a damaged offset would crash what follows
                    yield self._features(batch, row), self._labels(batch, row)
                    row += batch.num_rows

    def _features(self, batch: Any, row: int) -> Any:
        if not self.features:
            return None
        if self._is_list:
            return self._lists(batch.column(self.features[0]), row)
        X = np.empty((batch.num_rows, self.n_features), self.dtype)
        for place, name in enumerate(self.features):
            X[:, place] = self._numbers(batch.column(name), name, row)
        return X

    def _numbers(self, column: Any, name: str, row: int) -> NDArray[Any]:
        if column.null_count:
            raise DataFileError(
                f"{self.path}: row {row + _first_null(column)} has no value in column {name!r}; "
                "features must be finite numbers"
            )
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values

    def _lists(self, column: Any, row: int) -> NDArray[Any]:
        name = (self.features or ("",))[0]
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

    def _labels(self, batch: Any, row: int) -> NDArray[Any] | None:
        if self.labels is None:
            return None
        column = batch.column(self.labels)
        if self._pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            raise DataFileError(f"{self.path}: row {row + _first_null(column)} has no label")
        values = column.to_numpy(zero_copy_only=False)
        return values.astype(np.str_) if values.dtype.kind == "O" else np.asarray(values)


def _first_null(column: Any) -> int:
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_number(types: Any, kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


class _TypedSource(TableSource):
    """A file whose columns have types."""

    def _columns(self) -> list[Column]:
        """Columns of the schema; pandas writes down which of them are an index."""
        types, schema = self._pa.types, self._schema
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        columns = []
        for field in schema:
            kind = field.type.value_type if types.is_dictionary(field.type) else field.type
            is_list = (
                types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
            )
            is_integer = types.is_integer(kind) and kind == field.type
            columns.append(
                Column(
                    field.name,
                    "integer" if is_integer
                    else "number" if _is_number(types, kind) and kind == field.type
                    else "list" if is_list and _is_number(types, kind.value_type)
                    else "text" if _is_text(kind)
                    else "other",
                    is_index=field.name in index or (
                        is_integer
                        and bool(_UNNAMED.fullmatch(field.name))
                        and schema.names.count(field.name) == 1
                        and self._is_distinct(field.name)
                    ),
                    shown=f"its type is {field.type}",
                )
            )  # fmt: skip
        return columns

    def _is_distinct(self, name: str) -> bool:
        """Whether the first values of a column differ."""
        self._wanted = [name]
        self._count_rows()
        with closing(self._batches(0)) as batches:
            values = next((batch.column(name)[:_HEAD_RECORDS] for batch in batches), None)
        return values is not None and len(values.unique()) == len(values)


class ParquetSource(_TypedSource):
    """A Parquet file, read page by page."""

    format_name = "Parquet"
    seeks = False

    def _file(self) -> Any:
        parquet = require("pyarrow.parquet", "parquet", self.path, self.format_name)
        n_columns = max(1, len(getattr(self, "_wanted", ())))
        return parquet.ParquetFile(
            self.path, buffer_size=max(_PIECE_BYTES // n_columns, 1 << 14), pre_buffer=False
        )

    def _open(self, request: Request) -> list[Column]:
        with self._file() as file:
            self._schema = file.schema_arrow
            metadata = file.metadata
            self._group_rows = [
                metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
            ]
        return self._columns()

    def _count_rows(self) -> None:
        self.n_rows = sum(self._group_rows)

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        ends = list(itertools.accumulate(self._group_rows))
        groups = [group for group, end in enumerate(ends) if end > start_row]
        if not groups:
            return
        skipped = start_row - (ends[groups[0]] - self._group_rows[groups[0]])
        with self._file() as file:
            for batch in file.iter_batches(
                self._piece_rows(), row_groups=groups, columns=self._wanted
            ):
                yield batch.slice(skipped)
                skipped = max(0, skipped - batch.num_rows)


class ArrowSource(_TypedSource):
    """An Arrow IPC file or stream (Feather version 2, Hugging Face datasets), memory-mapped."""

    format_name = "Arrow"

    def _record_batches(
        self, fields: Sequence[str] | None = None, first: int = 0
    ) -> Generator[Any, None, None]:
        """Record batches from number `first` on, with some of the columns."""
        ipc = self._pa.ipc
        options = ipc.IpcReadOptions()
        batches: Iterator[Any]
        if fields is not None:
            places = sorted(self._schema.get_field_index(name) for name in fields)
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

    def _open(self, request: Request) -> list[Column]:
        with closing(self._record_batches()) as batches:
            next(batches, None)
        return self._columns()

    def _count_rows(self) -> None:
        with closing(self._record_batches(self._wanted[-1:])) as batches:
            self._ends = list(itertools.accumulate(batch.num_rows for batch in batches))
        self.n_rows = self._ends[-1] if self._ends else 0

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        size = self._piece_rows()
        first = bisect.bisect_right(self._ends, start_row)
        skipped = start_row - (self._ends[first - 1] if first else 0)
        with closing(self._record_batches(self._wanted, first)) as batches:
            for batch in batches:
                for start in range(skipped, batch.num_rows, size):
                    yield batch.slice(start, size)
                skipped = 0


class CsvSource(TableSource):
    """A CSV or TSV file, perhaps compressed. A first pass counts the rows and sees all labels."""

    format_name = "CSV"
    seeks = False

    def _open(self, request: Request) -> list[Column]:
        require("pyarrow.csv", "parquet", self.path, self.format_name)
        self._delimiter, self._blank_lines, records = _head(self.path)
        header = request.header
        if header is None:
            header = self._guess_header(records, request)
        self._header = self._named = header
        self._guessed = request.header is None
        first = records[0]
        self._names = [name.strip() if header else str(at) for at, name in enumerate(first)]
        rows = records[1:] if header else records
        columns = []
        for place, name in enumerate(self._names):
            values = [row[place].strip() for row in rows if place < len(row)]
            # Unlike any name in the file, as where pandas wrote an index twice.
            unnamed = f"Unnamed: {place}"
            while unnamed in self._names:
                unnamed += ".1"
            columns.append(_csv_column(place, name, unnamed, values))
        self._names = [column.name for column in columns]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._schema = self._pa.schema([(name, self._pa.float64()) for name in self._places])
        return columns

    def _guess_header(self, records: Sequence[Sequence[str]], request: Request) -> bool:
        if isinstance(request.labels, str) and request.labels in records[0]:
            return True
        names = set(request.feature_names or ())
        if names and names <= {field.strip() for field in records[0]}:
            return True
        guessed = guess_header(records)
        if guessed is None:
            raise DataFileError(
                f"{self.path}: the first line may be column names or a row; "
                "say which with --header or --no-header (header=True or False)"
            )
        return guessed

    def _notes(self) -> list[str]:
        what = "column names in the first line" if self._header else "no column names"
        return [what + (" (guessed)" if self._guessed else "")]

    def _count_rows(self) -> None:
        self.n_rows = 0
        self.label_range = LabelRange() if self.labels is not None else None
        place = self._places[self._wanted[-1]]
        compute = self._pa.compute
        with closing(self._stream({place: self._pa.string()})) as batches:
            for batch in batches:
                self.n_rows += batch.num_rows
                if self.label_range is not None:
                    distinct = compute.unique(batch.column(0))
                    self.label_range.add(distinct.to_pylist())

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        number = self._pa.float64()
        types = {self._places[name]: number for name in self.features or ()}
        if self.labels is not None:
            types[self._places[self.labels]] = self._pa.string()
        skipped = start_row
        with closing(self._stream(types)) as batches:
            for batch in batches:
                rows = batch.slice(skipped)
                skipped = max(0, skipped - batch.num_rows)
                yield rows.rename_columns([self._names[place] for place in types])

    def _stream(self, types: dict[int, Any]) -> Generator[Any, None, None]:
        """Record batches of the columns at these places."""
        reader = self._pa.csv
        with open_stream(self.path) as stream:
            try:
                batches = reader.open_csv(
                    stream,
                    read_options=reader.ReadOptions(
                        # By place: pyarrow need not see names that may be odd.
                        column_names=[str(place) for place in range(len(self._names))],
                        skip_rows=self._blank_lines,
                        skip_rows_after_names=int(self._header),
                        block_size=_CSV_BLOCK_BYTES,
                    ),
                    parse_options=reader.ParseOptions(
                        delimiter=self._delimiter, newlines_in_values=True
                    ),
                    convert_options=reader.ConvertOptions(
                        column_types={str(place): kind for place, kind in types.items()},
                        include_columns=[str(place) for place in types],
                        strings_can_be_null=False,
                    ),
                )
                yield from batches
            except self._pa.ArrowInvalid as error:
                raise DataFileError(f"{self.path}: {self._explained(str(error))}") from error

    def _explained(self, message: str) -> str:
        """An error of pyarrow in one line, with the name of the column."""
        place = re.search(r"In CSV column #(\d+)", message)
        if place is not None and int(place[1]) < len(self._names):
            column = f"in column {self._names[int(place[1])]!r}"
            message = message.replace(place[0], column, 1)
        return " ".join(message.split())[:300]


def _head(path: Path) -> tuple[str, int, list[list[str]]]:
    """Delimiter, number of blank lines at the start, and first records."""
    with open_stream(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        blank, first = next(((at, line) for at, line in enumerate(text) if line.strip()), (0, ""))
        if not first:
            raise DataFileError(f"{path}: is empty")
        if re.search(r"\.(tsv|tab)(\.|$)", path.name.lower()):
            delimiter = "\t"
        else:
            delimiter = max(",;\t", key=first.count)
        found = csv.reader(itertools.chain([first], text), delimiter=delimiter)
        return delimiter, blank, list(itertools.islice(filter(None, found), _HEAD_RECORDS))


def _is_numeral(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def guess_header(records: Sequence[Sequence[str]]) -> bool | None:
    """Whether the first record of a CSV file holds column names; None if it may and may not.

    Examples
    --------
    >>> guess_header([["f0", "f1"], ["1", "2"]]), guess_header([["0.5", "2"], ["1", "2"]])
    (True, False)
    >>> guess_header([["species", "1", "2"], ["cat", "0.5", "0.1"]]) is None
    True
    """
    first = [field.strip() for field in records[0]]
    numerals = [field for field in first if _is_numeral(field)]
    if not numerals:
        return True
    texts = {place: field for place, field in enumerate(first) if field and field not in numerals}
    if any(row[place].strip() == text for place, text in texts.items()
           for row in records[1:] if place < len(row)):  # fmt: skip
        return False  # a class that occurs again
    counts = any(
        numerals == [str(number) for number in range(start, start + len(numerals))]
        for start in (0, 1)
    )
    plain = all(_PLAIN_INTEGER.fullmatch(numeral) for numeral in numerals)
    values = [int(numeral) for numeral in numerals] if plain else []
    rising = plain and values == sorted(set(values))
    if any(is_label_name(text) for text in texts.values()):
        return True if rising else None
    if len(numerals) == 1:
        return False
    if not texts and counts and (len(numerals) > 2 or "" in first):
        return True
    # Such as wavelengths, which are names in any order if the values below are no integers.
    distinct = plain and len(set(values)) == len(values)
    return None if rising or (distinct and _has_fractions(records[1:])) else False


def _has_fractions(records: Sequence[Sequence[str]]) -> bool:
    fields = (field.strip() for record in records for field in record)
    return any(_is_numeral(field) and not _PLAIN_INTEGER.fullmatch(field) for field in fields)


#: Missing values as pyarrow reads them, so that a column of numbers with gaps is not text.
_MISSING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
            "1.#QNAN", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"}  # fmt: skip


def _csv_column(place: int, name: str, unnamed: str, values: Sequence[str]) -> Column:
    """The kind of a column by its first values; `unnamed` is its name if it has none."""
    present = [value for value in values if value not in _MISSING]
    text = next((value for value in present if not _is_numeral(value)), None)
    if text is not None:
        return Column(name or unnamed, "text", shown=f"it holds {text!r:.60}")
    integers = bool(present) and all(_PLAIN_INTEGER.fullmatch(value) for value in present)
    # pandas writes the index of a frame as a first column without a name.
    may_be_index = _UNNAMED.fullmatch(name) if name else place == 0
    is_index = bool(may_be_index) and integers and len(set(present)) == len(present)
    if not name and not is_index:
        return Column(unnamed, "other", shown="it has no name")
    return Column(name or unnamed, "integer" if integers else "number", is_index=is_index)
