"""Worker processes: forked after the models are loaded, so that they share the memory of these."""

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
#: Index of a worker, and what it calls when it accepts requests.
Worker = tuple[int, Callable[[], None]]


def fork_workers(n_workers: int, listener: socket.socket, title: str) -> Worker:
    """Fork worker processes, and return in each of them.

    The parent stays here: it passes SIGINT and SIGTERM on, replaces workers that die, and exits
    when all have ended. Workers end, as after SIGTERM, when the parent is gone.

    Parameters
    ----------
    n_workers : int
    listener : socket
        Closed in the parent when it is told to stop.
    title : str
        Printed when all workers accept requests.

    Returns
    -------
    index : int
        Of the worker, from 0 to the number of workers - 1.
    tell_started : callable
        To be called when the worker accepts requests.

    Raises
    ------
    SystemExit
        In the parent: with code 0 after a signal, or that of a worker that cannot start.
    """
    gc.collect()
    gc.freeze()  # a collection would write to, and so copy, every page of objects
    return _Parent(n_workers, listener).run(title)


class _Parent:
    def __init__(self, n_workers: int, listener: socket.socket) -> None:
        self._indices: dict[int, int] = {}  # of workers, by their process
        self._n_workers, self._listener = n_workers, listener
        self._stopping = False
        # Nobody writes to it: it ends with the parent.
        self._life, self._held = os.pipe()

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
            index, status = self._ended()
            if self._stopping:
                continue
            print(f"worker {index} has ended ({status}), and is replaced", file=sys.stderr)
            worker = self._start(index)
            if worker is not None:
                return worker
        raise SystemExit(0)

    def _start(self, index: int) -> Worker | None:
        """Fork a worker and wait until it accepts requests; in the worker, return it."""
        read, write = os.pipe()
        # A signal between the fork and the next line must find the handlers of one or the other.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        process = os.fork()
        if process == 0:
            self._become_worker()
            os.close(read)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            return index, partial(_tell, write)
        self._indices[process] = index
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(write)
        has_started = os.read(read, 1) != b""
        os.close(read)
        if not has_started and not self._stopping:
            self._give_up()
        return None

    def _become_worker(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # Ctrl-C reaches the parent alone, which passes it on
        os.close(self._held)

        def watch() -> None:
            os.read(self._life, 1)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, daemon=True).start()

    def _ended(self) -> tuple[int, int]:
        """Wait for the end of a worker; its index and exit status, negative for a signal."""
        process, status = os.waitpid(-1, 0)
        return self._indices.pop(process), os.waitstatus_to_exitcode(status)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        self._listener.close()
        for process in self._indices:
            os.kill(process, number)

    def _give_up(self) -> NoReturn:
        """Stop all workers since one could not start, which has said why."""
        self._stop(signal.SIGTERM, None)
        codes = [self._ended()[1] for _ in list(self._indices)]
        raise SystemExit(max(codes, default=0) or 1)


def _tell(descriptor: int) -> None:
    os.write(descriptor, b".")
    os.close(descriptor)
