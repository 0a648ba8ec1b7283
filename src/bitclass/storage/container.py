"""The container: a safetensors file with a header of ours in its metadata.

A file is untrusted. Its header is read first, and every size in it is checked against the others
and against the size of the file before memory is taken. What is to be written passes the same
checks, so that a file that could not be read back is never written.
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

#: Format versions that are understood; the last is the one that is written.
VERSIONS = (1, 2, 3)

# A longer header is refused. It holds names and numbers, no data.
_MAX_HEADER_BYTES = 4 << 20
_METADATA = "__metadata__"
_KEY = "bitclass"
_LENGTH_BYTES = 8
# Data begins at a multiple of this, and larger numbers come first, so that all are aligned.
_ALIGNMENT = 8
_MAX_LENGTH = 1 << 48

#: NumPy's types by the names that safetensors gives them.
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
    """A file is not what it should be: damaged, made by something else, or newer than we are."""


class Tensor(NamedTuple):
    """An array in a file that has not been read."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # where its bytes begin, counted from the end of the header

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Expected:
    """What an array of a file must be."""

    type: str  # as safetensors names it: "F32", "U8", ...
    axes: tuple[str | int, ...]  # lengths, or names: axes of one name have one length in all arrays
    required: bool = True
    beside: str = ""  # an array with which it is there or is not
    low: float = -math.inf
    high: float = math.inf
    finite: bool = True

    def check(self, name: str, values: NDArray[Any]) -> None:
        """Raise unless all numbers are as they must be."""
        if self.finite and values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ModelFileError(f"tensor {name!r} must hold finite numbers")
        too_low = self.low > -math.inf and (values < self.low).any()
        if too_low or (self.high < math.inf and (values > self.high).any()):
            allowed = "positive numbers" if self.low > 0 else "no negative numbers"
            if self.high < math.inf:
                allowed = f"numbers from {self.low:g} to {self.high:g}"
            raise ModelFileError(f"tensor {name!r} must hold {allowed}")


@dataclass
class Container:
    """The content of a file: one that is opened, or one to be written."""

    kind: str  # "model" or "statistics"
    header: dict[str, Any]  # our own, without kind and version
    tensors: Mapping[str, Tensor | NDArray[Any]]
    version: int = VERSIONS[-1]
    file: BinaryIO | None = None
    data_begin: int = 0  # in the file
    layout: Mapping[str, Expected] = field(default_factory=dict)  # set by `lengths`

    def type_of(self, name: str) -> str | None:
        """Type of an array as safetensors names it, None where there is no such array."""
        return _TYPES.get(self.tensors[name].dtype) if name in self.tensors else None

    def fields(self, **known: type) -> dict[str, Any]:
        """Our own header, which must have these fields, of these types, and no others."""
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
        """Check the types and shapes of all arrays; lengths of the axes by name."""
        self.layout = layout
        for name in self.tensors:
            if name not in layout:
                raise ModelFileError(f"there is an unknown tensor {shown(name)}")
        lengths: dict[str, int] = {}
        for name, expected in layout.items():
            beside = expected.beside
            if beside and (beside in self.tensors) != (name in self.tensors):
                missing, there = (beside, name) if name in self.tensors else (name, beside)
                raise ModelFileError(f"tensor {missing!r} is missing, which {there!r} needs")
            if name not in self.tensors:
                if expected.required and not beside:
                    raise ModelFileError(f"tensor {name!r} is missing")
                continue
            if self.type_of(name) != expected.type:
                raise ModelFileError(
                    f"tensor {name!r} must be of type {expected.type}, found {self.type_of(name)}"
                )
            shape = self.tensors[name].shape
            if len(shape) != len(expected.axes):
                raise ModelFileError(
                    f"tensor {name!r} must have {len(expected.axes)} axes, found shape {shape}"
                )
            for axis, length in zip(expected.axes, shape, strict=True):
                wanted = axis if isinstance(axis, int) else lengths.setdefault(axis, length)
                if length != wanted:
                    raise ModelFileError(
                        f"tensor {name!r} of shape {shape} does not fit the others: its axis of "
                        f"{axis} must be {wanted} long"
                    )
        return lengths

    def read(self, name: str, *, memory_map: bool = False) -> NDArray[Any]:
        """An array: a new one, or a read-only view of the file where it is aligned."""
        tensor = self.tensors[name]
        values = tensor if isinstance(tensor, np.ndarray) else self._from_file(tensor, memory_map)
        if tensor.dtype == np.bool_ and (values.view(np.uint8) > 1).any():
            raise ModelFileError(f"tensor {name!r} of truth values must hold 0 and 1 only")
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
            raise ModelFileError("it became shorter while it was read")
        return values


def check_codes(name: str, codes: NDArray[np.uint8], n_bits: int) -> None:
    """Raise unless packed codes (n, bytes) have the width of their bits, and 0 past the last."""
    width = packed_width(n_bits)
    if codes.shape[1] != width:
        raise ModelFileError(
            f"tensor {name!r} must have {width} bytes per row for {n_bits} bits, found "
            f"{codes.shape[1]}"
        )
    if n_bits % 8 and (codes[:, -1] >> (n_bits % 8)).any():
        raise ModelFileError(f"tensor {name!r} must be 0 in the bits past the last, {n_bits}")


def write(path: str | os.PathLike[str], content: Container) -> None:
    """Write a file, whole or not at all."""
    try:
        ours = _as_json({"kind": content.kind, "version": content.version, **content.header})
    except (TypeError, ValueError) as error:
        raise ValueError(f"the summary must hold what JSON can hold: {error}") from None
    arrays = {name: np.ascontiguousarray(values) for name, values in content.tensors.items()}
    table: dict[str, Any] = {_METADATA: {_KEY: ours}}
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
            f"the header would take {len(text)} bytes, which is more than {_MAX_HEADER_BYTES}: "
            "shorten the summary"
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

    Every `ModelFileError` that is raised inside names the file.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        try:
            yield _container(file, kind)
        except ModelFileError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    # A pipe without a writer would keep `open` waiting; regular files do not mind the flag.
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
        raise ModelFileError(f"not a bitclass {kind} file: it does not begin with a header")
    if length > left:
        raise ModelFileError(
            f"not a bitclass {kind} file, or cut short: its header should have {length} bytes, and "
            f"only {left} follow"
        )
    raw = file.read(length)
    if not raw.startswith(b"{"):
        raise ModelFileError(f"not a bitclass {kind} file: its header is not JSON")
    table: dict[str, Any] = parse_json(raw)  # starts with a brace, so it is nothing else
    header, version = _our_header(table.pop(_METADATA, None), kind)
    tensors = _tensors(table, left - length)
    return Container(kind, header, tensors, version, file, _LENGTH_BYTES + length)


def _our_header(metadata: Any, kind: str) -> tuple[dict[str, Any], int]:
    """Our own header without kind and version, and the version."""
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_KEY), str):
        raise ModelFileError(
            f"a safetensors file that bitclass did not write: its metadata has no text {_KEY!r}"
        )
    header = parse_json(metadata[_KEY])
    if not isinstance(header, dict):
        raise ModelFileError(
            f"the metadata's {_KEY!r} must be a JSON object, found {shown(header)}"
        )
    version = header.pop("version", None)
    if type(version) is not int or version not in VERSIONS:
        understood = ", ".join(map(str, VERSIONS))
        raise ModelFileError(
            f"format version {shown(version)} is not understood, only {understood}; a newer "
            "bitclass may read it"
        )
    found = header.pop("kind", None)
    if found != kind:
        raise ModelFileError(f"expected a {kind} file, found one of kind {shown(found)}")
    return header, version


def _tensors(table: dict[str, Any], n_bytes: int) -> dict[str, Tensor]:
    """Arrays by name; together they must fill the `n_bytes` behind the header."""
    tensors: dict[str, Tensor] = {}
    for name, entry in table.items():
        where = f"tensor {shown(name)}"
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ModelFileError(f"{where} must have dtype, shape and data_offsets, and no more")
        type_, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(type_, str) or type_ not in _DTYPES:
            raise ModelFileError(f"{where} is of unknown type {shown(type_)}")
        if not _are_lengths(shape, range(3)) or not _are_lengths(offsets, range(2, 3)):
            raise ModelFileError(f"{where} must have at most two lengths, and two data_offsets")
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
                f"tensor {shown(name)} must begin where the one before ends, at {filled}, "
                f"found {tensor.begin}"
            )
        filled += tensor.nbytes
    if filled != n_bytes:
        state = "cut short" if filled > n_bytes else "too long"
        raise ModelFileError(
            f"{state}: the tensors take {filled} bytes behind the header, found {n_bytes}"
        )
    return tensors


def _are_lengths(values: Any, how_many: range) -> bool:
    """Whether values are a list of integers that a file could have as lengths."""
    return (
        isinstance(values, list)
        and len(values) in how_many
        and all(type(value) is int and 0 <= value <= _MAX_LENGTH for value in values)
    )


def parse_json(text: str | bytes, what: str = "the header") -> Any:
    """Parse JSON, refusing what the standard leaves open: repeated keys, NaN and infinities."""
    try:
        return json.loads(
            text if isinstance(text, str) else text.decode(),
            object_pairs_hook=_without_repeats,
            parse_constant=_finite_float,
            parse_float=_finite_float,
        )
    except RecursionError:
        raise ModelFileError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise ModelFileError(f"{what} is not valid JSON: {error}") from None


def shown(value: Any) -> str:
    """A value of a file, for a message: on one line, and not too long."""
    text = repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ModelFileError(f"key {shown(key)} is there twice")
        values[key] = value
    return values


def _finite_float(text: str | int) -> float:
    """Float of a number in JSON, which may be written too large for one."""
    try:
        value = float(text)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ModelFileError(f"number {shown(text)} is out of range")
    return value
