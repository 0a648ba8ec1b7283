"""The container of all files: safetensors, with one JSON object of fields and a digest.

The safetensors library writes files and checks the table of tensors. Files are untrusted: sizes are
checked before memory is allocated, and the last 32 bytes are the SHA-256 of all bytes before, so
that no damaged file is read. What is written passes the same checks as what is read::

    content = Content({"n_rows": 3}, {"mass": np.ones(2)})
    check(content)  # calls content.fields and content.lengths, as after opening
    write_file(path, "sums", content)
    with open_file(path, "sums") as content:
        check(content)
        mass = content.read("mass")
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as as_safetensors

from bitclass.codes import packed_width
from bitclass.storage.atomic import atomic_write

#: The version of the format.
VERSION = 1

_KEY = "bitclass"
# The library writes tensors in descending order of item size, then by name: this one is the last.
_DIGEST = "~sha256"
_DIGEST_BYTES = hashlib.sha256().digest_size
_LENGTH_BYTES = 8
# Tables contain names and numbers, no data. The library itself would accept 100 MB.
_MAX_TABLE_BYTES = 4 << 20

#: NumPy types by their safetensors names.
_DTYPES: dict[str, np.dtype[Any]] = {
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}
_TYPES = {dtype: name for name, dtype in _DTYPES.items()}


class ModelFileError(ValueError):
    """A file is damaged, was written by another program, or has an unsupported version."""


@dataclass(frozen=True)
class Expected:
    """Requirements for an array in a file."""

    type: str  # safetensors name: "F32", "U8", ...
    axes: tuple[str | int, ...]  # lengths, or names; axes with the same name have the same length
    required: bool = True
    paired_with: str = ""  # another array: either both are present or neither
    low: float = -math.inf
    high: float = math.inf

    def check(self, name: str, values: NDArray[Any]) -> None:
        """Raise an error unless all values are finite and in the allowed range."""
        if values.size == 0:
            return
        smallest, largest = float(values.min()), float(values.max())
        if not (math.isfinite(smallest) and math.isfinite(largest)):
            raise ModelFileError(f"tensor {name!r} must contain finite numbers")
        if smallest < self.low or largest > self.high:
            allowed = "positive numbers" if self.low > 0 else "no negative numbers"
            if self.high < math.inf:
                allowed = f"numbers from {self.low:g} to {self.high:g}"
            raise ModelFileError(f"tensor {name!r} must contain {allowed}")


@dataclass
class Content:
    """Fields and arrays of a file that is open, or about to be written."""

    header: Mapping[str, Any]  # JSON values by name, without kind and version
    tensors: Mapping[str, NDArray[Any]]
    layout: Mapping[str, Expected] = field(default_factory=dict)  # set by `lengths`

    def type_of(self, name: str) -> str | None:
        """Safetensors type of an array; None if there is no such array."""
        return _TYPES.get(self.tensors[name].dtype) if name in self.tensors else None

    def fields(self, **known: type) -> dict[str, Any]:
        """The fields, which must be exactly these, of these types."""
        for name in self.header:
            if name not in known:
                raise ModelFileError(f"the header has an unknown field {shown(name)}")
        found = {}
        for name, kind in known.items():
            value = self.header.get(name)
            if kind is float and type(value) is int:
                value = _finite_float(value)
            if type(value) is not kind and kind is not object:
                what = shown(value) if name in self.header else "nothing"
                raise ModelFileError(
                    f"the header's {name!r} must be a {kind.__name__}, found {what}"
                )
            found[name] = value
        return found

    def lengths(self, layout: Mapping[str, Expected]) -> dict[str, int]:
        """Check the types and shapes of all arrays; returns the lengths of the named axes."""
        self.layout = layout
        for name in self.tensors:
            if name not in layout:
                raise ModelFileError(f"unknown tensor {shown(name)}")
        lengths: dict[str, int] = {}
        for name, expected in layout.items():
            paired_with = expected.paired_with
            if paired_with and (paired_with in self.tensors) != (name in self.tensors):
                missing, present = (
                    (paired_with, name) if name in self.tensors else (name, paired_with)
                )
                raise ModelFileError(f"tensor {missing!r} is missing, which {present!r} requires")
            if name not in self.tensors:
                if expected.required and not paired_with:
                    raise ModelFileError(f"tensor {name!r} is missing")
                continue
            if self.type_of(name) != expected.type:
                raise ModelFileError(
                    f"tensor {name!r} must have type {expected.type}, found {self.type_of(name)}"
                )
            shape = self.tensors[name].shape
            if len(shape) != len(expected.axes):
                raise ModelFileError(
                    f"tensor {name!r} must have {len(expected.axes)} axes, found shape {shape}"
                )
            for axis, length in zip(expected.axes, shape, strict=True):
                required = axis if isinstance(axis, int) else lengths.setdefault(axis, length)
                if length != required:
                    raise ModelFileError(
                        f"tensor {name!r} of shape {shape} does not match the others: its axis of "
                        f"{axis} must have length {required}"
                    )
        return lengths

    def read(self, name: str) -> NDArray[Any]:
        """An array, after a check of its values."""
        self.layout[name].check(name, self.tensors[name])
        return self.tensors[name]


def check_codes(name: str, codes: NDArray[np.uint8], n_bits: int) -> None:
    """Raise an error unless packed codes (n, bytes) have the right width and 0 in unused bits."""
    width = packed_width(n_bits)
    if codes.shape[1] != width:
        raise ModelFileError(
            f"tensor {name!r} must have {width} bytes per row for {n_bits} bits, found "
            f"{codes.shape[1]}"
        )
    if n_bits % 8 and (codes[:, -1] >> (n_bits % 8)).any():
        raise ModelFileError(f"tensor {name!r} must be 0 in the unused bits after bit {n_bits}")


# -- Writing


def write_file(path: str | os.PathLike[str], kind: str, content: Content) -> None:
    """Write a file of a kind, such as "model", atomically; equal content gives equal bytes.

    Fields that are not JSON values, or too long, are a ValueError. After an error, an existing file
    is unchanged.
    """
    fields = {"kind": kind, "version": VERSION, **content.header}
    try:
        text = json.dumps(fields, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the summary must contain only JSON values: {error}") from None
    arrays = {name: np.ascontiguousarray(values) for name, values in content.tensors.items()}
    placeholder = np.full(_DIGEST_BYTES, 0xDD, np.uint8)
    # A single key, since the library writes several in random order.
    file = memoryview(as_safetensors({**arrays, _DIGEST: placeholder}, metadata={_KEY: text}))
    length = int.from_bytes(file[:_LENGTH_BYTES], "little")
    if length > _MAX_TABLE_BYTES:
        raise ValueError(
            f"the header would have {length} bytes, more than {_MAX_TABLE_BYTES}; shorten the "
            "summary"
        )
    covered, last = file[:-_DIGEST_BYTES], file[-_DIGEST_BYTES:]
    assert last == placeholder.data, "the digest must be the last tensor"
    with atomic_write(path) as target:
        target.write(covered)
        target.write(hashlib.sha256(covered).digest())


# -- Reading


@contextmanager
def open_file(path: str | os.PathLike[str], kind: str) -> Iterator[Content]:
    """Open a file of the given kind: its digest is right, and its table is consistent.

    Every `ModelFileError` raised in the block names the file.
    """
    try:
        yield _content(_read(path, kind), kind)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from None


def _read(path: str | os.PathLike[str], kind: str) -> bytes:
    """The content of a file, unless it cannot be one of ours."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ModelFileError("not a regular file")
        begin = file.read(_LENGTH_BYTES)
        if int.from_bytes(begin, "little") > _MAX_TABLE_BYTES:
            raise ModelFileError(f"not a bitclass {kind} file: it does not start with a header")
        content = begin + file.read()
    if len(content) < _LENGTH_BYTES + _DIGEST_BYTES:
        raise ModelFileError(f"not a bitclass {kind} file: it has only {len(content)} bytes")
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    # A pipe without a writer would block `open`; the flag has no effect on regular files.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _content(file: bytes, kind: str) -> Content:
    """Content of a file of the right kind and version, whose digest is right."""
    try:
        arrays = deserialize(file)  # type: ignore[no-untyped-call]  # copies of the data
    except SafetensorError as error:
        raise ModelFileError(
            f"not a bitclass {kind} file, or damaged: {str(error)[:200]!r}"
        ) from None
    # The library returns no metadata, and the last of several tensors of a name.
    table = parse_json(file[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(file[:8], "little")])
    text = (table.get("__metadata__") or {}).get(_KEY)
    if text is None:
        raise ModelFileError(
            f"a safetensors file not written by bitclass: its metadata has no text {_KEY!r}"
        )
    header = parse_json(text)
    if not isinstance(header, dict):
        raise ModelFileError(
            f"the metadata's {_KEY!r} must be a JSON object, found {shown(header)}"
        )
    version = header.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise ModelFileError(
            f"format version {shown(version)} is not supported, only {VERSION}; train again, or "
            "use the version of bitclass that wrote the file"
        )
    if hashlib.sha256(memoryview(file)[:-_DIGEST_BYTES]).digest() != file[-_DIGEST_BYTES:]:
        raise ModelFileError("the file is damaged: its content does not match its digest")
    found = header.pop("kind", None)
    if found != kind:
        raise ModelFileError(f"expected a {kind} file, found kind {shown(found)}")
    if _DIGEST not in table:
        raise ModelFileError(f"tensor {_DIGEST!r} is missing")
    return Content(header, {name: _array(name, entry) for name, entry in arrays if name != _DIGEST})


def _array(name: str, entry: Mapping[str, Any]) -> NDArray[Any]:
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None or len(entry["shape"]) > 2:
        raise ModelFileError(
            f"tensor {shown(name)} must have one or two axes and one of the types "
            f"{', '.join(_DTYPES)}"
        )
    try:
        return np.frombuffer(entry["data"], dtype).reshape(entry["shape"])
    except ValueError as error:  # such as 0 x 2^62 numbers, which fit into any file
        raise ModelFileError(f"tensor {shown(name)}: {error}") from None


def parse_json(text: str | bytes, what: str = "the header") -> Any:
    """Parse JSON strictly: duplicate keys, NaN and infinity are errors."""
    try:
        return json.loads(
            text if isinstance(text, str) else text.decode(),
            object_pairs_hook=_without_duplicates,
            parse_constant=_finite_float,
            parse_float=_finite_float,
        )
    except RecursionError:
        raise ModelFileError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise ModelFileError(f"{what} is not valid JSON: {error}") from None


def shown(value: Any) -> str:
    """Format a value from a file for a message: in one line, and not too long."""
    text = repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ModelFileError(f"duplicate key {shown(key)}")
        values[key] = value
    return values


def _finite_float(text: str | int) -> float:
    """Convert a JSON number, which may be out of range, to a float."""
    try:
        value = float(text)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ModelFileError(f"number {shown(text)} is out of range")
    return value
