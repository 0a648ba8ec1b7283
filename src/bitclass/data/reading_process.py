"""The process in which HDF5 files are read: ``python -m bitclass.data.reading_process``.

Takes requests from its input and answers on its output, until its input ends.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from bitclass.data.arrays import ArrayFile, ArrayRows
from bitclass.data.errors import DataFileError, reading
from bitclass.data.messages import piece_to, receive, send
from bitclass.data.rowfile import Request

__all__ = ["answer", "main"]

_FILES = {"hdf5": ("hdf5", "Hdf5File"), "matlab73": ("matlab73", "Matlab73File")}
# For the library and its caches, beyond the rows themselves.
_ROOM_BYTES = 512 << 20


def limit_memory(n_bytes: int) -> None:
    """Let this process take that many bytes more than now, where the system can hold it to that."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    most = pages * resource.getpagesize() + n_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def open_file(kind: str, path: Path, request: Request) -> ArrayRows:
    """Open a file in this process."""
    module, name = _FILES[kind]
    file_class: Any = getattr(importlib.import_module(f"bitclass.data.{module}"), name)
    with reading(path, file_class.format_name):
        file: ArrayFile = file_class(path)
        return ArrayRows(file, request)


def facts(file: ArrayRows) -> dict[str, Any]:
    """All that the other process needs to know of a file."""
    return {
        "n_rows": file.n_rows,
        "n_features": file.n_features,
        "dtype": file.dtype.str,
        "is_sparse": file.is_sparse,
        "features": file.choice.features,
        "labels": file.choice.labels,
        "text_labels": file.text_labels,
        "description": file.description,
    }


def send_rows(file: ArrayRows, rows: Sequence[int], output: IO[bytes]) -> None:
    """Send the rows that are asked for."""
    start_row, piece_rows, offset = rows
    row_bytes = file.dtype.itemsize * max(1, file.n_features)
    limit_memory(_ROOM_BYTES + 4 * min(piece_rows, file.n_rows) * row_bytes)
    for piece in file.pieces(start_row, piece_rows, offset):
        send(output, *piece_to(piece))


def answer(content: dict[str, Any], output: IO[bytes]) -> None:
    """Answer one request."""
    request = content["request"]
    if request["features"] is not None:
        request["features"] = tuple(request["features"])
    limit_memory(_ROOM_BYTES)
    try:
        file = open_file(content["kind"], Path(content["path"]), Request(**request))
        if content["rows"] is None:
            send(output, facts(file))
        else:
            send_rows(file, content["rows"], output)
        send(output, {"end": True})
    except DataFileError as error:
        send(output, {"error": str(error)})


def main() -> None:
    """Answer requests until there are no more."""
    # What a library prints must not get among the messages.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            content, _ = receive(sys.stdin.buffer)
        except EOFError:
            return
        answer(content, output)


if __name__ == "__main__":
    main()
