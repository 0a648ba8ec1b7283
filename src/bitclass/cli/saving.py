"""Writing a model with its sums.

Two files cannot be replaced together. The sums list the sources they come from, and the model
the sources of the sums it was fitted to. The sums are written first: if a run is killed in
between, their list is ahead of the model's, and the next update completes the model. As each batch
is in the list exactly when its rows are in the sums, no row is lost or counted twice.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitclass.cli.data import files_in
from bitclass.storage import ProjectionType, save
from bitclass.training.sums_file import remove_sums, save_sums, sums_path

if TYPE_CHECKING:
    from bitclass.classifier import BinaryCodeClassifier
    from bitclass.model import PackedModel


def without_link(model: Path) -> Path:
    """The file that a link points to, which is the one to be replaced, and beside its sums."""
    return Path(os.path.realpath(model)) if model.is_symlink() else model


def digest_of(files: Iterable[Path]) -> str:
    """The identity of a batch of rows: a digest of the contents of its files."""
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{whole.hexdigest()}"


def batches_of(data: Iterable[Path], labels_file: Path | None) -> list[tuple[str, list[Path]]]:
    """The batches that count once, each with its identity and the files or folders it is read from.

    Each file is one, also in a folder of feature files. A folder of images is one, and so are all
    files whose labels are in a separate file.
    """
    from bitclass.io import format_of

    if labels_file is not None:
        return [(digest_of(files_in([*data, labels_file])), list(data))]
    parts: list[Path] = []
    for path in data:
        inside = sorted(path.iterdir()) if path.is_dir() else []
        features = [file for file in inside if file.is_file() and not file.name.startswith("_")]
        features = [file for file in features if format_of(file) not in (None, "lines")]
        parts += features or [path]
    return [(digest_of(files_in([part])), [part]) for part in parts]


@contextmanager
def model_lock(model: Path) -> Iterator[None]:
    """Lock the folder of a model while it is written, waiting for other processes.

    Where folders cannot be locked, as on Windows and some network file systems, there is no lock.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    folder = os.open(os.path.dirname(os.path.realpath(model)), os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"bitclass: waiting for another process to write {model}", file=sys.stderr)
            fcntl.flock(folder, fcntl.LOCK_EX)
        except OSError as error:
            warnings.warn(f"no locks ({error}); avoid concurrent updates", stacklevel=2)
        yield
    finally:
        os.close(folder)


def save_model(
    classifier: BinaryCodeClassifier,
    path: Path,
    record: Mapping[str, Any],
    *,
    sums: bool,
    projection: ProjectionType | None = None,
) -> PackedModel:
    """Write a model and, if asked, first its sums; to be called under `model_lock`.

    `record` is added to the model's summary.
    """
    model = classifier.packed()
    model.summary.update(record)
    if sums:
        model.summary["sources"] = list(classifier.sums_.sources)
        save_sums(sums_path(path), classifier.sums_)
    else:
        remove_sums(sums_path(path))
    save(path, model, projection=projection)
    return model
