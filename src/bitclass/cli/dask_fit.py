"""`bitclass fit --dask`: the workers of a cluster read the files."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.errors import UsageError
from bitclass.cli.fit import save_model, statistics_path, tell
from bitclass.cli.options import feature_names
from bitclass.cli.progress import passes_progress
from bitclass.storage import ProjectionType
from bitclass.training import save_statistics

if TYPE_CHECKING:
    from bitclass.distributed import FeatureFiles

__all__ = ["feature_files", "run_dask_fit"]


def feature_files(
    paths: list[Path],
    features: str | None,
    labels: str | bool | None,
    labels_file: Path | None,
    format: str | None,
) -> FeatureFiles:
    """The files that a command was given, to be opened by workers, which may be elsewhere."""
    from bitclass.distributed import FeatureFiles

    return FeatureFiles(
        [os.path.abspath(path) for path in paths],
        features=feature_names(features),
        labels=labels,
        labels_file=None if labels_file is None else os.path.abspath(labels_file),
        format=format,
    )


def run_dask_fit(
    classifier: BinaryCodeClassifier,
    cluster: str,
    files: FeatureFiles,
    model: Path,
    *,
    projection: ProjectionType,
    keep_statistics: bool,
    checkpoint: Path | None,
    as_json: bool,
) -> None:
    """Learn on a cluster from files that its workers see, and write the model."""
    from bitclass.distributed import DaskBinaryCodeClassifier, connected

    if checkpoint is not None:
        raise UsageError("--checkpoint does not go with --dask: a cluster outlives its workers")
    # What went wrong is told in a line of our own.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    start = time.perf_counter()
    on_cluster = DaskBinaryCodeClassifier(**classifier.get_params(deep=False))
    with connected(cluster), passes_progress() as progress:
        on_cluster.fit_with(files, progress=progress)
    if keep_statistics:
        save_statistics(statistics_path(model), on_cluster.statistics_)
    save_model(on_cluster, model, projection, of_statistics=keep_statistics)
    read = f"{files.described()}, by {cluster}"
    tell(on_cluster, model, time.perf_counter() - start, read, as_json)
