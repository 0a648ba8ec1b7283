"""Files of named arrays: npy, npz and HDF5."""

from __future__ import annotations

import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bitclass.io.columns import choose_arrays
from bitclass.io.errors import DataFileError, reading, require
from bitclass.io.labels import TEXT, whole_numbers
from bitclass.io.source import Batch, Request, Source

__all__ = ["ArraySource", "Hdf5Source", "NpySource", "NpzSource", "checked_csr"]

# HDF5 chunk cache: a chunk that spans several batches is decompressed once if it fits.
_CACHE_BYTES = 64 << 20


class ArraySource(Source):
    """Features and labels in a file of named arrays. Labels are kept in memory."""

    # Whether integer labels may be stored as floats.
    integers_as_floats = False

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        with reading(path, self.format_name), self._open() as arrays:
            if not arrays:
                raise DataFileError(f"{path}: contains no arrays")
            shapes = {name: tuple(array.shape) for name, array in arrays.items()}
            numeric = {name for name, array in arrays.items() if _is_numeric(array.dtype)}
            chosen = choose_arrays(path, shapes, numeric, request)
            self.features, self.label, self.notes = chosen
            if self.features:
                self._set_features(self.features[0], arrays[self.features[0]])
            if self.label is not None:
                self._set_labels(self.label, arrays[self.label])

    @abstractmethod
    def _open(self) -> AbstractContextManager[Mapping[str, Any]]:
        """Arrays by name, with a shape, a dtype, and row slices while the file is open."""

    def _set_features(self, name: str, array: Any) -> None:
        what = f"{self.path}: array {name!r}" if name else f"{self.path}: the array"
        if not _is_numeric(array.dtype):
            raise DataFileError(
                f"{what} has type {array.dtype}; features must be floats, integers or booleans"
            )
        if len(array.shape) != 2 or 0 in array.shape:
            raise DataFileError(
                f"{what} has shape {array.shape}; features must have shape (rows, features)"
            )
        self.n_rows, self.n_features = array.shape
        self.dtype, self.is_sparse = array.dtype.newbyteorder("="), hasattr(array, "tocsr")

    def _set_labels(self, name: str, array: Any) -> None:
        path, shape, dtype = self.path, array.shape, array.dtype
        is_vector = len(shape) < 2 or (len(shape) == 2 and (1 in shape or dtype == "O"))
        if hasattr(array, "tocsr") or not is_vector:
            raise DataFileError(f"{path}: labels {name!r} have shape {shape}; expected one per row")
        if dtype.kind not in "SUO" and not _is_numeric(dtype):
            raise DataFileError(
                f"{path}: labels {name!r} have type {dtype}; "
                "labels must be integers, floats, booleans or text"
            )
        labels = array[()].reshape(-1)
        if labels.dtype.kind in "SO":
            labels = _as_text(path, labels)
        elif self.integers_as_floats:
            labels = whole_numbers(labels)
        if self.features and len(labels) != self.n_rows:
            raise DataFileError(
                f"{path}: contains {len(labels)} labels {name!r}, but {self.n_rows} rows"
            )
        if not len(labels):
            raise DataFileError(f"{path}: has no rows")
        self.n_rows = len(labels)
        self._labels = labels.astype(labels.dtype.newbyteorder("="), copy=False)
        self.label_dtype = TEXT if labels.dtype.kind == "U" else self._labels.dtype

    def read(self, start_row: int, rows_per_piece: int) -> Iterator[Batch]:
        """Yield rows from `start_row` on, in pieces of `rows_per_piece`."""
        opened = self._open() if self.features else nullcontext({})
        with reading(self.path, self.format_name), opened as arrays:
            for start in range(start_row, self.n_rows, rows_per_piece):
                stop, X = min(start + rows_per_piece, self.n_rows), None
                if self.features:
                    X = arrays[self.features[0]][start:stop]
                    if X.shape != (stop - start, self.n_features):
                        raise DataFileError(f"{self.path}: is truncated or has changed")
                    X = X.astype(self.dtype, copy=False)
                yield Batch(X, None if self.label is None else self._labels[start:stop], start)


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.char != "g"


def _as_text(path: Path, values: NDArray[Any]) -> NDArray[Any]:
    """Convert UTF-8 bytes, or objects that are strings, to an array of str."""
    texts = []
    for row, value in enumerate(values.tolist()):
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise DataFileError(f"{path}: the label of row {row} is not UTF-8 text") from None
        if not isinstance(text, str):
            kind = type(text).__name__
            raise DataFileError(f"{path}: the label of row {row} is {kind}, not text")
        texts.append(text)
    return np.array(texts, dtype=np.str_)


def checked_csr(matrix: Any) -> Any:
    """Convert a sparse matrix to CSR, and check its indices, since SciPy's kernels do not."""
    from scipy.sparse import csr_array

    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return csr_array(matrix)


class NpySource(ArraySource):
    """A single unnamed array, memory-mapped."""

    format_name = "NumPy npy"

    def _open(self) -> AbstractContextManager[Mapping[str, Any]]:
        return nullcontext({"": _Mapped(self.path)})


class _Mapped:
    """An npy file; every slice maps the file again, so that earlier pages are released."""

    def __init__(self, path: Path) -> None:
        self._path = path
        array = open_memmap(path, mode="r")
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, rows: slice | tuple[()]) -> NDArray[Any]:
        return np.ascontiguousarray(open_memmap(self._path, mode="r")[rows])


class NpzSource(ArraySource):
    """Members of a zip file, read sequentially; matrices of SciPy's save_npz are loaded whole."""

    format_name = "NumPy npz"
    _sparse: Any = None

    @contextmanager
    def _open(self) -> Iterator[Mapping[str, Any]]:
        with zipfile.ZipFile(self.path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            names = [member.removesuffix(".npy") for member in members]
            if {"data", "format", "shape"} <= set(names):
                from scipy.sparse import load_npz

                if self._sparse is None:
                    self._sparse = checked_csr(load_npz(self.path))
                yield {"matrix": self._sparse}
            else:
                yield {name: _Member(archive, name) for name in names}


class _Member:
    """An array in an npz file."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, f"{name}.npy"
        with archive.open(self._name) as stream:
            is_first_version = np.lib.format.read_magic(stream) == (1, 0)
            read = np.lib.format.read_array_header_2_0
            if is_first_version:
                read = np.lib.format.read_array_header_1_0
            self.shape, self._is_fortran, self.dtype = read(stream)
            self._offset = stream.tell()

    @cached_property
    def _stream(self) -> Any:
        return self._archive.open(self._name)

    @cached_property
    def _whole(self) -> NDArray[Any]:
        with self._archive.open(self._name) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def __getitem__(self, rows: slice | tuple[()]) -> NDArray[Any]:
        if self._is_fortran or not isinstance(rows, slice):
            return self._whole[rows]
        row_bytes = self.dtype.itemsize * self.shape[1]
        self._stream.seek(self._offset + rows.start * row_bytes)
        content = self._stream.read((rows.stop - rows.start) * row_bytes)
        return np.frombuffer(content, self.dtype).reshape(-1, self.shape[1])


class Hdf5Source(ArraySource):
    """HDF5 datasets, named by their paths."""

    format_name = "HDF5"

    @contextmanager
    def _open(self) -> Iterator[Mapping[str, Any]]:
        h5py = require("h5py", "hdf5", self.path, self.format_name)
        arrays: dict[str, Any] = {}

        def visit(name: str, item: Any) -> None:
            if getattr(item, "shape", None) is not None:
                arrays[name] = item

        with h5py.File(self.path, "r", rdcc_nbytes=_CACHE_BYTES, rdcc_nslots=10_007) as file:
            file.visititems(visit)
            yield arrays
