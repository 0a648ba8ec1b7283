"""Input rows of all commands, from feature files, texts or images, and checks of output paths."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitclass.cli.console import progress_bars
from bitclass.cli.errors import UsageError
from bitclass.storage import check_writable, load

if TYPE_CHECKING:
    from bitclass.io import Batch, Rows
    from bitclass.model import PackedModel

__all__ = [
    "RowOptions",
    "check_outputs",
    "files_in",
    "input_of",
    "load_model",
    "named",
    "open_rows_for",
    "open_training_rows",
    "takes_texts",
    "with_standard_input",
]

_TEXT_LIBRARIES = ("model2vec", "sentence-transformers")


@dataclasses.dataclass(frozen=True)
class RowOptions:
    """What to read from files, as the user has said; None where the user has not."""

    features: str | None = None
    labels: str | None = None
    text: str | None = None
    weights: str | None = None
    id: Sequence[str] = ()
    format: str | None = None
    header: bool = True

    def labels_file(self) -> Path | None:
        """The file of labels, if --labels is one rather than a column."""
        from bitclass.io import format_of

        path = None if self.labels is None else Path(self.labels)
        return path if path is not None and format_of(path) is not None else None

    def given(self) -> dict[str, Any]:
        """Arguments of `bitclass.io.open_rows`."""
        from bitclass.io.rows import FORMATS

        if self.format is not None and self.format not in FORMATS:
            raise UsageError(f"--format {self.format}: not one of {', '.join(FORMATS)}")
        given: dict[str, Any] = {"columns": self.id, "format": self.format, "header": self.header}
        file = self.labels_file()
        if file is not None and not file.exists():
            raise UsageError(f"--labels {file}: no such file")
        given["labels" if file is None else "labels_file"] = self.labels if file is None else file
        if self.features is not None:
            given["features"] = [name.strip() for name in self.features.split(",")]
        return given | {"sample_weight": self.weights}

    def remembered(self) -> dict[str, Any]:
        """The columns that a model file remembers, since its later files usually have them too."""
        labels = None if self.labels_file() else self.labels
        found = {"labels": labels, "text": self.text}
        columns = {name: value for name, value in found.items() if value is not None}
        return columns if self.header else columns | {"header": False}

    def completed(self, model: PackedModel) -> RowOptions:
        """These options, with columns as in training where the user has not named any."""
        remembered = model.summary.get("columns")
        if not isinstance(remembered, dict):  # the file may be from anywhere
            return self
        columns = {
            name: remembered[name]
            for name in ("labels", "text")
            if isinstance(remembered.get(name), str) and getattr(self, name) is None
        }
        return dataclasses.replace(self, **columns, header=remembered.get("header") is not False)


def open_training_rows(
    paths: Sequence[Path], options: RowOptions, extractor: str | None, n_jobs: int | None
) -> tuple[Rows, Any]:
    """Open labelled rows or texts to train on; also returns the extractor of images, or None."""
    from bitclass.io import open_rows

    rows: Rows
    used: Any = None
    if options.text is not None:
        rows = _open_texts(paths, options)
    elif extractor or _are_images(paths, options):
        from bitclass.images import extractor_named

        used = named(extractor_named, extractor or "cnn")
        rows = _image_rows(paths, options, used, n_jobs)
    else:
        rows = open_rows(paths, **options.given())
    _check_labels(rows, paths)
    return rows, used


def open_rows_for(
    model: PackedModel,
    path: Path,
    paths: Sequence[Path],
    options: RowOptions,
    *,
    labelled: bool,
) -> Rows:
    """Open rows, texts or images for the model in the file `path`.

    Columns are selected by the model's feature names, labels get the type of its classes, and
    images go through the extractor it was trained with. Unless `labelled`, a label column is
    skipped.
    """
    from bitclass.io import open_rows

    options = options.completed(model)
    given: dict[str, Any] = {"classes": model.classes} if labelled else {"labels": False}
    if takes_texts(model):
        rows = _open_texts(paths, options, **given)
    elif options.text is not None:
        raise UsageError(f"--text: the model takes {model.n_features} features per row, not texts")
    elif _are_images(paths, options):
        from bitclass.images import recorded_extractor

        used = recorded_extractor(model.summary, path.absolute().parent)
        if used is None:
            raise UsageError(
                f"{paths[0]}: has images, but the model takes {model.n_features} features per row"
            )
        _check_width(model, used.n_features)
        rows = _image_rows(paths, options, used)
    else:
        names, width = model.feature_names, model.n_features
        rows = open_rows(paths, **options.given() | given, feature_names=names, n_features=width)
    if labelled:
        _check_labels(rows, paths)
    return rows


def input_of(batch: Batch) -> Any:
    """What the model's methods take: texts, or rows of features."""
    return batch.X if batch.texts is None else batch.texts


def takes_texts(model: PackedModel) -> bool:
    """Whether a model was trained on texts."""
    extractor = model.summary.get("extractor")
    kind = extractor.get("kind") if isinstance(extractor, dict) else None
    return model.text is not None or kind in _TEXT_LIBRARIES


def _check_labels(rows: Rows, paths: Sequence[Path]) -> None:
    if not rows.has_labels:
        raise UsageError(
            f"{paths[0]}: no labels found; name their column or file with --labels (images: one "
            "folder per class)"
        )


def _check_width(model: PackedModel, n_features: int) -> None:
    """Raise an error if the extractor cannot be the one used in training."""
    if n_features != model.n_features:
        raise ValueError(
            f"the model takes {model.n_features} features, but its extractor returns {n_features}"
        )


def _open_texts(paths: Sequence[Path], options: RowOptions, **more: Any) -> Rows:
    from bitclass.io import format_of
    from bitclass.text import open_texts

    if options.features is not None:
        raise UsageError("--features applies to feature files, not to texts")
    formats = {options.format or format_of(path) for path in paths}
    if options.text is None and formats != {"lines"}:
        raise UsageError(f"{paths[0]}: name the text column with --text, or use --format lines")
    return open_texts(list(paths), options.text, **options.given() | more)


def _are_images(paths: Sequence[Path], options: RowOptions) -> bool:
    from bitclass.io import format_of

    if options.format or all(format_of(path) and path.is_file() for path in paths):
        return False  # without importing the image dependencies
    from bitclass.images import find_images

    return bool(find_images(list(paths)))


def _image_rows(
    paths: Sequence[Path], options: RowOptions, extractor: Any, n_jobs: int | None = None
) -> Any:
    """Features of images, whose options are none of those for columns."""
    from bitclass.images import open_images

    for name in ("features", "labels", "weights", "id"):
        if getattr(options, name):
            raise UsageError(f"--{name} applies to files with columns, but {paths[0]} has images")
    with progress_bars() as progress:
        show = partial(progress, "extracting")
        return open_images(list(paths), extractor, n_jobs=n_jobs, progress=show)


def named(find: Callable[[str], Any], extractor: str) -> Any:
    """The extractor that --extractor names."""
    try:
        return find(extractor)
    except ValueError as error:
        raise UsageError(f"--extractor: {error}") from error


@contextlib.contextmanager
def with_standard_input(
    paths: Sequence[Path], options: RowOptions
) -> Iterator[tuple[Sequence[Path], RowOptions]]:
    """The paths and options, with `-` replaced by a temporary copy of standard input.

    Unless --format says otherwise, it is JSON lines if it starts with a brace, else CSV. Errors
    refer to standard input, not to the temporary file.
    """
    if Path("-") not in paths:
        yield paths, options
        return
    if len(paths) > 1:
        raise UsageError("- (standard input) cannot be combined with files")
    from bitclass.io import open_text

    with tempfile.TemporaryDirectory(prefix="bitclass-") as folder:
        path = Path(folder, "standard-input")
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        format = options.format
        try:
            if format is None:
                with open_text(path) as file:
                    start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
                format = "jsonl" if start.startswith(b"{") else "csv"
            yield [path], dataclasses.replace(options, format=format)
        except ValueError as error:
            if str(path) not in str(error):
                raise
            read_as = f"; it was read as {format}, --format names another" * (not options.format)
            raise ValueError(str(error).replace(str(path), "standard input") + read_as) from error


def load_model(path: Path) -> PackedModel:
    """Load a model whose labels are compared with those in files, or written to a file.

    String labels stored as objects, as pandas does, become a NumPy string array.
    """
    model = load(path)
    if model.classes.dtype == object and all(isinstance(name, str) for name in model.classes):
        model.classes = model.classes.astype(np.str_)
    return model


def files_in(paths: Iterable[Path | None]) -> Iterator[Path]:
    """The files, and those in folders, in a fixed order."""
    for path in filter(None, paths):
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders.sort()
                yield from (Path(folder, name) for name in sorted(names))
        else:
            yield path


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path]) -> None:
    """Raise an error if an output cannot be written or would overwrite an input.

    The keys of `outputs` are the options that name them. Files are compared by device and inode,
    so that links to the same file are found.
    """
    existing: dict[tuple[int, int], tuple[str, Path]] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; {option} must be a file name")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"{path.absolute().parent}: no such folder for {path.name}")
        check_writable(path)
        if path.exists():
            existing[_identity(path)] = option, path
    for read in inputs if existing else ():
        if read.exists() and (found := existing.get(_identity(read))):
            raise UsageError(f"{found[1]}: {found[0]} would overwrite the input {read}")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
