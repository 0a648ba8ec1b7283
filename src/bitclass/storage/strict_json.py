"""JSON of a file that is not trusted, and what its reading may raise."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

__all__ = ["ModelFileError", "finite_float", "parse_json", "shown"]


class ModelFileError(ValueError):
    """A file is not what it should be: damaged, made by something else, or newer than we are."""


def parse_json(text: str, what: str = "the header") -> Any:
    """Parse JSON, refusing what the standard leaves open: repeated keys, NaN and infinities.

    Parameters
    ----------
    text : str
    what : str, what this is, for the message
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
            parse_float=finite_float,
        )
    except RecursionError:
        raise ModelFileError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise ModelFileError(f"{what} is not valid JSON: {error}") from None


def shown(value: Any) -> str:
    """A value of a file, for a message: on one line, and not too long."""
    text = repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ModelFileError(f"key {shown(key)} is there twice")
        values[key] = value
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ModelFileError(f"{name} is no number of JSON")


def finite_float(text: str | int) -> float:
    """Float of a number in JSON, which may be written too large for one."""
    try:
        value = float(text)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ModelFileError(f"number {shown(text)} is out of range")
    return value
