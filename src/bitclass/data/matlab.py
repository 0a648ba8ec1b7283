"""MATLAB files: version 5 (also called 6 and 7) by SciPy, version 7.3 as HDF5.

The format of version 5 can be read by whole variables only, so a variable is in memory while its
rows are read. In version 7.3 rows are read batch by batch; sparse variables, which MATLAB keeps by
columns, are loaded as a whole in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.arrays import ArrayFile, ArrayRows, ArraySource, ReadRows, Vector
from bitclass.data.errors import DataFileError, reading
from bitclass.data.hdf5 import Hdf5Array, check_stored, h5py_for
from bitclass.data.limits import MAX_FEATURES, MAX_LABEL_CHARACTERS, check_expansion
from bitclass.data.rowfile import Request, RowFile

__all__ = ["Matlab5File", "Matlab73File", "open_matlab"]

_CLASSES = {
    "double": "f8", "single": "f4", "logical": "?",
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
}  # fmt: skip
_BLOCK_ROWS = 1 << 16


class LoadedArray(ArraySource):
    """A variable that is loaded as a whole for each pass.

    Parameters
    ----------
    shape, dtype, is_sparse : as in ArraySource
    load : gives the array, or the CSR matrix
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], is_sparse: bool, load: Any
    ) -> None:
        self.shape, self.dtype, self.is_sparse = shape, dtype, is_sparse
        self._load = load

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Load the variable for one pass over its rows."""
        array = self._load()
        yield lambda start, stop: array[start:stop]


class Converted(ArraySource):
    """An array brought to another type as its rows are read."""

    def __init__(self, array: ArraySource, dtype: str) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, np.dtype(dtype)

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Open the array for one pass."""
        with self._array.cursor() as read:
            yield lambda start, stop: read(start, stop).astype(self.dtype)


def whole_numbers_if_possible(labels: ArraySource) -> ArraySource:
    """Doubles, which in MATLAB nearly all numbers are, as integers where all of them are whole."""
    if labels.dtype.kind != "f":
        return labels
    with labels.cursor() as read:
        for start in range(0, labels.shape[0], _BLOCK_ROWS):
            block = read(start, min(start + _BLOCK_ROWS, labels.shape[0]))
            with np.errstate(invalid="ignore"):
                if not np.all((np.abs(block) < 1 << 53) & (np.floor(block) == block)):
                    return labels
    return Converted(labels, "i8")


class Matlab5File(ArrayFile):
    """A MATLAB file of version 5."""

    format_name = "MATLAB version 5"

    def __init__(self, path: Path) -> None:
        from scipy.io import whosmat

        self.path = path
        self._variables = {
            name: (tuple(int(size) for size in shape), kind)
            for name, shape, kind in whosmat(str(path))
        }
        self._bytes = path.stat().st_size

    def names(self) -> Sequence[str]:
        """Names of the variables."""
        return list(self._variables)

    def source(self, name: str) -> ArraySource:
        """One of the variables, a numeric matrix."""
        shape, kind = self._variables[name]
        if kind == "sparse":
            # Its numbers of rows and columns need no bytes, but each column has a pointer.
            check_expansion(self.path, repr(name), 4 * shape[1], self._bytes)
            if shape[0] > MAX_FEATURES * 1024:
                raise DataFileError(f"{self.path}: {name!r} claims {shape[0]} rows")
            return LoadedArray(shape, np.dtype("f8"), True, lambda: self._load_sparse(name))
        if kind not in _CLASSES:
            raise DataFileError(
                f"{self.path}: {name!r} is a {kind} array; features are numeric or logical"
            )
        dtype = np.dtype(_CLASSES[kind])
        # MATLAB stores numbers in as few bytes as they need, one at least.
        check_expansion(self.path, repr(name), math.prod(shape), self._bytes)
        return LoadedArray(shape, dtype, False, lambda: self._load(name).astype(dtype, copy=False))

    def label_source(self, name: str) -> ArraySource:
        """One of the variables: numbers, a char matrix or a cell array of text."""
        shape, kind = self._variables[name]
        if kind not in ("char", "cell"):
            return whole_numbers_if_possible(Vector(self.source(name)))
        check_expansion(self.path, repr(name), math.prod(shape), self._bytes)
        texts = np.array(self._texts(name), dtype=object)
        return LoadedArray(texts.shape, texts.dtype, False, lambda: texts)

    def _load(self, name: str) -> NDArray[Any]:
        from scipy.io import loadmat

        with reading(self.path, self.format_name):
            value = loadmat(
                str(self.path), variable_names=[name], mat_dtype=True, chars_as_strings=True
            )[name]
            if value.shape != self._variables[name][0] and value.dtype.kind != "U":
                raise DataFileError(f"{self.path}: {name!r} is not of the shape that it claims")
            return np.asarray(value)

    def _load_sparse(self, name: str) -> Any:
        from scipy.io import loadmat
        from scipy.sparse import csr_array

        value = loadmat(str(self.path), variable_names=[name])[name]
        _check_columns(self.path, name, value.indptr, value.indices, value.shape)
        return csr_array(value.tocsr().astype(np.float64))

    def _texts(self, name: str) -> list[str]:
        value = self._load(name)
        if value.dtype.kind == "U":
            return [str(text).rstrip(" ") for text in value.reshape(-1)]
        texts = []
        for cell in value.reshape(-1):
            if not isinstance(cell, np.ndarray) or cell.dtype.kind != "U" or cell.size > 1:
                raise DataFileError(f"{self.path}: labels {name!r} has a cell that is not text")
            texts.append(str(cell.item()) if cell.size else "")
        return texts


def _check_columns(
    path: Path, name: str, pointers: NDArray[Any], indices: NDArray[Any], shape: Sequence[int]
) -> None:
    """Refuse a sparse variable that would make SciPy read outside of its arrays."""
    ends = np.asarray(pointers, dtype=np.int64)
    ordered = len(ends) == shape[1] + 1 and ends[0] == 0 and bool(np.all(np.diff(ends) >= 0))
    if not ordered or ends[-1] > len(indices):
        raise DataFileError(f"{path}: the pointers of the sparse variable {name!r} are damaged")
    used = indices[: ends[-1]]
    if len(used) and (used.min() < 0 or used.max() >= shape[0]):
        raise DataFileError(f"{path}: the indices of the sparse variable {name!r} are damaged")


class Matlab73File(ArrayFile):
    """A MATLAB file of version 7.3, an HDF5 file in which the axes stand in reverse."""

    format_name = "MATLAB version 7.3"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._h5py = h5py_for(path, self.format_name)
        with self._h5py.File(path, "r") as file:
            # Names with a # belong to MATLAB.
            self._names = [name for name in file if not name.startswith("#")]

    def names(self) -> Sequence[str]:
        """Names of the variables."""
        return self._names

    def source(self, name: str) -> ArraySource:
        """One of the variables, a numeric matrix."""
        with self._h5py.File(self.path, "r") as file:
            item = self._own(file, name)
            if "MATLAB_sparse" in item.attrs:
                return self._sparse(name, item)
            if not isinstance(item, self._h5py.Dataset) or "MATLAB_empty" in item.attrs:
                raise DataFileError(f"{self.path}: {name!r} is not a matrix, or is empty")
            kind = _matlab_class(item)
            if kind not in _CLASSES:
                raise DataFileError(
                    f"{self.path}: {name!r} is a {kind} array; features are numeric or logical"
                )
            array = Hdf5Array(self.path, name, item, transposed=True)
            return Converted(array, "?") if kind == "logical" else array

    def label_source(self, name: str) -> ArraySource:
        """One of the variables: numbers, a char matrix or a cell array of text."""
        with self._h5py.File(self.path, "r") as file:
            item = self._own(file, name)
            kind = _matlab_class(item)
            if kind in ("char", "cell") and isinstance(item, self._h5py.Dataset):
                check_stored(self.path, name, item)
                texts = np.array(self._texts(file, name, item, kind), dtype=object)
                return LoadedArray(texts.shape, texts.dtype, False, lambda: texts)
        return whole_numbers_if_possible(Vector(self.source(name)))

    def _own(self, file: Any, name: str) -> Any:
        if not isinstance(file.get(name, getlink=True), self._h5py.HardLink):
            raise DataFileError(f"{self.path}: {name!r} is a link, which is not followed")
        return file[name]

    def _texts(self, file: Any, name: str, item: Any, kind: str) -> list[str]:
        if kind == "char":
            return [_text(column) for column in item[()].T]
        texts = []
        for reference in item[()].reshape(-1):
            cell = file[reference]
            if _matlab_class(cell) != "char":
                raise DataFileError(f"{self.path}: labels {name!r} has a cell that is not text")
            check_stored(self.path, name, cell)
            if math.prod(cell.shape) > MAX_LABEL_CHARACTERS:
                raise DataFileError(
                    f"{self.path}: labels {name!r} has a text of {math.prod(cell.shape)} "
                    f"characters; at most {MAX_LABEL_CHARACTERS} are read"
                )
            empty = "MATLAB_empty" in cell.attrs
            texts.append("" if empty else _text(cell[()].T.reshape(-1)))
        return texts

    def _sparse(self, name: str, group: Any) -> ArraySource:
        if "data" not in group or "ir" not in group or "jc" not in group:
            raise DataFileError(f"{self.path}: {name!r} is empty")
        for part in ("data", "ir", "jc"):
            check_stored(self.path, f"{name}/{part}", group[part])
        shape = (int(group.attrs["MATLAB_sparse"]), int(group["jc"].shape[0]) - 1)
        dtype = np.dtype("?" if _matlab_class(group) == "logical" else "f8")
        return LoadedArray(shape, dtype, True, lambda: self._load_sparse(name, shape, dtype))

    def _load_sparse(self, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        from scipy.sparse import csc_array

        with self._h5py.File(self.path, "r") as file:
            values, rows, ends = (file[f"{name}/{part}"][()] for part in ("data", "ir", "jc"))
        _check_columns(self.path, name, ends, rows, shape)
        parts = (values.astype(dtype), rows.astype(np.int64), ends.astype(np.int64))
        return csc_array(parts, shape=shape).tocsr()


def _matlab_class(item: Any) -> str:
    kind = item.attrs.get("MATLAB_class", b"")
    return kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)


def _text(characters: NDArray[Any]) -> str:
    return characters.astype("<u2").tobytes().decode("utf-16-le", "replace").rstrip(" ")


def open_matlab(path: Path, request: Request) -> RowFile:
    """Open a MATLAB file."""
    with reading(path, "MATLAB"):
        with path.open("rb") as stream:
            start = stream.read(520)
        if b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:]):
            return ArrayRows(Matlab73File(path), request)
        if start[124:128] not in (b"\x00\x01IM", b"\x01\x00MI"):
            raise DataFileError(
                f"{path}: is not a MATLAB file of version 5 or 7.3; "
                "save it in MATLAB with -v7 or -v7.3"
            )
        with reading(path, Matlab5File.format_name):
            return ArrayRows(Matlab5File(path), request)
