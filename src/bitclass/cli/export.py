"""`bitclass export`: export a model to another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bitclass.cli.console import format_size, print_lines
from bitclass.cli.data import check_outputs
from bitclass.cli.errors import UsageError
from bitclass.cli.options import Model
from bitclass.storage import load

__all__ = ["command"]


def command(
    model: Model,
    to: Annotated[Literal["onnx"], typer.Option("--to", help="Format.")] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File to write; by default MODEL with the extension .onnx."),
    ] = None,
    k: Annotated[int, typer.Option("--top", min=1, help="Number of classes per row.")] = 1,
) -> None:
    """Export a model to ONNX.

    The graph uses only standard operators. It takes X (n, features) in float32 and returns label
    (n), top_labels, top_distances and top_probabilities (n, top), and typicality (n) if the model
    has it. A network that computes the features of images or texts is not in the graph.
    """
    written = model.with_suffix(f".{to}") if out is None else out
    check_outputs({"--out": written}, [model])
    packed = load(model)
    if k > len(packed.classes):
        raise UsageError(f"--top must be at most the number of classes, {len(packed.classes)}")
    packed.to_onnx(written, k=k)
    print_lines(f"wrote {written}, {format_size(written.stat().st_size)}")
