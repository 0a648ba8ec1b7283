"""Files read in a process of their own, for a library that damaged files can crash or hang.

Such are the HDF5 library and, more rarely, Arrow's Parquet: a file with a few wrong bytes can make
them crash, loop for ever or take any amount of memory, and nothing within the process can then stop
them. A process apart can be stopped.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bitclass.data.errors import DataFileError
from bitclass.data.messages import piece_from
from bitclass.data.rowfile import Choice, Piece, Request, RowFile
from bitclass.data.worker import Message, Worker

__all__ = ["IsolatedRows", "stop_idle_process"]

# How long one batch, or the opening of a file, may take.
PATIENCE_SECONDS = 300.0
# Whether a process is used again after a file that it refused. Its library may have written where
# it should not, so no; but trying very many damaged files would take very long.
REUSE_AFTER_REFUSAL = False


class _Worker(Worker):
    """A reading process."""

    def __init__(self) -> None:
        super().__init__("bitclass.data.reading_process")


class _Workers:
    """One idle process is kept for the next file; starting one takes a quarter of a second."""

    def __init__(self) -> None:
        self._idle: _Worker | None = None
        self._lock = threading.Lock()

    def take(self) -> _Worker:
        """The idle process, or a new one."""
        with self._lock:
            worker, self._idle = self._idle, None
        if worker is not None and worker.is_alive():
            return worker
        return _Worker()

    def give_back(self, worker: _Worker) -> None:
        """Keep a process that has answered in full; one after an error is not trusted."""
        with self._lock:
            if self._idle is None:
                self._idle = worker
                return
        worker.stop()

    def stop(self) -> None:
        """End the idle process."""
        with self._lock:
            worker, self._idle = self._idle, None
        if worker is not None:
            worker.stop()

    def forget(self) -> None:
        """Leave the idle process to the process that this one was forked from."""
        self._idle = None
        self._lock = threading.Lock()


_workers = _Workers()
stop_idle_process = _workers.stop
atexit.register(stop_idle_process)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.forget)


def _answers(path: Path, question: dict[str, Any]) -> Generator[Message, None, None]:
    """All messages that answer a request."""
    worker = _workers.take()
    try:
        worker.ask(question)
        while True:
            content, arrays = worker.receive(path, PATIENCE_SECONDS)
            if "error" in content or "end" in content:
                break
            yield content, arrays
    except BaseException:  # also when nobody wants the rest
        worker.stop()
        raise
    if "error" not in content or REUSE_AFTER_REFUSAL:
        _workers.give_back(worker)
    else:
        worker.stop()
    if "error" in content:
        raise DataFileError(content["error"])


class IsolatedRows(RowFile):
    """A file of arrays that is read in a process of its own.

    Parameters
    ----------
    opener : module of this package and name of the function in it that opens such a file
    path : the file
    request : Request
    """

    def __init__(self, opener: tuple[str, str], path: Path, request: Request) -> None:
        self.path = path
        self._question = {
            "opener": opener,
            "folder": str(Path.cwd()),
            "path": str(path),
            "request": asdict(request),
        }
        for facts, _ in _answers(path, self._question | {"rows": None}):
            self.n_rows, self.n_features = int(facts["n_rows"]), int(facts["n_features"])
            self.dtype = np.dtype(facts["dtype"])
            self.is_sparse = bool(facts["is_sparse"])
            self.choice = Choice(tuple(facts["features"]), facts["labels"])
            self.text_labels = facts["text_labels"]
            self.description = str(facts["description"])

    def pieces(self, start_row: int, piece_rows: int, offset: int) -> Iterator[Piece]:
        """Rows from `start_row` on, cut at multiples of `piece_rows` counted from `offset`."""
        rows = [start_row, piece_rows, offset]
        with contextlib.closing(_answers(self.path, self._question | {"rows": rows})) as answers:
            for content, arrays in answers:
                yield piece_from(content, arrays)
