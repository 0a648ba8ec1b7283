"""Worker processes, forked after the models are loaded so that they share their memory."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import NoReturn

__all__ = ["fork_workers"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Index of a worker, and the function it calls when it is ready.
Worker = tuple[int, Callable[[], None]]


def fork_workers(n_workers: int, listener: socket.socket, title: str) -> Worker:
    """Fork worker processes; returns only in the workers.

    The parent forwards SIGINT and SIGTERM, replaces workers that die, and exits when all have
    ended. If the parent dies, the workers stop as after SIGTERM.

    Parameters
    ----------
    n_workers : int
    listener : socket
        Closed in the parent on the signal to stop.
    title : str
        Printed when all workers are ready.

    Returns
    -------
    index : int
        Index of the worker, from 0 to `n_workers` - 1.
    on_start : callable
        To be called when the worker is ready to accept requests.

    Raises
    ------
    SystemExit
        In the parent: with code 0 after a signal, or the code of a worker that failed to start.
    """
    gc.collect()
    gc.freeze()  # garbage collection would write to, and thus copy, shared pages
    return _Parent(n_workers, listener).run(title)


class _Parent:
    def __init__(self, n_workers: int, listener: socket.socket) -> None:
        self._indices: dict[int, int] = {}  # worker index by process ID
        self._n_workers, self._listener = n_workers, listener
        self._stopping = False
        # Nothing is written to this pipe: workers read its end when the parent dies.
        self._parent_pipe, self._parent_end = os.pipe()

    def run(self, title: str) -> Worker:
        for number in _SIGNALS:
            signal.signal(number, self._stop)
        for index in range(self._n_workers):
            worker = self._start(index)
            if worker is not None:
                return worker
        if not self._stopping:
            print(title, flush=True)
        while self._indices:
            index, status = self._wait()
            if self._stopping:
                continue
            print(f"worker {index} exited ({status}) and is replaced", file=sys.stderr)
            worker = self._start(index)
            if worker is not None:
                return worker
        raise SystemExit(0)

    def _start(self, index: int) -> Worker | None:
        """Fork a worker and wait until it is ready; returns None in the parent."""
        read, write = os.pipe()
        # Block signals until the parent or the worker has installed its handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        process = os.fork()
        if process == 0:
            self._become_worker()
            os.close(read)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            return index, partial(_notify, write)
        self._indices[process] = index
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(write)
        has_started = os.read(read, 1) != b""
        os.close(read)
        if not has_started and not self._stopping:
            self._abort()
        return None

    def _become_worker(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # Ctrl-C reaches only the parent, which forwards it
        os.close(self._parent_end)

        def watch() -> None:
            os.read(self._parent_pipe, 1)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, daemon=True).start()

    def _wait(self) -> tuple[int, int]:
        """Wait for a worker to exit; returns its index and exit status, negative for a signal."""
        process, status = os.waitpid(-1, 0)
        return self._indices.pop(process), os.waitstatus_to_exitcode(status)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        self._listener.close()
        for process in self._indices:
            os.kill(process, number)

    def _abort(self) -> NoReturn:
        """Stop all workers because one failed to start, and has printed the reason."""
        self._stop(signal.SIGTERM, None)
        codes = [self._wait()[1] for _ in list(self._indices)]
        raise SystemExit(max(codes, default=0) or 1)


def _notify(descriptor: int) -> None:
    os.write(descriptor, b".")
    os.close(descriptor)
