"""Results that are kept one by one, so that a long run can be interrupted and taken up again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bitclass.storage import atomic_write
from timing import machine


def count(text: str) -> int:
    """A positive integer of the command line."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, found {text!r}")
    return int(text)


@contextmanager
def interruptible() -> Iterator[None]:
    """An interrupt ends what is inside, and no more: results that there are can be written."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; what there is is kept")


def write_table(path: Path, text: str) -> None:
    """Write a table, and show it."""
    with atomic_write(path) as file:
        file.write(text.encode())
    print(text)


class Cells:
    """Results by name, in a JSON file that is written whole after each.

    A result that is there is not computed again: delete the file to start anew, as after a change
    of the library.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.values: dict[str, Any] = {}
        if path.exists():
            self.values = json.loads(path.read_text())["cells"]

    def get(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a name, computed now if it is not there."""
        if name not in self.values:
            self.values[name] = compute()
            self.save()
        found: dict[str, Any] = self.values[name]
        return found

    def save(self) -> None:
        """Write the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        cells = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(value)}"
            for name, value in sorted(self.values.items())
        )
        text = f'{{\n "machine": {json.dumps(machine())},\n "cells": {{\n{cells}\n }}\n}}\n'
        with atomic_write(self._path) as file:
            file.write(text.encode())
