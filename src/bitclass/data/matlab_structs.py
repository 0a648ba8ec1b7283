"""Struct arrays of MATLAB files of version 5, as far as they hold single numbers and text."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from bitclass.data.limits import MAX_EXPANSION
from bitclass.data.matlab_elements import (
    BYTE_ORDERS,
    COMPRESSED,
    MATRIX,
    NUMBERS,
    TEXTS,
    Counted,
    Inflated,
    read_element,
    read_header,
    read_tag,
)

__all__ = ["read_structs"]

_MOST_FIELDS = 1000

Value = float | str | None


def read_structs(content: bytes, name: str) -> Sequence[Mapping[str, Value]]:
    """Read one struct array of a file.

    Parameters
    ----------
    content : the whole file
    name : of the struct array

    Returns
    -------
    one mapping an entry, of field names to numbers or text; None where a field holds anything else

    Raises
    ------
    ValueError, EOFError, KeyError, struct.error
        If the file is damaged or has no such variable.
    """
    order = BYTE_ORDERS.get(content[124:128])
    if order is None:
        raise ValueError("it is not a MATLAB file of version 5")
    stream = io.BytesIO(content)
    at = 128
    while at < len(content):
        stream.seek(at)
        tag = read_tag(Counted(stream), order)
        stop = at + 8 + tag.n_bytes
        if stop > len(content) or tag.inside is not None:
            raise EOFError("it is cut short")
        variable = _variable(content[at + 8 : stop], tag.kind, order)
        if variable is not None and (found := _structs_if(variable, name, order)) is not None:
            return found
        at = stop
    raise ValueError(f"it has no struct array {name!r}")


def _variable(data: bytes, kind: int, order: str) -> bytes | None:
    """Bytes of a variable without its tag, unpacked; None for any other element."""
    if kind == MATRIX:
        return data
    if kind != COMPRESSED:
        return None
    inner = Counted(Inflated(io.BytesIO(data), len(data)))
    tag = read_tag(inner, order)
    if tag.kind != MATRIX or tag.inside is not None:
        return None
    if tag.n_bytes > MAX_EXPANSION * len(data):
        raise ValueError(f"a variable claims {tag.n_bytes} bytes")
    return inner.read(tag.n_bytes)


def _structs_if(data: bytes, name: str, order: str) -> list[dict[str, Value]] | None:
    """Entries of a struct array, None where the variable is another one."""
    stream = Counted(io.BytesIO(data))
    header = read_header(stream, order)
    if header.name != name or header.kind != "struct":
        return None
    fields = _field_names(stream, order, len(data))
    n_entries = math.prod(header.shape)
    if n_entries * len(fields) * 8 > len(data):  # each value has a tag
        raise ValueError(f"{name!r} claims {n_entries} entries")
    return [{field: _value(stream, order, len(data)) for field in fields} for _ in range(n_entries)]


def _field_names(stream: Counted, order: str, most: int) -> list[str]:
    _, length = read_element(stream, order, most)
    (width,) = struct.unpack(order + "i", length)
    _, names = read_element(stream, order, most)
    if width <= 0 or len(names) % width or not 0 < len(names) // width <= _MOST_FIELDS:
        raise ValueError("wrong names of fields")
    parts = (names[start : start + width] for start in range(0, len(names), width))
    return [part.partition(b"\0")[0].decode("ascii") for part in parts]


def _value(stream: Counted, order: str, most: int) -> Value:
    kind, data = read_element(stream, order, most)
    if kind != MATRIX:
        raise ValueError("a field that is no array")
    if not data:
        return None
    inner = Counted(io.BytesIO(data))
    header = read_header(inner, order)
    if header.kind == "char":
        kind, text = read_element(inner, order, len(data))
        codec = TEXTS[kind]
        if codec in ("utf-16", "utf-32"):
            codec += "-le" if order == "<" else "-be"
        return text.decode(codec)
    if math.prod(header.shape) != 1 or header.kind in ("cell", "struct", "object", "sparse"):
        return None
    kind, number = read_element(inner, order, len(data))
    return float(np.frombuffer(number, order + NUMBERS[kind], 1)[0])
