"""SVMlight (LibSVM) text files, read by scikit-learn."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.errors import DataFileError, reading
from bitclass.io.labels import common_dtype, whole_numbers
from bitclass.io.source import Batch, Request, Source
from bitclass.io.text_tables import open_stream

__all__ = ["SvmlightSource", "set_widths"]

_BLOCK_BYTES = 4 << 20


class SvmlightSource(Source):
    """An SVMlight file. A first pass counts the rows and finds the range of indices.

    Attributes
    ----------
    low, high : int
        Smallest and largest index; -1 if there are none.
    first_index : int
        Set by `set_widths`, like `n_features`.
    """

    format_name = "SVMlight"
    is_sparse = True
    seeks = False

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        if request.features or isinstance(request.labels, str) or request.columns:
            raise DataFileError(f"{path}: SVMlight has no names; omit features= and labels=")
        self.low, self.high = -1, -1
        self.first_index: int = 0
        self._starts: list[tuple[int, int]] = []  # first row and byte of each block
        dtypes = set()
        for X, y, row, offset in self._blocks(0, 0):
            self._starts.append((row, offset))
            self.n_rows = row + len(y)
            dtypes.add(whole_numbers(y).dtype)
            if X.nnz:
                low, high = int(X.indices.min()), int(X.indices.max())
                self.low = low if self.low < 0 else min(self.low, low)
                self.high = max(self.high, high)
        if self.n_rows == 0:
            raise DataFileError(f"{path}: has no rows")
        if request.labels is None:
            self.label = "first number"
            self.label_dtype = common_dtype([*dtypes])

    def _blocks(self, row: int, offset: int) -> Iterator[tuple[Any, NDArray[np.float64], int, int]]:
        """Yield features (k, max index + 1), labels, first row and byte offset of line blocks."""
        from sklearn.datasets import load_svmlight_file

        with reading(self.path, self.format_name), open_stream(self.path) as stream:
            stream.seek(offset)
            while lines := stream.readlines(_BLOCK_BYTES):
                try:
                    X, y = load_svmlight_file(io.BytesIO(b"".join(lines)), zero_based=True)
                except ValueError as error:
                    n_rows = sum(bool(line.partition(b"#")[0].strip()) for line in lines)
                    raise DataFileError(
                        f"{self.path}: one of rows {row} to {row + n_rows - 1} is not "
                        f"'number index:value ...' with increasing indices: {error}"
                    ) from error
                if np.any(np.abs(y) > 1 << 53):
                    raise DataFileError(f"{self.path}: labels must be numbers up to 2**53")
                yield X, y, row, offset
                row, offset = row + len(y), offset + sum(map(len, lines))

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Yield rows from `start_row` on, in pieces of any size."""
        from scipy.sparse import csr_array

        start = next(start for start in reversed(self._starts) if start[0] <= start_row)
        for X, y, row, _ in self._blocks(*start):
            indices = X.indices - self.first_index
            if X.nnz and not 0 <= indices.min() <= indices.max() < self.n_features:
                raise DataFileError(f"{self.path}: has changed since it was opened")
            rows = csr_array((X.data, indices, X.indptr), shape=(X.shape[0], self.n_features))
            batch = Batch(rows, None if self.label is None else y, row)
            if row + len(y) > start_row:
                yield batch.rows(max(0, start_row - batch.first_row))


def set_widths(files: Sequence[Any], request: Request) -> None:
    """Set the first index and the number of features, which all files share."""
    first_index = request.first_index
    if first_index is None:
        first_index = 0 if any(file.low == 0 for file in files) else 1
    width = max(1, max(file.high for file in files) + 1 - first_index)
    expected = request.n_features or (len(request.feature_names or ()) or None)
    for file in files:
        if file.low >= 0 and file.low < first_index:
            raise DataFileError(
                f"{file.path}: has index 0, but first_index is 1, as specified or as in the "
                "model's training files; change it with --first-index"
            )
        if expected is not None and file.high - first_index >= expected:
            raise DataFileError(
                f"{file.path}: has index {file.high}, but {expected} features have indices "
                f"{first_index} to {expected - 1 + first_index}"
            )
        file.first_index, file.n_features = first_index, expected or width
        guessed = "" if request.first_index is not None else " (guessed)"
        file.notes = [f"indices from {first_index}{guessed}"]
