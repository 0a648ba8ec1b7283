"""What a reading process and the process that wants the rows send each other: JSON and arrays.

A message is a length, that many bytes of JSON, and the bytes of the arrays that the JSON describes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.rowfile import Piece
from bitclass.rows import Features

__all__ = ["piece_from", "piece_to", "receive", "send"]

_MOST_JSON_BYTES = 1 << 24


def send(
    stream: IO[bytes], content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None
) -> None:
    """Write a message."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    described = {name: [array.dtype.str, array.shape] for name, array in contiguous.items()}
    text = json.dumps({"content": content, "arrays": described}).encode()
    _write_all(stream, struct.pack("<I", len(text)) + text)
    for array in contiguous.values():
        _write_all(stream, array.reshape(-1).view(np.uint8).data)
    stream.flush()


def _write_all(stream: IO[bytes], data: bytes | memoryview) -> None:
    view = memoryview(data)
    while len(view):  # a pipe without a buffer may take a part
        view = view[stream.write(view) :]


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a message; EOFError where none comes any more."""
    (length,) = struct.unpack("<I", _exactly(stream, bytearray(4)))
    if length > _MOST_JSON_BYTES:
        raise EOFError("a message of absurd length")
    message = json.loads(bytes(_exactly(stream, bytearray(length))))
    arrays = {}
    for name, (dtype, shape) in message["arrays"].items():
        array = np.empty(math.prod(shape), np.dtype(dtype))
        _exactly(stream, array.view(np.uint8).data)
        arrays[name] = array.reshape(shape)
    return message["content"], arrays


def _exactly(stream: IO[bytes], memory: Any) -> Any:
    view = memoryview(memory)
    at = 0
    while at < len(view):
        n_bytes = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not n_bytes:
            raise EOFError("the stream has ended")
        at += n_bytes
    return memory


def piece_to(piece: Piece) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A piece as the content and the arrays of a message."""
    content: dict[str, Any] = {"piece": True}
    arrays: dict[str, NDArray[Any]] = {}
    if isinstance(piece.X, np.ndarray):
        arrays["X"] = piece.X
    elif piece.X is not None:
        content["shape"] = piece.X.shape
        for part in ("data", "indices", "indptr"):
            arrays[part] = getattr(piece.X, part)
    if piece.labels is not None:
        arrays["labels"] = piece.labels
    return content, arrays


def piece_from(content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Piece:
    """The piece in a message."""
    X: Features | None = arrays.get("X")
    if "shape" in content:
        from scipy.sparse import csr_array

        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        X = csr_array(parts, shape=tuple(content["shape"]))
    return Piece(X, arrays.get("labels"))
