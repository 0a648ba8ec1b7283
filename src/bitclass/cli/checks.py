"""Checks of data files that several commands make before any work."""

from __future__ import annotations

from pathlib import Path

from bitclass.cli.errors import UsageError
from bitclass.data import Reader
from bitclass.model import PackedModel

__all__ = ["require_labels", "require_width"]


def require_labels(reader: Reader) -> None:
    """Refuse files without labels."""
    if not reader.has_labels:
        raise UsageError(
            f"{reader.description}: no labels found; name them with --labels or --labels-file"
        )


def require_width(reader: Reader, model: PackedModel, path: Path) -> None:
    """Refuse rows of another number of features than the model at `path` takes."""
    if reader.n_features != model.n_features:
        raise UsageError(
            f"{reader.description}: rows have {reader.n_features} features, and the model "
            f"{path} takes {model.n_features}"
        )
