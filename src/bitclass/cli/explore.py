"""`bitclass explore`: a page to look at a model with."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitclass._native import effective_threads
from bitclass.cli.errors import UsageError
from bitclass.cli.pictures import extractor_of_model
from bitclass.cli.progress import rows_progress
from bitclass.data.pictures import PictureSet, open_pictures
from bitclass.explore import Explorer, Gallery, PageServer, is_loopback
from bitclass.images import Extractor, extract_features
from bitclass.images.decoder import Decoder
from bitclass.storage import load

__all__ = ["run_explore"]


def run_explore(
    model_path: Path, folder: Path, *, split: str | None, host: str, port: int, jobs: int | None
) -> None:
    """Encode the pictures, and serve the page until an interrupt."""
    extractor = extractor_of_model(model_path)
    model = load(model_path)
    pictures = open_pictures(folder, split, follow_links=False)
    _check_address(host, port)
    if not is_loopback(host):
        warnings.warn(
            f"--host {host}: everybody who can reach this machine can see the pictures and ask "
            "about others",
            stacklevel=1,
        )
    try:
        gallery = Gallery.of_features(pictures, model, _features(pictures, extractor, jobs))
    except ValueError as error:
        raise UsageError(f"{folder}: {error}") from error
    decoder = Decoder(effective_threads(jobs))
    explorer = Explorer(model, extractor, gallery, decoder)
    try:
        with PageServer(explorer, host, port) as server:
            left_out = len(pictures) - len(gallery)
            without = f" ({left_out:,} left out)" if left_out else ""
            print(
                f"{len(gallery):,} pictures{without}, {len(model.classes):,} classes: open "
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
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(f"--host {host} --port {port}: cannot be listened on ({why})") from error


def _features(
    pictures: PictureSet, extractor: Extractor, jobs: int | None
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
    """Features of the pictures, with their progress."""
    with rows_progress(len(pictures)) as progress:
        for rows, features in extract_features(pictures, extractor, n_jobs=jobs):
            yield rows, features
            if len(rows):
                progress("encoding", int(rows[-1]) + 1)
