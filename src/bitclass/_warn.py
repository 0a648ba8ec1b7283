"""Warnings that point at the user's line of code, and texts of messages."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

# Packages to skip: this one, and what may lie between it and the user's code.
_PACKAGES = ("bitclass", "contextlib", "sklearn")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the first frame outside this package and scikit-learn."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and _package(frame) in _PACKAGES:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def how_to_install(extra: str) -> str:
    """The end of a message about a missing library: how to install the extra that has it.

    `extra` is the name of an extra, or several joined by commas.
    """
    return f'install it in the checkout with: pip install ".[{extra}]"'


def printable(text: str) -> str:
    r"""Escape what cannot be printed or would control the terminal, such as bytes of file names.

    Examples
    --------
    >>> printable("red \x1b[31m"), printable("caf\udce9.png")
    ('red \\x1b[31m', 'caf\\udce9.png')
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
