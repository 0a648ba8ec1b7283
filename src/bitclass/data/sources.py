"""Ways in which an array lies in a file: as it would in memory, or packed."""

from __future__ import annotations

import math
import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitclass.data.arrays import ArraySource, ReadRows

__all__ = ["ByteStream", "Converted", "Layout", "LoadedArray", "MappedArray", "PackedArray"]

_STEP_BYTES = 1 << 20


class ByteStream(Protocol):
    """Bytes from front to back."""

    def read(self, n_bytes: int, /) -> bytes:
        """At most `n_bytes` bytes, none at the end."""


@dataclass(frozen=True)
class Layout:
    """How an array lies in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

    @property
    def n_bytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def by_columns(self) -> bool:
        """Whether the values of a row are not side by side."""
        return self.fortran_order and len(self.shape) > 1 and 1 not in self.shape


class MappedArray(ArraySource):
    """An array that lies in a file as it would in memory.

    A batch is mapped by itself: the pages of a batch that is gone no longer count as memory of the
    process.

    Parameters
    ----------
    path : the file
    layout : Layout
    offset : where in the file the data begin
    """

    def __init__(self, path: Path, layout: Layout, offset: int) -> None:
        self.path = path
        self.shape, self.dtype = layout.shape, layout.dtype
        self._layout, self._offset = layout, offset

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Open the array for one pass over its rows."""
        with self.path.open("rb", buffering=0) as stream:
            yield lambda start, stop: self.read_from(stream, start, stop)

    def read_from(self, stream: IO[bytes], start: int, stop: int) -> NDArray[Any]:
        """Rows of the array in an open file."""
        if self._layout.by_columns:
            rows = self._from_columns(stream, start, stop)
        else:
            offset = self._offset + start * self._layout.row_bytes
            shape = (stop - start, *self.shape[1:])
            rows = _mapped(stream.fileno(), offset, self.dtype, shape)
        if not rows.flags.aligned:  # a member of a zip begins at any byte
            rows = rows.copy()
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)

    def _from_columns(self, stream: IO[bytes], start: int, stop: int) -> NDArray[Any]:
        """Rows of a matrix that is stored by columns.

        Not mapped: the system maps more about each page than is read, and so soon the whole file.
        """
        n_rows, n_columns = self.shape
        rows = np.empty((stop - start, n_columns), self.dtype)
        for column in range(n_columns):
            stream.seek(self._offset + (column * n_rows + start) * self.dtype.itemsize)
            part = b"".join(_steps(stream, (stop - start) * self.dtype.itemsize))
            rows[:, column] = np.frombuffer(part, self.dtype)
        return rows


def _mapped(
    file_number: int, offset: int, dtype: np.dtype[Any], shape: Sequence[int]
) -> NDArray[Any]:
    """Map a part of a file; fails, rather than crash later, where the file has become shorter."""
    before = offset % mmap.ALLOCATIONGRANULARITY
    n_bytes = math.prod(shape) * dtype.itemsize
    window = mmap.mmap(
        file_number, before + n_bytes, access=mmap.ACCESS_READ, offset=offset - before
    )
    if hasattr(window, "madvise") and hasattr(mmap, "MADV_WILLNEED"):
        window.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(window, dtype, math.prod(shape), before).reshape(shape)


class PackedArray(ArraySource):
    """A compressed array, read from front to back.

    Parameters
    ----------
    path : the file, for errors
    layout : Layout
    open_data : opens the unpacked data
    """

    def __init__(
        self,
        path: Path,
        layout: Layout,
        open_data: Callable[[], AbstractContextManager[ByteStream]],
    ) -> None:
        self.path = path
        self.shape, self.dtype = layout.shape, layout.dtype
        self._layout, self._open_data = layout, open_data

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Open the array for one pass over its rows."""
        with self._open_data() as stream:
            if self._layout.by_columns:
                # No row is complete before the end, so the columns wait on disk, not in memory.
                with tempfile.TemporaryFile(buffering=0) as unpacked:
                    _copy(stream, unpacked, self._layout.n_bytes)
                    _finish(stream)
                    array = MappedArray(self.path, self._layout, 0)
                    yield lambda start, stop: array.read_from(unpacked, start, stop)
                return
            at = 0

            def read(start: int, stop: int) -> NDArray[Any]:
                nonlocal at
                skip(stream, (start - at) * self._layout.row_bytes)
                rows = np.empty((stop - start, *self.shape[1:]), self.dtype)
                _fill(stream, rows.reshape(-1).view(np.uint8))
                at = stop
                if stop == self.shape[0]:
                    _finish(stream)
                return rows.astype(self.dtype.newbyteorder("="), copy=False)

            yield read


def _steps(stream: ByteStream, n_bytes: int) -> Iterator[bytes]:
    """The next `n_bytes` bytes, a part at a time."""
    while n_bytes > 0:
        step = stream.read(min(n_bytes, _STEP_BYTES))
        if not step:
            raise EOFError("its data end too early")
        n_bytes -= len(step)
        yield step


def _finish(stream: ByteStream) -> None:
    """Go over the padding to the end, where the checksum of what was unpacked is compared."""
    for _ in range(4):
        if not stream.read(64):
            break


def skip(stream: ByteStream, n_bytes: int) -> None:
    """Go forward."""
    for _ in _steps(stream, n_bytes):
        pass


def _copy(stream: ByteStream, target: IO[bytes], n_bytes: int) -> None:
    for step in _steps(stream, n_bytes):
        view = memoryview(step)
        while len(view):  # a file without a buffer may take a part
            view = view[target.write(view) :]


def _fill(stream: ByteStream, memory: NDArray[np.uint8]) -> None:
    at = 0
    for step in _steps(stream, len(memory)):
        memory[at : at + len(step)] = np.frombuffer(step, np.uint8)
        at += len(step)


class LoadedArray(ArraySource):
    """An array that is loaded as a whole for each pass.

    Parameters
    ----------
    shape, dtype, is_sparse, buffer_bytes : as in ArraySource
    load : gives the array, or the CSR matrix
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        load: Callable[[], Any],
        is_sparse: bool = False,
        buffer_bytes: int = 0,
    ) -> None:
        self.shape, self.dtype, self.is_sparse = shape, dtype, is_sparse
        self.buffer_bytes = buffer_bytes
        self._load = load

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Load the array for one pass over its rows."""
        array = self._load()
        yield lambda start, stop: array[start:stop]


class Converted(ArraySource):
    """An array brought to another type as its rows are read."""

    def __init__(self, array: ArraySource, dtype: np.dtype[Any]) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, dtype

    @contextmanager
    def cursor(self) -> Iterator[ReadRows]:
        """Open the array for one pass."""
        with self._array.cursor() as read:
            yield lambda start, stop: read(start, stop).astype(self.dtype)
