"""`bitclass update`: add rows or classes to a model, or remove classes."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli import options
from bitclass.cli.console import progress_bars
from bitclass.cli.data import check_outputs, input_files, load_model, open_rows_of
from bitclass.cli.errors import UsageError
from bitclass.cli.saving import (
    RECORDED_KEYS,
    file_versions,
    model_lock,
    report,
    save_model,
    statistics_path,
)
from bitclass.storage import read_header
from bitclass.training import load_statistics

__all__ = ["command"]


@options.expanded()
def command(
    *,
    model: options.Model,
    data: Annotated[
        list[Path] | None, typer.Argument(help="Feature files or images to add.")
    ] = None,
    rows: options.RowOptions,
    remove: Annotated[
        list[str] | None, typer.Option(help="Class to remove; may be repeated.")
    ] = None,
    projection: Annotated[
        options.Projection | None,
        typer.Option(help="Type of the projection in the model file; unchanged by default."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Add rows or classes to a model, or remove classes, without the original rows.

    The model must have been fitted with --keep-statistics. Classes are removed before rows are
    added. The hash function of a refined model is kept; to learn a new one, fit the model again on
    all rows. Concurrent updates of a model wait for each other.
    """
    statistics_file = statistics_path(model)
    if model.exists() and not statistics_file.exists():
        if "columns" in load_model(model).summary.get("refinement", {}):
            raise UsageError(
                f"{model}: models of text and other wide rows have no statistics and cannot be "
                "updated; fit the model again on all rows, or use partial_fit in Python"
            )
        raise UsageError(
            f"{statistics_file}: no such file; only models fitted with --keep-statistics can be "
            "updated"
        )
    outputs = {"the model": model, "the statistics file": statistics_file}
    check_outputs(outputs, input_files(data or [], rows))
    start = time.perf_counter()
    with model_lock(model):
        description = _update(model, data or [], rows, remove or [], projection)
    report(model, load_model(model), description, time.perf_counter() - start, json)


def _update(
    path: Path,
    data: list[Path],
    row_options: options.RowOptions,
    remove: list[str],
    projection: options.Projection | None,
) -> str:
    """Update the model and its statistics, and return a description of the new rows."""
    statistics, notes = load_statistics(statistics_path(path))
    header = read_header(path)
    fitted_from = header.summary.get("statistics")
    was_interrupted = fitted_from != statistics.fingerprint()
    if was_interrupted and (fitted_from is None or notes.get("follows") != fitted_from):
        raise ValueError(
            f"{statistics_path(path)}: does not belong to {path}, which was fitted later or "
            "elsewhere; fit the model again with --keep-statistics"
        )
    if not data and not remove and not was_interrupted:
        raise UsageError("nothing to do: specify files to add, or classes to --remove")
    model = load_model(path)
    rows = None
    if data:
        rows = open_rows_of(data, row_options, model)
    request = {
        "data": "no new rows" if rows is None else rows.description,
        "files": [] if rows is None else file_versions(rows),
        "removed": sorted(remove),
    }
    classifier = BinaryCodeClassifier.load(path, statistics=statistics)
    if was_interrupted:
        warnings.warn(
            "the last update was interrupted after adding its rows; it is completed now",
            stacklevel=2,
        )
    if was_interrupted and (notes["update"] == request or (rows is None and not remove)):
        request = notes["update"]
    else:
        if remove:
            classifier.remove_classes(_find_labels(remove, statistics.classes))
        if rows is not None:
            with progress_bars() as progress:
                for batch in progress.batches("learning", rows):
                    classifier.partial_fit(batch.X, batch.labels)
    classifier.solve()
    save_model(
        classifier,
        path,
        projection=projection or header.projection,
        keep_statistics=True,
        notes={"update": request, "follows": fitted_from},
        record={name: model.summary.get(name) for name in RECORDED_KEYS},
        text=model.text,
    )
    return str(request["data"])


def _find_labels(names: list[str], classes: NDArray[Any]) -> NDArray[Any]:
    """Find the labels whose string forms are `names`."""
    by_name = {str(label): label for label in classes.tolist()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        examples = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
        raise UsageError(f"no class {unknown[0]!r} to remove; the classes are {examples}")
    return np.array([by_name[name] for name in names], dtype=classes.dtype)
