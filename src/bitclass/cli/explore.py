"""`bitclass explore`: a page that shows what a model of images does."""

from __future__ import annotations

import socket
import warnings
from pathlib import Path
from typing import Annotated

import typer

from bitclass.cli.data import extract_rows, extractor_of
from bitclass.cli.errors import UsageError
from bitclass.cli.options import Jobs, Model
from bitclass.explore import Explorer, Gallery, PageServer, is_loopback
from bitclass.images import open_images
from bitclass.storage import load

__all__ = ["command"]


def command(
    model: Model,
    folder: Annotated[Path, typer.Argument(help="Folder of images to find similar ones in.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")
    ] = 8765,
    jobs: Jobs = None,
) -> None:
    """Serve a page that shows codes of images, and their nearest classes and images."""
    packed = load(model)
    extractor = extractor_of(packed)
    images = open_images(folder)
    _check_address(host, port)
    if not is_loopback(host):
        warnings.warn(
            f"--host {host}: everybody who can reach this machine can see the images and ask "
            "about others",
            stacklevel=1,
        )
    rows = extract_rows(images, extractor, None, jobs)
    explorer = Explorer(packed, extractor, Gallery.of_rows(rows, packed))
    try:
        with PageServer(explorer, host, port) as server:
            skipped = f" ({len(rows.skipped):,} skipped)" if rows.skipped else ""
            print(
                f"{rows.n_rows:,} images{skipped}, {len(packed.classes):,} classes: open "
                f"{server.url} in a browser, stop with Ctrl-C",
                flush=True,
            )
            server.serve_forever()
    except KeyboardInterrupt:
        pass  # the way to stop it


def _check_address(host: str, port: int) -> None:
    """Find out before the work whether the page can be served there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(f"--host {host} --port {port}: cannot listen there ({reason})") from error
