"""What is wrong with a data file, said in one line that names the file."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bitclass.io.errors import DataFileError

__all__ = ["DataFileError", "check_extra", "import_extra", "listed", "reading"]

# Of writing, which only unpacking to a temporary file does.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
_MOST_NAMES = 20
_MOST_CHARACTERS = 300


@contextmanager
def reading(path: Path, format_name: str) -> Iterator[None]:
    """Turn whatever goes wrong within into a `DataFileError` that names the file.

    The libraries below raise errors of very many types on a damaged file, KeyError and
    AttributeError among them, so all are caught.
    """
    try:
        yield
    except DataFileError:
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path}: there is no such file or folder") from error
    except PermissionError as error:
        raise DataFileError(f"{path}: no permission to read it") from error
    except IsADirectoryError as error:
        raise DataFileError(f"{path}: is a folder, not a file") from error
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise _damaged(path, format_name, error) from error
        raise DataFileError(
            f"{path}: unpacking it needs room in {tempfile.gettempdir()}: {error.strerror}"
        ) from error
    except MemoryError as error:
        raise DataFileError(
            f"{path}: as {format_name} it takes more memory than there is for it; it may be damaged"
        ) from error
    except Exception as error:
        raise _damaged(path, format_name, error) from error


def _damaged(path: Path, format_name: str, error: Exception) -> DataFileError:
    why = _one_line(str(error)) or type(error).__name__
    return DataFileError(
        f"{path}: cannot be read as {format_name}, it is damaged or of another format ({why})"
    )


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + "..."


def import_extra(module: str, extra: str, path: Path, format_name: str) -> Any:
    """Import a module of an extra, or say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _not_installed(module, extra, path, format_name) from error


def check_extra(module: str, extra: str, path: Path, format_name: str) -> None:
    """Say what to install where a module is missing, without importing it."""
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ValueError:
        is_there = False
    if not is_there:
        raise _not_installed(module, extra, path, format_name)


def _not_installed(module: str, extra: str, path: Path, format_name: str) -> DataFileError:
    return DataFileError(
        f"{path}: reading {format_name} needs {module.split('.')[0]}; "
        f"install it with: pip install 'bitclass[{extra}]'"
    )


def listed(names: Iterable[object]) -> str:
    """Names for an error message, shortened where there are very many.

    Examples
    --------
    >>> listed(["X", "y"])
    "'X', 'y'"
    """
    words = [repr(name) for name in names]
    if not words:
        return "none"
    if len(words) > _MOST_NAMES:
        words = [*words[: _MOST_NAMES - 1], f"... ({len(words)} in all)"]
    return ", ".join(words)
