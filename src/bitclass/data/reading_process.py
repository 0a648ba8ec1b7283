"""The process in which files are read that `isolation` keeps out of the user's process.

Takes requests from its input and answers on its output, until its input ends.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from bitclass.data.errors import DataFileError
from bitclass.data.limits import Library
from bitclass.data.messages import piece_to, receive, send
from bitclass.data.rowfile import Request, RowFile

__all__ = ["main"]


def limit_memory(n_bytes: int | None) -> None:
    """Let this process take that many bytes more than now, where the system can hold it to that.

    None lifts the limit of before.
    """
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = hard
    if n_bytes is not None:
        most = pages * resource.getpagesize() + n_bytes
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def room_bytes(path: Path, library: Library) -> int:
    """What reading a file may take whatever its rows: for names, labels and indices in it."""
    return library.room_bytes + 4 * path.stat().st_size


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


def send_rows(file: RowFile, library: Library, rows: Sequence[int], output: IO[bytes]) -> None:
    """Send the rows that are asked for."""
    start_row, piece_rows, offset = rows
    row_bytes = file.dtype.itemsize * max(1, file.n_features)
    batch_bytes = 4 * min(piece_rows, file.n_rows) * row_bytes
    limit_memory(room_bytes(file.path, library) + batch_bytes + file.buffer_bytes)
    for piece in file.pieces(start_row, piece_rows, offset):
        send(output, *piece_to(piece))


class Answers:
    """Answers requests; the file of the last one is kept, as rows are asked for after facts."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._last: tuple[object, RowFile, Library] | None = None

    def __call__(self, content: dict[str, Any]) -> None:
        """Answer one request."""
        try:
            file, library = self._open(content)
            if content["rows"] is None:
                send(self._output, facts(file))
            else:
                send_rows(file, library, content["rows"], self._output)
            send(self._output, {"end": True})
        except DataFileError as error:
            send(self._output, {"error": str(error)})

    def _open(self, content: dict[str, Any]) -> tuple[RowFile, Library]:
        # The user's process may have changed its folder since this one was started.
        os.chdir(content["folder"])
        path = Path(content["path"])
        found = path.stat()
        key = content | {"rows": None, "changed": found.st_mtime_ns, "size": found.st_size}
        if self._last is not None and self._last[0] == key:
            return self._last[1:]
        name, function = content["opener"]
        request = dict(content["request"])
        if request["features"] is not None:
            request["features"] = tuple(request["features"])
        module = importlib.import_module(f"bitclass.data.{name}")
        opener: Callable[[Path, Request], RowFile] = getattr(module, function)
        # Without a limit: what a library takes by being there is not the file's doing.
        limit_memory(None)
        library: Library = module.LIBRARY
        with contextlib.suppress(ImportError):  # which the opener tells
            importlib.import_module(library.module)
        limit_memory(room_bytes(path, library))
        file = opener(path, Request(**request))
        self._last = key, file, library
        return file, library


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
