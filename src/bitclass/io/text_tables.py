"""Text files: CSV and JSON lines read by pyarrow, and files with one label per line."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import lzma
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from bitclass.io.columns import is_label_name
from bitclass.io.errors import DataFileError, reading, require
from bitclass.io.labels import TEXT, common_dtype, infer_dtype
from bitclass.io.source import Batch, Request, Source
from bitclass.io.tables import TableSource

__all__ = ["CsvSource", "JsonSource", "LinesSource", "open_stream"]

_BLOCK_BYTES = 16 << 20
_HEAD_RECORDS = 100
_HEADER_OR_ROW = (
    "the first line may be column names or data; "
    "specify --header or --no-header (header=True or False)"
)
_PLAIN_INTEGER = re.compile(r"-?[0-9]+")


def open_stream(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressed according to its extension."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    stream: IO[bytes] = openers.get(path.suffix.lower(), open)(path, "rb")
    return stream


class CsvSource(TableSource):
    """A CSV or TSV file, possibly compressed. A first pass counts rows and finds the label type."""

    format_name = "CSV"
    seeks = False

    def _read_schema(self, request: Request) -> None:
        pa, reader = self._pa, require("pyarrow.csv", "parquet", self.path, self.format_name)
        self._delimiter, self._blank_lines, records = _head(self.path)
        first = [field.strip() for field in records[0]]
        guessed = request.header is None
        header = _guess_header(self.path, records, request) if guessed else bool(request.header)
        self._named = header
        what = "column names in the first line" if header else "no column names"
        self.notes.append(what + (" (guessed)" if guessed else ""))
        # The null values of pyarrow, so that a column of numbers with missing values is not text.
        missing = set(reader.ConvertOptions().null_values)
        fields, examples = [], {}
        for place, name in enumerate(first):
            values = [row[place].strip() for row in records[header:] if place < len(row)]
            texts = [text for text in values if text not in missing and not _is_numeral(text)]
            if not header:
                name = str(place)
            elif not name:  # an index written by pandas, possibly more than once
                name = f"Unnamed: {place}"
                while name in first:
                    name += ".1"
            fields.append((name, pa.string() if texts else pa.float64()))
            if texts:
                examples[name] = texts[0]
        self._schema, self._examples = pa.schema(fields), examples

    def _part_ends(self) -> list[int]:
        dtypes, n_rows = set(), 0
        for batch in self._stream({self.label or self._wanted[0]: self._pa.string()}):
            n_rows += batch.num_rows
            if self.label is not None and TEXT not in dtypes:
                dtypes.add(infer_dtype(self._pa.compute.unique(batch.column(0)).to_pylist()))
        if dtypes:
            self.label_dtype = common_dtype([*dtypes])
        return [n_rows]

    def _record_batches(self, first_part: int = 0) -> Generator[Any, None, None]:
        texts = dict.fromkeys(self._wanted, self._pa.string())
        yield from self._stream(texts | dict.fromkeys(self.features, self._pa.float64()))

    def _stream(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        """Yield record batches of the columns in `types`."""
        reader = self._pa.csv
        with open_stream(self.path) as stream, self._named_columns():
            yield from reader.open_csv(
                stream,
                reader.ReadOptions(
                    column_names=self._schema.names,
                    skip_rows=self._blank_lines,
                    skip_rows_after_names=int(self._named),
                    block_size=_BLOCK_BYTES,
                ),
                reader.ParseOptions(
                    delimiter=self._delimiter,
                    # TSV has no quoting: a text may start with a quotation mark.
                    quote_char=False if self._delimiter == "\t" else '"',
                    newlines_in_values=self._delimiter != "\t",
                ),
                reader.ConvertOptions(
                    column_types=types, include_columns=list(types), strings_can_be_null=False
                ),
            )

    @contextmanager
    def _named_columns(self) -> Iterator[None]:
        """Replace the column number in pyarrow's error messages by its name."""
        try:
            yield
        except self._pa.ArrowInvalid as error:
            place = re.search(r"In CSV column #(\d+)", str(error))
            if place is None:
                raise
            name = f"in column {self._schema.names[int(place[1])]!r}"
            raise DataFileError(f"{self.path}: {str(error).replace(place[0], name)}") from error


def _head(path: Path) -> tuple[str, int, list[list[str]]]:
    """Delimiter, number of leading blank lines, and first records."""
    with open_stream(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        blank, first = next(((i, line) for i, line in enumerate(text) if line.strip()), (0, ""))
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


def _guess_header(path: Path, records: Sequence[Sequence[str]], request: Request) -> bool:
    """Whether the first record of a CSV file contains column names; an error if ambiguous."""
    first = [field.strip() for field in records[0]]
    numerals = [field for field in first if _is_numeral(field)]
    texts = {place: field for place, field in enumerate(first) if field and field not in numerals}
    plain = all(_PLAIN_INTEGER.fullmatch(numeral) for numeral in numerals)
    values = [int(numeral) for numeral in numerals] if plain else []
    distinct = plain and len(set(values)) == len(values)
    requested = [*request.columns, *([request.labels] if request.labels else [])]
    positions = set(map(str, range(-len(first), len(first))))
    if any(name in first and name not in positions for name in requested):
        return True
    if request.feature_names and set(request.feature_names) <= set(first):
        return True
    columns = itertools.zip_longest(*records[1:], fillvalue="")
    below = ([field for field in column if field] for column in columns)
    if not numerals and any(fields and all(map(_is_numeral, fields)) for fields in below):
        return True  # text above numbers
    for row in records[1:]:
        if any(row[place].strip() == text for place, text in texts.items() if place < len(row)):
            return False  # a class that occurs again below
    has_label = any(is_label_name(text) for text in texts.values())
    if not numerals:
        only_texts = not any(map(_is_numeral, itertools.chain(*records[1:])))
        by_position = bool(requested) and positions.issuperset(requested)
        if only_texts and by_position and not has_label:
            raise DataFileError(f"{path}: {_HEADER_OR_ROW}")
        return True
    if not has_label and not distinct:
        return False
    if has_label and distinct and values == sorted(values):
        return True
    is_count = values in (list(range(len(values))), list(range(1, len(values) + 1)))
    if is_count and not texts and (len(values) > 2 or "" in first):
        return True
    raise DataFileError(f"{path}: {_HEADER_OR_ROW}")


class JsonSource(TableSource):
    """JSON lines, one object per line. Column types are inferred from the first block."""

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

    def _read_schema(self, request: Request) -> None:
        first = next(self._blocks(), None)
        if first is None:
            raise DataFileError(f"{self.path}: is empty")
        schema, types = self._table(first).schema, self._pa.types
        # JSON has no dates, but pyarrow parses text such as 2020-01-31 as one.
        self._schema = self._pa.schema(
            field.with_type(self._pa.string()) if types.is_timestamp(field.type) else field
            for field in schema
        )

    def _part_ends(self) -> list[int]:
        number, types = self._pa.float64(), self._pa.types
        # A feature that is an integer in the first rows may be a float later.
        for name in self.features:
            place = self._schema.get_field_index(name)
            is_list = types.is_list(self._schema.field(place).type)
            kind = self._pa.list_(number) if is_list else number
            self._schema = self._schema.set(place, self._pa.field(name, kind))
        return list(itertools.accumulate(map(len, self._blocks())))

    def _record_batches(self, first_part: int = 0) -> Generator[Any, None, None]:
        for lines in itertools.islice(self._blocks(), first_part, None):
            yield from self._table(lines).select(self._wanted).combine_chunks().to_batches()


class LinesSource(Source):
    """A text file with one label per line, kept in memory."""

    format_name = "text"
    label = "line"

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        if not request.only_labels:
            raise DataFileError(
                f"{path}: contains only labels; set format= if it has another format"
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
        self.label_dtype = infer_dtype(set(lines))

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Yield all labels from `start_row` on."""
        yield Batch(None, self._labels[start_row:], start_row)
