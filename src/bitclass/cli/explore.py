"""`bitclass explore`: a page that shows what a model of images does."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass._native import effective_threads, thread_limit
from bitclass.cli.data import recorded_extractor
from bitclass.cli.errors import UsageError
from bitclass.cli.options import Jobs, Model
from bitclass.cli.progress import progress_of_passes
from bitclass.data.pictures import PictureSet, open_pictures
from bitclass.explore import Explorer, Gallery, PageServer, is_loopback
from bitclass.images import Extractor, extract_features
from bitclass.images.decoder import Decoder
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
    extractor = recorded_extractor(packed)
    images = open_pictures(folder, follow_links=False)
    _check_address(host, port)
    if not is_loopback(host):
        warnings.warn(
            f"--host {host}: everybody who can reach this machine can see the images and ask "
            "about others",
            stacklevel=1,
        )
    with thread_limit(jobs):
        try:
            gallery = Gallery.of_features(images, packed, _features(images, extractor, jobs))
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        decoder = Decoder(effective_threads(jobs))
        explorer = Explorer(packed, extractor, gallery, decoder)
        try:
            with PageServer(explorer, host, port) as server:
                n_skipped = len(images) - len(gallery)
                skipped = f" ({n_skipped:,} skipped)" if n_skipped else ""
                print(
                    f"{len(gallery):,} images{skipped}, {len(packed.classes):,} classes: open "
                    f"{server.url} in a browser, stop with Ctrl-C",
                    flush=True,
                )
                server.serve_forever()
        except KeyboardInterrupt:
            pass  # the way to stop it
        finally:
            decoder.close()


def _check_address(host: str, port: int) -> None:
    """Find out before the work whether the page can be served there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(f"--host {host} --port {port}: cannot listen there ({reason})") from error


def _features(
    images: PictureSet, extractor: Extractor, jobs: int | None
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
    """Features of the images, with their progress."""
    with progress_of_passes() as progress:
        for rows, features in extract_features(images, extractor, n_jobs=jobs):
            yield rows, features
            if len(rows):
                progress("encoding", int(rows[-1]) + 1, len(images))
