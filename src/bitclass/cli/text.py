"""Text from files, shown as it is: labels and names may contain anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["cell", "counted", "describe_training", "held_out_accuracy", "printable", "say", "size"]


def printable(text: str) -> str:
    r"""The text with control characters escaped, which could command the terminal.

    Examples
    --------
    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def cell(value: object) -> Text:
    """A value for a table of Rich, in which square brackets are not markup."""
    from rich.text import Text

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


def size(n_bytes: int) -> str:
    """Size of a file.

    Examples
    --------
    >>> size(2217), size(2_150_000)
    ('2.2 kB', '2.15 MB')
    """
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes < 100_000 else f"{n_bytes / 1e6:.2f} MB"


def say(text: str) -> None:
    """Print lines as they are, never wrapped."""
    from rich.console import Console
    from rich.text import Text

    lines = "\n".join(map(printable, text.splitlines()))
    Console().print(Text(lines), soft_wrap=True)


def describe_training(summary: Mapping[str, Any]) -> str:
    """How a model was trained, from the summary in its file, which need not be trusted.

    Examples
    --------
    >>> describe_training({"loss": "hinge", "n_rounds": 1})
    'hinge loss, closed form'
    >>> describe_training({"loss": "exponential", "n_rounds": 3})
    'exponential loss, 3 rounds'
    """
    loss, refinement = summary.get("loss"), summary.get("refinement")
    how = "closed form" if loss == "hinge" else counted(summary.get("n_rounds"), "round")
    text = f"{loss} loss, {how}"
    if isinstance(refinement, dict):
        before, after = (refinement.get(f"accuracy_{when}") for when in ("before", "after"))
        if "columns" in refinement:  # of wide rows, which have no closed form
            epochs = counted(refinement.get("epochs"), "epoch")
            text = f"sparse mini-batches, {epochs}, {counted(refinement['columns'], 'column')} kept"
            if isinstance(after, float):
                text += f"; {after:.2%} of the held-out rows"
        elif isinstance(before, float) and isinstance(after, float):
            rows = counted(refinement.get("held_out_rows"), "held-out row")
            epochs = counted(refinement.get("epochs"), "epoch")
            text += f"; refinement {epochs}, accuracy on {rows} {before:.2%} to {after:.2%}"
            if refinement.get("taken") is False:
                text += ", not taken"
    return text


def held_out_accuracy(summary: Mapping[str, Any]) -> Any:
    """Accuracy of the model on held-out rows, None if none were held out.

    Examples
    --------
    >>> refinement = {"taken": False, "accuracy_before": 0.9, "accuracy_after": 0.8}
    >>> held_out_accuracy({"refinement": refinement})
    0.9
    """
    refinement = summary.get("refinement")
    if not isinstance(refinement, dict):
        return None
    return refinement.get("accuracy_after" if refinement.get("taken") else "accuracy_before")
