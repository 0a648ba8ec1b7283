"""What goes wrong becomes one clear line and exit code 2, never a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from bitclass.cli.text import printable

__all__ = ["UsageError", "run_reporting"]


class UsageError(ValueError):
    """Arguments that do not go together."""


# What Typer raises for arguments it cannot take; where the class lives depends on its version.
_ArgumentError: type[Exception] = typer.BadParameter.__mro__[2]


def run_reporting(command: Callable[[], int | None]) -> NoReturn:
    """Run a command; turn errors that a user can mend into a line and an exit code."""
    _open_closed_streams()
    warnings.showwarning = _show_warning
    sys.unraisablehook = _pass_on_interrupt
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


def _open_closed_streams() -> None:
    """Let what is written to standard streams that somebody has closed go nowhere.

    A file would else take their place, and get what is meant for them.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w", encoding="utf-8"))  # noqa: SIM115


def _drop_output() -> None:
    """Let what is still to be written to a full or closed standard output go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _show_warning(message: Warning | str, *where: Any, **options: Any) -> None:
    """One line for the person at the command; the place in the code says nothing to them."""
    print("bitclass: warning: " + _one_line(str(message)), file=sys.stderr)


def _pass_on_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Interrupt again a little later if the interrupt fell where nothing can be raised.

    Python only prints errors of `__del__` and of generators that it closes itself, and goes on: the
    run would not end.
    """
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # A true signal to the thread it is for, so that it also ends what waits in the system.
        main_thread = threading.main_thread().ident
        again = threading.Timer(0.01, signal.pthread_kill, [main_thread, signal.SIGINT])
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)


def _give_up(message: str) -> NoReturn:
    print("bitclass: " + _one_line(message), file=sys.stderr)
    raise SystemExit(2) from None


def _one_line(message: str) -> str:
    return printable(" ".join(message.split()))
