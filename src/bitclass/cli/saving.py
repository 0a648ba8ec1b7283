"""Writing a model with its statistics file, and reporting what was trained.

Two files cannot be replaced atomically. The statistics are written first, and record the
fingerprint of the statistics that the existing model was fitted from. If a run is killed in
between, the next update finds the statistics one step ahead of the model, and solves from them.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitclass.cli.console import describe_training, format_size, pluralise, print_lines
from bitclass.storage import ProjectionType, save
from bitclass.training import Statistics, save_statistics

if TYPE_CHECKING:
    from bitclass._native.ngrams import NgramFeatures
    from bitclass.classifier import BinaryCodeClassifier
    from bitclass.cli.data import Rows
    from bitclass.model import PackedModel

__all__ = [
    "RECORDED_KEYS",
    "file_versions",
    "model_lock",
    "report",
    "save_model",
    "statistics_path",
]

#: Keys of the model summary that describe the training files, and are kept in updates.
RECORDED_KEYS = ("extractor", "text_column")
_LOCKS_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def statistics_path(model: Path) -> Path:
    """Path of the statistics file, next to the model; next to its target if `model` is a link."""
    model = Path(os.path.realpath(model)) if model.is_symlink() else model
    return model.with_name(model.name.removesuffix(".safetensors") + ".statistics.safetensors")


@contextmanager
def model_lock(model: Path) -> Iterator[None]:
    """Hold an exclusive lock for writing the model, waiting for other processes.

    If the file system has no locks, a warning is issued instead.
    """
    path = Path(os.path.realpath(model))
    path = path.with_name(f".{path.name}.lock")
    try:
        import fcntl
    except ImportError:
        yield
        return
    with ExitStack() as stack:
        while True:
            file = stack.enter_context(path.open("a"))
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    print(
                        f"bitclass: waiting for another process to write {model}", file=sys.stderr
                    )
                    fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _LOCKS_UNSUPPORTED:
                    raise
                warnings.warn(
                    f"{path.parent}: no file locks; avoid concurrent updates", stacklevel=2
                )
                break
            # The process that held the lock may have removed the file in the meantime.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        stack.callback(path.unlink, missing_ok=True)  # before closing the file unlocks it
        yield


def save_model(
    classifier: BinaryCodeClassifier,
    path: Path,
    *,
    projection: ProjectionType | None,
    keep_statistics: bool,
    record: Mapping[str, Any],
    text: NgramFeatures | None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a model and, if requested, its statistics; to be called under `model_lock`.

    `record` (values of `RECORDED_KEYS`, ignored if None) is added to the model's summary, `notes`
    to the statistics file. `text` is the model's n-gram extractor.
    """
    model = classifier.packed()
    if text is not None:
        model = model.with_text(text)
    model.summary.update({name: value for name, value in record.items() if value is not None})
    if keep_statistics:
        statistics = classifier.statistics_
        if isinstance(statistics, Statistics):
            model.summary["statistics"] = statistics.fingerprint()
            save_statistics(statistics_path(path), statistics, dict(notes or {}))
        else:
            warnings.warn(
                "--keep-statistics has no effect on text and other wide rows: the model cannot be "
                "updated; fit it again on all rows instead",
                stacklevel=2,
            )
    save(path, model, projection=projection)


def file_versions(rows: Rows) -> list[list[int]]:
    """Size and modification time of each file, to detect that a file has changed."""
    return [[path.stat().st_size, path.stat().st_mtime_ns] for path in rows.paths]


def report(path: Path, model: PackedModel, data: str, seconds: float, as_json: bool) -> None:
    """Print what was trained, on which data and how, from the model's summary."""
    summary = model.summary
    refinement = summary.get("refinement")
    accuracy = None
    if isinstance(refinement, dict):
        when = "after" if refinement.get("taken") else "before"
        accuracy = refinement.get(f"accuracy_{when}")
    n_bytes, training = path.stat().st_size, describe_training(summary)
    if as_json:
        facts = {
            "model": str(path),
            "bytes": n_bytes,
            "rows": summary.get("n_rows"),
            "features": model.n_features,
            "classes": len(model.classes),
            "bits": model.n_bits,
            "loss": summary.get("loss"),
            "rounds": summary.get("n_rounds"),
            "refinement": refinement,
            "held_out_accuracy": accuracy,
            "training": training,
            "seconds": round(seconds, 3),
        }
        print(json.dumps(facts))
        return
    rows, features = pluralise(summary.get("n_rows"), "row"), pluralise(model.n_features, "feature")
    print_lines(f"read    {data}")
    print_lines(
        f"learned {len(model.classes):,} classes from {rows} of {features} in {seconds:.1f} s"
    )
    print_lines(f"by      {training}")
    print_lines(f"wrote   {path}, {format_size(n_bytes)}, {model.n_bits} bits")
