"""`bitclass explore`: a web page for exploring an image model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitclass.cli.data import open_image_rows
from bitclass.cli.options import Jobs, Model
from bitclass.cli.serve import Host, Port, address, listen_on

__all__ = ["command"]


def command(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="Folder of images to search for similar ones.")],
    host: Host = "127.0.0.1",
    port: Port = 8765,
    jobs: Jobs = None,
) -> None:
    """Serve a web page that shows image codes, nearest classes and similar images."""
    from bitclass.serving import Gallery, ServedModel, Service, create_server
    from bitclass.storage import load

    packed = load(model)
    listener = listen_on(host, port, "see the images and query the model")
    rows = open_image_rows([folder], packed, n_jobs=jobs)
    served = ServedModel("model", packed, rows.extractor, Gallery.of_rows(rows, packed))
    skipped = f" ({len(rows.skipped):,} skipped)" if rows.skipped else ""
    message = (
        f"{rows.n_rows:,} images{skipped}, {len(packed.classes):,} classes: open the page at "
        f"{address(host, listener)}, stop with Ctrl-C"
    )
    app = Service([served], host=host)
    create_server(app, on_start=lambda: print(message, flush=True)).run(sockets=[listener])
