"""Errors in data files, each a single line that names the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DataFileError", "listed", "more", "reading"]

_MAX_NAMES = 20
_MAX_CHARACTERS = 300


class DataFileError(ValueError):
    """Error in a data file; the message is a single line that names the file.

    Examples
    --------
    >>> from bitclass.io import open_rows
    >>> open_rows("absent.npy")
    Traceback (most recent call last):
    bitclass.io.errors.DataFileError: absent.npy: no such file or folder
    """


@contextmanager
def reading(path: Path, format_name: str) -> Iterator[None]:
    """Convert any exception in the block to a `DataFileError` that names the file.

    The libraries that read the formats raise many types on a damaged file, including KeyError and
    AttributeError, so all are caught.
    """
    try:
        yield
    except DataFileError:
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path}: no such file or folder") from error
    except PermissionError as error:
        raise DataFileError(f"{path}: no permission to read the file") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if len(reason) > _MAX_CHARACTERS:
            reason = reason[:_MAX_CHARACTERS] + "..."
        raise DataFileError(f"{path}: cannot be read as {format_name}: {reason}") from error


def listed(names: Iterable[object]) -> str:
    """List names in a message, shortened if there are many.

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
    """Suffix for the first file name in a message about several files."""
    return f" and {len(files) - 1} more" if len(files) > 1 else ""
