"""The `bitclass` program: one module per command, imported when that command is run."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command in `sys.argv`; show the help if there are no arguments."""
    try:
        from bitclass.cli.app import parse_and_run
        from bitclass.cli.errors import run_and_report
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run_and_report(lambda: parse_and_run(sys.argv[1:] or ["--help"]))
