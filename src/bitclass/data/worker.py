"""A process apart that answers requests, and can be stopped when it crashes or does not return."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.data.messages import receive, send

__all__ = ["Message", "Worker"]

# Its memory is limited by address space, and all of these set some aside for times to come.
_LEAN = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}

Message = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class Worker:
    """A process that runs a module of this package.

    Parameters
    ----------
    module : its name; it takes messages from its input and answers on its output
    """

    def __init__(self, module: str) -> None:
        # It must find this package where this process did, and nothing in the present folder.
        environment = os.environ | _LEAN | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,  # arrays go straight to where they belong
            # An interrupt from the keyboard is for the process that asks. This one ends with it,
            # because its input does.
            start_new_session=True,
        )
        self._widen_pipe()
        self._timed_out = False

    def _widen_pipe(self) -> None:
        """Give the rows a wider pipe than the usual 64 KB, which doubles their speed."""
        assert self._process.stdout is not None
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import fcntl

            fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, 1 << 18)

    def ask(
        self, question: dict[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        """Send a request. Where the process has died, receiving the answer tells so."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            send(self._process.stdin, question, arrays)

    def receive(self, name: object, patience: float) -> Message:
        """The next message; an error where the process has died, or takes too long.

        Parameters
        ----------
        name : what is being read, for errors
        patience : seconds
        """
        assert self._process.stdout is not None
        watch = threading.Timer(patience, self._give_up)
        watch.daemon = True
        watch.start()
        try:
            return receive(self._process.stdout)
        except (EOFError, OSError, ValueError, KeyError) as error:
            why = "the process that read it has died"
            if self._timed_out:
                why = f"nothing came for {patience:.0f} seconds"
            raise DataFileError(f"{name}: cannot be read, it is damaged ({why})") from error
        finally:
            watch.cancel()

    def _give_up(self) -> None:
        self._timed_out = True
        self._process.kill()

    def is_alive(self) -> bool:
        """Whether it can take another request."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
