"""The extractor of a model, recorded in the summary of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitclass.images.extractors import Extractor, from_specification

__all__ = ["record_extractor", "recorded_extractor"]

_ENTRY = "extractor"


def record_extractor(summary: dict[str, Any], specification: Mapping[str, Any]) -> None:
    """Write down what made the features that a model learned from.

    Parameters
    ----------
    summary : of a `PackedModel`
    specification : of an extractor
    """
    summary[_ENTRY] = dict(specification)


def recorded_extractor(summary: Mapping[str, Any]) -> Extractor | None:
    """The extractor that a model was learned with, None where it learned from feature files.

    Parameters
    ----------
    summary : of a `PackedModel`; it need not be trusted

    Examples
    --------
    >>> recorded_extractor({"extractor": {"kind": "gist", "size": 64}})
    Gist(size=64)
    """
    specification = summary.get(_ENTRY)
    if specification is None:
        return None
    if not isinstance(specification, dict):
        raise ValueError(f"the summary's {_ENTRY!r} must be an object, found {specification!r:.80}")
    return from_specification(specification)
