"""The process in which files are read that `isolation` keeps out of the user's process.

Takes requests from its input and answers on its output, until its input ends.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from bitclass.data.errors import DataFileError
from bitclass.data.messages import piece_to, receive, send
from bitclass.data.rowfile import Request, RowFile

__all__ = ["main"]

# For the library, beyond the rows and what the file justifies.
_ROOM_BYTES = 256 << 20


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


def room_bytes(path: Path) -> int:
    """What reading a file may take whatever its rows: for names, labels and indices in it."""
    return _ROOM_BYTES + 4 * path.stat().st_size


def facts(file: RowFile) -> dict[str, Any]:
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


def send_rows(file: RowFile, rows: Sequence[int], output: IO[bytes]) -> None:
    """Send the rows that are asked for."""
    start_row, piece_rows, offset = rows
    row_bytes = file.dtype.itemsize * max(1, file.n_features)
    batch_bytes = 4 * min(piece_rows, file.n_rows) * row_bytes
    limit_memory(room_bytes(file.path) + batch_bytes + file.buffer_bytes)
    for piece in file.pieces(start_row, piece_rows, offset):
        send(output, *piece_to(piece))


class Answers:
    """Answers requests; the file of the last one is kept, as rows are asked for after facts."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._last: tuple[object, RowFile] | None = None

    def __call__(self, content: dict[str, Any]) -> None:
        """Answer one request."""
        try:
            file = self._open(content)
            if content["rows"] is None:
                send(self._output, facts(file))
            else:
                send_rows(file, content["rows"], self._output)
            send(self._output, {"end": True})
        except DataFileError as error:
            send(self._output, {"error": str(error)})

    def _open(self, content: dict[str, Any]) -> RowFile:
        # The user's process may have changed its folder since this one was started.
        os.chdir(content["folder"])
        path = Path(content["path"])
        found = path.stat()
        key = content | {"rows": None, "changed": found.st_mtime_ns, "size": found.st_size}
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        module, function = content["opener"]
        request = dict(content["request"])
        if request["features"] is not None:
            request["features"] = tuple(request["features"])
        opener: Callable[[Path, Request], RowFile] = getattr(
            importlib.import_module(f"bitclass.data.{module}"), function
        )
        limit_memory(room_bytes(path))
        file = opener(path, Request(**request))
        self._last = key, file
        return file


def main() -> None:
    """Answer requests until there are no more."""
    # What a library prints must not get among the messages.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer = Answers(output)
    while True:
        try:
            content, _ = receive(sys.stdin.buffer)
        except EOFError:
            return
        answer(content)


if __name__ == "__main__":
    main()
