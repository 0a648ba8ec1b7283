"""Options that several commands share, and defaults read from the library."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from bitclass.classifier import BinaryCodeClassifier
from bitclass.data import Reader, open_rows

__all__ = [
    "Data",
    "ExtractorName",
    "FeaturesName",
    "FormatName",
    "Jobs",
    "Json",
    "LabelsFile",
    "LabelsName",
    "Model",
    "SplitName",
    "default_of",
    "feature_names",
    "number_or_name",
    "open_data",
]

Data = Annotated[
    list[Path],
    typer.Argument(help="Feature files of one format, a folder of them, or pictures."),
]
ExtractorName = Annotated[
    str | None,
    typer.Option(
        "--extractor",
        help=(
            "What makes features of pictures: cnn (the default), gist, onnx:FILE or timm:NAME, "
            "with options as in cnn,size=160."
        ),
    ),
]
SplitName = Annotated[
    str | None,
    typer.Option(
        "--split", help="Part of a data set of pictures: train (the default), test or all."
    ),
]
Jobs = Annotated[int | None, typer.Option(help="Threads and processes; all cores by default.")]
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


def number_or_name(value: str) -> Any:
    """A number where the text is one, else the text, which the estimator knows or refuses."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


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
