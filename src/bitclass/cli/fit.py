"""`bitclass fit`: from rows of features, texts or images to a model file."""

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
from bitclass.cli.console import shown_progress
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

# Folder in the checkpoint folder that keeps the features of images.
_IMAGE_CACHE = ".bitclass-images"
# Parameters of the machine, which a resumed run may change.
_NOT_OF_THE_RUN = {"n_jobs", "verbose", "precision"}
_NO_CHECKPOINT = (
    "--checkpoint saves sums over rows, and {} are learned on mini-batches, without sums: leave it "
    "out"
)


def _default(parameter: str) -> Any:
    return inspect.signature(BinaryCodeClassifier).parameters[parameter].default


@dataclass(frozen=True)
class Parameters:
    """Parameters of the estimator that are options."""

    n_bits: Annotated[int, typer.Option("--bits", help="Length of the codes.")] = _default("n_bits")
    loss: Annotated[str, typer.Option(help=f"One of {', '.join(LOSSES)}.")] = _default("loss")
    scale: Annotated[float, typer.Option(help="Factor on the margin.")] = _default("scale")
    initial_codes: Annotated[
        str, typer.Option(help=f"Starting codes: {', '.join(STARTING_CODES)}.")
    ] = _default("initial_codes")
    solver: Annotated[str, typer.Option(help=f"Solver of the W-step: {', '.join(SOLVERS)}.")] = (
        _default("solver")
    )
    max_iter: Annotated[int, typer.Option(help="Maximum number of rounds.")] = _default("max_iter")
    alpha: Annotated[
        str,
        typer.Option(
            help="Penalty on the variances within classes, or of the regression: a number, or auto."
        ),
    ] = _default("alpha")
    refine: Annotated[
        bool | None,
        typer.Option(
            help="Refine projection and weights by gradient steps; by default if there are "
            "enough rows.",
            show_default=False,
        ),
    ] = None
    rescore: Annotated[
        str,
        typer.Option(help="Nearest classes that real-valued scores rank: a number, auto or none."),
    ] = _default("rescore")
    kernel: Annotated[Literal["rbf"] | None, typer.Option(help="Hash similarities to anchors.")] = (
        _default("kernel")
    )
    n_anchors: Annotated[
        str, typer.Option("--anchors", help="Number of anchors of the kernel, or auto.")
    ] = _default("n_anchors")
    gamma: Annotated[str, typer.Option(help="Width of the kernel: scale, median, or a number.")] = (
        _default("gamma")
    )
    random_state: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0

    def estimator(self, n_jobs: int | None) -> BinaryCodeClassifier:
        """An estimator with these parameters, which training would not refuse."""
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
            help="Type of the projection in the model file: int8 by default for wide rows, "
            "float32 for all others."
        ),
    ] = None,
    keep_statistics: Annotated[
        bool, typer.Option("--keep-statistics", help="Write the file that `update` needs.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder to save progress to and to resume from.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Train on a Dask cluster: tcp://HOST:PORT, or local:4 for 4 processes."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Compute on a device of torch, such as cuda.")
    ] = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Train a model on feature files, texts or images, and write it to a file.

    Feature files may be larger than memory. With --checkpoint a run that was killed resumes. With
    --keep-statistics `bitclass update` can add rows later.
    """
    classifier = parameters.estimator(jobs)
    to_device = None if device is None else _copier(device)
    _check_files(data, rows, extractor, model, keep_statistics, checkpoint)
    if rows.text is not None and extractor is None and checkpoint is not None:
        raise UsageError(_NO_CHECKPOINT.format("texts"))
    start = time.perf_counter()
    used, first_index = None, rows.first_index
    if dask is not None:
        if any(given is not None for given in (extractor, checkpoint, rows.text, device)):
            raise UsageError("--extractor, --text, --checkpoint and --device do not go with --dask")
        classifier = _fit_on_cluster(classifier, dask, data, rows)
        description = f"{', '.join(map(str, data))}, by {dask}"
    else:
        cache = None if checkpoint is None else checkpoint / _IMAGE_CACHE
        with thread_limit(jobs):
            opened = open_rows_of(data, rows, extractor=extractor, cache=cache, n_jobs=jobs)
            _fit_rows(classifier, opened, checkpoint, to_device)
        used, description = getattr(opened, "extractor", None), opened.description
        first_index = getattr(opened, "first_index", None)
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
                "first_index": first_index,
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
        raise UsageError(f"{model}: --model has the name of a statistics file; give another")
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
                raise UsageError(f"{path}: --checkpoint would remove the input from {cache}")
        if checkpoint.is_dir():
            outputs["--checkpoint"] = Checkpoint.path_in(checkpoint)
    check_outputs(outputs, input_files(data, rows, extractor))


def _copier(device: str) -> Callable[[Batch], Batch]:
    """What copies batches to a device of torch, beside what that computes."""
    try:
        torch: Any = import_module("torch")
        torch.empty(1, device=device)
    except ModuleNotFoundError:
        raise UsageError("--device needs torch, which is not installed") from None
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from None

    def copied(batch: Batch) -> Batch:
        if hasattr(batch.X, "tocsr"):
            raise UsageError("--device takes dense features, and these are sparse")
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


def _fit_rows(
    classifier: BinaryCodeClassifier,
    rows: Rows,
    checkpoint: Path | None,
    to_device: Callable[[Batch], Batch] | None,
) -> None:
    """Train on rows in batches; memory does not grow with their number."""
    X, y = rows.sample()
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
            "parameters": {k: v for k, v in parameters.items() if k not in _NOT_OF_THE_RUN},
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

    with shown_progress() as progress:
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
    """Train on a Dask cluster, whose workers read the files at the same paths."""
    from bitclass.distributed import DaskBinaryCodeClassifier, FeatureFiles, connected

    given = rows.given()
    if rows.labels_file is not None:
        given["labels_file"] = os.path.abspath(rows.labels_file)
    files = FeatureFiles([os.path.abspath(path) for path in data], **given)
    # What goes wrong is reported in a line of our own.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    on_cluster = DaskBinaryCodeClassifier(**classifier.get_params(deep=False))
    with connected(cluster), shown_progress() as progress:
        on_cluster.fit(files, progress=progress)
    return on_cluster


class Checkpoint:
    """Statistics saved from time to time, from which a killed run resumes.

    `run` identifies the run: files, rows, parameters. A checkpoint of another one is refused.
    """

    seconds_between_saves = 30.0

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.path = self.path_in(folder)
        self.run = json_format.loads(json_format.dumps(run))
        self._last_save = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def path_in(folder: Path) -> Path:
        """The file in a checkpoint folder."""
        return folder / "statistics.safetensors"

    def load(self) -> Statistics | None:
        """What an earlier run left, None if there is nothing."""
        if not self.path.exists():
            return None
        statistics, run = load_statistics(self.path)
        differing = sorted(key for key in self.run | run if self.run.get(key) != run.get(key))
        if differing:
            raise ValueError(
                f"{self.path}: this checkpoint is of another run, which differs in "
                f"{', '.join(differing)}; remove it or give another folder"
            )
        return statistics

    def save(self, statistics: Statistics) -> None:
        """Save, if the last save was a while ago or all rows are counted."""
        is_due = time.monotonic() - self._last_save >= self.seconds_between_saves
        if is_due or statistics.n_rows == self.run["rows"]:
            save_statistics(self.path, statistics, self.run)
            self._last_save = time.monotonic()
