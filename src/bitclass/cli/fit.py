"""`bitclass fit`: train a model on feature files, texts or images."""

from __future__ import annotations

import contextlib
import inspect
import json as json_format
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bitclass._native import thread_limit
from bitclass._native.ngrams import NgramFeatures
from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli import options
from bitclass.cli.console import progress_bars
from bitclass.cli.data import check_outputs, input_files, open_rows_of
from bitclass.cli.errors import UsageError
from bitclass.cli.saving import file_versions, model_lock, report, save_model, statistics_path
from bitclass.io import Batch, prefetch
from bitclass.losses import LOSSES
from bitclass.training import Statistics, load_statistics, save_statistics
from bitclass.training.bqp import SOLVERS
from bitclass.training.starting_codes import STARTING_CODES
from bitclass.validation import is_wide, settings_of

if TYPE_CHECKING:
    from bitclass.cli.data import Rows

__all__ = ["Checkpoint", "command"]

# Subfolder of the checkpoint folder that caches image features.
_IMAGE_CACHE = ".bitclass-images"
# Parameters that do not affect the sums, and may differ in a resumed run.
_RUNTIME_PARAMETERS = {"n_jobs", "verbose", "precision"}
_NO_CHECKPOINT = (
    "--checkpoint saves sums over rows, but {} are learned on mini-batches, without sums; omit it"
)


def _default(parameter: str) -> Any:
    return inspect.signature(BinaryCodeClassifier).parameters[parameter].default


@dataclass(frozen=True)
class Parameters:
    """Estimator parameters that are command-line options."""

    n_bits: Annotated[int, typer.Option("--bits", help="Bits per code.")] = _default("n_bits")
    loss: Annotated[str, typer.Option(help=f"Loss: {', '.join(LOSSES)}.")] = _default("loss")
    scale: Annotated[float, typer.Option(help="Scale of the margin.")] = _default("scale")
    initial_codes: Annotated[
        str, typer.Option(help=f"Starting codes: {', '.join(STARTING_CODES)}.")
    ] = _default("initial_codes")
    solver: Annotated[str, typer.Option(help=f"W-step solver: {', '.join(SOLVERS)}.")] = _default(
        "solver"
    )
    max_iter: Annotated[int, typer.Option(help="Maximum number of rounds.")] = _default("max_iter")
    alpha: Annotated[
        str,
        typer.Option(help="Regularisation strength of the hash function: a number, or auto."),
    ] = _default("alpha")
    refine: Annotated[
        bool | None,
        typer.Option(
            help="Refine the projection and weights by gradient descent; by default if there are "
            "enough rows.",
            show_default=False,
        ),
    ] = None
    rescore: Annotated[
        str,
        typer.Option(
            help="Number of nearest classes to re-rank by real-valued scores, auto or none."
        ),
    ] = _default("rescore")
    kernel: Annotated[
        Literal["rbf"] | None, typer.Option(help="Hash kernel similarities to anchors.")
    ] = _default("kernel")
    n_anchors: Annotated[
        str, typer.Option("--anchors", help="Number of kernel anchors, or auto.")
    ] = _default("n_anchors")
    gamma: Annotated[str, typer.Option(help="Kernel coefficient: scale, median, or a number.")] = (
        _default("gamma")
    )
    random_state: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0

    def estimator(self, n_jobs: int | None) -> BinaryCodeClassifier:
        """Create an estimator with these parameters, and validate them."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name in ("alpha", "rescore", "n_anchors", "gamma"):
            for number in (float, int):
                with contextlib.suppress(ValueError):
                    given[name] = number(getattr(self, name))
        if self.rescore == "none":
            given["rescore"] = False
        classifier = BinaryCodeClassifier(**given, n_jobs=n_jobs)
        try:
            classifier._validate_params()
            settings_of(classifier.get_params(deep=False))
        except ValueError as error:
            raise UsageError(str(error)) from error
        return classifier


@options.expanded()
def command(
    *,
    data: options.Data,
    model: Annotated[Path, typer.Option(help="Model file to write.")],
    rows: options.RowOptions,
    extractor: options.Extractor = None,
    parameters: Parameters,
    projection: Annotated[
        options.Projection | None,
        typer.Option(
            help="Type of the projection in the model file; by default int8 for wide rows, "
            "float32 otherwise."
        ),
    ] = None,
    keep_statistics: Annotated[
        bool,
        typer.Option("--keep-statistics", help="Also write the statistics for updates."),
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder to save progress in and to resume from.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Train on a Dask cluster: tcp://HOST:PORT, or local:4 for 4 processes."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="PyTorch device to compute on, such as cuda.")
    ] = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Train a model on feature files, texts or images, and write it to a file.

    Feature files may be larger than memory. With --checkpoint, an interrupted run can be resumed.
    With --keep-statistics, the model can be updated later.
    """
    classifier = parameters.estimator(jobs)
    to_device = None if device is None else _copier(device)
    _check_files(data, rows, extractor, model, keep_statistics, checkpoint)
    if rows.text is not None and extractor is None and checkpoint is not None:
        raise UsageError(_NO_CHECKPOINT.format("texts"))
    start = time.perf_counter()
    used = None
    if dask is not None:
        if any(given is not None for given in (extractor, checkpoint, rows.text, device)):
            raise UsageError(
                "--extractor, --text, --checkpoint and --device cannot be combined with --dask"
            )
        classifier = _fit_on_cluster(classifier, dask, data, rows)
        description = f"{', '.join(map(str, data))}, on {dask}"
    else:
        cache = None if checkpoint is None else checkpoint / _IMAGE_CACHE
        with thread_limit(jobs):
            opened = open_rows_of(data, rows, extractor=extractor, cache=cache, n_jobs=jobs)
            _fit_rows(classifier, opened, checkpoint, to_device)
        used, description = getattr(opened, "extractor", None), opened.description
    ngrams = used if isinstance(used, NgramFeatures) else None
    with model_lock(model):
        save_model(
            classifier,
            model,
            projection=projection,
            keep_statistics=keep_statistics,
            record={
                "extractor": used.specification() if used is not None and ngrams is None else None,
                "text_column": rows.text,
            },
            text=ngrams,
        )
    if checkpoint is not None:
        Checkpoint.path_in(checkpoint).unlink(missing_ok=True)
        if used is not None:
            from bitclass.images.rows import remove_cache

            remove_cache(checkpoint / _IMAGE_CACHE)
    report(model, classifier.packed(), description, time.perf_counter() - start, json)


def _check_files(
    data: Sequence[Path],
    rows: options.RowOptions,
    extractor: str | None,
    model: Path,
    keep_statistics: bool,
    checkpoint: Path | None,
) -> None:
    if os.path.realpath(model).lower().endswith(".statistics.safetensors"):
        raise UsageError(f"{model}: --model must not end in .statistics.safetensors")
    outputs = {"--model": model}
    if keep_statistics:
        outputs["the statistics file"] = statistics_path(model)
    if checkpoint is not None:
        if checkpoint.exists() and not checkpoint.is_dir():
            raise UsageError(f"{checkpoint}: is a file; --checkpoint takes a folder")
        if model.resolve().is_relative_to(checkpoint.resolve()):
            raise UsageError(f"{model}: --model must be outside the --checkpoint folder")
        cache = (checkpoint / _IMAGE_CACHE).resolve()
        for path in filter(None, (*data, rows.labels_file)):
            if path.resolve().is_relative_to(cache):
                raise UsageError(f"{path}: --checkpoint would delete this input in {cache}")
        if checkpoint.is_dir():
            outputs["--checkpoint"] = Checkpoint.path_in(checkpoint)
    check_outputs(outputs, input_files(data, rows, extractor))


def _copier(device: str) -> Callable[[Batch], Batch]:
    """A function that copies batches to a PyTorch device, concurrently with computation there."""
    try:
        torch: Any = import_module("torch")
        torch.empty(1, device=device)
    except ModuleNotFoundError:
        raise UsageError("--device needs torch, which is not installed") from None
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from None

    def copied(batch: Batch) -> Batch:
        if hasattr(batch.X, "tocsr"):
            raise UsageError("--device requires dense features, but these are sparse")
        X = torch.tensor(batch.X)
        if torch.device(device).type != "cuda":
            return replace(batch, X=X.to(device))
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            X = X.pin_memory().to(device, non_blocking=True)
        stream.synchronize()
        X.record_stream(torch.cuda.default_stream(device))
        return replace(batch, X=X)

    return copied


def _spread(rows: Any, n_rows: int = 8192) -> tuple[Any, Any]:
    """Rows spread evenly over all files, which may be sorted by class."""
    import numpy as np
    from scipy.sparse import vstack

    places = np.linspace(0, rows.n_rows - 1, min(n_rows, rows.n_rows)).astype(np.intp)
    parts, labels = [], []
    for batch in rows.batches():
        here = places - batch.first_row
        here = here[(here >= 0) & (here < len(batch))]
        parts.append(batch.X[here])
        labels.append(batch.labels[here])
    X = vstack(parts, format="csr") if rows.is_sparse else np.concatenate(parts)
    return X, np.concatenate(labels)


def _fit_rows(
    classifier: BinaryCodeClassifier,
    rows: Rows,
    checkpoint: Path | None,
    to_device: Callable[[Batch], Batch] | None,
) -> None:
    """Train on batches of rows, in memory independent of their number."""
    X, y = _spread(rows)
    assert y is not None
    parameters = classifier.get_params(deep=False)
    saves = None
    if checkpoint is not None:
        if is_wide(settings_of(parameters), parameters["initial_codes"], X):
            raise UsageError(_NO_CHECKPOINT.format(f"rows of {rows.n_features:,} features"))
        run = {
            "rows": rows.n_rows,
            "features": rows.n_features,
            "data": rows.description,
            "files": file_versions(rows),
            "parameters": {k: v for k, v in parameters.items() if k not in _RUNTIME_PARAMETERS},
        }
        saves = Checkpoint(checkpoint, run)
    n_passes = 0

    def batches(start_row: int) -> Iterator[tuple[Any, Any]]:
        nonlocal n_passes
        n_passes += 1
        name = "learning" if n_passes == 1 else f"pass {n_passes}"
        found: Iterator[Batch] = progress.batches(name, rows, start_row)
        for batch in found if to_device is None else prefetch(map(to_device, found)):
            yield batch.X, batch.labels

    with progress_bars() as progress:
        classifier.fit_batches(
            batches,
            sample=(X, y),
            statistics=None if saves is None else saves.load(),
            on_batch=None if saves is None else saves.save,
            feature_names=rows.feature_names,
            callback=progress.epoch,
        )


def _fit_on_cluster(
    classifier: BinaryCodeClassifier,
    cluster: str,
    data: Sequence[Path],
    rows: options.RowOptions,
) -> BinaryCodeClassifier:
    """Train on a Dask cluster whose workers read the files at the same paths."""
    from bitclass.distributed import DaskBinaryCodeClassifier, FeatureFiles, connected

    given = rows.given()
    if rows.labels_file is not None:
        given["labels_file"] = os.path.abspath(rows.labels_file)
    files = FeatureFiles([os.path.abspath(path) for path in data], **given)
    # Errors are reported once, by this command.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    on_cluster = DaskBinaryCodeClassifier(**classifier.get_params(deep=False))
    with connected(cluster), progress_bars() as progress:
        on_cluster.fit(files, progress=progress)
    return on_cluster


class Checkpoint:
    """Statistics saved periodically, from which an interrupted run resumes.

    `run` identifies the run by its files, rows and parameters; loading the checkpoint of another
    run is an error.
    """

    seconds_between_saves = 30.0

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.path = self.path_in(folder)
        self.run = json_format.loads(json_format.dumps(run))
        self._last_save = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def path_in(folder: Path) -> Path:
        """Path of the statistics in a checkpoint folder."""
        return folder / "statistics.safetensors"

    def load(self) -> Statistics | None:
        """Load the statistics of an earlier run; None if there are none."""
        if not self.path.exists():
            return None
        statistics, run = load_statistics(self.path)
        differing = sorted(key for key in self.run | run if self.run.get(key) != run.get(key))
        if differing:
            raise ValueError(
                f"{self.path}: this checkpoint belongs to another run, which differs in "
                f"{', '.join(differing)}; remove it or use another folder"
            )
        return statistics

    def save(self, statistics: Statistics) -> None:
        """Save if the last save was a while ago, or if all rows are counted."""
        is_due = time.monotonic() - self._last_save >= self.seconds_between_saves
        if is_due or statistics.n_rows == self.run["rows"]:
            save_statistics(self.path, statistics, self.run)
            self._last_save = time.monotonic()
