"""The commands and their options; what each does is in the file of its name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import bitclass
from bitclass._native import thread_limit
from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.checks import check_room, check_settings
from bitclass.cli.dask_fit import feature_files, run_dask_fit
from bitclass.cli.errors import UsageError, run_reporting
from bitclass.cli.evaluate import run_evaluate
from bitclass.cli.explore import run_explore
from bitclass.cli.features import run_features
from bitclass.cli.fit import run_fit
from bitclass.cli.inspect import run_inspect
from bitclass.cli.options import (
    Data,
    ExtractorName,
    FeaturesName,
    FormatName,
    Jobs,
    Json,
    LabelsFile,
    LabelsName,
    Model,
    SplitName,
    default_of,
    number_or_name,
)
from bitclass.cli.pictures import DEFAULT_EXTRACTOR, extractor_of_model, opened_rows
from bitclass.cli.predict import run_predict
from bitclass.cli.studies import add_studies
from bitclass.cli.update import run_update
from bitclass.data.pictures import open_pictures
from bitclass.images import extractor_named
from bitclass.losses import LOSSES
from bitclass.training import SOLVERS, STARTING_CODES

__all__ = ["app", "main"]

app = typer.Typer(
    name="bitclass",
    help="Classification with very many classes: binary codes, binary weights, Hamming argmin.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

ProjectionName = Literal["float32", "float16", "int8"]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bitclass {bitclass.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def features(
    folder: Annotated[
        Path, typer.Argument(help="Folder of class folders, folder of pictures, or data set.")
    ],
    out: Annotated[Path, typer.Option(help="File to write, .npy (labels beside it) or .parquet.")],
    extractor: ExtractorName = None,
    split: SplitName = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Turn pictures into a feature file; a run that was stopped goes on where it was."""
    with thread_limit(jobs):
        run_features(
            open_pictures(folder, split),
            extractor_named(extractor or DEFAULT_EXTRACTOR),
            out,
            jobs=jobs,
            as_json=json,
        )


@app.command()
def fit(
    data: Data,
    model: Annotated[Path, typer.Option(help="Model file to write.")],
    features: FeaturesName = None,
    labels: LabelsName = None,
    labels_file: LabelsFile = None,
    format: FormatName = None,
    extractor: ExtractorName = None,
    split: SplitName = None,
    bits: Annotated[int, typer.Option(help="Length of the codes.")] = default_of("n_bits"),
    loss: Annotated[str, typer.Option(help=f"One of {', '.join(LOSSES)}.")] = default_of("loss"),
    scale: Annotated[float, typer.Option(help="Factor on the margin.")] = default_of("scale"),
    initial_codes: Annotated[
        str, typer.Option(help=f"Codes to start from: {', '.join(STARTING_CODES)}.")
    ] = default_of("initial_codes"),
    solver: Annotated[
        str, typer.Option(help=f"Solver of the W-step: {', '.join(SOLVERS)}.")
    ] = default_of("solver"),
    max_iter: Annotated[int, typer.Option(help="Most rounds.")] = default_of("max_iter"),
    alpha: Annotated[
        str, typer.Option(help="Penalty of the regression: a number, or auto.")
    ] = default_of("alpha"),
    refine: Annotated[
        bool | None,
        typer.Option(
            help="Improve the model on the rows themselves; by default where there are enough."
        ),
    ] = None,
    kernel: Annotated[
        Literal["rbf"] | None, typer.Option(help="Hash similarities to anchors, not features.")
    ] = default_of("kernel"),
    anchors: Annotated[
        str, typer.Option(help="Number of anchors of the kernel, or auto.")
    ] = default_of("n_anchors"),
    gamma: Annotated[
        str, typer.Option(help="Width of the kernel: scale, median, or a number.")
    ] = default_of("gamma"),
    seed: Annotated[int, typer.Option(help="Seed of codes, anchors and refinement.")] = 0,
    projection: Annotated[
        ProjectionName, typer.Option(help="How the model file holds the projection.")
    ] = "float32",
    keep_statistics: Annotated[
        bool, typer.Option("--keep-statistics", help="Keep what `bitclass update` needs.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder to save progress to, and to go on from.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Learn on a Dask cluster: tcp://HOST:PORT, or local:4 for 4 processes."),
    ] = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Learn from feature files of any size or from pictures, and write a model file."""
    classifier = BinaryCodeClassifier(
        bits,
        loss=loss,
        scale=scale,
        initial_codes=initial_codes,
        solver=solver,
        max_iter=max_iter,
        alpha=number_or_name(alpha),
        refine=default_of("refine") if refine is None else refine,
        kernel=kernel,
        n_anchors=number_or_name(anchors),
        gamma=number_or_name(gamma),
        n_jobs=jobs,
        random_state=seed,
    )
    check_settings(classifier)
    check_room(model, "--model")
    if dask is not None:
        if extractor is not None or split is not None:
            raise UsageError("--extractor and --split do not go with --dask, which reads files")
        run_dask_fit(
            classifier,
            dask,
            feature_files(data, features, labels, labels_file, format),
            model,
            projection=projection,
            keep_statistics=keep_statistics,
            checkpoint=checkpoint,
            as_json=json,
        )
        return
    with opened_rows(
        data,
        features,
        labels,
        labels_file,
        format,
        extractor=lambda: extractor_named(extractor or DEFAULT_EXTRACTOR),
        split=split,
        wants_pictures=extractor is not None,
        jobs=jobs,
        store=None if checkpoint is None else checkpoint / "pictures",
        room=model.absolute().parent,
    ) as rows:
        run_fit(
            classifier,
            rows.reader,
            model,
            projection=projection,
            keep_statistics=keep_statistics,
            checkpoint=checkpoint,
            extractor=None if rows.extractor is None else rows.extractor.specification(),
            as_json=json,
        )


@app.command()
def update(
    model: Model,
    data: Annotated[
        list[Path] | None, typer.Argument(help="Feature files with more rows or new classes.")
    ] = None,
    features: FeaturesName = None,
    labels: LabelsName = None,
    labels_file: LabelsFile = None,
    format: FormatName = None,
    split: SplitName = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="Class to forget; may be given several times.")
    ] = None,
    projection: Annotated[
        ProjectionName | None,
        typer.Option(help="How the model file holds the projection; as before by default."),
    ] = None,
    json: Json = False,
) -> None:
    """Learn more rows or classes, or forget classes, without the rows of before."""
    if not data:
        run_update(model, None, remove=remove or [], projection=projection, as_json=json)
        return
    with opened_rows(
        data,
        features,
        labels,
        labels_file,
        format,
        split=split,
        extractor=lambda: extractor_of_model(model),
    ) as rows:
        run_update(model, rows.reader, remove=remove or [], projection=projection, as_json=json)


@app.command()
def predict(
    model: Model,
    data: Data,
    features: FeaturesName = None,
    format: FormatName = None,
    split: SplitName = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, .csv, .parquet or .npy; else CSV is printed."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many nearest classes.")] = 1,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of the nearest class.")
    ] = False,
) -> None:
    """Predict the rows of feature files, or pictures."""
    with opened_rows(
        data,
        features,
        False,
        None,
        format,
        split=split,
        extractor=lambda: extractor_of_model(model),
        needs_labels=False,
    ) as rows:
        run_predict(
            model,
            rows.reader,
            names=rows.names,
            out=out,
            top=top,
            probabilities=probabilities,
        )


@app.command()
def evaluate(
    model: Model,
    data: Data,
    features: FeaturesName = None,
    labels: LabelsName = None,
    labels_file: LabelsFile = None,
    format: FormatName = None,
    split: SplitName = None,
    confused: Annotated[int, typer.Option(min=0, help="How many confused pairs to show.")] = 10,
    plot: Annotated[Path | None, typer.Option(help="Draw the confusions to this file.")] = None,
    all_classes: Annotated[
        bool, typer.Option("--all-classes", help="Show all classes, not the worst alone.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how good a model is on labelled rows or pictures."""
    with opened_rows(
        data,
        features,
        labels,
        labels_file,
        format,
        split=split,
        extractor=lambda: extractor_of_model(model),
    ) as rows:
        run_evaluate(
            model, rows.reader, confused=confused, plot=plot, all_classes=all_classes, as_json=json
        )


@app.command()
def inspect(
    model: Model,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the distances between class codes to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a model is: sizes, classes, bit balance, distances between classes."""
    run_inspect(model, plot=plot, as_json=json)


@app.command()
def explore(
    model: Model,
    folder: Annotated[
        Path, typer.Argument(help="Pictures to find near ones among: a folder or a data set.")
    ],
    split: SplitName = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")
    ] = 8765,
    jobs: Jobs = None,
) -> None:
    """Serve a page that shows the code of a picture, and the classes and pictures near it."""
    with thread_limit(jobs):
        run_explore(model, folder, split=split, host=host, port=port, jobs=jobs)


add_studies(app)


def main() -> None:
    """Run the command; without arguments it shows what there is."""
    arguments = sys.argv[1:] or ["--help"]
    run_reporting(lambda: app(arguments, standalone_mode=False))
