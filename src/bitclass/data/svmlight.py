"""LibSVM / SVMlight text: a label, then ``index:value`` pairs with rising indices, a row a line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data import text
from bitclass.data.errors import DataFileError, reading
from bitclass.data.labels import LabelParser, label_kind, widest
from bitclass.data.limits import check_width
from bitclass.data.rowfile import Choice, Piece, Request, RowFile
from bitclass.data.text import TextRows, blocks

__all__ = ["SvmlightRows", "open_svmlight"]

# Possessive, so that a long line costs no memory for ways back.
_PAIRS = re.compile(rb"(?:[0-9]{1,15}:[^\s:]++\s*+)*+")
_QUERY = re.compile(rb"^\s*qid:\S+")


class SvmlightRows(TextRows):
    """One file. The number of features and the first index are set once all files were scanned."""

    format_name = "SVMlight"
    is_sparse = True
    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, with_labels: bool) -> None:
        super().__init__(path)
        self.lowest_index: int | None = None
        self.highest_index = -1
        self.label_kinds = {"integer"}
        self._with_labels = with_labels
        self._first_index = 1
        with reading(path, self.format_name), closing(blocks(path)) as found:
            for offset, block in found:
                self._scan(offset, block)
            self.check_not_empty()

    def _scan(self, offset: int, block: bytes) -> None:
        """Count the rows; the first and the last index of a line bound all of it."""
        labels = set()
        n_rows = 0
        for n_rows, (label, pairs) in enumerate(self._split(block), 1):
            labels.add(label)
            if not pairs:
                continue
            try:
                first = int(pairs.split(b":", 1)[0])
                last = int(pairs.rsplit(b":", 1)[0].rsplit(None, 1)[-1])
            except (ValueError, IndexError):
                first = -1
            if first < 0 or not 0 <= last < 10**15:
                raise self._malformed(self.n_rows + n_rows - 1, pairs)
            self.highest_index = max(self.highest_index, last)
            if self.lowest_index is None or first < self.lowest_index:
                self.lowest_index = first
        self.label_kinds.add(label_kind(self._decode(list(labels))))
        self.note(offset, n_rows)

    def _split(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Each row's label and the rest of the line, without comments and query numbers."""
        has_notes = b"#" in block
        for line in block.split(b"\n"):
            parts = (line.split(b"#", 1)[0] if has_notes else line).split(None, 1)
            if not parts:
                continue
            pairs = parts[1] if len(parts) > 1 else b""
            if pairs.startswith(b"q"):
                pairs = _QUERY.sub(b"", pairs)
            yield parts[0], pairs.strip()

    def _decode(self, labels: Sequence[bytes]) -> list[str]:
        try:
            return [label.decode() for label in labels]
        except UnicodeDecodeError as error:
            raise DataFileError(f"{self.path}: has a label that is not UTF-8 text") from error

    def _malformed(self, row: int, found: bytes) -> DataFileError:
        start = found[:60].decode("latin-1")
        return DataFileError(
            f"{self.path}: row {row} of this file is not 'label index:value ...', found {start!r}"
        )

    def settle(self, n_features: int, first_index: int, kind: str) -> None:
        """Set what follows from all files together."""
        self.n_features, self._first_index = n_features, first_index
        self.choice = Choice(("index:value",), "first word" if self._with_labels else None)
        self._parse_labels = LabelParser(self.path, kind)
        self.text_labels = kind == "text" if self._with_labels else None
        self.description = (
            f"SVMlight: {self.n_rows} x {n_features}, sparse float64, indices from {first_index}, "
            + ("labels the first word" if self._with_labels else "no labels")
        )

    def parse(self, block: bytes, first_row: int) -> Piece:
        """All rows of a block."""
        from scipy.sparse import csr_array

        rows = list(self._split(block))
        pairs = [pairs for _, pairs in rows]
        counts = np.fromiter((content.count(b":") for content in pairs), np.int64, len(pairs))
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        indices, values = self._numbers(pairs, ends, first_row)
        labels = None
        if self._with_labels:
            labels = self._labels(self._decode([label for label, _ in rows]), first_row)
        return Piece(csr_array((values, indices, ends), shape=(len(rows), self.n_features)), labels)

    def _labels(self, labels: Sequence[str], first_row: int) -> NDArray[Any]:
        for row, label in enumerate(labels, first_row):
            if "," in label or ":" in label:
                raise DataFileError(
                    f"{self.path}: row {row} of this file has {label!r:.60} for a label; "
                    "there is one label a row"
                )
        return self._parse_labels(labels, first_row)

    def _numbers(
        self, pairs: Sequence[bytes], ends: NDArray[np.int64], first_row: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        content = b"\n".join(pairs)
        columns = None
        if _PAIRS.fullmatch(content):
            columns = _parsed_fast(content) or _parsed(content)
        if columns is None or len(columns[0]) != ends[-1]:
            raise self._first_malformed(pairs, first_row)
        indices, values = columns[0] - self._first_index, columns[1]
        rises = np.diff(indices, prepend=-1) > 0
        starts = ends[:-1][np.diff(ends) > 0]
        rises[starts] = True
        wrong = np.flatnonzero(~rises | (indices < 0) | (indices >= self.n_features))
        if len(wrong):
            row = int(np.searchsorted(ends, wrong[0], side="right")) - 1
            found = int(indices[wrong[0]]) + self._first_index
            last = self.n_features + self._first_index - 1
            raise DataFileError(
                f"{self.path}: row {first_row + row} of this file has index {found}; indices rise "
                f"from {self._first_index} to {last}"
            )
        return indices, values

    def _first_malformed(self, pairs: Sequence[bytes], first_row: int) -> DataFileError:
        for row, content in enumerate(pairs, first_row):
            if not _PAIRS.fullmatch(content) or _parsed(content) is None:
                return self._malformed(row, content)
        return DataFileError(f"{self.path}: has a number that cannot be read")


Numbers = tuple[NDArray[np.int64], NDArray[np.float64]]


def _parsed(pairs: bytes) -> Numbers | None:
    """Indices and values of a text of pairs; None where one of them is not a number."""
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0)
    with warnings.catch_warnings():
        # What NumPy cannot read ends its reading, with this warning or, in times to come, an error.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            numbers = np.fromstring(pairs.replace(b":", b" ").decode("latin-1"), sep=" ")
        except ValueError:
            return None
    if len(numbers) != 2 * pairs.count(b":"):
        return None
    return numbers[0::2].astype(np.int64), np.ascontiguousarray(numbers[1::2])


def _parsed_fast(pairs: bytes) -> Numbers | None:
    """The same by pyarrow, as a CSV file of pairs; None where it finds anything out of order."""
    if text.arrow_csv() is None or not pairs:
        return None
    arrow_csv, pyarrow = text.arrow_csv()
    types = {"index": pyarrow.int64(), "value": pyarrow.float64()}
    try:
        table = arrow_csv.read_csv(
            pyarrow.BufferReader(b"\n".join(pairs.replace(b":", b",").split())),
            read_options=arrow_csv.ReadOptions(column_names=list(types)),
            parse_options=arrow_csv.ParseOptions(quote_char=False),
            convert_options=arrow_csv.ConvertOptions(column_types=types, null_values=[]),
        )
    except pyarrow.ArrowException:
        return None
    return table["index"].to_numpy(), table["value"].to_numpy()


def open_svmlight(paths: Sequence[Path], request: Request) -> list[RowFile]:
    """Open SVMlight files, which share a number of features and a first index."""
    if request.features is not None or request.labels not in (None, False):
        raise DataFileError(
            f"{paths[0]}: SVMlight has no names; leave features= and labels= out, "
            "the label is the first word of a line"
        )
    files = [SvmlightRows(path, request.labels is None) for path in paths]
    lowest = min((f.lowest_index for f in files if f.lowest_index is not None), default=1)
    first_index = request.first_index
    if first_index is None:
        first_index = 0 if lowest == 0 else 1
    n_features = request.n_features
    if n_features is None:
        n_features = max(1, max(file.highest_index for file in files) + 1 - first_index)
    kind = widest(kind for file in files for kind in file.label_kinds)
    for file in files:
        check_width(file.path, n_features, request.n_features)
        file.settle(n_features, first_index, kind)
    return list(files)
