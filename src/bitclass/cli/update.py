"""`bitclass update`: a model learns more rows or classes, or forgets some.

It replaces two files, the statistics and then the model. A run that is killed in between leaves the
statistics ahead of the model. The next run can tell, because the model names the statistics that it
came from, and the statistics name those that they came from and what was added. It then finishes
what was begun, and counts no row twice.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.checks import require_labels
from bitclass.cli.errors import UsageError
from bitclass.cli.fit import files_of, save_model, statistics_path, tell
from bitclass.cli.progress import rows_progress
from bitclass.data import Reader, prefetched
from bitclass.storage import ModelHeader, ProjectionType, check_writable, read_header
from bitclass.streaming import batch_rows_for, labels_of
from bitclass.training import Statistics, load_statistics, save_statistics

__all__ = ["run_update"]

_NO_ROWS = "no new rows"


def run_update(
    model: Path,
    reader: Reader | None,
    *,
    remove: list[str],
    projection: ProjectionType | None,
    as_json: bool,
) -> None:
    """Learn more rows or classes, or forget classes, without the rows of before.

    Parameters
    ----------
    model : model file; its statistics are beside it
    reader : new rows, or None
    remove : names of classes to forget, before the new rows are learned
    projection : what to save the projection in; None for what it was saved in before
    as_json : whether to print JSON
    """
    sums = statistics_path(model)
    if not sums.exists():
        raise UsageError(
            f"{sums}: not there; a model can learn more only if fitted with --keep-statistics"
        )
    for path in (model, sums):
        check_writable(path)
    if reader is not None:
        require_labels(reader)
    start = time.perf_counter()
    header = read_header(model)
    classifier = BinaryCodeClassifier.load(model)
    statistics, notes = load_statistics(sums)
    asked: dict[str, Any] = {
        "data": _NO_ROWS if reader is None else reader.description,
        "files": [] if reader is None else files_of(reader),
        "removed": sorted(remove),
    }
    asks_nothing = reader is None and not remove
    begun = _begun(model, header, statistics, notes)
    if begun is not None:
        if not asks_nothing and asked != begun:
            raise UsageError(
                f"{model}: an update before was cut short when it had counted its rows "
                f"({begun['data']}); finish it with: bitclass update {model}"
            )
        warnings.warn(
            "the update before was cut short when it had counted its rows; finishing it, without "
            "counting them again",
            stacklevel=2,
        )
        classifier.resume(statistics).solve()
    elif asks_nothing:
        raise UsageError("give files to learn from, or classes to --remove")
    else:
        before = statistics.fingerprint()
        _learn(classifier, statistics, reader, remove)
        save_statistics(sums, statistics, {"update": asked | {"from": before}})
    if header.summary.get("extractor") is not None:
        classifier.packed().summary["extractor"] = header.summary["extractor"]
    if header.summary.get("refinement") is not None:
        warnings.warn(
            "the model was refined on its rows, and the updated one is not, for the rows of before "
            "are not here: fit anew on all rows for the best accuracy",
            stacklevel=2,
        )
    save_model(classifier, model, projection or header.projection, of_statistics=True)
    data = str((begun or asked)["data"])
    tell(classifier, model, time.perf_counter() - start, data, as_json)


def _begun(
    model: Path, header: ModelHeader, statistics: Statistics, notes: dict[str, Any]
) -> dict[str, Any] | None:
    """The update that the statistics have been through and the model has not, if there is one.

    Statistics that are neither those of the model nor one update ahead of it are refused.
    """
    known = header.summary.get("statistics")
    if known == statistics.fingerprint():
        return None
    update = notes.get("update")
    if isinstance(update, dict) and known is not None and update.get("from") == known:
        return {name: update.get(name) for name in ("data", "files", "removed")}
    raise UsageError(
        f"{statistics_path(model)}: not the statistics of {model}, which was fitted later or "
        "elsewhere; fit it anew with --keep-statistics"
    )


def _learn(
    classifier: BinaryCodeClassifier,
    statistics: Statistics,
    reader: Reader | None,
    remove: list[str],
) -> None:
    """Forget classes, add the new rows, and learn from all."""
    if remove:
        statistics.remove_classes(_labels_named(remove, statistics.classes))
    classifier.resume(statistics)
    if reader is not None:
        known = statistics.n_rows
        with rows_progress(reader.n_rows) as progress:
            for batch in prefetched(reader.batches(batch_rows_for(reader))):
                classifier.partial_fit(batch.X, labels_of(batch))
                progress("learning", statistics.n_rows - known)
    classifier.solve()


def _labels_named(names: list[str], classes: NDArray[Any]) -> NDArray[Any]:
    """Labels that are written as the given names."""
    by_name = {str(label): label for label in classes.tolist()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        few = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
        raise UsageError(f"no class {unknown[0]!r} to remove; there are {few}")
    return np.array([by_name[name] for name in names], dtype=classes.dtype)
