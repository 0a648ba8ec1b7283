"""Rows for every command, from feature files or images, and the check of what is written."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitclass.cli.errors import UsageError
from bitclass.cli.progress import progress_of_passes
from bitclass.storage import check_writable, load

if TYPE_CHECKING:
    from bitclass.images import Extractor, ImageRows, ImageSet
    from bitclass.io import Batch, FileRows
    from bitclass.model import PackedModel
    from bitclass.text import SentenceEmbeddings, TextFiles, TextLines, TextRows

    Rows = FileRows | TextRows

__all__ = [
    "Inputs",
    "check_outputs",
    "extract_rows",
    "extractor_of",
    "labels_of",
    "load_model",
    "remove_cache",
    "require_labels",
    "takes_texts",
    "text_rows",
    "with_standard_input",
]

DEFAULT_EXTRACTOR = "cnn"


@dataclass(frozen=True)
class Inputs:
    """Where the rows of a command come from: its arguments, and options as of `io.open_rows`."""

    paths: list[Path]  # feature files, folders of them, images, or folders of images
    features: str | None = None
    labels: str | None = None
    labels_file: Path | None = None
    header: bool | None = None
    format: str | None = None
    extractor: str | None = None  # of images, or of texts where `text` is given
    text: str | None = None  # the column of texts
    columns: tuple[str, ...] = ()  # further columns to read
    first_index: int | None = None

    def files(self) -> Iterator[Path]:
        """All files that may be read, those in folders included."""
        for path in self.paths:
            if path.is_dir():
                for folder, _, names in os.walk(path):
                    yield from (Path(folder, name) for name in names)
            else:
                yield path
        if self.labels_file is not None:
            yield self.labels_file
        if self.extractor is not None and self.extractor.startswith("onnx:"):
            yield Path(self.extractor.removeprefix("onnx:").partition(",")[0])

    def file_options(self) -> dict[str, Any]:
        """The options for feature files, as `bitclass.io.open_rows` takes them."""
        features = None if self.features is None else [n.strip() for n in self.features.split(",")]
        return {
            "features": features[0] if features is not None and len(features) == 1 else features,
            "labels": self.labels,
            "labels_file": self.labels_file,
            "format": self.format,
            "header": self.header,
            "columns": self.columns or None,
            "first_index": self.first_index,
        }

    def open(
        self,
        model: PackedModel | None = None,
        *,
        read_labels: bool = True,
        cache: Path | None = None,
        n_jobs: int | None = None,
    ) -> tuple[Rows, Extractor | SentenceEmbeddings | None]:
        """Rows, and the extractor of images or texts; None for feature files and n-grams.

        With a model, features are selected by its names of them, labels are of the type of its
        classes, and images go through the extractor that it records. Without `read_labels`, a
        label column is still recognised, and skipped. The features of images are kept in the
        folder `cache` until the work is done.
        """
        if self.text is not None or (model is not None and takes_texts(model)):
            return self._open_texts(model, read_labels)
        options = self.file_options()
        given = [name for name, value in options.items() if value is not None]
        if self.extractor is not None or (not given and self._are_images()):
            if given:
                option = {"columns": "id"}.get(given[0], given[0].replace("_", "-"))
                raise UsageError(f"--{option} is for feature files, and {self.paths[0]} has images")
            return self.open_images(model, cache, n_jobs)
        from bitclass.io import open_rows

        options["columns"] = self.columns
        if not read_labels:
            options["labels"] = self.labels or False
        if model is None:
            return open_rows(self.paths, **options), None
        rows = open_rows(
            self.paths,
            **options,
            n_features=model.n_features,
            feature_names=model.feature_names,
            classes=model.classes if read_labels else None,
        )
        return rows, None

    def _open_texts(
        self, model: PackedModel | None, read_labels: bool
    ) -> tuple[TextRows, SentenceEmbeddings | None]:
        from bitclass.text import TextLines, open_texts

        if self.features is not None:
            raise UsageError("--features is for feature files, not for texts")
        texts: TextFiles | TextLines
        if self.format == "lines" or (self.text is None and _are_lines(self.paths)):
            if len(self.paths) > 1 or self.columns:
                raise UsageError(f"{self.paths[0]}: lines of text are read from one file, no --id")
            texts = TextLines(self.paths[0])
        else:
            column = self.text
            if column is None and model is not None:
                column = model.summary.get("text_column")
            if not isinstance(column, str):
                raise UsageError(f"{self.paths[0]}: name the column of the texts with --text")
            texts = open_texts(
                self.paths,
                column,
                columns=self.columns,
                labels=self.labels if read_labels else self.labels or False,
                labels_file=self.labels_file,
                header=self.header,
                format=self.format,
                classes=model.classes if model is not None and read_labels else None,
            )
        if model is None:
            return self._new_text_rows(texts)
        return text_rows(texts, model), None

    def _new_text_rows(
        self, texts: TextFiles | TextLines
    ) -> tuple[TextRows, SentenceEmbeddings | None]:
        """Rows of texts to train on: by the extractor that was asked for, or by n-grams."""
        from bitclass.text import NgramHasher, TextRows, embeddings_named

        if self.extractor is not None:
            try:
                embeddings = embeddings_named(self.extractor)
            except ValueError as error:
                raise UsageError(f"--extractor: {error}") from error
            return TextRows(texts, embeddings), embeddings
        hasher = NgramHasher()
        with progress_of_passes() as progress:
            for batch in texts.batches():
                hasher.partial_fit(batch.texts)
                progress("counting", batch.first_row + len(batch), texts.n_rows)
        return TextRows(texts, hasher.features_), None

    def _are_images(self) -> bool:
        from bitclass.io.opening import format_of

        if all(format_of(path) is not None and path.is_file() for path in self.paths):
            return False  # without importing what images need
        from bitclass.images import find_images

        return bool(find_images(self.paths))

    def open_images(
        self, model: PackedModel | None, cache: Path | None, n_jobs: int | None
    ) -> tuple[ImageRows, Extractor]:
        """Features of images, by the extractor of the model or that which was asked for."""
        from bitclass.images import extractor_named, open_images

        if model is None:
            try:
                extractor = extractor_named(self.extractor or DEFAULT_EXTRACTOR)
            except ValueError as error:
                raise UsageError(f"--extractor: {error}") from error
        else:
            extractor = extractor_of(model)
        return extract_rows(open_images(self.paths), extractor, cache, n_jobs), extractor


def extract_rows(
    images: ImageSet, extractor: Extractor, cache: Path | None, n_jobs: int | None
) -> ImageRows:
    """Features of images, extracted with a progress bar."""
    from bitclass.images import image_rows

    with progress_of_passes() as progress:
        return image_rows(
            images,
            extractor,
            cache=cache,
            n_jobs=n_jobs,
            progress=lambda done: progress("extracting", done, len(images)),
        )


def takes_texts(model: PackedModel) -> bool:
    """Whether a model was trained on texts."""
    return model.text is not None or "text_column" in model.summary


def text_rows(texts: TextFiles | TextLines, model: PackedModel) -> TextRows:
    """Rows of texts, by what the model was trained with."""
    from bitclass.text import TextRows, recorded_embeddings

    if model.text is not None:
        return TextRows(texts, model.text)
    embeddings = recorded_embeddings(model.summary)
    if embeddings is None:
        raise UsageError(
            f"the model takes rows of {model.n_features} features, not texts: leave out --text"
        )
    _check_width(model, f"{embeddings.library}:{embeddings.model}", embeddings.n_features)
    return TextRows(texts, embeddings)


def _are_lines(paths: list[Path]) -> bool:
    return all(path.suffix.lower() == ".txt" for path in paths)


@contextlib.contextmanager
def with_standard_input(inputs: Inputs, otherwise: str = "csv") -> Iterator[Inputs]:
    """The inputs with `-` replaced by a temporary file of what standard input gives.

    It is JSON lines if it starts with a brace, else `otherwise`, unless the format is given. The
    file is removed at the end, and errors name standard input.
    """
    if Path("-") not in inputs.paths:
        yield inputs
        return
    if len(inputs.paths) > 1:
        raise UsageError("- is standard input, and does not go with files")
    with tempfile.TemporaryDirectory(prefix="bitclass-") as folder:
        path = Path(folder, "standard-input")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with path.open("rb") as file:
            is_json = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        format = inputs.format or ("jsonl" if is_json else otherwise)
        try:
            yield dataclasses.replace(inputs, paths=[path], format=format)
        except ValueError as error:
            if str(path) not in str(error):
                raise
            raise ValueError(str(error).replace(str(path), "standard input")) from error


def remove_cache(folder: Path) -> None:
    """Remove the features of images that `image_rows` keeps in a folder, and no other file."""
    for part in folder.glob("[0-9a-f]" * 32):
        with contextlib.suppress(OSError):
            for path in (*part.glob("features.*"), *part.glob("status.*")):
                path.unlink()
            part.rmdir()
    with contextlib.suppress(OSError):  # it holds something else
        folder.rmdir()


def extractor_of(model: PackedModel) -> Extractor:
    """The feature extractor that a model was trained with."""
    from bitclass.images import recorded_extractor

    extractor = recorded_extractor(model.summary)
    if extractor is None:
        raise UsageError(
            f"the model was trained on feature files: it takes rows of {model.n_features} "
            "features, not images"
        )
    _check_width(model, extractor.name, extractor.n_features)
    return extractor


def _check_width(model: PackedModel, extractor: str, n_features: int) -> None:
    if n_features != model.n_features:
        raise ValueError(
            f"the model takes {model.n_features} features, and its extractor {extractor} gives "
            f"{n_features}"
        )


def load_model(path: Path) -> PackedModel:
    """Read a model whose labels are compared with those of files, or written to one.

    Text that Python held as objects, as pandas does, becomes text as files have it.
    """
    model = load(path)
    if model.classes.dtype == object and all(isinstance(name, str) for name in model.classes):
        model.classes = model.classes.astype(np.str_)
    return model


def require_labels(rows: Rows) -> None:
    """Refuse rows without labels."""
    if not rows.has_labels:
        raise UsageError(
            f"{rows.paths[0]}: no labels found; name them with --labels or --labels-file "
            "(images: one folder per class)"
        )


def labels_of(batch: Batch) -> NDArray[Any]:
    """Labels of a batch of rows that have some."""
    assert batch.labels is not None
    return batch.labels


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path]) -> None:
    """Refuse, before any work, outputs that cannot be written or that would replace an input.

    Outputs come by the option that names them. Files are the same if device and inode are,
    whatever links lead to them.
    """
    existing: dict[tuple[int, int], tuple[str, Path]] = {}
    written: dict[str, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; {option} takes the name of a file")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"{path.absolute().parent}: no such folder for {path.name}")
        check_writable(path)
        other = written.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UsageError(f"{path}: {option} and {other} are the same file")
        if path.exists():
            existing[_identity(path)] = option, path
    if not existing:
        return
    for read in inputs:
        if read.exists() and (found := existing.get(_identity(read))):
            raise UsageError(f"{found[1]}: {found[0]} would overwrite the input {read}")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
