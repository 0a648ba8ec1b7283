"""Models by name, read from their files again when these change."""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bitclass.images import recorded_extractor
from bitclass.model import PackedModel
from bitclass.serving.page import Page
from bitclass.serving.settings import Settings
from bitclass.storage import load

__all__ = ["ModelFiles", "ServedModel", "label_value", "load_model"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class ServedModel:
    """A model with its name and extractor.

    Parameters
    ----------
    name : str
        Name in URLs: letters, digits, ".", "_" and "-".
    model : PackedModel
    extractor : object with a method `rows`, optional
        The extractor that the model was trained with.
    kind : {"rows", "texts", "images"}
        What the extractor takes.
    """

    name: str
    model: PackedModel
    extractor: Any = None
    kind: str = "rows"

    def __post_init__(self) -> None:
        self.check_name(self.name)

    @staticmethod
    def check_name(name: str) -> None:
        """Raise a ValueError if a model cannot have this name."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"a model name must be at most 100 letters, digits, '.', '_' or '-', starting "
                f"with a letter or digit, found {name!r}"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Kinds of input that the model accepts, the preferred one first."""
        if self.kind == "rows" and self.model.text is not None:
            return ("texts", "rows")
        return ("rows",) if self.kind == "rows" else (self.kind, "rows")

    @property
    def has_typicality(self) -> bool:
        """Whether the model can tell rows of no known class."""
        return getattr(self.model, "typicality_table", None) is not None

    @property
    def reject(self) -> float | None:
        """Share of known rows that requests reject unless they ask for another; None for none."""
        return getattr(self.model, "reject", 0.0) or None

    @cached_property
    def page(self) -> Page:
        """What the page shows of the model."""
        return Page(self.model, [str(label_value(label)) for label in self.model.classes])


def load_model(name: str, path: str, settings: Settings) -> ServedModel:
    """Load a model and the extractor that it was trained with.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read or is invalid, or if its extractor is missing, not allowed, or
        does not suit the model.
    """
    model = load(path)
    if model.summary.get("extractor") is None:
        return ServedModel(name, model)
    # Imported on demand: it needs scikit-learn, which a serving container does not have.
    from bitclass.text import recorded_embeddings

    where: dict[str, Any] = {
        "folder": Path(path).parent,
        "allow_external": settings.allow_external,
    }
    extractor: Any = recorded_embeddings(model.summary, **where)
    kind = "images" if extractor is None else "texts"
    if extractor is None:
        extractor = recorded_extractor(model.summary, **where)
    if extractor.n_features != model.n_features:  # also loads it before the first request
        raise ValueError(
            f"model {name} takes {model.n_features} features, but its extractor returns "
            f"{extractor.n_features}"
        )
    return ServedModel(name, model, extractor, kind)


class ModelFiles(dict[str, ServedModel]):
    """The models of a service by name.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._signatures = {name: _signature(path) for name, path in settings.models}
        super().__init__((name, load_model(name, path, settings)) for name, path in settings.models)
        self._last_seen = dict(self._signatures)

    async def reload_changed(self) -> list[tuple[str, bool]]:
        """Load the files that have changed, and not again since the last call.

        A model takes over when it is complete; requests that began with the old one end with it.
        If a file is invalid, the old model stays.

        Returns
        -------
        list of (name, success)
        """
        reloaded = []
        for name, path in self._settings.models:
            found, before = _signature(path), self._last_seen[name]
            self._last_seen[name] = found
            if found in (None, self._signatures[name]) or found != before:
                continue
            self._signatures[name] = found  # a file that is refused is not tried again
            try:
                self[name] = await asyncio.to_thread(load_model, name, path, self._settings)
            except Exception as error:  # whatever it is, the old model can be served
                reason = " ".join(str(error).split())
                print(f"{name}: the changed file is refused: {reason}", file=sys.stderr, flush=True)
                reloaded.append((name, False))
            else:
                reloaded.append((name, True))
        return reloaded


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def label_value(label: Any) -> str | int | float | bool:
    """Convert a label to a JSON value.

    Examples
    --------
    >>> label_value(np.int64(3)), label_value(np.datetime64("2020-01-01"))
    (3, '2020-01-01')
    """
    value = label.item() if isinstance(label, (np.number, np.bool_, np.str_, np.bytes_)) else label
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # JSON has no lone surrogates
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
