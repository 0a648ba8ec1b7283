"""Report errors in one line and an exit code, without a traceback.

Exit codes: 2 for invalid arguments, 1 for errors in data and files, 130 for an interrupt.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from bitclass._warn import printable


class UsageError(ValueError):
    """Invalid arguments, or arguments that cannot be combined."""


# What Typer raises for invalid arguments; the module of the class depends on Typer's version.
_ArgumentError: type[Exception] = typer.BadParameter.__mro__[2]


def run_and_report(command: Callable[[], Any]) -> NoReturn:
    """Run a command, report expected errors in one line, and exit."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # closed by the caller
            # Reopen the same descriptor: otherwise the next opened file would receive the output.
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
        # Flush now, while an error can still be reported; at exit, Python would print its own.
        sys.stdout.flush()
        raise SystemExit(code)
    except _ArgumentError as error:
        message = getattr(error, "format_message", error.__str__)()
        path = getattr(getattr(error, "ctx", None), "command_path", "bitclass")
        _fail(f"{message} (see: {path} --help)", 2)
    except UsageError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does.
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
    except Exception as error:
        _fail(
            f"internal error, {type(error).__name__}: {error}; please report it with the traceback "
            "that BITCLASS_TRACEBACK=1 shows",
            1,
        )


def _called(command: Callable[[], Any]) -> Any:
    """Run a command; raise a broken pipe or an interrupt also if another exception followed."""
    try:
        return command()
    except (Exception, SystemExit) as error:
        # Typer turns a broken pipe into an exit, and closing files after an interrupt may fail.
        cause = error.__context__
        while cause is not None:
            if isinstance(cause, (BrokenPipeError, KeyboardInterrupt)):
                raise cause from None
            cause = cause.__context__
        raise


def _discard_output() -> None:
    """Discard what is still buffered for a full or closed standard output."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _show_warning(message: Warning | str, *where: Any, **options: Any) -> None:
    """Print a warning in one line, without the location in the code."""
    print("bitclass: warning: " + _one_line(str(message)), file=sys.stderr)


def _fail(message: str, code: int) -> NoReturn:
    if os.environ.get("BITCLASS_TRACEBACK"):
        traceback.print_exc()
    print("bitclass: " + _one_line(message), file=sys.stderr)
    raise SystemExit(code) from None


def _one_line(message: str) -> str:
    return printable(" ".join(message.split()))
