"""Atomic writing of files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` once it is complete and on disk.

    At any time `path` is absent, the old file or the complete new one. On an error the temporary
    file is removed; a killed process may leave it behind (``.bitclass-*.tmp``, in the same folder).
    If `path` is a link, its target is replaced. The permissions of a replaced file are kept. An
    `OSError` names `path`.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        mode = _mode_to_keep(target)
        temporary = os.path.join(folder, f".bitclass-{os.urandom(8).hex()}.tmp")
        try:
            with open(temporary, "xb") as file:
                if mode is not None:
                    os.chmod(temporary, mode)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        # The error of a full disk names no file, that of a missing folder the temporary file.
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error
    _sync_folder(folder)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise the `OSError` that `atomic_write` would raise, if it can be predicted."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        _mode_to_keep(target)
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "No such folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _mode_to_keep(target: str) -> int | None:
    """Permissions of the file to replace; None if there is no such file."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if not stat.S_ISREG(mode):
        # Replacing a device file would remove it for all users.
        raise OSError(errno.EINVAL, "Not a regular file", target)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    return stat.S_IMODE(mode)


def _sync_folder(folder: str) -> None:
    """Flush the directory entry to disk, if the platform supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # usually: folders cannot be synced here
        if error.errno in (errno.EIO, errno.ENOSPC):
            raise
