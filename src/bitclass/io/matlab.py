"""MATLAB files: read by SciPy up to version 7.2, and by h5py for version 7.3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from bitclass.io.arrays import ArraySource, Hdf5Source, checked_csr
from bitclass.io.errors import reading
from bitclass.io.source import Request, Source

__all__ = ["open_matlab"]


def open_matlab(path: Path, request: Request) -> Source:
    """Open a MATLAB file of any version."""
    with reading(path, "MATLAB"):
        is_hdf5 = scipy.io.matlab.matfile_version(str(path))[0] == 2
    return Matlab73Source(path, request) if is_hdf5 else MatlabSource(path, request)


class MatlabSource(ArraySource):
    """A file up to version 7.2: SciPy loads whole variables, which are at most 2 GB."""

    format_name = "MATLAB"
    integers_as_floats = True
    _loaded: dict[str, Any] | None = None

    @contextmanager
    def _open(self) -> Iterator[Mapping[str, Any]]:
        if self._loaded is None:
            self._loaded = {
                name: _variable(value)
                for name, value in scipy.io.loadmat(str(self.path)).items()
                if not name.startswith("__") and hasattr(value, "dtype")
            }
        yield self._loaded


def _variable(value: Any) -> Any:
    if hasattr(value, "tocsr"):
        return checked_csr(value)
    if value.dtype.kind == "U":
        return np.char.rstrip(value)
    if value.dtype.kind == "O":
        return _objects([str(cell.item()) if cell.size == 1 else cell for cell in value.flat])
    return value


class Matlab73Source(Hdf5Source):
    """A file of version 7.3: HDF5 with the axes in reverse."""

    format_name = "MATLAB 7.3"
    integers_as_floats = True

    @contextmanager
    def _open(self) -> Iterator[Mapping[str, Any]]:
        with super()._open() as arrays:
            # Names with # are internal to MATLAB; a sparse matrix is a group of three arrays.
            yield {
                name: _Transposed(item)
                for name, item in arrays.items()
                if not name.startswith("#")
                and "MATLAB_empty" not in item.attrs
                and "MATLAB_sparse" not in item.parent.attrs
            }


class _Transposed:
    """A dataset with the axes in MATLAB's order."""

    def __init__(self, item: Any) -> None:
        self._item, self._kind, self.shape = item, _matlab_class(item), item.shape[::-1]
        kinds = {"char": "U1", "cell": "O"}
        self.dtype: np.dtype[Any] = np.dtype(kinds.get(self._kind, item.dtype))

    def __getitem__(self, rows: slice | tuple[()]) -> NDArray[Any]:
        if isinstance(rows, slice):
            return np.ascontiguousarray(self._item[..., rows].T)
        values: NDArray[Any] = self._item[()]
        if self._kind == "char":
            return np.array([_text(row) for row in values.T])
        if self._kind == "cell":
            return _objects([_cell_text(self._item.file[cell]) for cell in values.flat])
        return values


def _objects(values: list[Any]) -> NDArray[Any]:
    """Create an array (n,) of objects, even if they are arrays themselves."""
    return np.array([*values, None], dtype=object)[:-1]


def _matlab_class(item: Any) -> str:
    kind = item.attrs.get("MATLAB_class", b"")
    return kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)


def _text(characters: NDArray[Any]) -> str:
    return characters.astype("<u2").tobytes().decode("utf-16-le", "replace").rstrip(" ")


def _cell_text(cell: Any) -> Any:
    if "MATLAB_empty" in cell.attrs:
        return ""
    return _text(cell[()].T.reshape(-1)) if _matlab_class(cell) == "char" else cell[()]
