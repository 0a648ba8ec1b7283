"""NumPy files: `.npy`, and `.npz`, which is a zip of them.

What is not compressed is mapped; what is compressed is read from front to back. A header is a
claim, so it is checked against the bytes that are there. Arrays of objects are pickles and are
never read.
"""

from __future__ import annotations

import ast
import os
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.arrays import ArrayFile, ArrayRows, ArraySource, CsrSource
from bitclass.data.errors import DataFileError, reading
from bitclass.data.limits import check_expansion
from bitclass.data.rowfile import Request, RowFile
from bitclass.data.sources import ByteStream, Layout, MappedArray, PackedArray, skip

__all__ = ["NpyFile", "NpzFile", "open_npy", "open_npz"]

_MOST_HEADER_BYTES = 1 << 16
_CSR_PARTS = ("data", "indices", "indptr", "shape", "format")
_CSR_NAME = "sparse matrix"


def read_header(path: Path, name: str, stream: IO[bytes]) -> tuple[Layout, int]:
    """Read and check the header of an array.

    Parameters
    ----------
    path : the file, for errors
    name : of the array, for errors
    stream : at the start of the header

    Returns
    -------
    layout : Layout
    size : int, bytes of the header
    """
    start = stream.read(12)
    if len(start) < 12 or start[:6] != b"\x93NUMPY":
        raise DataFileError(f"{path}: {name} does not begin as a NumPy array does")
    if start[6] == 1:
        (length,), size, rest = struct.unpack("<H", start[8:10]), 10, start[10:]
    elif start[6] in (2, 3):
        (length,), size, rest = struct.unpack("<I", start[8:12]), 12, b""
    else:
        raise DataFileError(f"{path}: {name} is of version {start[6]} of the NumPy format")
    if length > _MOST_HEADER_BYTES:
        raise DataFileError(f"{path}: {name} has a header of {length} bytes; it is damaged")
    text = rest + stream.read(length - len(rest))
    try:
        header = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin-1").strip())
        shape, order, descr = header["shape"], header["fortran_order"], header["descr"]
        # A list describes a structured array; that is not one of ours.
        dtype = np.dtype(descr if isinstance(descr, str) else "V")
        sizes_fit = all(type(size) is int and 0 <= size < 1 << 62 for size in shape)
        if len(text) < length or type(shape) is not tuple or type(order) is not bool:
            raise ValueError("wrong types in the header")
        if not sizes_fit or len(shape) > 8:
            raise ValueError("wrong sizes in the header")
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataFileError(f"{path}: the header of {name} is damaged") from error
    if dtype.kind == "O":
        raise DataFileError(
            f"{path}: {name} holds Python objects, which are not read from files; "
            "save numbers or text"
        )
    if dtype.itemsize == 0:
        raise DataFileError(f"{path}: {name} is of type {descr!r}, which takes no bytes")
    return Layout(shape, dtype, order), size + length


class NpyFile(ArrayFile):
    """A `.npy` file, as a file of one array."""

    format_name = "NumPy .npy"

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            self._layout, self._start = read_header(path, "the file", stream)
            there = os.fstat(stream.fileno()).st_size - self._start
        check_all_there(path, "the file", self._layout, there)

    def names(self) -> Sequence[str]:
        """The one array is called as the file."""
        return [self.path.name]

    def source(self, name: str) -> ArraySource:
        """The array."""
        return MappedArray(self.path, self._layout, self._start)


def check_all_there(path: Path, name: str, layout: Layout, there: int) -> None:
    """Refuse an array whose data are not all there."""
    if layout.n_bytes > there:
        raise DataFileError(
            f"{path}: {name} claims an array of shape {layout.shape} and type {layout.dtype}, "
            f"{layout.n_bytes} bytes, but holds {there}; it is cut short or damaged"
        )


class NpzFile(ArrayFile):
    """A `.npz` file; one that SciPy's `save_npz` wrote has an array called 'sparse matrix'."""

    format_name = "NumPy .npz"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            self._members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }

    def names(self) -> Sequence[str]:
        """Names of the arrays."""
        if all(part in self._members for part in _CSR_PARTS):
            # SciPy also notes whether it was a matrix or an array.
            others = [name for name in self._members if name not in (*_CSR_PARTS, "_is_array")]
            return [_CSR_NAME, *others]
        return list(self._members)

    def source(self, name: str) -> ArraySource:
        """One of the arrays."""
        return self._sparse() if name == _CSR_NAME else self._member(name)

    def _member(self, name: str) -> ArraySource:
        info = self._members[name]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataFileError(f"{self.path}: {name!r} is compressed in a way that is not read")
        if info.flag_bits & 1:
            raise DataFileError(f"{self.path}: {name!r} is encrypted")
        if info.compress_size > self._bytes:
            raise DataFileError(f"{self.path}: {name!r} claims more bytes than the file has")
        check_expansion(self.path, repr(name), info.file_size, info.compress_size)
        with zipfile.ZipFile(self.path) as archive, archive.open(info) as stream:
            layout, start = read_header(self.path, repr(name), stream)
        check_all_there(self.path, repr(name), layout, info.file_size - start)
        if info.compress_type == zipfile.ZIP_DEFLATED:
            return PackedArray(self.path, layout, lambda: self._opened(info, start))
        offset = self._stored_offset(info) + start
        check_all_there(self.path, repr(name), layout, self._bytes - offset)
        return MappedArray(self.path, layout, offset)

    @contextmanager
    def _opened(self, info: zipfile.ZipInfo, start: int) -> Iterator[ByteStream]:
        with zipfile.ZipFile(self.path) as archive, archive.open(info) as stream:
            skip(stream, start)
            yield stream

    def _stored_offset(self, info: zipfile.ZipInfo) -> int:
        with self.path.open("rb") as stream:
            stream.seek(info.header_offset)
            local = stream.read(30)  # archive.open() has checked it
        name_length, extra_length = struct.unpack("<HH", local[26:30])
        return info.header_offset + 30 + int(name_length) + int(extra_length)

    def _sparse(self) -> ArraySource:
        kind = self._small("format").item()
        kind = kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)
        if kind != "csr":
            raise DataFileError(
                f"{self.path}: the sparse matrix is stored as {kind!r:.20}, not by rows; "
                "save it with .tocsr()"
            )
        shape = self._small("shape")
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
            raise DataFileError(f"{self.path}: the shape of the sparse matrix is damaged")
        return CsrSource(
            self.path,
            self._member("data"),
            self._member("indices"),
            self._member("indptr"),
            (int(shape[0]), int(shape[1])),
        )

    def _small(self, name: str) -> NDArray[Any]:
        """A tiny array, as a whole."""
        info = self._members[name]
        if info.file_size > 4096:
            raise DataFileError(f"{self.path}: {name!r} of the sparse matrix is damaged")
        with zipfile.ZipFile(self.path) as archive, archive.open(info) as stream:
            layout, start = read_header(self.path, repr(name), stream)
            check_all_there(self.path, repr(name), layout, info.file_size - start)
            values = np.frombuffer(stream.read(layout.n_bytes), layout.dtype)
        return values.reshape(layout.shape)


def open_npy(path: Path, request: Request) -> RowFile:
    """Open a `.npy` file of features, or of labels."""
    with reading(path, NpyFile.format_name):
        if not request.only_labels:
            # One array a file: names cannot be meant for it, and labels are not beside it.
            if request.features is not None or request.labels not in (None, False):
                raise DataFileError(
                    f"{path}: a .npy file has one array without a name; leave features= and "
                    "labels= out, and give the labels in a file of their own"
                )
            request = Request(labels=False, n_features=request.n_features)
        else:
            request = Request(only_labels=True)
        return ArrayRows(NpyFile(path), request)


def open_npz(path: Path, request: Request) -> RowFile:
    """Open a `.npz` file."""
    with reading(path, NpzFile.format_name):
        return ArrayRows(NpzFile(path), request)
