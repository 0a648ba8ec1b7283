"""The `bitclass` program: one module per command, imported when that command is run."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run the command in `sys.argv`; show the help if there are no arguments."""
    # An interrupt during imports would show a traceback, and no work has started yet.
    handles_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupts:
        signal.signal(signal.SIGINT, _exit_quietly)
    from bitclass.cli.app import parser
    from bitclass.cli.errors import run_and_report

    def run() -> Any:
        parse_and_run = parser(sys.argv[1:] or ["--help"])
        if handles_interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return parse_and_run()

    run_and_report(run)


def _exit_quietly(number: int, frame: FrameType | None) -> None:
    os._exit(130)
