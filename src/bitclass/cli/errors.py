"""What goes wrong becomes one clear line and exit code 2, never a traceback."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import typer

__all__ = ["UsageError", "run_reporting"]


class UsageError(ValueError):
    """Arguments that do not go together."""


# What Typer raises for arguments it cannot take; where the class lives depends on its version.
_ArgumentError: type[Exception] = typer.BadParameter.__mro__[2]


def run_reporting(command: Callable[[], int | None]) -> NoReturn:
    """Run a command; turn errors that a user can mend into a line and an exit code."""
    warnings.showwarning = _show_warning
    try:
        code = command()
        # Now, while an error can still be told; at the very end Python would print its own.
        sys.stdout.flush()
        raise SystemExit(code)
    except _ArgumentError as error:
        _give_up(getattr(error, "format_message", error.__str__)())
    except BrokenPipeError:
        # Whoever read our output has had enough of it.
        _drop_output()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        _drop_output()
        name = f"{error.filename}: " if error.filename else ""
        _give_up(f"{name}{error.strerror or error}")
    except (ValueError, ImportError, MemoryError) as error:
        _give_up(str(error) or type(error).__name__)


def _drop_output() -> None:
    """Let what is still to be written to a full or closed standard output go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _show_warning(message: Warning | str, *where: Any, **options: Any) -> None:
    """One line for the person at the command; the place in the code says nothing to them."""
    print("bitclass: warning: " + " ".join(str(message).split()), file=sys.stderr)


def _give_up(message: str) -> NoReturn:
    print("bitclass: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(2) from None
