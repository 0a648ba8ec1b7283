"""The container: a safetensors file with a header of ours in its metadata.

A file is untrusted. Its header is read first, and every size in it is checked against the others
and against the size of the file before memory is taken.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass.storage.atomic import atomic_write

__all__ = [
    "MAX_HEADER_BYTES",
    "VERSIONS",
    "Container",
    "Expected",
    "ModelFileError",
    "Tensor",
    "check_layout",
    "finite_float",
    "opened",
    "parse_json",
    "shown",
    "tensor_of",
    "write",
]

#: Format versions that are understood; the last is the one that is written.
VERSIONS = (1, 2, 3)
#: A longer header is refused. It holds names and numbers, no data.
MAX_HEADER_BYTES = 4 << 20

_METADATA = "__metadata__"
_KEY = "bitclass"
_LENGTH_BYTES = 8
# Data begins at a multiple of this, and larger numbers come first, so that all are aligned.
_ALIGNMENT = 8
_MAX_LENGTH = 1 << 48

_Json = TypeVar("_Json")


class ModelFileError(ValueError):
    """A file is not what it should be: damaged, made by something else, or newer than we are."""


@dataclass(frozen=True)
class Container:
    """An opened file whose header has been found consistent."""

    header: dict[str, Any]  # our own, without kind and version
    version: int
    tensors: dict[str, Tensor]
    size: int  # bytes of the file
    _file: BinaryIO
    _header_end: int

    def field(self, name: str, kind: type[_Json]) -> _Json:
        """Value of our own header; it must be there, and of the given type."""
        value = self.header.get(name)
        if kind is float and type(value) is int:
            value = finite_float(value)
        if type(value) is not kind:
            found = shown(value) if name in self.header else "nothing"
            raise ModelFileError(f"the header's {name!r} must be a {kind.__name__}, found {found}")
        return value

    def refuse_other_fields(self, *known: str) -> None:
        """Raise unless our own header has the known fields only."""
        for name in self.header:
            if name not in known:
                raise ModelFileError(f"the header has an unknown field {shown(name)}")

    def read(self, name: str, *, memory_map: bool = False) -> NDArray[Any]:
        """Array of that name: a new one, or a read-only view of the file where it is aligned."""
        tensor = self.tensors[name]
        dtype, begin = _DTYPES[tensor.type], self._header_end + tensor.begin
        if memory_map and tensor.nbytes and begin % dtype.itemsize == 0:
            pages = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            values = np.frombuffer(pages, dtype, math.prod(tensor.shape), begin)
            values = values.reshape(tensor.shape)
            raw = values.reshape(-1).view(np.uint8)
        else:
            values = np.empty(tensor.shape, dtype=dtype)
            raw = values.reshape(-1).view(np.uint8)
            self._file.seek(begin)
            if self._file.readinto(raw.data) != len(raw):  # type: ignore[attr-defined]
                raise ModelFileError("it became shorter while it was read")
        if tensor.type == "BOOL" and (raw > 1).any():
            raise ModelFileError(f"tensor {name!r} of truth values must hold 0 and 1 only")
        return values


def write(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
) -> None:
    """Write a file of a kind, "model" or "statistics", whole or not at all."""
    try:
        ours = _as_json({"kind": kind, "version": VERSIONS[-1], **header})
    except (TypeError, ValueError) as error:
        raise ValueError(f"the summary must hold what JSON can hold: {error}") from None
    arrays = {
        name: np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        for name, values in tensors.items()
    }
    table: dict[str, Any] = {_METADATA: {_KEY: ours}}
    end = 0
    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        tensor = tensor_of(arrays[name])
        table[name] = {
            "dtype": tensor.type,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = _as_json(table).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(
            f"the header would take {len(text)} bytes, which is more than {MAX_HEADER_BYTES}: "
            "shorten the summary"
        )
    with atomic_write(path) as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little"))
        file.write(text)
        for name in order:
            file.write(arrays[name].reshape(-1).view(np.uint8).data)


def _as_json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


@contextmanager
def opened(path: str | os.PathLike[str], kind: str) -> Iterator[Container]:
    """Open a file of the given kind and check its header.

    Every `ModelFileError` that is raised inside names the file.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        try:
            yield _container(file, kind)
        except ModelFileError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from None


# -------------------------------------------------------------------------------------------------
# Reading the header
# -------------------------------------------------------------------------------------------------


def _open_without_waiting(path: str, flags: int) -> int:
    # A pipe without a writer would keep `open` waiting; regular files do not mind the flag.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _container(file: BinaryIO, kind: str) -> Container:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError("not a regular file")
    size = status.st_size
    if size < _LENGTH_BYTES:
        raise ModelFileError(f"not a bitclass {kind} file: it has only {size} bytes")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    left = size - _LENGTH_BYTES
    if length > MAX_HEADER_BYTES:
        raise ModelFileError(f"not a bitclass {kind} file: it does not begin with a header")
    if length > left:
        raise ModelFileError(
            f"not a bitclass {kind} file, or cut short: its header should have {length} bytes, and "
            f"only {left} follow"
        )
    table = _table(file.read(length))
    header, version = _our_header(table.pop(_METADATA, None), kind)
    tensors = _tensors(table, left - length)
    return Container(header, version, tensors, size, file, _LENGTH_BYTES + length)


def _table(raw: bytes) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        raise ModelFileError("not a bitclass file: its header is not JSON")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise ModelFileError("the header is not valid UTF-8") from None
    table: dict[str, Any] = parse_json(text)  # starts with a brace, so it is nothing else
    return table


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
        if not _are_lengths(shape) or len(shape) > 2:
            raise ModelFileError(f"{where} must have a shape of at most two lengths")
        if not _are_lengths(offsets) or len(offsets) != 2:
            raise ModelFileError(f"{where} must have two data_offsets")
        begin, end = offsets
        tensors[name] = tensor = Tensor(type_, tuple(shape), begin)
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


def _are_lengths(values: Any) -> bool:
    """Whether values are a list of integers that a file could have as lengths."""
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value <= _MAX_LENGTH for value in values
    )


# -------------------------------------------------------------------------------------------------
# Which arrays a file must have: names, types, and axes that must agree in length
# -------------------------------------------------------------------------------------------------


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
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """Type and shape of an array in a file."""

    type: str  # as safetensors names it: "F32", "U8", ...
    shape: tuple[int, ...]
    begin: int = 0  # where its bytes begin, counted from the end of the header

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.shape) * _DTYPES[self.type].itemsize


@dataclass(frozen=True)
class Expected:
    """What an array must be."""

    type: str
    axes: tuple[str, ...]  # axes of one name have one length in all arrays
    required: bool = True


def tensor_of(values: NDArray[Any]) -> Tensor:
    """What an array will be in a file."""
    return Tensor(_NAMES[values.dtype.newbyteorder("<")], values.shape)


def check_layout(tensors: Mapping[str, Tensor], layout: Mapping[str, Expected]) -> dict[str, int]:
    """Check names, types and shapes of all arrays; lengths of the axes by name."""
    for name in tensors:
        if name not in layout:
            raise ModelFileError(f"there is an unknown tensor {shown(name)}")
    lengths: dict[str, int] = {}
    for name, expected in layout.items():
        if name not in tensors:
            if expected.required:
                raise ModelFileError(f"tensor {name!r} is missing")
            continue
        tensor = tensors[name]
        if tensor.type != expected.type:
            raise ModelFileError(
                f"tensor {name!r} must be of type {expected.type}, found {tensor.type}"
            )
        if len(tensor.shape) != len(expected.axes):
            raise ModelFileError(
                f"tensor {name!r} must have {len(expected.axes)} axes, found shape {tensor.shape}"
            )
        for axis, length in zip(expected.axes, tensor.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise ModelFileError(
                    f"tensor {name!r} of shape {tensor.shape} does not fit the others: its axis of "
                    f"{axis} must be {lengths[axis]} long"
                )
    return lengths


# -------------------------------------------------------------------------------------------------
# JSON of a file that is not trusted
# -------------------------------------------------------------------------------------------------


def parse_json(text: str, what: str = "the header") -> Any:
    """Parse JSON, refusing what the standard leaves open: repeated keys, NaN and infinities."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
            parse_float=finite_float,
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


def _refuse_constant(name: str) -> NoReturn:
    raise ModelFileError(f"{name} is no number of JSON")


def finite_float(text: str | int) -> float:
    """Float of a number in JSON, which may be written too large for one."""
    try:
        value = float(text)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ModelFileError(f"number {shown(text)} is out of range")
    return value
