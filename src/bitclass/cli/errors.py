"""Errors become one clear line and an exit code, never a traceback.

Exit codes: 2 for arguments, 1 for data and files, 130 for an interrupt.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import typer

__all__ = ["UsageError", "printable", "run_and_report"]


class UsageError(ValueError):
    """Arguments that are wrong, or do not go together."""


# What Typer raises for arguments it cannot take; where the class lives depends on its version.
_ArgumentError: type[Exception] = typer.BadParameter.__mro__[2]


def run_and_report(command: Callable[[], Any]) -> NoReturn:
    """Run a command, report errors that a user can fix in one line, and exit."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # the caller has closed it
            # Under its own number, or the next file that is opened takes that, and gets its output.
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "w", encoding="utf-8"))  # noqa: SIM115
    warnings.showwarning = _show_warning
    # Commands select columns by name themselves.
    warnings.filterwarnings("ignore", "X does not have valid feature names")
    try:
        code = _called(command)
        # Now, while an error can still be reported; Python would print its own at exit.
        sys.stdout.flush()
        raise SystemExit(code)
    except _ArgumentError as error:
        _fail(getattr(error, "format_message", error.__str__)(), 2)
    except UsageError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        # The reader of our output has closed it, as `head` does.
        _discard_output()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        _discard_output()
        name = f"{error.filename}: " if error.filename else ""
        _fail(f"{name}{error.strerror or error}", 1)
    except (ValueError, ImportError, MemoryError) as error:
        _fail(str(error) or type(error).__name__, 1)


def _called(command: Callable[[], Any]) -> Any:
    """Run a command; Typer itself exits with 1 where nobody reads the output any more."""
    try:
        return command()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise


def _discard_output() -> None:
    """Discard what is still in the buffer of a full or closed standard output."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _show_warning(message: Warning | str, *where: Any, **options: Any) -> None:
    """One line; the place in the code means nothing to the user of a command."""
    print("bitclass: warning: " + _one_line(str(message)), file=sys.stderr)


def _fail(message: str, code: int) -> NoReturn:
    print("bitclass: " + _one_line(message), file=sys.stderr)
    raise SystemExit(code) from None


def _one_line(message: str) -> str:
    return printable(" ".join(message.split()))


def printable(text: str) -> str:
    r"""The text with control characters escaped, which could command the terminal.

    Examples
    --------
    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
