"""Input rows of all commands, from feature files, texts or images, and checks of output paths."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitclass.cli.console import progress_bars
from bitclass.cli.errors import UsageError
from bitclass.storage import check_writable

if TYPE_CHECKING:
    from bitclass.io import Rows
    from bitclass.model import PackedModel

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

    @property
    def labels_file(self) -> Path | None:
        """The file of labels, if --labels is one rather than a column."""
        from bitclass.io import format_of

        path = None if self.labels is None else Path(self.labels)
        return path if path is not None and format_of(path) is not None else None

    def remembered(self) -> dict[str, Any]:
        """The columns that a model file remembers, since its later files usually have them too."""
        labels = None if self.labels_file else self.labels
        found = {"labels": labels, "text": self.text, "weights": self.weights}
        columns = {name: value for name, value in found.items() if value is not None}
        return columns if self.header else columns | {"header": False}

    def completed(self, model: PackedModel) -> RowOptions:
        """These options, with columns as in training where the user has not named any."""
        remembered = model.summary.get("columns")
        if not isinstance(remembered, dict):  # the file may be from anywhere
            return self
        columns = {
            name: remembered[name]
            for name in ("labels", "text", "weights")
            if isinstance(remembered.get(name), str) and getattr(self, name) is None
        }
        return dataclasses.replace(self, **columns, header=remembered.get("header") is not False)

    def open(self, paths: Sequence[Path], **more: Any) -> Rows:
        """Open feature files or, if there is a text column, texts."""
        from bitclass.io import open_rows

        file = self.labels_file
        if file is not None and not file.exists():
            raise UsageError(f"--labels {file}: no such file")
        if self.features is not None:
            if self.text is not None:
                raise UsageError("--features applies to feature files, not to texts")
            more["features"] = [name.strip() for name in self.features.split(",")]
        given: dict[str, Any] = {
            "labels" if file is None else "labels_file": self.labels,
            "text": self.text,
            "sample_weight": self.weights,
            "columns": self.id,
            "format": self.format,
            "header": self.header,
        }
        return open_rows(list(paths), **given | more)

    def open_for(
        self, model: PackedModel, path: Path, paths: Sequence[Path], *, labelled: bool
    ) -> Rows:
        """Open rows, texts or images for the model in the file `path`.

        Columns are selected by the model's feature names, labels get the type of its classes, and
        images go through the extractor it was trained with. Unless `labelled`, a label column is
        skipped.
        """
        options = dataclasses.replace(self.completed(model), weights=self.weights)
        more: dict[str, Any] = {"classes": model.classes} if labelled else {"labels": False}
        if takes_texts(model):
            is_named = self.text is not None and not labelled  # of labelled rows, no option does
            rows = options._open_texts(paths, more, is_named)
        elif self.text is not None:
            raise UsageError(
                f"--text: the model takes {model.n_features} features per row, not texts"
            )
        elif _are_images(paths, options):
            from bitclass.images import recorded_extractor

            used = recorded_extractor(model.summary, path.absolute().parent)
            if used is None:
                raise UsageError(
                    f"{paths[0]}: has images, but the model takes {model.n_features} features per "
                    "row"
                )
            rows = _image_rows(paths, self, used)
        else:
            width = model.n_features
            rows = options.open(paths, **more, feature_names=model.feature_names, n_features=width)
        return _check_labels(rows, paths) if labelled else rows

    def _open_texts(self, paths: Sequence[Path], more: dict[str, Any], is_named: bool) -> Rows:
        """Open texts for a model, in the column that was named, or that of training."""
        from bitclass.io import DataFileError, format_of

        if {self.format or format_of(path) for path in paths} == {"lines"}:
            return dataclasses.replace(self, text="line").open(paths, **more)
        if self.text is None:
            raise UsageError(f"{paths[0]}: name the text column with --text, or use --format lines")
        try:
            return self.open(paths, **more)
        except DataFileError as error:
            if is_named or f"has no column {self.text!r}" not in str(error):
                raise
            advice = "rename theirs, since only predict has --text to name another"
            if more.get("labels") is False:  # as in predict
                advice = "name that of these files with --text"
            raise DataFileError(
                f"{error}; the model takes texts, those of the column {self.text!r} in training: "
                f"{advice}"
            ) from error


def open_training_rows(
    paths: Sequence[Path], options: RowOptions, extractor: str | None
) -> tuple[Rows, Any]:
    """Open labelled rows or texts to train on; also returns the network of images, or None."""
    used: Any = None
    if options.text is None and (extractor or _are_images(paths, options)):
        from bitclass.images import extractor_named

        try:
            used = extractor_named(extractor or "cnn")
        except ValueError as error:
            raise UsageError(f"--extractor: {error}") from error
        rows = _image_rows(paths, options, used)
    else:
        rows = options.open(paths)
    return _check_labels(rows, paths), used


def takes_texts(model: PackedModel) -> bool:
    """Whether a model was trained on texts."""
    extractor = model.summary.get("extractor")
    kind = extractor.get("kind") if isinstance(extractor, dict) else None
    return model.text is not None or kind in _TEXT_LIBRARIES


def _check_labels(rows: Rows, paths: Sequence[Path]) -> Rows:
    if not rows.has_labels:
        raise UsageError(
            f"{paths[0]}: no labels found; name their column or file with --labels (images: one "
            "folder per class)"
        )
    return rows


def _are_images(paths: Sequence[Path], options: RowOptions) -> bool:
    from bitclass.io import format_of

    if options.format or all(format_of(path) and path.is_file() for path in paths):
        return False  # without importing the image dependencies
    from bitclass.images import find_images

    return find_images(list(paths))


def _image_rows(paths: Sequence[Path], options: RowOptions, extractor: Any) -> Any:
    """Features of images, whose options are none of those for columns."""
    from bitclass.images import open_images

    for name in ("features", "labels", "weights", "id"):
        if getattr(options, name):
            raise UsageError(f"--{name} applies to files with columns, but {paths[0]} has images")
    with progress_bars() as progress:
        return open_images(list(paths), extractor, progress=partial(progress, "extracting"))


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
        format, guessed = options.format, ""
        try:
            if format is None:
                with open_text(path) as file:
                    start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
                format = "jsonl" if start.startswith(b"{") else "csv"
                guessed = f"; it was read as {format}, --format names another"
            yield [path], dataclasses.replace(options, format=format)
        except ValueError as error:
            if str(path) not in str(error):
                raise
            raise ValueError(str(error).replace(str(path), "standard input") + guessed) from error


def files_in(paths: Iterable[Path | None]) -> list[Path]:
    """The files, and those in folders, in a fixed order."""
    found: list[Path] = []
    for path in filter(None, paths):
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        found += inside if path.is_dir() else [path]
    return found


def check_outputs(outputs: Mapping[str, Path | None], inputs: Sequence[Path]) -> None:
    """Raise an error if an output cannot be written or would overwrite an input.

    The keys of `outputs` are the options that name them.
    """
    for option, path in outputs.items():
        if path is not None:
            check_writable(path)
            for read in inputs if path.exists() else ():
                if read.exists() and os.path.samefile(path, read):  # also through links
                    raise UsageError(f"{path}: {option} would overwrite the input {read}")
