"""Checks that several commands make before any work."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.errors import UsageError
from bitclass.data import Reader
from bitclass.model import PackedModel
from bitclass.storage import check_writable, load
from bitclass.validation import check_named_codes, check_parameters

__all__ = ["check_room", "check_settings", "load_for_files", "require_labels", "require_width"]


def load_for_files(path: Path) -> PackedModel:
    """Read a model whose labels are to be compared with those of files, or written to one.

    Text that Python held as objects, as pandas does, becomes text as files have it.
    """
    model = load(path)
    if model.classes.dtype == object and all(isinstance(name, str) for name in model.classes):
        model.classes = model.classes.astype(np.str_)
    return model


def check_room(path: Path, option: str) -> None:
    """Find out whether a file can be written, before there is anything to write.

    Parameters
    ----------
    path : the file
    option : that named it
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; {option} takes the name of a file")
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder for {path.name}")
    check_writable(path)


def check_settings(classifier: BinaryCodeClassifier) -> None:
    """Refuse parameters that training would refuse, before features are extracted."""
    check_parameters(classifier.get_params(deep=False))
    check_named_codes(classifier.initial_codes)


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
