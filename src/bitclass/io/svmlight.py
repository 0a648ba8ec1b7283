"""SVMlight (LibSVM) text by scikit-learn's reader."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bitclass.io.errors import DataFileError, reading
from bitclass.io.labels import LabelRange
from bitclass.io.source import Batch, Request, Source
from bitclass.io.text_tables import open_stream

__all__ = ["SvmlightSource", "set_widths"]

_BLOCK_BYTES = 4 << 20
_LINE = re.compile(rb"\s*([^\s#]+)(.*)", re.DOTALL)


class SvmlightSource(Source):
    """One SVMlight file. A first pass counts its rows and finds the range of its indices.

    Attributes
    ----------
    low, high : int
        Smallest and largest index; -1 if there are none.
    first_index : int
        The index of the first feature; `set_widths` sets it and `n_features`.
    """

    format_name = "SVMlight"
    is_sparse = True
    seeks = False

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        if request.named_features or isinstance(request.labels, str) or request.columns:
            raise DataFileError(f"{path}: SVMlight has no names; leave features= and labels= out")
        self.low, self.high, self.first_index = -1, -1, 0
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
            self.label_type, self.label = labels, "first word"

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

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Rows from `start_row` on, in pieces of any size."""
        from scipy.sparse import csr_array

        row = start_row
        for X, words in self._blocks(start_row):
            indices = X.indices - self.first_index
            if X.nnz and not 0 <= indices.min() <= indices.max() < self.n_features:
                raise DataFileError(f"{self.path}: has changed since it was opened")
            rows = csr_array((X.data, indices, X.indptr), shape=(X.shape[0], self.n_features))
            yield Batch(rows, None if self.label is None else np.array(words), row)
            row += len(words)


def set_widths(files: Sequence[Any], request: Request) -> None:
    """Decide the first index and the number of features that SVMlight files share."""
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
        guessed = "" if request.first_index is not None else " (guessed)"
        file.notes = [f"indices from {first_index}{guessed}"]
