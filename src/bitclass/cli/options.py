"""Options that several commands share, and defaults read from the library."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from bitclass.classifier import BinaryCodeClassifier
from bitclass.data import Reader, open_rows

__all__ = [
    "Data",
    "FeaturesName",
    "FormatName",
    "Json",
    "LabelsFile",
    "LabelsName",
    "Model",
    "default_of",
    "feature_names",
    "open_data",
]

Data = Annotated[
    list[Path], typer.Argument(help="Feature files of one format, or a folder of them.")
]
Model = Annotated[Path, typer.Argument(help="Model file.")]
FeaturesName = Annotated[
    str | None,
    typer.Option("--features", help="Array, column, or columns (a,b or f*) of the features."),
]
LabelsName = Annotated[str | None, typer.Option("--labels", help="Array or column of the labels.")]
LabelsFile = Annotated[
    Path | None, typer.Option("--labels-file", help="Labels in a file of their own.")
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="npy, npz, parquet, arrow, svmlight, matlab, hdf5 or csv, where the ending is silent.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def default_of(parameter: str) -> Any:
    """Default of a parameter of the estimator, so that none is typed twice."""
    return inspect.signature(BinaryCodeClassifier).parameters[parameter].default


def feature_names(features: str | None) -> str | list[str] | None:
    """The array or column of the features, or the columns where several are named."""
    names = None if features is None else [name.strip() for name in features.split(",")]
    return names[0] if names is not None and len(names) == 1 else names


def open_data(
    paths: list[Path],
    features: str | None,
    labels: str | bool | None,
    labels_file: Path | None,
    format: str | None,
) -> Reader:
    """Open the files that a command was given."""
    return open_rows(
        paths,
        features=feature_names(features),
        labels=labels,
        labels_file=labels_file,
        format=format,
    )
