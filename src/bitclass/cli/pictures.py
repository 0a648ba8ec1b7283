"""Pictures in place of feature files: features are extracted on the way."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bitclass._native import thread_limit
from bitclass.cli.errors import UsageError
from bitclass.cli.options import open_data
from bitclass.cli.progress import rows_progress
from bitclass.data import Reader, open_rows
from bitclass.data.pictures import PictureSet, find_pictures, open_pictures, printable
from bitclass.images import Extractor, PictureWarning, extract_features
from bitclass.images.feature_store import FeatureStore, opened_store
from bitclass.images.recording import recorded_extractor
from bitclass.storage import read_header

__all__ = ["DEFAULT_EXTRACTOR", "Rows", "extractor_of_model", "fill_store", "opened_rows"]

DEFAULT_EXTRACTOR = "cnn"

# So many are lost by a kill, at most.
_BATCH_PICTURES = 128


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
        folder = store
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix=".bitclass-", dir=room)
            folder = Path(stack.enter_context(temporary)) / "features"
        filled = stack.enter_context(opened_store(folder, pictures, chosen))
        fill_store(filled, pictures, chosen, jobs)
        yield _rows(filled, pictures, chosen, paths)
        filled.remove()  # what they were wanted for is done


def _rows(
    store: FeatureStore, pictures: PictureSet, extractor: Extractor, paths: list[Path]
) -> Rows:
    labels_file = store.labels if pictures.labels is not None else None
    reader = open_rows(store.features, labels_file=labels_file)
    many = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    left_out = len(pictures) - store.n_rows
    without = f", {left_out:,} left out" if left_out else ""
    reader.description = (
        f"{paths[0]}{many}: {store.n_rows:,} pictures{without}, {extractor.n_features} features "
        f"by {extractor.name}"
    )
    names = [printable(pictures.names[row]) for row in store.rows().tolist()]
    return Rows(reader, names, extractor)


def fill_store(
    store: FeatureStore, pictures: PictureSet, extractor: Extractor, jobs: int | None
) -> None:
    """Extract what is not there yet."""
    with rows_progress(len(pictures)) as progress:
        progress("extracting", store.n_done)
        coming = extract_features(
            pictures,
            extractor,
            start_row=store.n_done,
            batch_pictures=_BATCH_PICTURES,
            n_jobs=jobs,
        )
        for rows, features in coming:
            # Batches end at multiples of their length, whatever could be read of them.
            batch_end = store.n_done - store.n_done % _BATCH_PICTURES + _BATCH_PICTURES
            store.append(min(batch_end, len(pictures)), rows, features)
            progress("extracting", store.n_done)
    store.complete()
    left_out = len(pictures) - store.n_rows
    if left_out:
        warnings.warn(
            f"left out {left_out:,} of {len(pictures):,} pictures that cannot be read",
            PictureWarning,
            stacklevel=2,
        )
