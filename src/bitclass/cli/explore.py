"""`bitclass explore`: a page to look at a model with."""

from __future__ import annotations

import socket
import warnings
from pathlib import Path

from bitclass.cli.errors import UsageError
from bitclass.cli.pictures import extractor_of_model
from bitclass.cli.progress import rows_progress
from bitclass.data.pictures import open_pictures
from bitclass.explore import Explorer, Gallery, PageServer, is_loopback
from bitclass.images import image_rows
from bitclass.storage import load

__all__ = ["run_explore"]


def run_explore(
    model_path: Path, folder: Path, *, split: str | None, host: str, port: int, jobs: int | None
) -> None:
    """Encode the pictures, and serve the page until an interrupt."""
    extractor = extractor_of_model(model_path)
    model = load(model_path)
    images = open_pictures(folder, split)
    _check_address(host, port)
    if not is_loopback(host):
        warnings.warn(
            f"--host {host}: everybody who can reach this machine can see the images and ask "
            "about others",
            stacklevel=1,
        )
    with rows_progress(len(images)) as progress:
        rows = image_rows(
            images, extractor, n_jobs=jobs, progress=lambda done: progress("encoding", done)
        )
    gallery = Gallery.of_rows(rows, model)
    explorer = Explorer(model, extractor, gallery)
    try:
        with PageServer(explorer, host, port) as server:
            skipped = len(images) - len(gallery)
            without = f" ({skipped:,} skipped)" if skipped else ""
            print(
                f"{len(gallery):,} images{without}, {len(model.classes):,} classes: open "
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
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(f"--host {host} --port {port}: cannot be listened on ({why})") from error
