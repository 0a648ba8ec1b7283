"""`bitclass fit`: from rows of features to a model file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.checks import require_labels
from bitclass.cli.errors import UsageError
from bitclass.cli.progress import rows_progress
from bitclass.cli.text import counted, say
from bitclass.data import Reader
from bitclass.storage import ProjectionType, check_writable, save
from bitclass.streaming import Checkpoint, batch_rows_for, fit_reader
from bitclass.training import save_statistics

__all__ = ["files_of", "run_fit", "save_model", "statistics_path", "tell"]


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
    extractor: Mapping[str, Any] | None,
    as_json: bool,
) -> None:
    """Learn from rows, and write the model with the extractor that made them."""
    if keep_statistics:
        check_writable(statistics_path(model))
    if checkpoint is not None and checkpoint.exists() and not checkpoint.is_dir():
        raise UsageError(f"{checkpoint}: is a file; --checkpoint takes a folder")
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
            "files": files_of(reader),
            "batch_rows": batch_rows_for(reader),
            "parameters": parameters,
        }
        saves = Checkpoint(checkpoint, json.loads(json.dumps(run)))
    with rows_progress(reader.n_rows) as progress:
        fit_reader(classifier, reader, checkpoint=saves, progress=progress)
    if extractor is not None:
        classifier.packed().summary["extractor"] = extractor
    # The statistics first: a model whose statistics are missing or of other rows can be told.
    if keep_statistics:
        save_statistics(statistics_path(model), classifier.statistics_)
    save_model(classifier, model, projection, of_statistics=keep_statistics)
    if saves is not None:
        saves.remove()
    tell(classifier, model, time.perf_counter() - start, reader.description, as_json)


def files_of(reader: Reader) -> list[list[int]]:
    """Sizes and times of files: one that changed under the same name is another file."""
    paths = [*reader.paths, *reader.label_paths]
    return [[path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def save_model(
    classifier: BinaryCodeClassifier,
    path: Path,
    projection: ProjectionType,
    *,
    of_statistics: bool,
) -> None:
    """Write the model; if statistics are kept beside it, with the fingerprint that binds both."""
    model = classifier.packed()
    if of_statistics:
        model.summary["statistics"] = classifier.statistics_.fingerprint()
    save(path, model, projection=projection)


def tell(
    classifier: BinaryCodeClassifier, model: Path, seconds: float, data: str, as_json: bool
) -> None:
    """Print what was learned, from what, in how many seconds."""
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
    say(f"read    {data}")
    say(
        f"learned {facts['classes']:,} classes from {facts['rows']:,} rows of "
        f"{facts['features']:,} features in {seconds:.1f} s ({facts['loss']} loss, "
        f"{counted(facts['rounds'], 'round')})"
    )
    say(f"wrote   {model}, {facts['bytes'] / 1e6:.2f} MB, {facts['bits']} bits")
