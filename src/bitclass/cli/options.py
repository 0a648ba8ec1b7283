"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Data",
    "Extractor",
    "Features",
    "FirstIndex",
    "Format",
    "Header",
    "Jobs",
    "Json",
    "Labels",
    "LabelsFile",
    "Model",
    "Plot",
    "ProjectionName",
    "Text",
]

ProjectionName = Literal["float32", "float16", "int8"]

Data = Annotated[
    list[Path],
    typer.Argument(help="Feature files of one format, a folder of them, or images."),
]
Model = Annotated[Path, typer.Argument(help="Model file.")]
Features = Annotated[
    str | None,
    typer.Option("--features", help="Array, column, or columns (a,b or f*) of the features."),
]
Labels = Annotated[str | None, typer.Option("--labels", help="Array or column of the labels.")]
Text = Annotated[
    str | None,
    typer.Option("--text", help="Column of texts, whose n-grams are the features."),
]
LabelsFile = Annotated[
    Path | None, typer.Option("--labels-file", help="File of the labels, one per row.")
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether text files start with a line of column names; detected by default.",
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="npy, npz, parquet, arrow, svmlight, matlab, hdf5, csv or jsonl; by default from the "
        "file extension.",
    ),
]
FirstIndex = Annotated[
    int | None,
    typer.Option(
        "--first-index",
        min=0,
        max=1,
        help="Index of the first feature in SVMlight files; by default 0 if it occurs, else 1.",
        show_default=False,
    ),
]
Extractor = Annotated[
    str | None,
    typer.Option(
        "--extractor",
        help="Feature extractor for images: cnn (the default) or onnx:FILE, "
        "with options as in cnn,size=160; for texts: model2vec:MODEL or "
        "sentence-transformers:MODEL.",
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw a figure to this file.")]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Threads; all cores by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
