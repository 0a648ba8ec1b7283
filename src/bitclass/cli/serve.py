"""`bitclass serve`: serve models over HTTP."""

from __future__ import annotations

import errno
import multiprocessing
import warnings
from pathlib import Path
from typing import Annotated

import typer

from bitclass.cli.errors import UsageError


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL...", help="Model files; NAME defaults to the file name."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")
    ] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Additional host name that clients may use; may be repeated."),
    ] = None,
    allow_external: Annotated[
        bool,
        typer.Option(
            help="Trust the model files: use networks and embeddings that they name, wherever "
            "these are, and download them if necessary."
        ),
    ] = False,
    max_body: Annotated[
        float, typer.Option(min=0.001, max=4096, help="Maximum size of a request body, in MB.")
    ] = 10,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Maximum number of rows or texts per request.")
    ] = 10_000,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Maximum number of connections per process.")
    ] = 256,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Number of processes.")] = 1,
) -> None:
    """Serve models over HTTP: Open Inference Protocol, plain JSON, metrics and a web page.

    A model file that changes is loaded again. SIGTERM or Ctrl-C stops the server after open
    requests have been answered.
    """
    from bitclass.serving import Limits, ServedModel, is_loopback, listen, serve

    if workers > 1 and "fork" not in multiprocessing.get_all_start_methods():
        raise UsageError("--workers: this system cannot fork processes; leave it at 1")
    named = [_named(argument) for argument in models]
    names = [name for name, _ in named]
    for argument, name in zip(models, names, strict=True):
        if names.count(name) > 1:
            raise UsageError(f"{name}: two models have this name; use NAME=MODEL")
        try:
            ServedModel.check_name(name)
        except ValueError as error:
            raise UsageError(f"{argument}: {error}; set it with NAME=MODEL") from error
    try:
        listener = listen(host, port)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        advice = "; take another --port, or 0 for any" if error.errno == errno.EADDRINUSE else ""
        raise UsageError(
            f"--host {host} --port {port}: cannot listen there ({reason}){advice}"
        ) from error
    if not is_loopback(host):
        warnings.warn(
            f"--host {host}: anyone who can reach this machine can use the models", stacklevel=1
        )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/"
    body_bytes = int(max_body * 1e6)
    serve(
        dict(named),
        listener,
        f"serving {', '.join(names)} at {address}, stop with Ctrl-C",
        hosts=[host, *(allow_host or ())],
        allow_external=allow_external,
        workers=workers,
        limits=Limits(
            body_bytes=body_bytes,
            held_bytes=3 * body_bytes // 2,
            rows=max_rows,
            connections=max_connections,
        ),
    )


def _named(argument: str) -> tuple[str, str]:
    """Name and path of an argument [NAME=]MODEL; both may contain "=" if the file exists."""
    name, equals, path = argument.partition("=")
    if not equals or Path(argument).exists():
        return Path(argument).stem, argument
    return name, path
