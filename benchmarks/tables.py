"""The one format of results: a page of small tables, and what they were measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import machine

__all__ = ["RESULTS", "page", "write_page"]

RESULTS = Path(__file__).parent / "results"


def write_page(
    name: str, title: str, note: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Write `results/NAME.md` and print it.

    Parameters
    ----------
    name : str
    title : str
    note : str
        What the numbers are, and the command that measures them.
    tables : mapping of str to sequence of mappings
        Rows by the heading of their table; a row has its values by column.
    """
    text = page(title, note, tables, machine())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def page(
    title: str,
    note: str,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    about: Mapping[str, Any],
) -> str:
    """Text of a page, for a machine as `machine` describes it."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        f"# {title}",
        "",
        f"{note} {about['processor']}, {about['cores']} cores, Python {about['python']}, "
        f"{versions}; kernels: {about['bitclass']['simd']}.",
    ]
    for heading, rows in tables.items():
        if not rows:
            continue
        lines += ["", *([f"## {heading}", ""] if heading else [])]
        lines.append(f"| {' | '.join(rows[0])} |")
        lines.append("|---" * len(rows[0]) + "|")
        lines += [f"| {' | '.join(map(_cell, row.values()))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
