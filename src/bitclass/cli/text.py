"""Text from files, shown as it is: labels and names may hold anything."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

__all__ = ["cell", "counted", "printable", "say"]


def printable(text: str) -> str:
    r"""The text with control characters written out, which could command the terminal.

    Examples
    --------
    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def cell(value: object) -> Text:
    """A value of a file for a table; brackets in it are no commands to Rich."""
    return Text(printable(str(value)))


def counted(number: object, noun: str) -> str:
    """A number, which may come from a file, with what it counts.

    Examples
    --------
    >>> counted(1, "round"), counted(2500, "row"), counted(None, "row")
    ('1 round', '2,500 rows', 'None rows')
    """
    shown = f"{number:,}" if isinstance(number, int) else str(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


def say(text: str) -> None:
    """Print lines as they are, never cut."""
    lines = "\n".join(map(printable, text.splitlines()))
    Console().print(Text(lines), soft_wrap=True)
