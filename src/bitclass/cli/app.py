"""The commands and their options; what each does is in the file of its name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import bitclass
from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.bench import run_bench
from bitclass.cli.dask_fit import feature_files, run_dask_fit
from bitclass.cli.demo import run_demo
from bitclass.cli.errors import run_reporting
from bitclass.cli.evaluate import run_evaluate
from bitclass.cli.fit import run_fit, run_update
from bitclass.cli.inspect import run_inspect
from bitclass.cli.options import (
    Data,
    FeaturesName,
    FormatName,
    Json,
    LabelsFile,
    LabelsName,
    Model,
    default_of,
    open_data,
)
from bitclass.cli.predict import run_predict
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
def fit(
    data: Data,
    model: Annotated[Path, typer.Option(help="Model file to write.")],
    features: FeaturesName = None,
    labels: LabelsName = None,
    labels_file: LabelsFile = None,
    format: FormatName = None,
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
    alpha: Annotated[float, typer.Option(help="Penalty of the regression.")] = default_of("alpha"),
    seed: Annotated[int, typer.Option(help="Seed of the starting codes.")] = 0,
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
    jobs: Annotated[int | None, typer.Option(help="Threads; all cores by default.")] = None,
    json: Json = False,
) -> None:
    """Learn from feature files of any size, and write a model file."""
    classifier = BinaryCodeClassifier(
        bits,
        loss=loss,
        scale=scale,
        initial_codes=initial_codes,
        solver=solver,
        max_iter=max_iter,
        alpha=alpha,
        n_jobs=jobs,
        random_state=seed,
    )
    if dask is not None:
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
    reader = open_data(data, features, labels, labels_file, format)
    run_fit(
        classifier,
        reader,
        model,
        projection=projection,
        keep_statistics=keep_statistics,
        checkpoint=checkpoint,
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
    remove: Annotated[
        list[str] | None, typer.Option(help="Class to forget; may be given several times.")
    ] = None,
    projection: Annotated[
        ProjectionName, typer.Option(help="How the model file holds the projection.")
    ] = "float32",
    json: Json = False,
) -> None:
    """Learn more rows or classes, or forget classes, without the rows of before."""
    reader = open_data(data, features, labels, labels_file, format) if data else None
    run_update(model, reader, remove=remove or [], projection=projection, as_json=json)


@app.command()
def predict(
    model: Model,
    data: Data,
    features: FeaturesName = None,
    format: FormatName = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, .csv, .parquet or .npy; else CSV is printed."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many nearest classes.")] = 1,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of the nearest class.")
    ] = False,
) -> None:
    """Predict the rows of feature files."""
    reader = open_data(data, features, False, None, format)
    run_predict(model, reader, out=out, top=top, probabilities=probabilities)


@app.command()
def evaluate(
    model: Model,
    data: Data,
    features: FeaturesName = None,
    labels: LabelsName = None,
    labels_file: LabelsFile = None,
    format: FormatName = None,
    confused: Annotated[int, typer.Option(min=0, help="How many confused pairs to show.")] = 10,
    plot: Annotated[Path | None, typer.Option(help="Draw the confusions to this file.")] = None,
    all_classes: Annotated[
        bool, typer.Option("--all-classes", help="Show all classes, not the worst alone.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how good a model is on labelled rows."""
    reader = open_data(data, features, labels, labels_file, format)
    run_evaluate(model, reader, confused=confused, plot=plot, all_classes=all_classes, as_json=json)


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
def demo(
    bits: Annotated[int, typer.Option(min=1, max=2048, help="Length of the codes.")] = default_of(
        "n_bits"
    ),
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds to take times over.")] = 5,
) -> None:
    """Learn the digits that ship with scikit-learn, beside LibLinear's support vector machines."""
    run_demo(bits, rounds)


@app.command()
def bench(
    features: Annotated[int, typer.Option(min=1, help="Features of a row.")] = 4096,
    classes: Annotated[int, typer.Option(min=2, help="Number of classes.")] = 1000,
    bits: Annotated[int, typer.Option(min=1, max=2048, help="Length of the codes.")] = default_of(
        "n_bits"
    ),
    rows: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 4000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds to take times over.")] = 7,
    json: Json = False,
) -> None:
    """Time predictions on this machine beside NumPy's float32 product."""
    run_bench(features, classes, bits, rows, rounds, as_json=json)


def main() -> None:
    """Run the command; without arguments it shows what there is."""
    arguments = sys.argv[1:] or ["--help"]
    run_reporting(lambda: app(arguments, standalone_mode=False))
