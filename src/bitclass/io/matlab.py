"""MATLAB files: SciPy reads those up to version 7.2, h5py those of version 7.3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from bitclass.io.arrays import ArraySource, checked_csr
from bitclass.io.errors import reading
from bitclass.io.hdf5 import Hdf5Source
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
    _loaded: dict[str, Any] | None = None

    @contextmanager
    def _open(self) -> Iterator[Mapping[str, Any]]:
        if self._loaded is None:
            self._loaded = {
                name: checked_csr(value) if hasattr(value, "tocsr") else value
                for name, value in scipy.io.loadmat(str(self.path)).items()
                if not name.startswith("__") and hasattr(value, "dtype")
            }
        yield self._loaded

    def _read_labels(self, array: Any) -> NDArray[Any]:
        labels = array.reshape(-1)
        if labels.dtype.kind == "O":
            return _objects([str(cell.item()) if cell.size == 1 else cell for cell in labels])
        return np.char.rstrip(labels) if labels.dtype.kind == "U" else whole_numbers(labels)


class Matlab73Source(Hdf5Source):
    """A file of version 7.3: HDF5 with the axes in reverse."""

    format_name = "MATLAB 7.3"

    def _is_data(self, name: str, item: Any) -> bool:
        # What starts with # belongs to MATLAB itself; a sparse matrix is a group of three arrays.
        parent = item.parent.attrs
        return not (
            name.startswith("#") or "MATLAB_empty" in item.attrs or "MATLAB_sparse" in parent
        )

    def _array(self, item: Any) -> Any:
        return _Transposed(item)

    def _read_labels(self, array: _Transposed) -> NDArray[Any]:
        item = array.item
        if _matlab_class(item) == "char":
            return np.array([_text(row) for row in item[()].T])
        if _matlab_class(item) == "cell":
            return _objects([_cell_text(item.file[cell]) for cell in item[()].reshape(-1)])
        return whole_numbers(item[()].reshape(-1))


class _Transposed:
    """A dataset as MATLAB sees it."""

    def __init__(self, item: Any) -> None:
        kinds = {"char": "U1", "cell": "O"}
        self.item, self.shape = item, item.shape[::-1]
        self.dtype: np.dtype[Any] = np.dtype(kinds.get(_matlab_class(item), item.dtype))

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return np.ascontiguousarray(self.item[..., rows].T)


def whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Doubles, which nearly all numbers of MATLAB are, as integers if all of them are whole.

    Examples
    --------
    >>> whole_numbers(np.array([1.0, 2.0]))
    array([1, 2])
    """
    if labels.dtype.kind != "f" or not np.isfinite(labels).all():
        return labels
    if np.any(np.abs(labels) > 1 << 53) or np.any(np.floor(labels) != labels):
        return labels
    return labels.astype(np.int64)


def _objects(values: list[Any]) -> NDArray[Any]:
    """An array (n,) of objects, also where they are arrays themselves."""
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
