"""SVMlight (LibSVM) text files, read by scikit-learn."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.io.columns import Request, choose_columns
from bitclass.io.labels import INTEGER
from bitclass.io.source import Batch, DataFileError, Source, open_text, reading

_BLOCK_BYTES = 4 << 20


class SvmlightSource(Source):
    """An SVMlight file. A first pass counts the rows and finds the range of indices."""

    format_name = "SVMlight"
    is_sparse = True
    low, high = -1, -1  # smallest and largest index; -1 if there are none
    first_index = 0  # set by `set_widths`, like `n_features`

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        kinds = {"features": "list", "label": "number"}
        choose_columns(self, kinds, replace(request, feature_names=None))
        for X, y, row in self._blocks():
            self.n_rows = row + len(y)
            if X.nnz:
                low, high = int(X.indices.min()), int(X.indices.max())
                self.low = low if self.low < 0 else min(self.low, low)
                self.high = max(self.high, high)
        if self.n_rows == 0:
            raise DataFileError(f"{path}: has no rows")
        self.label_dtype = None if self.label is None else INTEGER

    def _blocks(self) -> Iterator[tuple[Any, NDArray[np.float64], int]]:
        """Yield features (k, max index + 1), labels and first row of blocks of lines."""
        from sklearn.datasets import load_svmlight_file

        row = 0
        with reading(self.path, self.format_name), open_text(self.path) as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                try:
                    X, y = load_svmlight_file(io.BytesIO(b"".join(lines)), zero_based=True)
                except ValueError as error:
                    n_rows = sum(bool(line.partition(b"#")[0].strip()) for line in lines)
                    raise DataFileError(
                        f"{self.path}: one of rows {row} to {row + n_rows - 1} is not "
                        f"'number index:value ...' with increasing indices: {error}"
                    ) from error
                yield X, y, row
                row += len(y)

    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the rows, in pieces of any size."""
        from scipy.sparse import csr_array

        for X, y, row in self._blocks():
            indices = X.indices - self.first_index
            if X.nnz and not 0 <= indices.min() <= indices.max() < self.n_features:
                raise DataFileError(f"{self.path}: has changed since it was opened")
            rows = csr_array((X.data, indices, X.indptr), shape=(X.shape[0], self.n_features))
            labels = None if self.label is None else y
            yield Batch(rows, labels, row, dict.fromkeys(self.columns, y))


def set_widths(files: Sequence[SvmlightSource], request: Request) -> None:
    """Set the first index and the number of features, which all files share.

    As scikit-learn's `load_svmlight_files` with ``zero_based="auto"``: indices start from 1 if
    every file has indices and none is 0, else from 0.
    """
    first_index = int(all(file.low > 0 for file in files))
    width = max(1, max(file.high for file in files) + 1 - first_index)
    expected = request.n_features or (len(request.feature_names or ()) or None)
    for file in files:
        if expected is not None and file.high - first_index >= expected:
            raise DataFileError(
                f"{file.path}: has index {file.high}, but {expected} features have indices "
                f"{first_index} to {expected - 1 + first_index}"
            )
        file.first_index, file.n_features = first_index, expected or width
        file.notes = [*file.notes, f"indices from {first_index}"]
