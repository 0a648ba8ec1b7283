"""Tables in text files: CSV and JSON lines by pyarrow, and files with one label per line."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import lzma
import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from bitclass.io.columns import Column, is_label_name
from bitclass.io.errors import DataFileError, reading, require
from bitclass.io.labels import LabelRange
from bitclass.io.source import Batch, Request, Source
from bitclass.io.tables import UNNAMED, TableSource, TypedSource, is_number

__all__ = ["CsvSource", "JsonSource", "LinesSource", "guess_header", "open_stream"]

_BLOCK_BYTES = 16 << 20
_HEAD_RECORDS = 100
_PLAIN_INTEGER = re.compile(r"-?[0-9]+")
#: Missing values as pyarrow reads them, so that a column of numbers with gaps is not text.
_MISSING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
            "1.#QNAN", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"}  # fmt: skip


def open_stream(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressed according to its extension."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    stream: IO[bytes] = openers.get(path.suffix.lower(), open)(path, "rb")
    return stream


class CsvSource(TableSource):
    """A CSV or TSV file, perhaps compressed. A first pass counts the rows and sees all labels."""

    format_name = "CSV"
    seeks = False

    def _find_columns(self, request: Request) -> list[Column]:
        require("pyarrow.csv", "parquet", self.path, self.format_name)
        self._delimiter, self._blank_lines, records = _head(self.path)
        header, guessed = request.header, ""
        if header is None:
            header, guessed = self._guess_header(records, request), " (guessed)"
        self._named = header
        self.notes.append(
            ("column names in the first line" if header else "no column names") + guessed
        )
        first = [name.strip() if header else str(at) for at, name in enumerate(records[0])]
        columns = []
        for place, name in enumerate(first):
            values = [row[place].strip() for row in records[header:] if place < len(row)]
            # Unlike any name in the file, as where pandas wrote an index twice.
            unnamed = f"Unnamed: {place}"
            while unnamed in first:
                unnamed += ".1"
            columns.append(_csv_column(place, name, unnamed, values))
        self._places = {column.name: place for place, column in enumerate(columns)}
        self._n_columns = len(columns)
        self._schema = self._pa.schema([(name, self._pa.float64()) for name in self._places])
        return columns

    def _guess_header(self, records: Sequence[Sequence[str]], request: Request) -> bool:
        first = {field.strip() for field in records[0]}
        if isinstance(request.labels, str) and request.labels in first:
            return True
        if request.feature_names and set(request.feature_names) <= first:
            return True
        guessed = guess_header(records)
        if guessed is None:
            raise DataFileError(
                f"{self.path}: the first line may be column names or a row; "
                "say which with --header or --no-header (header=True or False)"
            )
        return guessed

    def _count_rows(self) -> None:
        labels, text = LabelRange(), self._pa.string()
        for batch in self._stream({self._wanted[-1]: text}):
            self.n_rows += batch.num_rows
            if self.label is not None:
                labels.add(self._pa.compute.unique(batch.column(0)).to_pylist())
        self.label_type = None if self.label is None else labels

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        number, text = self._pa.float64(), self._pa.string()
        for batch in self._stream(
            {name: number if name in self.features else text for name in self._wanted}
        ):
            yield batch.slice(start_row)
            start_row = max(0, start_row - batch.num_rows)

    def _stream(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        """Record batches of some columns."""
        reader = self._pa.csv
        # By position: pyarrow need not see names that may be odd.
        places = {str(self._places[name]): kind for name, kind in types.items()}
        with open_stream(self.path) as stream:
            try:
                for batch in reader.open_csv(
                    stream,
                    read_options=reader.ReadOptions(
                        column_names=[str(place) for place in range(self._n_columns)],
                        skip_rows=self._blank_lines,
                        skip_rows_after_names=int(self._named),
                        block_size=_BLOCK_BYTES,
                    ),
                    parse_options=reader.ParseOptions(
                        delimiter=self._delimiter,
                        # Tabs need no quotes, and a text in a TSV file may begin with one.
                        quote_char=False if self._delimiter == "\t" else '"',
                        newlines_in_values=self._delimiter != "\t",
                    ),
                    convert_options=reader.ConvertOptions(
                        column_types=places,
                        include_columns=list(places),
                        strings_can_be_null=False,
                    ),
                ):
                    yield batch.rename_columns(list(types))
            except self._pa.ArrowInvalid as error:
                raise DataFileError(f"{self.path}: {self._explained(str(error))}") from error

    def _explained(self, message: str) -> str:
        """An error of pyarrow in one line, with the name of the column."""
        names = list(self._places)
        place = re.search(r"In CSV column #(\d+)", message)
        if place is not None and int(place[1]) < len(names):
            message = message.replace(place[0], f"in column {names[int(place[1])]!r}", 1)
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
        quoting: Any = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        found = csv.reader(itertools.chain([first], text), delimiter=delimiter, quoting=quoting)
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
    plain = all(_PLAIN_INTEGER.fullmatch(numeral) for numeral in numerals)
    values = [int(numeral) for numeral in numerals] if plain else []
    distinct = plain and len(set(values)) == len(values)
    if any(is_label_name(text) for text in texts.values()):
        return True if distinct and values == sorted(values) else None
    if not distinct:
        return False
    counts = values == list(range(values[0], values[0] + len(values))) and values[0] in (0, 1)
    return True if counts and not texts and (len(values) > 2 or "" in first) else None


def _csv_column(place: int, name: str, unnamed: str, values: Sequence[str]) -> Column:
    """The kind of a column by its first values; `unnamed` is its name if it has none."""
    present = [value for value in values if value not in _MISSING]
    text = next((value for value in present if not _is_numeral(value)), None)
    if text is not None:
        return Column(name or unnamed, "text", shown=f"it holds {text!r:.60}")
    integers = bool(present) and all(_PLAIN_INTEGER.fullmatch(value) for value in present)
    # pandas writes the index of a frame as a first column without a name.
    is_index = integers and bool(
        UNNAMED.fullmatch(name) if name else place == 0 and len(set(present)) == len(present)
    )
    if not name and not is_index:
        return Column(unnamed, "other", shown="it has no name")
    return Column(name or unnamed, "integer" if integers else "number", is_index=is_index)


class JsonSource(TypedSource):
    """JSON lines: one object per line. The first block decides the types of the columns."""

    format_name = "JSON lines"
    seeks = False

    def _blocks(self) -> Iterator[list[bytes]]:
        with open_stream(self.path) as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                if lines := [line for line in lines if line.strip()]:
                    yield lines

    def _table(self, lines: Sequence[bytes]) -> Any:
        reader = require("pyarrow.json", "parquet", self.path, self.format_name)
        options = None
        if self._schema is not None:
            options = reader.ParseOptions(
                explicit_schema=self._schema, unexpected_field_behavior="ignore"
            )
        return reader.read_json(
            io.BytesIO(b"\n".join(lines)),
            read_options=reader.ReadOptions(block_size=2 * _BLOCK_BYTES),
            parse_options=options,
        )

    def _read_schema(self) -> None:
        pa = self._pa
        first = next(self._blocks(), None)
        if first is None:
            raise DataFileError(f"{self.path}: is empty")
        schema = self._table(first).schema
        # A feature that is whole in the first rows need not be so in others.
        for place, field in enumerate(schema):
            kind = field.type
            if pa.types.is_list(kind) and is_number(pa.types, kind.value_type):
                schema = schema.set(place, pa.field(field.name, pa.list_(pa.float64())))
        self._schema = schema

    def _count_rows(self) -> None:
        pa = self._pa
        for place, field in enumerate(self._schema):
            if field.name in self.features and not pa.types.is_list(field.type):
                self._schema = self._schema.set(place, pa.field(field.name, pa.float64()))
        self.n_rows = sum(len(lines) for lines in self._blocks())

    def _batches(self, start_row: int) -> Generator[Any, None, None]:
        for lines in self._blocks():
            kept = lines[start_row:]
            start_row = max(0, start_row - len(lines))
            if kept:
                table = self._table(kept)
                yield from table.select(self._wanted).combine_chunks().to_batches()


class LinesSource(Source):
    """Labels, one per line, kept in memory."""

    format_name = "text"
    label = "line"

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        if not request.only_labels:
            raise DataFileError(
                f"{path}: holds labels alone; say format= if it is of another format"
            )
        with reading(path, self.format_name), open_stream(path) as stream:
            lines = stream.read().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
        if lines[-1] == "":
            lines.pop()
        if request.header:
            lines = lines[1:]
        if not lines:
            raise DataFileError(f"{path}: has no rows")
        self._labels = np.array(lines)
        self.n_rows = len(lines)
        self.label_type = LabelRange()
        self.label_type.add(set(lines))

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """All labels from `start_row` on."""
        yield Batch(None, self._labels[start_row:], start_row)
