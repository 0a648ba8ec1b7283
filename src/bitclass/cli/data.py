"""Input rows of all commands, from feature files, texts or images, and checks of output paths."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitclass.cli.console import progress_bars
from bitclass.cli.errors import UsageError
from bitclass.cli.options import RowOptions
from bitclass.storage import check_writable, load

if TYPE_CHECKING:
    from bitclass._native.ngrams import NgramFeatures
    from bitclass.images import ImageRows
    from bitclass.io import FileRows
    from bitclass.model import PackedModel
    from bitclass.text import SentenceEmbeddings, TextRows, Texts

    Rows = FileRows | TextRows

__all__ = [
    "check_outputs",
    "input_files",
    "load_model",
    "open_image_rows",
    "open_rows_of",
    "takes_texts",
    "text_rows",
    "with_standard_input",
]


def open_rows_of(
    paths: Sequence[Path],
    options: RowOptions,
    model: PackedModel | None = None,
    *,
    labelled: bool = True,
    columns: Sequence[str] = (),
    extractor: str | None = None,
    cache: Path | None = None,
    n_jobs: int | None = None,
) -> Rows:
    """Open rows for an existing model, or for training a new one.

    With a model, features are selected by its feature names, labels are converted to the type of
    its classes, and images and texts go through the extractor it was trained with. If `labelled`,
    rows must have labels; otherwise a label column is found and ignored. `extractor` applies to
    the text column if there is one, else to images, whose features are kept in the folder `cache`
    until the command has finished.
    """
    from bitclass.io import open_rows

    given = options.given()
    are_texts = options.text is not None or (model is not None and takes_texts(model))
    rows: Rows
    if not are_texts and (extractor or (not (given or columns) and _are_images(paths))):
        if given or columns:
            option = next(iter(given), "id").replace("_", "-")
            raise UsageError(f"--{option} applies to feature files, but {paths[0]} has images")
        rows = open_image_rows(paths, model, extractor, cache, n_jobs)
    else:
        given["columns"] = columns
        if not labelled:
            given.setdefault("labels", False)
        elif model is not None:
            given["classes"] = model.classes
        if are_texts:
            rows = text_rows(_open_texts(paths, options.text, model, given), model, extractor)
        elif model is None:
            rows = open_rows(paths, **given)
        else:
            names = model.feature_names
            width = model.n_features
            rows = open_rows(paths, **given, n_features=width, feature_names=names)
    if labelled and not rows.has_labels:
        raise UsageError(
            f"{paths[0]}: no labels found; specify them with --labels or --labels-file "
            "(for images: one folder per class)"
        )
    return rows


def _open_texts(
    paths: Sequence[Path], column: Any, model: PackedModel | None, given: dict[str, Any]
) -> Texts:
    from bitclass.text import open_texts

    if "features" in given:
        raise UsageError("--features applies to feature files, not to texts")
    if column is None and model is not None:
        column = model.summary.get("text_column")
    return open_texts(list(paths), column, **given)


def takes_texts(model: PackedModel) -> bool:
    """Whether a model was trained on texts."""
    return model.text is not None or "text_column" in model.summary


def text_rows(texts: Texts, model: PackedModel | None, extractor: str | None = None) -> TextRows:
    """Rows of texts, by the model's extractor; without a model, by `extractor` or n-grams."""
    from bitclass.text import TextRows, embeddings_named, recorded_embeddings

    if model is None:
        if extractor is None:
            return TextRows(texts, _count_ngrams(texts))
        return TextRows(texts, _find_extractor(embeddings_named, extractor))
    if model.text is not None:
        return TextRows(texts, model.text)
    embeddings: SentenceEmbeddings | None = recorded_embeddings(model.summary)
    if embeddings is None:
        raise UsageError(
            f"the model takes rows of {model.n_features} features, not texts; omit --text"
        )
    _check_width(model, embeddings.n_features)
    return TextRows(texts, embeddings)


def _check_width(model: PackedModel, n_features: int) -> None:
    """Raise an error if the extractor cannot be the one used in training."""
    if n_features != model.n_features:
        raise ValueError(
            f"the model takes {model.n_features} features, but its extractor returns {n_features}"
        )


def _count_ngrams(texts: Texts) -> NgramFeatures:
    from bitclass.text import NgramHasher

    hasher = NgramHasher()
    with progress_bars() as progress:
        for batch in progress.batches("counting", texts):
            hasher.partial_fit(batch.texts)
    try:
        hasher.check_columns()
    except ValueError as error:
        raise UsageError(f"{texts.paths[0]}: {str(error).removeprefix('X ')}") from error
    return hasher.features_


def _are_images(paths: Sequence[Path]) -> bool:
    from bitclass.io.opening import format_of

    if all(format_of(path) is not None and path.is_file() for path in paths):
        return False  # without importing the image dependencies
    from bitclass.images import find_images

    return bool(find_images(list(paths)))


def open_image_rows(
    paths: Sequence[Path],
    model: PackedModel | None = None,
    extractor: str | None = None,
    cache: Path | None = None,
    n_jobs: int | None = None,
) -> ImageRows:
    """Features of images, by the model's extractor; without a model, by `extractor`."""
    from bitclass.images import extractor_named, image_rows, open_images, recorded_extractor

    if model is None:
        used = _find_extractor(extractor_named, extractor or "cnn")
    else:
        used = recorded_extractor(model.summary)
        if used is None:
            raise UsageError(
                f"the model was trained on feature files and takes rows of {model.n_features} "
                "features, not images"
            )
        _check_width(model, used.n_features)
    images = open_images(list(paths))
    with progress_bars() as progress:
        return image_rows(
            images,
            used,
            cache=cache,
            n_jobs=n_jobs,
            progress=lambda done: progress("extracting", done, len(images)),
        )


def _find_extractor(find: Callable[[str], Any], extractor: str) -> Any:
    try:
        return find(extractor)
    except ValueError as error:
        raise UsageError(f"--extractor: {error}") from error


@contextlib.contextmanager
def with_standard_input(
    paths: Sequence[Path], options: RowOptions
) -> Iterator[tuple[Sequence[Path], RowOptions]]:
    """The paths and options, with `-` replaced by a temporary copy of standard input.

    Unless `options` name a format, it is JSON lines if the input starts with a brace, else CSV.
    Errors refer to standard input, not to the temporary file.
    """
    from bitclass.io import open_text

    if Path("-") not in paths:
        yield paths, options
        return
    if len(paths) > 1:
        raise UsageError("- (standard input) cannot be combined with files")
    with tempfile.TemporaryDirectory(prefix="bitclass-") as folder:
        path = Path(folder, "standard-input")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            with open_text(path) as stream:
                start = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
            format = options.format or ("jsonl" if start.startswith(b"{") else "csv")
            yield [path], dataclasses.replace(options, format=format)
        except ValueError as error:
            if str(path) not in str(error):
                raise
            raise ValueError(str(error).replace(str(path), "standard input")) from error


def load_model(path: Path) -> PackedModel:
    """Load a model whose labels are compared with those in files, or written to a file.

    String labels stored as objects, as pandas does, become a NumPy string array.
    """
    model = load(path)
    if model.classes.dtype == object and all(isinstance(name, str) for name in model.classes):
        model.classes = model.classes.astype(np.str_)
    return model


def input_files(
    paths: Sequence[Path], options: RowOptions | None = None, extractor: str | None = None
) -> Iterator[Path]:
    """All files that may be read, including those in folders."""
    for path in paths:
        if path.is_dir():
            for folder, _, names in os.walk(path):
                yield from (Path(folder, name) for name in names)
        else:
            yield path
    if options is not None and options.labels_file is not None:
        yield options.labels_file
    if extractor is not None and extractor.startswith("onnx:"):
        yield Path(extractor.removeprefix("onnx:").partition(",")[0])


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
