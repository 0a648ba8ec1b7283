"""`bitclass fit`: from rows of features, or images, to a model file."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bitclass._native import thread_limit
from bitclass._native.ngrams import NgramFeatures
from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli import options
from bitclass.cli.data import Inputs, check_outputs, labels_of, remove_cache, require_labels
from bitclass.cli.errors import UsageError
from bitclass.cli.progress import progress_of_passes
from bitclass.cli.saving import (
    Checkpoint,
    file_versions,
    model_lock,
    report,
    save_model,
    statistics_path,
)
from bitclass.io import Batch, prefetch
from bitclass.losses import LOSSES
from bitclass.text import TextRows
from bitclass.training import Statistics
from bitclass.training.bqp import SOLVERS
from bitclass.training.starting_codes import STARTING_CODES
from bitclass.validation import learns_sparse, settings_of

if TYPE_CHECKING:
    from bitclass.cli.data import Rows

__all__ = ["command"]

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


def _number_or_name(value: str) -> Any:
    """A number if the text is one, else the text, which the estimator knows or refuses."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


def command(
    data: options.Data,
    model: Annotated[Path, typer.Option(help="Model file to write.")],
    features: options.Features = None,
    labels: options.Labels = None,
    labels_file: options.LabelsFile = None,
    text: options.Text = None,
    header: options.Header = None,
    format: options.Format = None,
    first_index: options.FirstIndex = None,
    extractor: options.Extractor = None,
    bits: Annotated[int, typer.Option(help="Length of the codes.")] = _default("n_bits"),
    loss: Annotated[str, typer.Option(help=f"One of {', '.join(LOSSES)}.")] = _default("loss"),
    scale: Annotated[float, typer.Option(help="Factor on the margin.")] = _default("scale"),
    initial_codes: Annotated[
        str, typer.Option(help=f"Starting codes: {', '.join(STARTING_CODES)}.")
    ] = _default("initial_codes"),
    solver: Annotated[
        str, typer.Option(help=f"Solver of the W-step: {', '.join(SOLVERS)}.")
    ] = _default("solver"),
    max_iter: Annotated[int, typer.Option(help="Maximum number of rounds.")] = _default("max_iter"),
    alpha: Annotated[
        str,
        typer.Option(
            help="Penalty on the variances within classes, or of the regression: a number, or auto."
        ),
    ] = _default("alpha"),
    refine: Annotated[
        bool | None,
        typer.Option(
            help="Refine projection and weights by gradient steps; by default if there are "
            "enough rows.",
            show_default=False,
        ),
    ] = None,
    rescore: Annotated[
        str,
        typer.Option(help="Nearest classes that real-valued scores rank: a number, auto or none."),
    ] = _default("rescore"),
    kernel: Annotated[
        Literal["rbf"] | None, typer.Option(help="Hash similarities to anchors.")
    ] = _default("kernel"),
    anchors: Annotated[
        str, typer.Option(help="Number of anchors of the kernel, or auto.")
    ] = _default("n_anchors"),
    gamma: Annotated[
        str, typer.Option(help="Width of the kernel: scale, median, or a number.")
    ] = _default("gamma"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    projection: Annotated[
        options.ProjectionName | None,
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
    classifier = BinaryCodeClassifier(
        bits,
        loss=loss,
        scale=scale,
        initial_codes=initial_codes,
        solver=solver,
        max_iter=max_iter,
        alpha=_number_or_name(alpha),
        refine=_default("refine") if refine is None else refine,
        rescore=False if rescore == "none" else _number_or_name(rescore),
        kernel=kernel,
        n_anchors=_number_or_name(anchors),
        gamma=_number_or_name(gamma),
        n_jobs=jobs,
        random_state=seed,
    )
    _check_settings(classifier)
    copied = None if device is None else _copier(device)
    inputs = Inputs(
        data,
        features,
        labels,
        labels_file,
        header,
        format,
        extractor,
        first_index=first_index,
        text=text,
    )
    _check_files(inputs, model, keep_statistics, checkpoint)
    if text is not None and extractor is None and checkpoint is not None:
        raise UsageError(_NO_CHECKPOINT.format("texts"))
    start = time.perf_counter()
    specification = ngrams = None
    saves = None
    if dask is not None:
        if any(given is not None for given in (extractor, checkpoint, text, device)):
            raise UsageError("--extractor, --text, --checkpoint and --device do not go with --dask")
        classifier = _fit_on_cluster(classifier, dask, inputs)
        described = f"{', '.join(map(str, data))}, by {dask}"
    else:
        with thread_limit(jobs):
            cache = None if checkpoint is None else checkpoint / _IMAGE_CACHE
            rows, image_extractor = inputs.open(cache=cache, n_jobs=jobs)
            require_labels(rows)
            if image_extractor is not None:
                specification = image_extractor.specification()
            if isinstance(rows, TextRows) and isinstance(rows.extractor, NgramFeatures):
                ngrams = rows.extractor
            if checkpoint is not None:
                saves = Checkpoint(checkpoint, _run(classifier, rows))
            _fit_rows(classifier, rows, saves, copied)
            described = rows.description
    with model_lock(model):
        save_model(
            classifier,
            model,
            projection=projection,
            keep_statistics=keep_statistics,
            record={"extractor": specification, "text_column": text},
            text=ngrams,
        )
    if checkpoint is not None:
        Checkpoint.path_in(checkpoint).unlink(missing_ok=True)
        if specification is not None:
            remove_cache(checkpoint / _IMAGE_CACHE)
    report(model, classifier.packed(), described, time.perf_counter() - start, json)


def _check_settings(classifier: BinaryCodeClassifier) -> None:
    """Refuse parameters that training would refuse, before any work."""
    try:
        classifier._validate_params()
        settings_of(classifier.get_params(deep=False))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_files(
    inputs: Inputs, model: Path, keep_statistics: bool, checkpoint: Path | None
) -> None:
    if os.path.realpath(model).lower().endswith(".statistics.safetensors"):
        raise UsageError(f"{model}: --model has the name of a statistics file; give another")
    outputs = {"--model": model}
    if keep_statistics:
        outputs["the statistics file"] = statistics_path(model)
    if checkpoint is not None:
        if checkpoint.exists() and not checkpoint.is_dir():
            raise UsageError(f"{checkpoint}: is a file; --checkpoint takes a folder")
        if Path(os.path.realpath(checkpoint)) in Path(os.path.realpath(model)).parents:
            raise UsageError(f"{model}: --model must be outside the --checkpoint folder")
        cache = Path(os.path.realpath(checkpoint / _IMAGE_CACHE))
        for path in filter(None, (*inputs.paths, inputs.labels_file)):
            if Path(os.path.realpath(path)).is_relative_to(cache):
                raise UsageError(f"{path}: --checkpoint would remove the input from {cache}")
        if checkpoint.is_dir():
            outputs["--checkpoint"] = Checkpoint.path_in(checkpoint)
    check_outputs(outputs, inputs.files())


def _run(classifier: BinaryCodeClassifier, rows: Rows) -> dict[str, Any]:
    """What a checkpoint must agree with to be resumed."""
    parameters = classifier.get_params(deep=False).items()
    return {
        "rows": rows.n_rows,
        "features": rows.n_features,
        "data": rows.description,
        "files": file_versions(rows),
        "parameters": {name: value for name, value in parameters if name not in _NOT_OF_THE_RUN},
    }


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
    saves: Checkpoint | None,
    copied: Callable[[Batch], Batch] | None,
) -> None:
    """Train on rows in batches; memory does not grow with their number."""
    n_passes = 0
    with progress_of_passes() as progress:

        def batches(start_row: int) -> Iterator[tuple[Any, Any]]:
            nonlocal n_passes
            n_passes += 1
            name = "learning" if n_passes == 1 else f"pass {n_passes}"
            progress(name, start_row, rows.n_rows)
            found = rows.batches(start_row)
            for batch in found if copied is None else prefetch(map(copied, found)):
                yield batch.X, labels_of(batch)
                progress(name, batch.first_row + batch.X.shape[0], rows.n_rows)

        def save(statistics: Statistics) -> None:
            if saves is not None:
                if statistics.n_rows == rows.n_rows:
                    saves.save(statistics)
                else:
                    saves.save_if_due(statistics)

        X, y = rows.sample()
        assert y is not None
        parameters = classifier.get_params(deep=False)
        is_wide = learns_sparse(settings_of(parameters), parameters["initial_codes"], X)
        if saves is not None and is_wide:
            raise UsageError(_NO_CHECKPOINT.format(f"rows of {rows.n_features:,} features"))
        classifier.fit_batches(
            batches,
            sample=(X, y),
            statistics=None if saves is None else saves.load(),
            on_batch=save,
            feature_names=rows.feature_names,
            callback=progress.epoch,
        )


def _fit_on_cluster(
    classifier: BinaryCodeClassifier, cluster: str, inputs: Inputs
) -> BinaryCodeClassifier:
    """Train on a Dask cluster, whose workers read the files at the same paths."""
    from bitclass.distributed import DaskBinaryCodeClassifier, FeatureFiles, connected

    options = {name: value for name, value in inputs.file_options().items() if value is not None}
    if "labels_file" in options:
        options["labels_file"] = os.path.abspath(options["labels_file"])
    files = FeatureFiles([os.path.abspath(path) for path in inputs.paths], **options)
    # What goes wrong is reported in a line of our own.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    on_cluster = DaskBinaryCodeClassifier(**classifier.get_params(deep=False))
    with connected(cluster), progress_of_passes() as progress:
        on_cluster.fit(files, progress=progress)
    return on_cluster
