"""`bitclass export`: export a model to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitclass.cli import options
from bitclass.cli.console import format_size, print_lines
from bitclass.cli.data import check_outputs
from bitclass.storage import load

# As many as `serve` returns by default.
_TOP = 5


def command(
    model: options.Model,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File to write; by default MODEL with the extension .onnx."
        ),
    ] = None,
) -> None:
    """Export a model to ONNX.

    The graph uses only standard operators. It takes X (n, features) in float32 and returns label
    (n), and top_labels, top_distances and top_probabilities of the five best classes (n, 5). It
    starts from features: the network of an image model, or the embeddings of a text model, are not
    part of it.
    """
    written = model.with_suffix(".onnx") if out is None else out
    check_outputs({"--out": written}, [model])
    packed = load(model)
    packed.to_onnx(written, k=min(_TOP, len(packed.classes)))
    print_lines(f"wrote {written}, {format_size(written.stat().st_size)}")
