"""The `bitclass` command."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main"]


def main() -> None:
    """Run the command; without arguments it shows what there is."""
    # Importing takes a second or two, and an interrupt in there would show as a traceback or be
    # taken for a missing module. Nothing has been begun yet that would have to be cleaned up.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from bitclass.cli.app import main as run

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    run()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(130)
