"""`bitclass fit` and `bitclass update`: from feature files to a model file."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.checks import require_labels
from bitclass.cli.errors import UsageError
from bitclass.cli.progress import rows_progress
from bitclass.data import Reader
from bitclass.storage import ProjectionType
from bitclass.streaming import Checkpoint, batch_rows_for, fit_reader, labels_of
from bitclass.training import load_statistics, save_statistics

__all__ = ["check_room", "run_fit", "run_update", "save_model", "statistics_path", "tell"]


def statistics_path(model: Path) -> Path:
    """Where the statistics of a model are kept: beside it."""
    return model.with_name(model.name.removesuffix(".safetensors") + ".statistics.safetensors")


def run_fit(
    classifier: BinaryCodeClassifier,
    reader: Reader,
    model: Path,
    *,
    projection: ProjectionType,
    keep_statistics: bool,
    checkpoint: Path | None,
    as_json: bool,
) -> None:
    """Learn from files, and write the model."""
    check_room(model)
    require_labels(reader)
    start = time.perf_counter()
    saves = None
    if checkpoint is not None:
        parameters = {
            name: value
            for name, value in classifier.get_params(deep=False).items()
            if name not in ("n_jobs", "verbose", "precision")
        }
        run: dict[str, Any] = {
            "rows": reader.n_rows,
            "features": reader.n_features,
            "data": reader.description,
            # Sizes and times: a file that changed under the same name is another file.
            "files": [
                [path.stat().st_size, path.stat().st_mtime_ns]
                for path in [*reader.paths, *reader.label_paths]
            ],
            "batch_rows": batch_rows_for(reader),
            "parameters": parameters,
        }
        saves = Checkpoint(checkpoint, json.loads(json.dumps(run)))
    with rows_progress(reader.n_rows) as progress:
        fit_reader(classifier, reader, checkpoint=saves, progress=progress)
    save_model(classifier, model, projection, keep_statistics)
    if saves is not None:
        saves.remove()
    tell(classifier, model, time.perf_counter() - start, reader.description, as_json)


def run_update(
    model: Path,
    reader: Reader | None,
    *,
    remove: list[str],
    projection: ProjectionType,
    as_json: bool,
) -> None:
    """Learn more rows or classes, or forget classes, without the rows of before."""
    sums = statistics_path(model)
    if not sums.exists():
        raise UsageError(
            f"{sums}: not there; a model can learn more only if fitted with --keep-statistics"
        )
    if reader is None and not remove:
        raise UsageError("give files to learn from, or classes to --remove")
    start = time.perf_counter()
    classifier = BinaryCodeClassifier.load(model)
    statistics, _ = load_statistics(sums)
    if remove:
        statistics.remove_classes(_labels_named(remove, statistics.classes))
    classifier.resume(statistics)
    if reader is not None:
        require_labels(reader)
        known = statistics.n_rows
        with rows_progress(reader.n_rows) as progress:
            for batch in reader.batches(batch_rows_for(reader)):
                classifier.partial_fit(batch.X, labels_of(batch))
                progress("learning", classifier.statistics_.n_rows - known)
    classifier.solve()
    save_model(classifier, model, projection, keep_statistics=True)
    described = reader.description if reader is not None else "no new rows"
    tell(classifier, model, time.perf_counter() - start, described, as_json)


def _labels_named(names: list[str], classes: Any) -> Any:
    """Labels that are written as the given names."""
    by_name = {str(label): label for label in classes.tolist()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        few = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
        raise UsageError(f"no class {unknown[0]!r} to remove; there are {few}")
    return np.array([by_name[name] for name in names], dtype=classes.dtype)


def check_room(model: Path) -> None:
    """Find out before the work whether the model can be written."""
    if model.is_dir():
        raise UsageError(f"{model}: is a folder; --model takes the name of a file")
    if not model.absolute().parent.is_dir():
        raise UsageError(f"{model.absolute().parent}: no such folder for the model")
    if not os.access(model.absolute().parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(model))


def save_model(
    classifier: BinaryCodeClassifier,
    model: Path,
    projection: ProjectionType,
    keep_statistics: bool,
) -> None:
    """Write the model and, if wanted, its statistics."""
    # The statistics first: a model whose statistics are missing is the lesser evil.
    if keep_statistics:
        save_statistics(statistics_path(model), classifier.statistics_)
    classifier.save(model, projection=projection)


def tell(
    classifier: BinaryCodeClassifier, model: Path, seconds: float, data: str, as_json: bool
) -> None:
    """Say what was learned from what, and where it is."""
    statistics = classifier.statistics_
    facts: dict[str, Any] = {
        "model": str(model),
        "bytes": model.stat().st_size,
        "rows": statistics.n_rows,
        "features": classifier.n_features_in_,
        "classes": len(classifier.classes_),
        "bits": classifier.n_bits,
        "loss": classifier.packed().summary.get("loss"),
        "rounds": classifier.n_iter_,
        "seconds": round(seconds, 3),
    }
    if as_json:
        print(json.dumps(facts))
        return
    console = Console()
    console.print(f"read    {data}", highlight=False, soft_wrap=True)
    console.print(
        f"learned {facts['classes']:,} classes from {facts['rows']:,} rows of "
        f"{facts['features']:,} features in {seconds:.1f} s ({facts['loss']} loss, "
        f"{facts['rounds']} rounds)",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"wrote   {model}, {facts['bytes'] / 1e6:.2f} MB, {facts['bits']} bits",
        highlight=False,
        soft_wrap=True,
    )
