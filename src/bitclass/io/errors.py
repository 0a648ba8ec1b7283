"""Errors of data files: one line that names the file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["DataFileError", "listed", "more", "reading", "require"]

_MAX_NAMES = 20
_MAX_CHARACTERS = 300


class DataFileError(ValueError):
    """A data file that cannot be used; the message is one line that names the file.

    Examples
    --------
    >>> from bitclass.io import open_rows
    >>> open_rows("absent.npy")
    Traceback (most recent call last):
    bitclass.io.errors.DataFileError: absent.npy: no such file or folder
    """


@contextmanager
def reading(path: Path, format_name: str) -> Iterator[None]:
    """Turn any exception of the block into a `DataFileError` that names the file.

    The libraries that read the formats raise many types on a damaged file, KeyError and
    AttributeError among them, so all are caught.
    """
    try:
        yield
    except DataFileError:
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path}: no such file or folder") from error
    except PermissionError as error:
        raise DataFileError(f"{path}: no permission to read it") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if len(reason) > _MAX_CHARACTERS:
            reason = reason[:_MAX_CHARACTERS] + "..."
        raise DataFileError(f"{path}: cannot be read as {format_name}: {reason}") from error


def require(module: str, extra: str, path: Path, format_name: str) -> Any:
    """Import an optional dependency, or say which extra of this package installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataFileError(
            f"{path}: reading {format_name} needs {module.split('.')[0]}; "
            f"install it with: pip install 'bitclass[{extra}]'"
        ) from error


def listed(names: Iterable[object]) -> str:
    """Names for a message, shortened if there are many.

    Examples
    --------
    >>> listed(["X", "y"])
    "'X', 'y'"
    """
    words = [repr(name) for name in names]
    if len(words) > _MAX_NAMES:
        words = [*words[: _MAX_NAMES - 1], f"... ({len(words)} in all)"]
    return ", ".join(words) or "none"


def more(files: Sized) -> str:
    """What follows the name of the first file in a message about several."""
    return f" and {len(files) - 1} more" if len(files) > 1 else ""
