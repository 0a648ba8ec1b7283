"""`bitclass export`: export a model to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitclass.cli import options
from bitclass.cli.console import format_size, print_lines
from bitclass.cli.data import check_outputs
from bitclass.cli.errors import UsageError
from bitclass.storage import load

__all__ = ["command"]


def command(
    model: options.Model,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File to write; by default MODEL with the extension .onnx."
        ),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Number of classes per row.")] = 1,
) -> None:
    """Export a model to ONNX.

    The graph uses only standard operators. It takes X (n, features) in float32 and returns label
    (n), top_labels, top_distances and top_probabilities (n, top). It starts from features: the
    network of an image model and the n-grams or embeddings of a text model are not part of it.
    """
    written = model.with_suffix(".onnx") if out is None else out
    check_outputs({"--out": written}, [model])
    packed = load(model)
    if top > len(packed.classes):
        raise UsageError(f"--top {top}: the model has only {len(packed.classes)} classes")
    packed.to_onnx(written, k=top)
    print_lines(f"wrote {written}, {format_size(written.stat().st_size)}")
    extractor = packed.summary.get("extractor")
    if isinstance(extractor, dict):
        print_lines(
            f"note: X is the output of the extractor {extractor.get('kind')}, which is not part "
            f"of the graph: {packed.n_features} features per row"
        )
