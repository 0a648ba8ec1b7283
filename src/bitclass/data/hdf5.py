"""HDF5 files, by h5py: data sets by their path, dense or CSR in a group.

Only what lies in the file itself is read: links to other files and data kept in other files are
not followed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bitclass.data.arrays import ArrayFile, ArrayRows, ArraySource, CsrSource, ReadRows
from bitclass.data.errors import DataFileError, check_extra, import_extra, reading
from bitclass.data.isolation import IsolatedRows
from bitclass.data.limits import Library, check_expansion
from bitclass.data.rowfile import Request, RowFile

__all__ = ["LIBRARY", "Hdf5Array", "Hdf5File", "check_stored", "h5py_for", "open_hdf5"]

LIBRARY = Library("h5py", room_bytes=64 << 20)

_MOST_DATASETS = 10_000
_MOST_CACHE_BYTES = 256 << 20
_CSR_PARTS = frozenset(("data", "indices", "indptr"))


def h5py_for(path: Path, format_name: str) -> Any:
    """The h5py module, or what to install."""
    return import_extra("h5py", "hdf5", path, format_name)


def check_stored(path: Path, name: str, dataset: Any) -> None:
    """Refuse a data set that claims more than the file holds, or keeps it elsewhere."""
    if dataset.is_virtual or dataset.external:
        raise DataFileError(f"{path}: {name!r} keeps its data in other files, which is not read")
    if dataset.shape is None:
        raise DataFileError(f"{path}: {name!r} is empty")
    stored = int(dataset.id.get_storage_size())
    if stored > path.stat().st_size:
        raise DataFileError(f"{path}: {name!r} claims more bytes than the file has")
    itemsize = dataset.dtype.itemsize
    claimed = math.prod(dataset.shape) * itemsize
    plain = dataset.id.get_create_plist().get_nfilters() == 0
    if plain and claimed > stored:
        raise DataFileError(
            f"{path}: {name!r} claims {claimed} bytes but {stored} are stored; "
            "the file is cut short or was never filled"
        )
    check_expansion(path, repr(name), claimed, stored)
    if dataset.chunks is not None:
        check_expansion(path, f"a chunk of {name!r}", math.prod(dataset.chunks) * itemsize, stored)


class Hdf5Array(ArraySource):
    """A data set.

    Parameters
    ----------
    path : the file
    name : of the data set
    dataset : the open data set, for its shape and type
    transposed : whether rows are along its last axis, as MATLAB stores them
    """

    def __init__(self, path: Path, name: str, dataset: Any, transposed: bool = False) -> None:
        check_stored(path, name, dataset)
        self.path, self._name = path, name
        self._transposed = transposed
        self.shape = tuple(dataset.shape[::-1] if transposed else dataset.shape)
        self.dtype = dataset.dtype
        self._cache_bytes = self._band_bytes(dataset)
        # A chunk is unpacked as a whole, by one filter after the other.
        chunk_bytes = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
        self.buffer_bytes = self._cache_bytes + 4 * chunk_bytes

    def _band_bytes(self, dataset: Any) -> int:
        """Bytes of all chunks that the same rows run through.

        With a smaller cache, every batch would unpack these chunks again.
        """
        if dataset.chunks is None or not dataset.shape:
            return 0
        axis = len(dataset.shape) - 1 if self._transposed else 0
        chunks = [
            chunk if place == axis else chunk * -(-size // chunk)
            for place, (size, chunk) in enumerate(zip(dataset.shape, dataset.chunks, strict=True))
        ]
        n_bytes: int = 2 * math.prod(chunks) * dataset.dtype.itemsize
        return min(n_bytes, _MOST_CACHE_BYTES)

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Open the data set for one pass over its rows."""
        h5py = h5py_for(self.path, "HDF5")
        cache = max(self._cache_bytes, 1 << 20)
        with h5py.File(self.path, "r", rdcc_nbytes=cache, rdcc_nslots=100_003) as file:
            dataset = file[self._name]
            shape = tuple(dataset.shape[::-1] if self._transposed else dataset.shape)
            if shape != self.shape:
                raise DataFileError(f"{self.path}: has changed since it was opened")

            def read(start: int, stop: int) -> Any:
                if self._transposed:
                    rows = np.ascontiguousarray(dataset[..., start:stop].T)
                else:
                    rows = dataset[start:stop]
                return rows.astype(rows.dtype.newbyteorder("="), copy=False)

            yield read


class Hdf5File(ArrayFile):
    """An HDF5 file; a group of data, indices and indptr is a CSR matrix under the group's name."""

    format_name = "HDF5"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._h5py = h5py_for(path, self.format_name)
        self._names: list[str] = []
        self._sparse: set[str] = set()
        with self._h5py.File(path, "r") as file:
            file.visititems(self._visit)
        if len(self._names) > _MOST_DATASETS:
            raise DataFileError(f"{path}: has more than {_MOST_DATASETS} data sets")

    def _visit(self, name: str, item: Any) -> bool | None:
        if isinstance(item, self._h5py.Dataset):
            if name.rpartition("/")[0] not in self._sparse:
                self._names.append(name)
        elif set(item) >= _CSR_PARTS:
            self._sparse.add(name)
            self._names.append(name)
        # Anything but None stops the visit.
        return True if len(self._names) > _MOST_DATASETS else None

    def names(self) -> Sequence[str]:
        """Paths of the data sets."""
        return self._names

    def source(self, name: str) -> ArraySource:
        """One of the data sets."""
        with self._h5py.File(self.path, "r") as file:
            if name not in self._sparse:
                return Hdf5Array(self.path, name, file[name])
            values, indices, pointers = (
                Hdf5Array(self.path, f"{name}/{part}", file[f"{name}/{part}"])
                for part in ("data", "indices", "indptr")
            )
            shape = self._sparse_shape(name, file[name])
            return CsrSource(self.path, values, indices, pointers, shape)

    def _sparse_shape(self, name: str, group: Any) -> tuple[int, int]:
        """The shape, which some writers keep as an attribute and others as a data set."""
        if "csc" in str(group.attrs.get("encoding-type", "csr")):
            raise DataFileError(f"{self.path}: {name!r} is stored by columns; store it as CSR")
        for key in ("shape", "h5sparse_shape"):
            if key in group.attrs:
                shape = np.asarray(group.attrs[key])
                break
        else:
            if "shape" not in group or group["shape"].shape != (2,):
                raise DataFileError(f"{self.path}: the sparse matrix {name!r} has no shape")
            shape = group["shape"][:]
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
            raise DataFileError(f"{self.path}: the shape of the sparse matrix {name!r} is damaged")
        return int(shape[0]), int(shape[1])


def open_hdf5(path: Path, request: Request) -> RowFile:
    """Open an HDF5 file."""
    check_extra("h5py", "hdf5", path, Hdf5File.format_name)
    return IsolatedRows(("hdf5", "open_here"), path, request)


def open_here(path: Path, request: Request) -> RowFile:
    """Open an HDF5 file in this process."""
    with reading(path, Hdf5File.format_name):
        return ArrayRows(Hdf5File(path), request)
