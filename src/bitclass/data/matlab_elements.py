"""What a MATLAB file of version 5 is made of: elements, and the headers of its variables."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import IO

from bitclass.data.sources import ByteStream

__all__ = [
    "BYTE_ORDERS",
    "COMPRESSED",
    "MATRIX",
    "NUMBERS",
    "TEXTS",
    "Counted",
    "Header",
    "Inflated",
    "Tag",
    "read_element",
    "read_header",
    "read_tag",
]

#: Byte orders of NumPy, by what a file has at bytes 124 to 128.
BYTE_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8",
           13: "u8"}  # fmt: skip
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CLASS_NAMES = ("", "cell", "struct", "object", "char", "sparse", "double", "single", "int8",
                "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "function",
                "string or object")  # fmt: skip
_MOST_HEADER_BYTES = 4096


class Counted:
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


class Inflated:
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
class Tag:
    """Type and size of an element; `inside` has the data of one so small that the tag holds it."""

    kind: int
    n_bytes: int
    inside: bytes | None


def read_tag(stream: Counted, order: str) -> Tag:
    """Read the tag that an element begins with."""
    raw = stream.read(8)
    kind, n_bytes = struct.unpack(order + "II", raw)
    if kind >> 16:
        n_bytes, kind = kind >> 16, kind & 0xFFFF
        if n_bytes > 4:
            raise ValueError("a small element of more than 4 bytes")
        return Tag(kind, n_bytes, raw[4 : 4 + n_bytes])
    return Tag(kind, n_bytes, None)


def read_element(stream: Counted, order: str, most: int) -> tuple[int, bytes]:
    """An element as a whole: its type and its data."""
    tag = read_tag(stream, order)
    if tag.inside is not None:
        return tag.kind, tag.inside
    if tag.n_bytes > most:
        raise ValueError(f"an element of {tag.n_bytes} bytes where {most} are left")
    data = stream.read(tag.n_bytes)
    stream.skip_padding(-tag.n_bytes % 8)
    return tag.kind, data


@dataclass(frozen=True)
class Header:
    """What stands before the data of a variable."""

    name: str
    kind: str
    shape: tuple[int, ...]
    is_complex: bool
    n_bytes: int


def read_header(stream: Counted, order: str) -> Header:
    """Read what stands before the data of a variable."""
    _, flags = read_element(stream, order, _MOST_HEADER_BYTES)
    (bits,) = struct.unpack(order + "I", flags[:4])
    number = bits & 0xFF
    kind = _CLASS_NAMES[number] if number < len(_CLASS_NAMES) else f"class {number}"
    shape: tuple[int, ...] = ()
    if number != 17:
        dim_type, dims = read_element(stream, order, _MOST_HEADER_BYTES)
        shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
        if dim_type not in (5, 6) or len(shape) < 2 or min(shape) < 0:
            raise ValueError("wrong dimensions")
    _, name = read_element(stream, order, _MOST_HEADER_BYTES)
    if bits & 0x200 and kind == "uint8":
        kind = "logical"
    return Header(name.decode("latin-1"), kind, shape, bool(bits & 0x800), stream.at)
