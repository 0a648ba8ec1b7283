"""Arguments and options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Data", "Features", "Format", "Id", "Json", "Labels", "Model", "Text", "Threads"]

Model = Annotated[Path, typer.Argument(help="Model file.")]
Data = Annotated[
    list[Path],
    typer.Argument(
        help="Files of one format (CSV, TSV, JSON lines, Parquet, Arrow, npy, npz, SVMlight), a "
        "folder of them, or a folder of images."
    ),
]
Features = Annotated[
    str | None,
    typer.Option(help="Feature array, or feature columns by name or pattern, as in a,b or f*."),
]
Labels = Annotated[
    str | None,
    typer.Option(help="Label column or array, or a file with one label per row, as in y.npy."),
]
Text = Annotated[str | None, typer.Option(help="Text column.")]
Id = Annotated[
    list[str] | None,
    typer.Option("--id", help="Column that is not a feature, such as a key; may be repeated."),
]
Format = Annotated[
    str | None,
    typer.Option(
        help="csv, jsonl, parquet, arrow, npy, npz, svmlight, or lines (one text per line); by "
        "default from the file extension."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads; all by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
