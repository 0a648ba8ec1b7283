"""MATLAB files of version 5, which MATLAB also calls 6 and 7.

A file is a row of elements, each a tag (type and number of bytes) and data; a variable is an
element of elements, perhaps compressed. It is parsed here, with all sizes checked, because SciPy's
parser crashes on damaged files and can load whole variables only.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.arrays import ArrayFile, ArraySource, Vector
from bitclass.data.errors import DataFileError
from bitclass.data.limits import check_expansion
from bitclass.data.matlab_arrays import CLASSES, by_rows, whole_numbers_if_possible
from bitclass.data.sources import (
    ByteStream,
    Converted,
    Layout,
    LoadedArray,
    MappedArray,
    PackedArray,
    skip,
)

__all__ = ["Matlab5File"]

_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8",
            13: "u8"}  # fmt: skip
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CLASS_NAMES = ("", "cell", "struct", "object", "char", "sparse", "double", "single", "int8",
                "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "function",
                "string or object")  # fmt: skip
_MOST_HEADER_BYTES = 4096
_MOST_VARIABLES = 10_000


class _Counted:
    """A stream that knows how far it has come."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.at = 0

    def read(self, n_bytes: int, /) -> bytes:
        """Exactly `n_bytes` bytes."""
        parts = []
        while n_bytes > 0:
            part = self._stream.read(n_bytes)
            if not part:
                raise EOFError("its data end too early")
            parts.append(part)
            n_bytes -= len(part)
            self.at += len(part)
        return b"".join(parts)

    def skip_padding(self, n_bytes: int) -> None:
        """Pass over padding, which some writers leave out at the end."""
        while n_bytes > 0 and (part := self._stream.read(n_bytes)):
            n_bytes -= len(part)
            self.at += len(part)


class _Inflated:
    """The unpacked bytes of a compressed element, a part at a time."""

    def __init__(self, stream: IO[bytes], n_bytes: int) -> None:
        self._stream, self._left = stream, n_bytes
        self._inflate = zlib.decompressobj()

    def read(self, n_bytes: int, /) -> bytes:
        """At most `n_bytes` bytes, none at the end."""
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail
            if not packed:
                packed = self._stream.read(min(self._left, 1 << 16))
                self._left -= len(packed)
            unpacked = self._inflate.decompress(packed, n_bytes)
            if unpacked or not packed:
                return unpacked
        return b""


@dataclass(frozen=True)
class _Tag:
    """Type and size of an element; `inside` has the data of one so small that the tag holds it."""

    kind: int
    n_bytes: int
    inside: bytes | None


def _read_tag(stream: _Counted, order: str) -> _Tag:
    raw = stream.read(8)
    kind, n_bytes = struct.unpack(order + "II", raw)
    if kind >> 16:
        n_bytes, kind = kind >> 16, kind & 0xFFFF
        if n_bytes > 4:
            raise ValueError("a small element of more than 4 bytes")
        return _Tag(kind, n_bytes, raw[4 : 4 + n_bytes])
    return _Tag(kind, n_bytes, None)


def _read_element(stream: _Counted, order: str, most: int) -> tuple[int, bytes]:
    """An element as a whole: its type and its data."""
    tag = _read_tag(stream, order)
    if tag.inside is not None:
        return tag.kind, tag.inside
    if tag.n_bytes > most:
        raise ValueError(f"an element of {tag.n_bytes} bytes where {most} are left")
    data = stream.read(tag.n_bytes)
    stream.skip_padding(-tag.n_bytes % 8)
    return tag.kind, data


@dataclass(frozen=True)
class _Header:
    """What stands before the data of a variable."""

    name: str
    kind: str
    shape: tuple[int, ...]
    is_complex: bool
    n_bytes: int


def _read_header(stream: _Counted, order: str) -> _Header:
    _, flags = _read_element(stream, order, _MOST_HEADER_BYTES)
    (bits,) = struct.unpack(order + "I", flags[:4])
    number = bits & 0xFF
    kind = _CLASS_NAMES[number] if number < len(_CLASS_NAMES) else f"class {number}"
    shape: tuple[int, ...] = ()
    if number != 17:
        dim_type, dims = _read_element(stream, order, _MOST_HEADER_BYTES)
        shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
        if dim_type not in (5, 6) or len(shape) < 2 or min(shape) < 0:
            raise ValueError("wrong dimensions")
    _, name = _read_element(stream, order, _MOST_HEADER_BYTES)
    if bits & 0x200 and kind == "uint8":
        kind = "logical"
    return _Header(name.decode("latin-1"), kind, shape, bool(bits & 0x800), stream.at)


@dataclass(frozen=True)
class _Variable:
    """A variable: its header, and where in the file it is; sizes without the tags before them."""

    header: _Header
    offset: int
    stored_bytes: int
    n_bytes: int
    packed: bool


class Matlab5File(ArrayFile):
    """A MATLAB file of version 5."""

    format_name = "MATLAB version 5"

    def __init__(self, path: Path, order: str) -> None:
        self.path, self._order = path, order
        self._bytes = path.stat().st_size
        self._variables: dict[str, _Variable] = {}
        with path.open("rb") as stream:
            at = 128
            while at < self._bytes:
                stream.seek(at)
                variable, at = self._read_variable(stream, at)
                # MATLAB keeps objects in one without a name.
                if variable is not None and variable.header.name:
                    self._variables[variable.header.name] = variable
                if len(self._variables) > _MOST_VARIABLES:
                    raise DataFileError(f"{path}: has more than {_MOST_VARIABLES} variables")

    def _read_variable(self, stream: IO[bytes], at: int) -> tuple[_Variable | None, int]:
        """The variable at a place, and where the next one is."""
        tag = _read_tag(_Counted(stream), self._order)
        offset, stop = at + 8, at + 8 + tag.n_bytes
        if stop > self._bytes or tag.inside is not None:
            raise EOFError("it is cut short")
        if tag.kind not in (_MATRIX, _COMPRESSED):
            return None, stop
        inner: ByteStream = stream
        n_bytes = tag.n_bytes
        if tag.kind == _COMPRESSED:
            inner = _Inflated(stream, tag.n_bytes)
            unpacked = _read_tag(_Counted(inner), self._order)
            if unpacked.kind != _MATRIX or unpacked.inside is not None:
                return None, stop
            n_bytes = unpacked.n_bytes
            check_expansion(self.path, "a variable", n_bytes, tag.n_bytes)
        if n_bytes == 0:
            return None, stop
        header = _read_header(_Counted(inner), self._order)
        packed = tag.kind == _COMPRESSED
        return _Variable(header, offset, tag.n_bytes, n_bytes, packed), stop

    def names(self) -> Sequence[str]:
        """Names of the variables."""
        return list(self._variables)

    @contextmanager
    def _opened(self, variable: _Variable, start: int) -> Iterator[ByteStream]:
        """The bytes of a variable from `start` on."""
        with self.path.open("rb") as stream:
            stream.seek(variable.offset)
            inner: ByteStream = stream
            if variable.packed:
                inner = _Inflated(stream, variable.stored_bytes)
                start += 8
            skip(inner, start)
            yield inner

    def source(self, name: str) -> ArraySource:
        """One of the variables, a numeric matrix."""
        variable = self._variables[name]
        header = variable.header
        if header.is_complex:
            raise DataFileError(f"{self.path}: {name!r} is complex; features are real")
        if header.kind == "sparse":
            load = partial(self._load_sparse, name, variable)
            return LoadedArray(header.shape, np.dtype("f8"), load, is_sparse=True)
        if header.kind not in CLASSES:
            raise DataFileError(
                f"{self.path}: {name!r} is a {header.kind} array; features are numeric or logical"
            )
        if 0 in header.shape:
            return LoadedArray(header.shape, CLASSES[header.kind], lambda: np.empty(header.shape))
        return self._numeric(name, variable)

    def _numeric(self, name: str, variable: _Variable) -> ArraySource:
        header = variable.header
        with self._opened(variable, header.n_bytes) as stream:
            tag = _read_tag(_Counted(stream), self._order)
        # Numbers are stored in as few bytes as they need, whatever their class.
        stored = self._number_type(name, tag.kind)
        layout = Layout(header.shape, stored, fortran_order=True)
        start = header.n_bytes + 8
        there = tag.n_bytes if tag.inside is not None else variable.n_bytes - start
        if layout.n_bytes > min(tag.n_bytes, there):
            raise DataFileError(
                f"{self.path}: {name!r} claims {header.shape[0]} x {math.prod(header.shape[1:])} "
                f"values but holds {min(tag.n_bytes, there)} bytes; it is cut short or damaged"
            )
        array: ArraySource
        if tag.inside is not None:
            few = np.frombuffer(tag.inside, stored, math.prod(header.shape))
            few = few.reshape(header.shape, order="F")
            array = LoadedArray(header.shape, stored, lambda: few)
        elif variable.packed:
            array = PackedArray(self.path, layout, lambda: self._opened(variable, start))
        else:
            array = MappedArray(self.path, layout, variable.offset + start)
        wanted = CLASSES[header.kind]
        return array if wanted == stored else Converted(array, wanted)

    def _number_type(self, name: str, kind: int) -> np.dtype[Any]:
        if kind not in _NUMBERS:
            raise DataFileError(f"{self.path}: {name!r} has data of an unknown type; it is damaged")
        return np.dtype(self._order + _NUMBERS[kind])

    def label_source(self, name: str) -> ArraySource:
        """One of the variables: numbers, a char matrix or a cell array of text."""
        variable = self._variables[name]
        kind = variable.header.kind
        if kind not in ("char", "cell"):
            return whole_numbers_if_possible(Vector(self.source(name)))
        stream = self._loaded(variable)
        if kind == "char":
            texts = self._char_rows(name, stream, variable.header, variable.n_bytes)
        else:
            texts = self._cell_texts(name, stream, variable)
        labels = np.array(texts, dtype=object)
        return LoadedArray(labels.shape, labels.dtype, lambda: labels)

    def _loaded(self, variable: _Variable) -> _Counted:
        """All of a variable behind its header, in memory."""
        n_bytes = variable.n_bytes - variable.header.n_bytes
        with self._opened(variable, variable.header.n_bytes) as stream:
            content = _Counted(stream).read(n_bytes)
        return _Counted(io.BytesIO(content))

    def _char_rows(self, name: str, stream: _Counted, header: _Header, most: int) -> list[str]:
        """The rows of a char matrix, without the blanks that fill them up."""
        kind, data = _read_element(stream, self._order, most)
        if kind not in _TEXTS or len(header.shape) != 2:
            raise DataFileError(f"{self.path}: labels {name!r} are not text that can be read")
        codec = _TEXTS[kind]
        if codec != "utf-8" and codec != "latin-1":
            codec += "-le" if self._order == "<" else "-be"
        text = data.decode(codec)
        n_rows, width = header.shape
        if n_rows == 1 or not text:
            return [text.rstrip(" ")]
        if len(text) != n_rows * width:
            raise DataFileError(
                f"{self.path}: labels {name!r} claims {n_rows} x {width} characters but holds "
                f"{len(text)}"
            )
        return [text[row::n_rows].rstrip(" ") for row in range(n_rows)]

    def _cell_texts(self, name: str, stream: _Counted, variable: _Variable) -> list[str]:
        most = variable.n_bytes
        texts = []
        n_cells = math.prod(variable.header.shape)
        if n_cells * 8 > most:  # each cell has a tag
            raise DataFileError(
                f"{self.path}: labels {name!r} claims {n_cells} cells; it is damaged"
            )
        for _ in range(n_cells):
            tag = _read_tag(stream, self._order)
            if tag.kind != _MATRIX or tag.n_bytes > most:
                raise DataFileError(f"{self.path}: labels {name!r} has a cell that is damaged")
            cell = _Counted(io.BytesIO(stream.read(tag.n_bytes)))
            if tag.n_bytes == 0:
                texts.append("")
                continue
            header = _read_header(cell, self._order)
            if header.kind != "char" or header.shape[0] > 1:
                raise DataFileError(f"{self.path}: labels {name!r} has a cell that is not text")
            texts += self._char_rows(name, cell, header, tag.n_bytes)
        return texts

    def _load_sparse(self, name: str, variable: _Variable) -> NDArray[Any]:
        stream = self._loaded(variable)
        parts = []
        for _ in range(3):
            kind, data = _read_element(stream, self._order, variable.n_bytes)
            dtype = self._number_type(name, kind)
            parts.append(np.frombuffer(data, dtype, len(data) // dtype.itemsize))
        rows, ends, values = parts
        numbers = values.astype(np.float64)
        matrix: NDArray[Any] = by_rows(self.path, name, numbers, rows, ends, variable.header.shape)
        return matrix
