"""Files of named arrays, and NumPy's own: npy and npz."""

from __future__ import annotations

import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bitclass.io.columns import choose_arrays
from bitclass.io.errors import DataFileError, reading
from bitclass.io.labels import TEXT, as_text, check_label_dtype
from bitclass.io.source import Batch, Request, Source

__all__ = ["Array", "ArraySource", "NpySource", "NpzSource", "checked_csr"]

#: Rows from a start to a stop.
ReadRows = Callable[[int, int], Any]


@dataclass(frozen=True)
class Array:
    """An array of a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_sparse: bool = False
    value: Any = None  # the array or CSR, if its library can only load it as a whole

    @staticmethod
    def loaded(value: Any) -> Array:
        """An array or sparse matrix that is kept in memory."""
        if hasattr(value, "tocsr"):
            value = checked_csr(value)
            return Array(value.shape, value.dtype, True, value)
        return Array(value.shape, value.dtype, False, value)


class ArraySource(Source):
    """Features and labels of a file of named arrays. Labels are kept in memory."""

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        with reading(path, self.format_name):
            self._arrays = self._find_arrays()
            if not self._arrays:
                raise DataFileError(f"{path}: holds no arrays")
            numeric = {
                name for name, array in self._arrays.items()
                if array.dtype.kind in "biuf" and array.dtype.char != "g"
            }  # fmt: skip
            shapes = {name: array.shape for name, array in self._arrays.items()}
            choice = choose_arrays(path, shapes, numeric, request)
            self.features, self.label = tuple(choice.features), choice.label
            self.notes = choice.notes
            if self.features:
                self._check_features(self.features[0], numeric)
            if self.label is not None:
                self._set_labels(self.label)

    @abstractmethod
    def _find_arrays(self) -> Mapping[str, Array]:
        """The arrays by name."""

    @abstractmethod
    def _open(self, name: str) -> AbstractContextManager[ReadRows]:
        """Give a function that reads rows of an array that is not loaded."""

    @abstractmethod
    def _load_labels(self, name: str) -> NDArray[Any]:
        """A whole array of labels; text as str, bytes or objects."""

    def _check_features(self, name: str, numeric: set[str]) -> None:
        array = self._arrays[name]
        what = f"{self.path}: array {name!r}" if name else f"{self.path}: the array"
        if name not in numeric:
            raise DataFileError(
                f"{what} is of type {array.dtype}; features are floats, integers or booleans"
            )
        if len(array.shape) != 2 or 0 in array.shape:
            raise DataFileError(f"{what} has shape {array.shape}; features are (rows, features)")
        self.n_rows, self.n_features = array.shape
        self.dtype, self.is_sparse = array.dtype.newbyteorder("="), array.is_sparse

    def _set_labels(self, name: str) -> None:
        path, array = self.path, self._arrays[name]
        shape = array.shape
        if array.is_sparse or len(shape) > 2 or (
            len(shape) == 2 and 1 not in shape and array.dtype != "O"
        ):  # fmt: skip
            raise DataFileError(f"{path}: labels {name!r} have shape {shape}; expected one per row")
        check_label_dtype(path, name, array.dtype)
        labels = self._load_labels(name).reshape(-1)
        if labels.dtype.kind in "SO":
            labels = as_text(path, labels)
        if self.features and len(labels) != self.n_rows:
            raise DataFileError(
                f"{path}: holds {len(labels)} labels {name!r}, but there are {self.n_rows} rows"
            )
        if not len(labels):
            raise DataFileError(f"{path}: has no rows")
        self.n_rows = len(labels)
        self._labels = labels.astype(labels.dtype.newbyteorder("="), copy=False)
        self.label_type = TEXT if labels.dtype.kind == "U" else self._labels.dtype

    def _opened(self, name: str) -> AbstractContextManager[ReadRows]:
        value = self._arrays[name].value
        if value is None:
            return self._open(name)
        return nullcontext(lambda start, stop: value[start:stop])

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Rows from `start_row` on, in pieces of `rows_per_piece`."""
        opened = self._opened(self.features[0]) if self.features else nullcontext()
        with reading(self.path, self.format_name), opened as read:
            for start in range(start_row, self.n_rows, rows_per_piece):
                stop, X = min(start + rows_per_piece, self.n_rows), None
                if read is not None:
                    X = read(start, stop)
                    if X.shape != (stop - start, self.n_features):
                        raise DataFileError(f"{self.path}: is cut short or has changed")
                    X = X.astype(self.dtype, copy=False)
                yield Batch(X, None if self.label is None else self._labels[start:stop], start)


def checked_csr(matrix: Any) -> Any:
    """A sparse matrix as CSR; its indices are checked, because SciPy's kernels do not."""
    from scipy.sparse import csr_array

    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return csr_array(matrix)


class NpySource(ArraySource):
    """One array without a name, memory-mapped."""

    format_name = "NumPy npy"

    def _map(self) -> NDArray[Any]:
        return open_memmap(self.path, mode="r")

    def _find_arrays(self) -> Mapping[str, Array]:
        array = self._map()
        return {"": Array(array.shape, array.dtype)}

    def _open(self, name: str) -> AbstractContextManager[ReadRows]:
        # Each piece is mapped anew, so that pages of earlier pieces are released.
        return nullcontext(lambda start, stop: np.ascontiguousarray(self._map()[start:stop]))

    def _load_labels(self, name: str) -> NDArray[Any]:
        return self._map()


class NpzSource(ArraySource):
    """Members of a zip file, read from front to back; what SciPy's save_npz wrote is loaded."""

    format_name = "NumPy npz"

    def _find_arrays(self) -> Mapping[str, Array]:
        arrays = {}
        with zipfile.ZipFile(self.path) as archive:
            for member in archive.namelist():
                if member.endswith(".npy"):
                    name = member.removesuffix(".npy")
                    with archive.open(member) as stream:
                        shape, _, dtype = self._header(stream)
                    arrays[name] = Array(shape, dtype)
        if {"data", "indices", "indptr", "format", "shape"} <= set(arrays):
            from scipy.sparse import load_npz

            return {"matrix": Array.loaded(load_npz(self.path))}
        return arrays

    @staticmethod
    def _header(stream: Any) -> tuple[Any, bool, np.dtype[Any]]:
        """Shape, whether in Fortran order, and type of a member."""
        if np.lib.format.read_magic(stream) == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)

    @contextmanager
    def _open(self, name: str) -> Iterator[ReadRows]:
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as stream:
            (_, n_columns), is_fortran, dtype = self._header(stream)
            if is_fortran:
                array = self._load_labels(name)
                yield lambda start, stop: array[start:stop]
                return
            offset, row_bytes = stream.tell(), dtype.itemsize * n_columns

            def read(start: int, stop: int) -> NDArray[Any]:
                stream.seek(offset + start * row_bytes)
                content = stream.read((stop - start) * row_bytes)
                return np.frombuffer(content, dtype).reshape(-1, n_columns)

            yield read

    def _load_labels(self, name: str) -> NDArray[Any]:
        with np.load(self.path, allow_pickle=False) as arrays:
            array: NDArray[Any] = arrays[name]
            return array
