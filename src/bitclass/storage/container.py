"""The container: a safetensors file with a header of ours in its metadata.

A file is untrusted. Its header is read first, and every size in it is checked against the others
and against the size of the file before memory is taken.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitclass.storage.atomic import atomic_write
from bitclass.storage.layout import DTYPES, Tensor, tensor_of
from bitclass.storage.strict_json import ModelFileError, finite_float, parse_json, shown

__all__ = ["MAX_HEADER_BYTES", "VERSIONS", "Container", "opened", "write"]

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


@dataclass(frozen=True)
class Container:
    """An opened file whose header has been found consistent.

    Attributes
    ----------
    header : our own header, without kind and version
    version : int, the format version
    tensors : what arrays there are
    size : int, bytes of the file
    """

    header: dict[str, Any]
    version: int
    tensors: dict[str, Tensor]
    size: int
    _file: BinaryIO
    _begins: dict[str, int]

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

    def read(self, name: str) -> NDArray[Any]:
        """Array of that name, a new one."""
        tensor = self.tensors[name]
        values = np.empty(tensor.shape, dtype=DTYPES[tensor.type])
        raw = values.reshape(-1).view(np.uint8)
        self._file.seek(self._begins[name])
        _read_into(self._file, raw.data)
        if tensor.type == "BOOL" and (raw > 1).any():
            raise ModelFileError(f"tensor {name!r} of truth values must hold 0 and 1 only")
        return values


def write(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
) -> None:
    """Write a file, whole or not at all.

    Parameters
    ----------
    path : path of the file
    kind : {"model", "statistics"}
    header : values that JSON can hold
    tensors : arrays by name
    """
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

    Parameters
    ----------
    path : path of the file
    kind : {"model", "statistics"}

    Yields
    ------
    Container
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
    length = int.from_bytes(_read(file, _LENGTH_BYTES), "little")
    left = size - _LENGTH_BYTES
    if length > MAX_HEADER_BYTES:
        raise ModelFileError(f"not a bitclass {kind} file: it does not begin with a header")
    if length > left:
        raise ModelFileError(
            f"not a bitclass {kind} file, or cut short: its header should have {length} bytes, and "
            f"only {left} follow"
        )
    table = _table(_read(file, length))
    header, version = _our_header(table.pop(_METADATA, None), kind)
    tensors, begins = _tensors(table, left - length)
    start = _LENGTH_BYTES + length
    return Container(
        header, version, tensors, size, file, {name: start + at for name, at in begins.items()}
    )


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


def _tensors(table: dict[str, Any], n_bytes: int) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Arrays and where each begins; together they must fill the `n_bytes` behind the header."""
    tensors: dict[str, Tensor] = {}
    places: list[tuple[int, int, str]] = []
    for name, entry in table.items():
        where = f"tensor {shown(name)}"
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ModelFileError(f"{where} must have dtype, shape and data_offsets, and no more")
        type_, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(type_, str) or type_ not in DTYPES:
            raise ModelFileError(f"{where} is of unknown type {shown(type_)}")
        if not _are_lengths(shape) or len(shape) > 2:
            raise ModelFileError(f"{where} must have a shape of at most two lengths")
        if not _are_lengths(offsets) or len(offsets) != 2:
            raise ModelFileError(f"{where} must have two data_offsets")
        tensors[name] = Tensor(type_, tuple(shape))
        begin, end = offsets
        if end - begin != tensors[name].nbytes:
            raise ModelFileError(
                f"{where} of type {type_} and shape {tuple(shape)} takes {tensors[name].nbytes} "
                f"bytes, but its data_offsets are {begin} and {end}"
            )
        places.append((begin, end, name))
    filled = 0
    for begin, end, name in sorted(places):
        if begin != filled:
            raise ModelFileError(
                f"tensor {shown(name)} must begin where the one before ends, at {filled}, "
                f"found {begin}"
            )
        filled = end
    if filled != n_bytes:
        state = "cut short" if filled > n_bytes else "too long"
        raise ModelFileError(
            f"{state}: the tensors take {filled} bytes behind the header, found {n_bytes}"
        )
    return tensors, {name: begin for begin, _, name in places}


def _are_lengths(values: Any) -> bool:
    """Whether values are a list of integers that a file could have as lengths."""
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value <= _MAX_LENGTH for value in values
    )


# -------------------------------------------------------------------------------------------------
# Reading bytes
# -------------------------------------------------------------------------------------------------


def _read(file: BinaryIO, n_bytes: int) -> bytes:
    raw = bytearray(n_bytes)
    _read_into(file, memoryview(raw))
    return bytes(raw)


def _read_into(file: BinaryIO, room: memoryview) -> None:
    """Fill `room`; one call may read less, and a file may have become shorter meanwhile."""
    done = 0
    while done < len(room):
        n_read = file.readinto(room[done:])  # type: ignore[attr-defined]
        if not n_read:
            raise ModelFileError("it became shorter while it was read")
        done += n_read
