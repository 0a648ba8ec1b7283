"""NumPy files: npy, npz, and the sparse matrices of SciPy's save_npz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bitclass.io.columns import Request, choose_columns
from bitclass.io.labels import label_dtype
from bitclass.io.source import Batch, DataFileError, Source, reading


class NpzSource(Source):
    """Named arrays. The whole file is loaded in each pass; labels and columns stay in memory."""

    format_name = "NumPy npz"

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        with reading(path, self.format_name):
            arrays = self._arrays()
            if not arrays:
                raise DataFileError(f"{path}: contains no arrays")
            kinds = {name: _kind(array) for name, array in arrays.items()}
            choose_columns(self, kinds, replace(request, feature_names=None))
            if self.features:
                self._set_features(self.features[0], arrays[self.features[0]])
            vectors = [name for name in (self.label, *self.columns) if name is not None]
            self._vectors = {name: self._vector(name, arrays[name]) for name in vectors}
            if self.label is not None:
                self.label_dtype = label_dtype(self._vectors[self.label].dtype)

    def _arrays(self) -> Mapping[str, Any]:
        """Load all arrays, by name."""
        with np.load(self.path, allow_pickle=False) as loaded:
            if {"data", "format", "shape"} <= set(loaded.files):
                return {"matrix": _load_sparse(self.path)}
            return {name: loaded[name] for name in loaded.files}

    def _set_features(self, name: str, array: Any) -> None:
        what = f"{self.path}: array {name!r}" if name else f"{self.path}: the array"
        if len(array.shape) != 2 or 0 in array.shape:
            raise DataFileError(
                f"{what} has shape {array.shape}; features must have shape (rows, features)"
            )
        self.n_rows, self.n_features = array.shape
        self.dtype, self.is_sparse = array.dtype.newbyteorder("="), hasattr(array, "tocsr")

    def _vector(self, name: str, array: Any) -> NDArray[Any]:
        """Check labels or another array with one value per row."""
        what = f"labels {name!r}" if name == self.label else f"values {name!r}"
        is_vector = len(array.shape) == 1 or (len(array.shape) == 2 and 1 in array.shape)
        if hasattr(array, "tocsr") or not is_vector:
            raise DataFileError(
                f"{self.path}: {what} have shape {array.shape}; expected one per row"
            )
        if _kind(array) not in ("text", "number", "list"):
            raise DataFileError(
                f"{self.path}: {what} have type {array.dtype}; "
                "expected integers, floats, booleans or text"
            )
        values = np.array(array).reshape(-1)
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8")
        if len(values) != (self.n_rows or len(values)):
            raise DataFileError(
                f"{self.path}: contains {len(values)} {what}, but {self.n_rows} rows"
            )
        if not len(values):
            raise DataFileError(f"{self.path}: has no rows")
        self.n_rows = len(values)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the rows, in pieces of `rows_per_piece`."""
        with reading(self.path, self.format_name):
            arrays = self._arrays() if self.features else {}
            for start in range(0, self.n_rows, rows_per_piece):
                rows, X = slice(start, min(start + rows_per_piece, self.n_rows)), None
                if self.features:
                    X = self._rows(arrays[self.features[0]], rows)
                    if X.shape != (rows.stop - start, self.n_features):
                        raise DataFileError(f"{self.path}: is truncated or has changed")
                    X = X.astype(self.dtype, copy=False)
                part = {name: values[rows] for name, values in self._vectors.items()}
                labels = None if self.label is None else part[self.label]
                yield Batch(X, labels, start, {name: part[name] for name in self.columns})

    def _rows(self, array: Any, rows: slice) -> Any:
        return array[rows]


class NpySource(NpzSource):
    """A single unnamed array, memory-mapped."""

    format_name = "NumPy npy"

    def _arrays(self) -> Mapping[str, Any]:
        return {"": open_memmap(self.path, mode="r")}

    def _rows(self, array: Any, rows: slice) -> Any:
        # Mapped again for each piece, which releases the pages of earlier pieces and finds out
        # whether the file was truncated, which would otherwise crash the process.
        return np.array(open_memmap(self.path, mode="r")[rows], order="C")


def _kind(array: Any) -> str:
    """The kind of a column in `choose_columns`."""
    if array.dtype.kind in "SU":
        return "text"
    if array.dtype.kind not in "biuf" or array.dtype.char == "g":
        return str(array.dtype)
    return "list" if len(array.shape) == 2 else "number"


def _load_sparse(path: Path) -> Any:
    """Load a sparse matrix as CSR, and check its indices, since SciPy's kernels do not."""
    from scipy.sparse import csr_array, load_npz

    matrix = load_npz(path)
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return csr_array(matrix)
