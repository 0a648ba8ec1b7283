"""CSV and TSV files: numbers in columns, and perhaps labels in one of them.

What a row means is what Python's csv module and `float` make of it; an empty field is NaN. Where
pyarrow is installed, it parses the same blocks many times faster, and what it refuses goes the slow
way, so that results and errors are the same with and without it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data import text
from bitclass.data.errors import DataFileError, reading
from bitclass.data.labels import LabelParser, label_kind, widest
from bitclass.data.limits import check_width
from bitclass.data.names import choose_columns, find_column, guess_label
from bitclass.data.rowfile import Choice, Piece, Request, RowFile, described
from bitclass.data.text import TextRows, blocks

__all__ = ["CsvRows", "LineLabels", "open_csv", "open_lines"]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_header(fields: Sequence[str]) -> bool:
    """Whether the first record names the columns: no field is a number, or they are 0, 1, 2..."""
    numbers = [field for field in fields if _is_number(field)]
    if not numbers:
        return any(field.strip() for field in fields)
    return len(numbers) > 1 and numbers == [str(place) for place in range(len(numbers))]


class CsvRows(TextRows):
    """One CSV or TSV file. The kind of the labels is set once all files were scanned."""

    quoted = True
    format_name = "CSV"
    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, request: Request, first: CsvRows | None) -> None:
        super().__init__(path)
        self.label_kinds = {"integer"}
        with reading(path, self.format_name):
            start = self._read_head(request, first)
            with closing(blocks(path, start, quoted=True)) as found:
                for offset, block in found:
                    self._scan(offset, block)
            self.check_not_empty()
            check_width(path, self.n_features, request.n_features)

    def _read_head(self, request: Request, first: CsvRows | None) -> int:
        """Find delimiter, header and columns; return where the rows begin."""
        with closing(blocks(self.path, quoted=True)) as found:
            offset, block = next(found, (0, b""))
        if not block.strip():
            raise DataFileError(f"{self.path}: is empty: there are no rows in it")
        line = block.lstrip(b"\r\n").split(b"\n", 1)[0]
        plain_name = self.path.name.removesuffix(".gz").lower()
        delimiters = b"\t" if plain_name.endswith((".tsv", ".tab")) else b",;\t"
        self._delimiter = next((chr(d) for d in delimiters if d in line), chr(delimiters[0]))
        lines = _Lines(block)
        fields = next((fields for fields in self._records(lines) if fields), [])
        has_header = request.header if request.header is not None else _is_header(fields)
        names = [field.strip() if has_header else str(at) for at, field in enumerate(fields)]
        if first is not None and names != first._names:
            # The same columns in another order, perhaps, but they must be there.
            label = first.choice.labels
            request = replace(
                request,
                features=first.choice.features or None,
                labels=False if label is None else label,
            )
        self._set_columns(names, request)
        return offset + lines.n_bytes if has_header else offset

    def _set_columns(self, names: Sequence[str], request: Request) -> None:
        self._n_columns = len(names)
        self._places: list[int]
        label: str | None = None
        if request.labels is not None and request.labels is not False:
            label = find_column(self.path, names, request.labels)
        elif request.labels is None:
            label = guess_label(names)
            if label is None and request.only_labels:
                if len(names) > 1:
                    find_column(self.path, names, "label")
                label = names[0]
        self._label_place = None if label is None else names.index(label)
        if request.only_labels:
            self._places = []
        elif request.features is not None:
            chosen = choose_columns(self.path, names, request.features)
            self._places = [names.index(name) for name in chosen]
        else:
            self._places = [at for at in range(len(names)) if at != self._label_place]
        if not self._places and not request.only_labels:
            raise DataFileError(f"{self.path}: has no columns beside the label {label!r}")
        self.choice = Choice(tuple(names[at] for at in self._places), label)
        self.n_features = len(self._places)
        self._names = names

    def _records(self, lines: Iterator[str]) -> Iterator[list[str]]:
        return csv.reader(lines, delimiter=self._delimiter)

    def _rows(self, block: bytes, first_row: int) -> Iterator[list[str]]:
        """All records of a block, each with as many fields as there are columns."""
        row = first_row
        for fields in self._records(_Lines(block)):
            if not fields:
                continue
            if len(fields) != self._n_columns:
                raise DataFileError(
                    f"{self.path}: row {row} of this file has {len(fields)} columns, the first one "
                    f"{self._n_columns}"
                )
            yield fields
            row += 1

    def _scan(self, offset: int, block: bytes) -> None:
        """Count the rows and learn of what kind the labels are."""
        at = self._label_place
        if b'"' in block or b"\r" in block.replace(b"\r\n", b"\n"):
            labels = [fields[at or 0] for fields in self._rows(block, self.n_rows)]
        else:
            lines = [line for line in block.replace(b"\r\n", b"\n").split(b"\n") if line]
            labels = list(self._plain_labels(lines)) if at is not None else [""] * len(lines)
        if at is not None:
            self.label_kinds.add(label_kind({label.strip() for label in labels}))
        self.note(offset, len(labels))

    def _plain_labels(self, lines: Sequence[bytes]) -> Iterator[str]:
        """Labels of lines without quotes, cut out from the nearer end."""
        delimiter = self._delimiter.encode()
        at = self._label_place or 0
        after = self._n_columns - 1 - at
        for row, line in enumerate(lines, self.n_rows):
            if at <= after:
                parts = line.split(delimiter, at + 1)
                found = parts[at] if len(parts) > at else None
            else:
                parts = line.rsplit(delimiter, after + 1)
                found = parts[-1 - after] if len(parts) > after else None
            if found is None:
                raise DataFileError(
                    f"{self.path}: row {row} of this file has {line.count(delimiter) + 1} columns, "
                    f"the first one {self._n_columns}"
                )
            yield found.decode("utf-8", "replace")

    def settle(self, kind: str) -> None:
        """Set what follows from all files together."""
        has_labels = self.choice.labels is not None
        self._parse_labels = LabelParser(self.path, kind)
        self.text_labels = kind == "text" if has_labels else None
        shape = (self.n_rows, self.n_features)
        self.description = f"CSV: {described(self.choice, shape, self.dtype, False)}"

    def parse(self, block: bytes, first_row: int) -> Piece:
        """All rows of a block."""
        if text.arrow_csv() is not None:
            piece = self._parse_fast(block, first_row)
            if piece is not None:
                return piece
        rows = list(self._rows(block, first_row))
        X = labels = None
        if self._places:
            X = np.empty((len(rows), self.n_features))
            for at, fields in enumerate(rows):
                X[at] = self._numbers(fields, first_row + at)
        if self._label_place is not None:
            labels = self._labels([fields[self._label_place] for fields in rows], first_row)
        return Piece(X, labels)

    def _numbers(self, fields: Sequence[str], row: int) -> list[float]:
        try:
            return [float(fields[at] or "nan") for at in self._places]
        except ValueError:
            at = next(at for at in self._places if fields[at] and not _is_number(fields[at]))
            raise DataFileError(
                f"{self.path}: row {row} of this file has {fields[at]!r:.60} in the column "
                f"{self._names[at]!r}, which is not a number; "
                "name the columns of the features, or of the labels"
            ) from None

    def _labels(self, labels: Sequence[str], first_row: int) -> NDArray[Any]:
        return self._parse_labels([label.strip() for label in labels], first_row)

    def _parse_fast(self, block: bytes, first_row: int) -> Piece | None:
        """The same by pyarrow; None where it finds anything out of order."""
        arrow_csv, pyarrow = text.arrow_csv()
        names = [str(at) for at in range(self._n_columns)]
        types = {str(at): pyarrow.float64() for at in self._places}
        if self._label_place is not None:
            types[str(self._label_place)] = pyarrow.string()
        try:
            table = arrow_csv.read_csv(
                pyarrow.BufferReader(block),
                read_options=arrow_csv.ReadOptions(column_names=names),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=b'"' in block
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=list(types), column_types=types, null_values=[""]
                ),
            )
        except pyarrow.ArrowException:
            return None
        X = labels = None
        if self._places:
            X = np.empty((table.num_rows, self.n_features))
            for j, at in enumerate(self._places):
                X[:, j] = table.column(str(at)).to_numpy()
        if self._label_place is not None:
            labels = self._labels(table.column(str(self._label_place)).to_pylist(), first_row)
        return Piece(X, labels)


class _Lines:
    """Lines of a block for the csv module, counting the bytes that it took."""

    def __init__(self, block: bytes) -> None:
        self._stream = io.BytesIO(block)
        self.n_bytes = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline()
        if not line:
            raise StopIteration
        self.n_bytes += len(line)
        return line.decode()


class LineLabels(TextRows):
    """A text file with one label a line."""

    format_name = "text"
    dtype = np.dtype(np.float64)
    n_features = 0
    choice = Choice((), "line")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.label_kinds = {"integer"}
        with reading(path, self.format_name):
            for offset, block in blocks(path):
                labels = self._lines(block)
                self.label_kinds.add(label_kind(set(labels)))
                self.note(offset, len(labels))
            self.check_not_empty()

    @staticmethod
    def _lines(block: bytes) -> list[str]:
        lines = block.decode().split("\n")
        if block.endswith(b"\n"):
            lines.pop()
        return [line.strip() for line in lines]

    def settle(self, kind: str) -> None:
        """Set what follows from all files together."""
        self._parse_labels = LabelParser(self.path, kind)
        self.text_labels = kind == "text"
        self.description = f"text: {self.n_rows} labels, one a line"

    def parse(self, block: bytes, first_row: int) -> Piece:
        """All labels of a block."""
        return Piece(None, self._parse_labels(self._lines(block), first_row))


def open_csv(paths: Sequence[Path], request: Request) -> list[RowFile]:
    """Open CSV files, whose labels are all of one kind."""
    files: list[CsvRows] = []
    for path in paths:
        files.append(CsvRows(path, request, files[0] if files else None))
    kind = widest(kind for file in files for kind in file.label_kinds)
    for file in files:
        file.settle(kind)
    return list(files)


def open_lines(paths: Sequence[Path], request: Request) -> list[RowFile]:
    """Open label files with one label a line."""
    files = [LineLabels(path) for path in paths]
    kind = widest(kind for file in files for kind in file.label_kinds)
    for file in files:
        file.settle(kind)
    return list(files)
