"""MATLAB files of version 7.3: HDF5 files in which the axes stand in reverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.arrays import ArrayFile, ArrayRows, ArraySource, Vector
from bitclass.data.errors import DataFileError, reading
from bitclass.data.hdf5 import LIBRARY, Hdf5Array, check_stored, h5py_for
from bitclass.data.limits import MAX_LABEL_CHARACTERS
from bitclass.data.matlab_arrays import CLASSES, by_rows, whole_numbers_if_possible
from bitclass.data.rowfile import Request, RowFile
from bitclass.data.sources import Converted, LoadedArray

__all__ = ["LIBRARY", "Matlab73File"]


class Matlab73File(ArrayFile):
    """A MATLAB file of version 7.3."""

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
            if kind not in CLASSES:
                raise DataFileError(
                    f"{self.path}: {name!r} is a {kind} array; features are numeric or logical"
                )
            array = Hdf5Array(self.path, name, item, transposed=True)
            return Converted(array, CLASSES[kind]) if kind == "logical" else array

    def label_source(self, name: str) -> ArraySource:
        """One of the variables: numbers, a char matrix or a cell array of text."""
        with self._h5py.File(self.path, "r") as file:
            item = self._own(file, name)
            kind = _matlab_class(item)
            if kind in ("char", "cell") and isinstance(item, self._h5py.Dataset):
                check_stored(self.path, name, item)
                texts = np.array(self._texts(file, name, item, kind), dtype=object)
                return LoadedArray(texts.shape, texts.dtype, lambda: texts)
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
        n_bytes = 0
        for part in ("data", "ir", "jc"):
            check_stored(self.path, f"{name}/{part}", group[part])
            n_bytes += group[part].size * group[part].dtype.itemsize
        shape = (int(group.attrs["MATLAB_sparse"]), int(group["jc"].shape[0]) - 1)
        dtype = np.dtype("?" if _matlab_class(group) == "logical" else "f8")
        return LoadedArray(
            shape,
            dtype,
            lambda: self._load_sparse(name, shape, dtype),
            is_sparse=True,
            buffer_bytes=4 * n_bytes,
        )

    def _load_sparse(self, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
        with self._h5py.File(self.path, "r") as file:
            values, rows, ends = (file[f"{name}/{part}"][()] for part in ("data", "ir", "jc"))
        return by_rows(self.path, name, values.astype(dtype), rows, ends, shape)


def _matlab_class(item: Any) -> str:
    kind = item.attrs.get("MATLAB_class", b"")
    return kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)


def _text(characters: NDArray[Any]) -> str:
    return characters.astype("<u2").tobytes().decode("utf-16-le", "replace").rstrip(" ")


def open_here(path: Path, request: Request) -> RowFile:
    """Open a MATLAB file of version 7.3 in this process."""
    with reading(path, Matlab73File.format_name):
        return ArrayRows(Matlab73File(path), request)
