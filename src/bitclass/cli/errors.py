"""What goes wrong becomes one clear line and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

__all__ = ["UsageError", "run_reporting"]


class UsageError(ValueError):
    """Arguments that do not go together."""


def run_reporting(command: Callable[[], None]) -> None:
    """Run a command; turn errors that a user can mend into a line and an exit code."""
    try:
        command()
    except BrokenPipeError:
        # Whoever read our output has had enough of it.
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _give_up(f"{name}{error.strerror or error}")
    except (ValueError, ImportError, MemoryError) as error:
        _give_up(str(error) or type(error).__name__)


def _give_up(message: str) -> NoReturn:
    print("bitclass: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(2) from None
