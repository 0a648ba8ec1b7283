"""Writing a model with the statistics beside it, and the report of what was trained.

Two files cannot be replaced at once. The statistics are written first, and note which statistics
the model in place was fitted from. After a run that was killed in between, the next update finds
them one step ahead of the model, and solves from them.
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

from bitclass.cli.console import counted, describe_training, say, size
from bitclass.storage import ProjectionType, save
from bitclass.training import Statistics, save_statistics

if TYPE_CHECKING:
    from bitclass._native.ngrams import NgramFeatures
    from bitclass.classifier import BinaryCodeClassifier
    from bitclass.cli.data import Rows
    from bitclass.model import PackedModel

__all__ = ["RECORDED", "file_versions", "model_lock", "report", "save_model", "statistics_path"]

#: What is in the summary of a model about the files it was fitted on, and stays in updates.
RECORDED = ("extractor", "text_column", "first_index")
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def statistics_path(model: Path) -> Path:
    """The statistics file of a model, beside it; where `model` is a link, beside its target."""
    model = Path(os.path.realpath(model)) if model.is_symlink() else model
    return model.with_name(model.name.removesuffix(".safetensors") + ".statistics.safetensors")


@contextmanager
def model_lock(model: Path) -> Iterator[None]:
    """Wait until no other process writes the model, and let none write it within.

    Where the system or the file system has no locks, there is a warning.
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
                if error.errno not in _NO_LOCKS:
                    raise
                warnings.warn(f"{path.parent}: no file locks; do not update at once", stacklevel=2)
                break
            # The process that held the lock may have removed the file meanwhile.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        stack.callback(path.unlink, missing_ok=True)  # before the file is closed, and unlocked
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
    """Write a model and, if asked for, its statistics; to be called under `model_lock`.

    `record` (those of `RECORDED` that are not None) goes to the summary of the model, `notes` to
    the statistics file, and `text` is what turns texts into rows.
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
                "updated, fit it again with all rows instead",
                stacklevel=2,
            )
    save(path, model, projection=projection)


def file_versions(rows: Rows) -> list[list[int]]:
    """Size and time of change of each file: one that changed under its name is another file."""
    paths = [*rows.paths, *rows.label_paths]
    return [[path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def report(path: Path, model: PackedModel, data: str, seconds: float, as_json: bool) -> None:
    """Print what was trained on which data and how, from the summary of the model."""
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
    rows, features = counted(summary.get("n_rows"), "row"), counted(model.n_features, "feature")
    say(f"read    {data}")
    say(f"learned {len(model.classes):,} classes from {rows} of {features} in {seconds:.1f} s")
    say(f"by      {training}")
    say(f"wrote   {path}, {size(n_bytes)}, {model.n_bits} bits")
