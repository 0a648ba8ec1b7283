"""Models by name, read from their files again when these change."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bitclass.images import recorded_extractor
from bitclass.model import PackedModel
from bitclass.storage import load

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class ServedModel:
    """A model with its name and the extractor that it was trained with."""

    name: str  # in URLs: letters, digits, ".", "_" and "-"
    model: PackedModel
    extractor: Any = None  # with a method `rows`
    kind: str = "rows"  # what the extractor takes: "rows", "texts" or "images"

    def __post_init__(self) -> None:
        self.check_name(self.name)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Kinds of input that the model accepts, the preferred one first."""
        kind = "texts" if self.kind == "rows" and self.model.text is not None else self.kind
        return tuple(dict.fromkeys((kind, "rows")))

    @cached_property
    def label_bytes(self) -> int:
        """Size of the longest label."""
        classes = self.model.classes
        if classes.dtype.kind == "O":
            return max(len(str(label)) for label in classes)
        return classes.dtype.itemsize

    @staticmethod
    def check_name(name: str) -> None:
        """Raise a ValueError if a model cannot have this name."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"a model name must be at most 100 letters, digits, '.', '_' or '-', starting "
                f"with a letter or digit, found {name!r}"
            )


def load_model(name: str, path: str, *, allow_external: bool = False) -> ServedModel:
    """Load a model and the extractor that it was trained with.

    With `allow_external` the file may name an extractor that is neither installed nor beside it.
    """
    model = load(path)
    if model.summary.get("extractor") is None:
        return ServedModel(name, model)
    from bitclass.embeddings import recorded_embeddings

    where: dict[str, Any] = {"folder": Path(path).parent, "allow_external": allow_external}
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
    """The models of a service by name, from the paths of their files by name."""

    def __init__(self, paths: Mapping[str, str], *, allow_external: bool = False) -> None:
        self._paths, self._allow_external = paths, allow_external
        self._signatures = {name: _signature(path) for name, path in paths.items()}
        super().__init__((name, self._load(name)) for name in paths)
        self._last_seen = dict(self._signatures)

    def _load(self, name: str) -> ServedModel:
        return load_model(name, self._paths[name], allow_external=self._allow_external)

    def loaded_again(self) -> ModelFiles:
        """The same models, not shared with another process."""
        return ModelFiles(self._paths, allow_external=self._allow_external)

    async def reload_changed(self) -> list[tuple[str, bool]]:
        """Load the files that have changed, and not again since the last call.

        A model takes over when it is complete; requests that began with the old one end with it.
        If a file is invalid, the old model stays. Returns names, and whether they were loaded.
        """
        reloaded = []
        for name, path in self._paths.items():
            found, before = _signature(path), self._last_seen[name]
            self._last_seen[name] = found
            if found in (None, self._signatures[name]) or found != before:
                continue
            self._signatures[name] = found  # a file that is refused is not tried again
            try:
                self[name] = await asyncio.to_thread(self._load, name)
            except Exception as error:  # whatever it is, the old model can be served
                reason = " ".join(str(error).split())
                _log(f"{name}: the changed file is refused: {reason}")
                reloaded.append((name, False))
            else:
                _log(f"{name}: the changed file is loaded")
                reloaded.append((name, True))
        return reloaded


def _log(line: str) -> None:
    """Write a line at once, so that those of several workers are not mixed."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
