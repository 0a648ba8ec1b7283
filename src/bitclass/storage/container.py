"""The container: a safetensors file with the bitclass header in its metadata.

Files are untrusted. The header is read first, and every size in it is checked against the others
and against the size of the file before memory is allocated. Data to be written pass the same
checks, so that a file that cannot be read back is never written.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitclass.codes import packed_width
from bitclass.storage.atomic import atomic_write

__all__ = [
    "VERSIONS",
    "Container",
    "Expected",
    "ModelFileError",
    "check_codes",
    "opened",
    "parse_json",
    "shown",
    "write",
]

#: Supported format versions; the last one is written.
VERSIONS = (1, 2, 3)

# Headers contain names and numbers, no data; a longer one is an error.
_MAX_HEADER_BYTES = 4 << 20
_METADATA = "__metadata__"
_KEY = "bitclass"
_LENGTH_BYTES = 8
# Data start at a multiple of this, larger types first, so that all arrays are aligned.
_ALIGNMENT = 8
_MAX_LENGTH = 1 << 48

#: NumPy types by their safetensors names.
_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
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


class Tensor(NamedTuple):
    """An array in a file, not yet read."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # offset of its first byte from the end of the header

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Expected:
    """Requirements for an array in a file."""

    type: str  # safetensors name: "F32", "U8", ...
    axes: tuple[str | int, ...]  # lengths, or names; axes with the same name have the same length
    required: bool = True
    paired_with: str = ""  # another array: either both are present or neither
    low: float = -math.inf
    high: float = math.inf
    finite: bool = True

    def check(self, name: str, values: NDArray[Any]) -> None:
        """Raise an error unless all values are allowed."""
        if self.finite and values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ModelFileError(f"tensor {name!r} must contain finite numbers")
        too_low = self.low > -math.inf and (values < self.low).any()
        if too_low or (self.high < math.inf and (values > self.high).any()):
            allowed = "positive numbers" if self.low > 0 else "no negative numbers"
            if self.high < math.inf:
                allowed = f"numbers from {self.low:g} to {self.high:g}"
            raise ModelFileError(f"tensor {name!r} must contain {allowed}")


@dataclass
class Container:
    """The content of an open file, or of a file to be written."""

    kind: str  # "model" or "statistics"
    header: dict[str, Any]  # the bitclass header, without kind and version
    tensors: Mapping[str, Tensor | NDArray[Any]]
    version: int = VERSIONS[-1]
    file: BinaryIO | None = None
    data_begin: int = 0  # offset in the file
    layout: Mapping[str, Expected] = field(default_factory=dict)  # set by `lengths`

    def type_of(self, name: str) -> str | None:
        """Safetensors type of an array; None if there is no such array."""
        return _TYPES.get(self.tensors[name].dtype) if name in self.tensors else None

    def fields(self, **known: type) -> dict[str, Any]:
        """The bitclass header, which must have exactly these fields, of these types."""
        for name in self.header:
            if name not in known:
                raise ModelFileError(f"the header has an unknown field {shown(name)}")
        found = {}
        for name, kind in known.items():
            value = self.header.get(name)
            if kind is float and type(value) is int:
                value = _finite_float(value)
            if type(value) is not kind:
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

    def read(self, name: str, *, memory_map: bool = False) -> NDArray[Any]:
        """Read an array; with `memory_map`, as a read-only view of the file if it is aligned."""
        tensor = self.tensors[name]
        values = tensor if isinstance(tensor, np.ndarray) else self._from_file(tensor, memory_map)
        if tensor.dtype == np.bool_ and (values.view(np.uint8) > 1).any():
            raise ModelFileError(f"tensor {name!r} of booleans must contain only 0 and 1")
        self.layout[name].check(name, values)
        return values

    def _from_file(self, tensor: Tensor, memory_map: bool) -> NDArray[Any]:
        assert self.file is not None
        begin = self.data_begin + tensor.begin
        if memory_map and tensor.nbytes and begin % tensor.dtype.itemsize == 0:
            pages = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped = np.frombuffer(pages, tensor.dtype, math.prod(tensor.shape), begin)
            return mapped.reshape(tensor.shape)
        values = np.empty(tensor.shape, dtype=tensor.dtype)
        raw = values.reshape(-1).view(np.uint8)
        self.file.seek(begin)
        if self.file.readinto(raw.data) != len(raw):  # type: ignore[attr-defined]
            raise ModelFileError("the file was truncated while it was read")
        return values


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


def write(path: str | os.PathLike[str], content: Container) -> None:
    """Write a file atomically."""
    try:
        header = _as_json({"kind": content.kind, "version": content.version, **content.header})
    except (TypeError, ValueError) as error:
        raise ValueError(f"the summary must contain only JSON values: {error}") from None
    arrays = {name: np.ascontiguousarray(values) for name, values in content.tensors.items()}
    table: dict[str, Any] = {_METADATA: {_KEY: header}}
    end = 0
    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        table[name] = {
            "dtype": content.type_of(name),
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    text = _as_json(table).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER_BYTES:
        raise ValueError(
            f"the header would have {len(text)} bytes, more than {_MAX_HEADER_BYTES}; shorten the "
            "summary"
        )
    with atomic_write(path) as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little"))
        file.write(text)
        for name in order:
            file.write(arrays[name].reshape(-1).view(np.uint8).data)


def _as_json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


# -------------------------------------------------------------------------------------------------
# Reading the header
# -------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: str | os.PathLike[str], kind: str) -> Iterator[Container]:
    """Open a file of the given kind and check that its header is consistent.

    Every `ModelFileError` raised in the block names the file.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        try:
            yield _container(file, kind)
        except ModelFileError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    # A pipe without a writer would block `open`; the flag has no effect on regular files.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _container(file: BinaryIO, kind: str) -> Container:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError("not a regular file")
    left = status.st_size - _LENGTH_BYTES
    if left < 0:
        raise ModelFileError(f"not a bitclass {kind} file: it has only {status.st_size} bytes")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > _MAX_HEADER_BYTES:
        raise ModelFileError(f"not a bitclass {kind} file: it does not start with a header")
    if length > left:
        raise ModelFileError(
            f"not a bitclass {kind} file, or truncated: its header should have {length} bytes, but "
            f"only {left} follow"
        )
    raw = file.read(length)
    if not raw.startswith(b"{"):
        raise ModelFileError(f"not a bitclass {kind} file: its header is not JSON")
    table: dict[str, Any] = parse_json(raw)  # a dict, since it starts with a brace
    header, version = _bitclass_header(table.pop(_METADATA, None), kind)
    tensors = _tensors(table, left - length)
    return Container(kind, header, tensors, version, file, _LENGTH_BYTES + length)


def _bitclass_header(metadata: Any, kind: str) -> tuple[dict[str, Any], int]:
    """The bitclass header without kind and version, and the version."""
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_KEY), str):
        raise ModelFileError(
            f"a safetensors file not written by bitclass: its metadata has no text {_KEY!r}"
        )
    header = parse_json(metadata[_KEY])
    if not isinstance(header, dict):
        raise ModelFileError(
            f"the metadata's {_KEY!r} must be a JSON object, found {shown(header)}"
        )
    version = header.pop("version", None)
    if type(version) is not int or version not in VERSIONS:
        supported = ", ".join(map(str, VERSIONS))
        raise ModelFileError(
            f"format version {shown(version)} is not supported, only {supported}; a newer "
            "bitclass may read it"
        )
    found = header.pop("kind", None)
    if found != kind:
        raise ModelFileError(f"expected a {kind} file, found kind {shown(found)}")
    return header, version


def _tensors(table: dict[str, Any], n_bytes: int) -> dict[str, Tensor]:
    """Arrays by name; together they must fill the `n_bytes` after the header."""
    tensors: dict[str, Tensor] = {}
    for name, entry in table.items():
        where = f"tensor {shown(name)}"
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ModelFileError(f"{where} must have exactly dtype, shape and data_offsets")
        type_, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(type_, str) or type_ not in _DTYPES:
            raise ModelFileError(f"{where} has unknown type {shown(type_)}")
        if not _are_lengths(shape, range(3)) or not _are_lengths(offsets, range(2, 3)):
            raise ModelFileError(f"{where} must have at most two axes, and two data_offsets")
        begin, end = offsets
        tensors[name] = tensor = Tensor(_DTYPES[type_], tuple(shape), begin)
        if end - begin != tensor.nbytes:
            raise ModelFileError(
                f"{where} of type {type_} and shape {tensor.shape} takes {tensor.nbytes} "
                f"bytes, but its data_offsets are {begin} and {end}"
            )
    filled = 0
    in_order = sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].nbytes))
    for name, tensor in in_order:
        if tensor.begin != filled:
            raise ModelFileError(
                f"tensor {shown(name)} must start where the previous one ends, at {filled}, "
                f"found {tensor.begin}"
            )
        filled += tensor.nbytes
    if filled != n_bytes:
        state = "truncated" if filled > n_bytes else "too long"
        raise ModelFileError(
            f"{state}: the tensors take {filled} bytes after the header, found {n_bytes}"
        )
    return tensors


def _are_lengths(values: Any, allowed_counts: range) -> bool:
    """Whether values are a list of integers in the range of lengths."""
    return (
        isinstance(values, list)
        and len(values) in allowed_counts
        and all(type(value) is int and 0 <= value <= _MAX_LENGTH for value in values)
    )


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
