"""Pictures in place of feature files: features are extracted on the way."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bitclass._native import thread_limit
from bitclass.cli.errors import UsageError
from bitclass.cli.options import open_data
from bitclass.cli.progress import rows_progress
from bitclass.data import Reader, open_rows
from bitclass.data.pictures import find_pictures, open_pictures
from bitclass.images import Extractor, ImageRows, image_rows, recorded_extractor
from bitclass.storage import read_header

__all__ = ["DEFAULT_EXTRACTOR", "Rows", "extractor_of_model", "opened_rows"]

DEFAULT_EXTRACTOR = "cnn"


@dataclass(frozen=True)
class Rows:
    """Rows to learn from or to predict, out of feature files or of pictures.

    Attributes
    ----------
    reader : Reader
    names : of the pictures, one a row; None for feature files
    extractor : what made the features; None for feature files
    """

    reader: Reader
    names: Sequence[str] | None = None
    extractor: Extractor | None = None


def extractor_of_model(model: Path) -> Extractor:
    """The extractor that a model file records, or an error where it records none."""
    header = read_header(model)
    try:
        extractor = recorded_extractor(header.summary)
    except ValueError as error:
        raise UsageError(f"{model}: {error}") from error
    if extractor is None:
        raise UsageError(
            f"{model}: learned from feature files, and so takes rows of {header.n_features} "
            "features, not pictures"
        )
    if extractor.n_features != header.n_features:
        raise UsageError(
            f"{model}: takes {header.n_features} features, but its extractor "
            f"{extractor.name} gives {extractor.n_features}"
        )
    return extractor


@contextmanager
def opened_rows(
    paths: list[Path],
    features: str | None,
    labels: str | bool | None,
    labels_file: Path | None,
    format: str | None,
    *,
    extractor: Callable[[], Extractor],
    split: str | None = None,
    wants_pictures: bool = False,
    needs_labels: bool = True,
    jobs: int | None = None,
    store: Path | None = None,
    room: Path | None = None,
) -> Iterator[Rows]:
    """Rows of what a command was given, feature files or pictures.

    Parameters
    ----------
    paths : feature files, or folders of pictures, or pictures
    features, labels, labels_file, format : the options for feature files
    extractor : makes the extractor for pictures, called only if there are some
    split : part of a data set of pictures
    wants_pictures : whether the user said that these are pictures
    needs_labels : whether pictures must have classes
    jobs : processes that decode
    store : folder that keeps the features of pictures, for a run that goes on after a kill
    room : folder for features that nobody keeps
    """
    named = {"--features": features, "--labels": labels, "--labels-file": labels_file}
    given = [name for name, value in (named | {"--format": format}).items() if value]
    wants_pictures = wants_pictures or split is not None
    pictures = None if given and not wants_pictures else find_pictures(paths, split)
    if pictures is None and wants_pictures:
        pictures = open_pictures(paths[0], split)
    if pictures is None:
        yield Rows(open_data(paths, features, labels, labels_file, format))
        return
    if given:
        raise UsageError(f"{given[0]} is for feature files, and {paths[0]} has pictures")
    if needs_labels and pictures.labels is None:
        raise UsageError(f"{paths[0]}: no classes found; pictures of a class go into a folder each")
    with ExitStack() as stack:
        stack.enter_context(thread_limit(jobs))
        chosen = extractor()
        if store is not None:
            shutil.rmtree(store / "rows", ignore_errors=True)
        temporary = tempfile.TemporaryDirectory(prefix=".bitclass-", dir=room)
        folder = Path(stack.enter_context(temporary))
        with rows_progress(len(pictures)) as progress:
            found = image_rows(
                replace(pictures, paths=tuple(paths)),
                chosen,
                cache=store or folder / "cache",
                n_jobs=jobs,
                progress=lambda done: progress("extracting", done),
            )
        yield _rows(found, store / "rows" if store is not None else folder)
        if store is not None:
            shutil.rmtree(store)  # what it was for is done


def _rows(found: ImageRows, folder: Path) -> Rows:
    folder.mkdir(exist_ok=True)
    X, labels = found.sample(found.n_rows)
    np.save(folder / "features.npy", X)
    labels_file = None
    if labels is not None:
        labels_file = folder / "labels.npy"
        np.save(labels_file, labels)
    reader = open_rows(folder / "features.npy", labels_file=labels_file)
    reader.description = found.description
    return Rows(reader, found.names, found.extractor)
