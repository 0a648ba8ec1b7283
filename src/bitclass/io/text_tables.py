"""Text tables read by pyarrow: CSV, TSV and JSON lines."""

from __future__ import annotations

import gzip
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.json
from numpy.typing import NDArray

from bitclass.io.labels import common_dtype, infer_dtype
from bitclass.io.lines import open_text
from bitclass.io.source import DataFileError, Request
from bitclass.io.tables import TableSource

__all__ = ["CsvSource", "JsonSource"]

# The largest row of a CSV file. pyarrow reads up to 32 blocks ahead.
_BLOCK_BYTES = 4 << 20


class CsvSource(TableSource):
    """A CSV or TSV file. A first pass counts the rows and finds the type of the labels."""

    format_name = "CSV"

    def _read_schema(self, request: Request) -> Any:
        self._named = request.header
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
        names: list[str] = []
        for place, raw in enumerate(schema.names):
            name = raw.strip() if self._named else str(place)
            if not name:  # an index written by pandas, possibly more than once
                name = f"Unnamed: {place}"
                while name in schema.names:
                    name += ".1"
            names.append(name)
        if not self._named:
            self.notes.append("no column names")
        # A column that is empty in the first block may contain numbers.
        numeric = [
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
            for kind in schema.types
        ]
        if head is not None:
            self._examples = {
                name: next(
                    (text for text in map(str, column.to_pylist()) if not _is_number(text)), ""
                )
                for name, column, is_number in zip(names, head, numeric, strict=True)
                if not is_number
            }
        kinds = [pa.float64() if is_number else pa.string() for is_number in numeric]
        return pa.schema(zip(names, kinds, strict=True))

    def _advice(self, request: Request) -> str:
        return "; if the first line is data, pass --no-header (header=False)" * request.header

    def _count_rows(self) -> int:
        dtypes, n_rows = set(), 0
        for batch in self._stream({self.label or self._wanted[0]: pa.string()}):
            n_rows += batch.num_rows
            if self.label is not None:
                dtypes.add(infer_dtype(pa.compute.unique(batch.column(0)).to_pylist()))
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
                raise DataFileError(f"{self.path}: {reason.replace(place[0], name)}") from error
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
