"""SVMlight (LibSVM) text by scikit-learn's reader, and files with one label per line."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bitclass.io.errors import DataFileError, reading
from bitclass.io.labels import LabelRange
from bitclass.io.source import Piece, Request, Source, spans
from bitclass.io.text import open_stream

__all__ = ["LinesSource", "SvmlightSource", "open_svmlight"]

_BLOCK_BYTES = 4 << 20
_LINE = re.compile(rb"\s*([^\s#]+)(.*)", re.DOTALL)


class SvmlightSource(Source):
    """One SVMlight file. A first pass counts its rows and finds the range of its indices."""

    format_name = "SVMlight"
    is_sparse = True
    seeks = False

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        if request.features is not None or isinstance(request.labels, str):
            raise DataFileError(f"{path}: SVMlight has no names; leave features= and labels= out")
        self.n_rows = 0
        self.low, self.high = -1, -1
        self.first_index = 0
        labels = LabelRange()
        for X, words in self._blocks(0):
            self.n_rows += len(words)
            labels.add(set(words))
            if X.nnz:
                low, high = int(X.indices.min()), int(X.indices.max())
                self.low = low if self.low < 0 else min(self.low, low)
                self.high = max(self.high, high)
        if self.n_rows == 0:
            raise DataFileError(f"{path}: has no rows")
        if request.labels is None:
            self.label_range = labels
            self.labels = "first word"

    def _blocks(self, start_row: int) -> Iterator[tuple[Any, list[str]]]:
        """Features (k, highest index + 1) and labels as written, from a row on."""
        row = 0
        with reading(self.path, self.format_name), open_stream(self.path) as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                found = [match for line in lines if (match := _LINE.match(line))]
                kept = found[max(0, start_row - row) :]
                if kept:
                    yield self._parsed(kept, row + len(found) - len(kept))
                row += len(found)

    def _parsed(self, lines: Sequence[re.Match[bytes]], row: int) -> tuple[Any, list[str]]:
        from sklearn.datasets import load_svmlight_file

        words = [line[1].decode().removeprefix("+") for line in lines]
        wrong = next((word for word in words if "," in word or ":" in word), None)
        if wrong is not None:
            raise DataFileError(
                f"{self.path}: row {row + words.index(wrong)} has {wrong!r:.60} for a label; "
                "expected one label, then index:value pairs"
            )
        # scikit-learn reads labels as floats, which not all of them are, so it gets zeros.
        text = b"".join(b"0" + line[2] for line in lines)
        try:
            X, _ = load_svmlight_file(io.BytesIO(text), zero_based=True)
        except ValueError as error:
            raise DataFileError(
                f"{self.path}: of rows {row} to {row + len(words) - 1}, one is not "
                f"'label index:value ...' with rising indices: {error}"
            ) from error
        if X.shape[0] != len(words):
            raise DataFileError(f"{self.path}: has a row after row {row} that cannot be read")
        return X, words

    def read(self, start_row: int, first_rows: int, n_rows: int) -> Iterator[Piece]:
        """Rows from `start_row` on, in pieces of any size."""
        for X, words in self._blocks(start_row):
            indices = X.indices - self.first_index
            if X.nnz and not 0 <= indices.min() <= indices.max() < self.n_features:
                raise DataFileError(f"{self.path}: has changed since it was opened")
            labels = None if self.labels is None else np.array(words)
            shape = (X.shape[0], self.n_features)
            yield sp.csr_array((X.data, indices, X.indptr), shape=shape), labels


def open_svmlight(paths: Sequence[Path], request: Request) -> list[Source]:
    """Open SVMlight files, which share a number of features and a first index."""
    files = [SvmlightSource(path, request) for path in paths]
    first_index = request.first_index
    if first_index is None:
        first_index = 0 if any(file.low == 0 for file in files) else 1
    width = max(1, max(file.high for file in files) + 1 - first_index)
    expected = request.n_features or (len(request.feature_names or ()) or None)
    for file in files:
        if file.low >= 0 and file.low < first_index:
            raise DataFileError(f"{file.path}: has index 0, but first_index is 1")
        if expected is not None and file.high - first_index >= expected:
            raise DataFileError(
                f"{file.path}: has index {file.high}, but with {expected} features indices end at "
                f"{expected - 1 + first_index}"
            )
        file.first_index, file.n_features = first_index, expected or width
        file.details = f"indices from {first_index}" + (
            "" if request.first_index is not None else " (guessed)"
        )
    return list(files)


class LinesSource(Source):
    """Labels, one per line, kept in memory."""

    format_name = "text"

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        with reading(path, self.format_name), open_stream(path) as stream:
            lines = stream.read().decode("utf-8-sig").split("\n")
        if lines[-1] == "":
            lines.pop()
        if request.header:
            lines = lines[1:]
        if not lines:
            raise DataFileError(f"{path}: has no rows")
        self._labels = np.char.strip(np.array(lines))
        self.n_rows = len(lines)
        self.labels = "line"
        self.label_range = LabelRange()
        self.label_range.add(set(self._labels.tolist()))

    def read(self, start_row: int, first_rows: int, n_rows: int) -> Iterator[Piece]:
        """Labels from `start_row` on."""
        for start, stop in spans(start_row, self.n_rows, first_rows, n_rows):
            yield None, self._labels[start:stop]
