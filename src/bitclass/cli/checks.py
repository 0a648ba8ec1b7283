"""Checks that several commands make before any work."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.errors import UsageError
from bitclass.data import Reader
from bitclass.model import PackedModel
from bitclass.validation import check_named_codes, check_parameters

__all__ = ["check_room", "check_settings", "require_labels", "require_width"]


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
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


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
