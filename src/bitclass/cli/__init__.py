"""The `bitclass` program: one module per command, imported when that command is run."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]


def main() -> None:
    """Run the command in `sys.argv`; show the help if there are no arguments."""
    arguments = sys.argv[1:] or ["--help"]
    # An interrupt during imports would show a traceback, and no work has started yet.
    before = signal.getsignal(signal.SIGINT)
    handles_interrupt = before is signal.default_int_handler
    if handles_interrupt:
        signal.signal(signal.SIGINT, _exit_quietly)
    from bitclass.cli.app import prepare
    from bitclass.cli.errors import run_and_report

    run = prepare(arguments)
    if handles_interrupt:
        signal.signal(signal.SIGINT, before)
    run_and_report(run)


def _exit_quietly(number: int, frame: FrameType | None) -> None:
    os._exit(130)
