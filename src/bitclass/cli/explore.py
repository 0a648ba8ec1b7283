"""`bitclass explore`: a page that shows what a model of images does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitclass.cli.data import extract_rows, extractor_of
from bitclass.cli.options import Jobs, Model
from bitclass.cli.serve import Host, Port, listen_on, serve_until_stopped

__all__ = ["command"]


def command(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="Folder of images to find similar ones in.")],
    host: Host = "127.0.0.1",
    port: Port = 8765,
    jobs: Jobs = None,
) -> None:
    """Serve a page that shows codes of images, and their nearest classes and images."""
    from bitclass.images import open_images
    from bitclass.serving import Gallery, ServedModel
    from bitclass.storage import load

    packed = load(model)
    extractor = extractor_of(packed)
    images = open_images(folder)
    listener = listen_on(host, port, "see the images and ask about others")
    rows = extract_rows(images, extractor, None, jobs)
    served = ServedModel("model", packed, extractor, Gallery.of_rows(rows, packed))
    skipped = f" ({len(rows.skipped):,} skipped)" if rows.skipped else ""
    title = f"{rows.n_rows:,} images{skipped}, {len(packed.classes):,} classes: open the page"
    serve_until_stopped([served], listener, host, title)
