"""Files under names of their own until they are complete; whoever writes one holds a lock on it.

A writer that is killed leaves its file behind, but not its lock. That is how the next one tells a
file that was abandoned from one that is still being written.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import BinaryIO, Literal

if sys.platform != "win32":
    import fcntl

__all__ = ["remove_abandoned", "temporary_file"]

# The kernel of the writer, then random digits.
_NAME = re.compile(r"\.bitclass-([0-9a-f]{8})-[0-9a-f]{16}\.tmp")
_UNKNOWN_KERNEL = "0" * 8
# Locks of a disk that machines share may be unknown to the others: only time tells them then.
_ABANDONED_SECONDS = 86_400.0


@contextmanager
def temporary_file(folder: str) -> Iterator[tuple[str, BinaryIO]]:
    """Make a file in a folder, to be renamed when it is complete; on an error it is removed.

    Parameters
    ----------
    folder : path of the folder

    Yields
    ------
    path : str
    file : opened for writing bytes; the lock stays if it is closed
    """
    path, file, lock = _locked_file(folder)
    try:
        with file:
            yield path, file
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def remove_abandoned(folder: str) -> None:
    """Remove what killed writers have left in a folder.

    A file is removed if it is ours by name and owner, if nobody holds its lock, and if its writer
    ran on this kernel, which knows all locks, or has not touched it for a day. Whatever cannot be
    removed stays.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        for name in os.listdir(folder):
            found = _NAME.fullmatch(name)
            if found:
                with suppress(OSError):
                    _remove_if_abandoned(os.path.join(folder, name), found[1])


def _locked_file(folder: str) -> tuple[str, BinaryIO, int | None]:
    """A new file, and a second descriptor that holds its lock, None where there are no locks."""
    while True:
        path = os.path.join(folder, f".bitclass-{_kernel()}-{os.urandom(8).hex()}.tmp")
        file = open(path, "xb")  # noqa: SIM115 - the caller closes it
        try:
            state = _lock(file.fileno())
            if state == "impossible":
                return path, file, None
            # Somebody may have taken it for abandoned before it was locked.
            if state == "ours" and os.fstat(file.fileno()).st_nlink:
                return path, file, os.dup(file.fileno())
        except BaseException:
            file.close()
            with suppress(OSError):
                os.unlink(path)
            raise
        file.close()
        with suppress(OSError):
            os.unlink(path)


def _lock(descriptor: int) -> Literal["ours", "taken", "impossible"]:
    """Try to lock a file; the lock is gone when all copies of the descriptor are."""
    if sys.platform == "win32":
        return "impossible"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "taken"
    except OSError:  # not every file system has locks
        return "impossible"
    return "ours"


def _remove_if_abandoned(path: str, kernel: str) -> None:
    # Neither a link nor a pipe of that name can lead anywhere or keep us waiting.
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return
        of_this_kernel = kernel == _kernel() != _UNKNOWN_KERNEL
        is_old = time.time() - status.st_mtime > _ABANDONED_SECONDS
        if (of_this_kernel or is_old) and _lock(descriptor) == "ours":
            os.unlink(path)
    finally:
        os.close(descriptor)


@cache
def _kernel() -> str:
    """Eight digits that tell the running kernel from others, and from itself before a restart."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        digits = file.read(8)
        if re.fullmatch("[0-9a-f]{8}", digits):
            return digits
    return _UNKNOWN_KERNEL
