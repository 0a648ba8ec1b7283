"""Arguments and options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")]
Data = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="Files of one format (CSV, TSV, JSON lines, Parquet, Arrow, npy, npz, SVMlight), a "
        "folder of them, or a folder of images.",
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Feature array, or feature columns by name or pattern, as in a,b or f*; with !id, all "
        "but id.",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Label column or array, or a file with one label per row, as in y.npy."
    ),
]
Reject = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        min=0,
        max=1,
        help="Reject rows with a typicality below this share, as of no known class; by default "
        "the reject= of the model, which is set in Python.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
