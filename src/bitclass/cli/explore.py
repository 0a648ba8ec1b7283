"""`bitclass explore`: a page that shows what a model of images does."""

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
    folder: Annotated[Path, typer.Argument(help="Folder of images to find similar ones in.")],
    host: Host = "127.0.0.1",
    port: Port = 8765,
    jobs: Jobs = None,
) -> None:
    """Serve a page that shows codes of images, and their nearest classes and images."""
    from bitclass.serving import Gallery, ServedModel, Service, create_server
    from bitclass.storage import load

    packed = load(model)
    listener = listen_on(host, port, "see the images and ask about others")
    rows = open_image_rows([folder], packed, n_jobs=jobs)
    served = ServedModel("model", packed, rows.extractor, Gallery.of_rows(rows, packed))
    skipped = f" ({len(rows.skipped):,} skipped)" if rows.skipped else ""
    told = (
        f"{rows.n_rows:,} images{skipped}, {len(packed.classes):,} classes: open the page at "
        f"{address(host, listener)}, stop with Ctrl-C"
    )
    app = Service([served], host=host)
    create_server(app, on_start=lambda: print(told, flush=True)).run(sockets=[listener])
