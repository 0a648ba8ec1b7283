"""`bitclass serve`: serve models over HTTP."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bitclass.cli.errors import UsageError

if TYPE_CHECKING:
    from bitclass.serving import ServedModel

__all__ = ["Host", "Port", "address", "command", "listen_on"]

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")
]


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL...", help="Model files; NAME defaults to the file name."
        ),
    ],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Additional host name that clients may use; may be repeated."),
    ] = None,
    max_body: Annotated[
        float, typer.Option(min=0.001, max=4096, help="Maximum size of a request body, in MB.")
    ] = 20,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Maximum number of rows, texts or images per request.")
    ] = 10_000,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Maximum number of connections per process.")
    ] = 256,
    workers: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of processes; they share the models.")
    ] = 1,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", help="Threads per process; by default all cores, divided evenly."),
    ] = None,
) -> None:
    """Serve models over HTTP: Open Inference Protocol, plain JSON, metrics and a web page.

    SIGTERM or Ctrl-C stops the server after all accepted requests have been answered. With
    --workers, a process that dies is replaced.
    """
    from bitclass._native import set_num_threads
    from bitclass._native.threads import effective_threads
    from bitclass.serving import Metrics, Service, create_server, fork_workers

    if workers > 1 and not hasattr(os, "fork"):
        raise UsageError("--workers: this system has no fork; start several servers instead")
    if jobs is not None:
        set_num_threads(jobs)
    elif workers > 1:
        set_num_threads(max(1, effective_threads() // workers))
    loaded = [_load(argument) for argument in models]
    names = [model.name for model in loaded]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name}: two models have this name; use NAME=MODEL")
    listener = listen_on(host, port, "use the models")
    title = f"serving {', '.join(names)} at {address(host, listener)}, stop with Ctrl-C"
    metrics = Metrics(names, workers)
    index = 0
    on_start: Callable[[], None] = partial(print, title, flush=True)
    if workers > 1:
        index, on_start = fork_workers(workers, listener, title)
    metrics.use(index)
    # After the fork, which the threads of other libraries do not survive.
    served = [model.with_extractor() for model in loaded]
    app = Service(
        served,
        max_body_bytes=int(max_body * 1e6),
        max_rows=max_rows,
        host=host,
        allowed_hosts=allow_host or (),
        metrics=metrics,
    )
    server = create_server(app, max_connections=max_connections, on_start=on_start)
    server.run(sockets=[listener])


def _load(argument: str) -> ServedModel:
    """Load a model from an argument [NAME=]MODEL, without its extractor."""
    from bitclass.serving import ServedModel
    from bitclass.storage import load

    name, equals, path = argument.rpartition("=")
    model = load(Path(path))
    try:
        return ServedModel(name if equals else Path(path).stem, model)
    except ValueError as error:
        raise UsageError(f"{argument}: {error}; set it with NAME=MODEL") from error


def listen_on(host: str, port: int, what: str) -> socket.socket:
    """Open a listening socket, and warn if other machines can reach it and do `what`."""
    from bitclass.serving import is_loopback, listen

    try:
        listener = listen(host, port)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(f"--host {host} --port {port}: cannot listen there ({reason})") from error
    if not is_loopback(host):
        warnings.warn(f"--host {host}: anyone who can reach this machine can {what}", stacklevel=1)
    return listener


def address(host: str, listener: socket.socket) -> str:
    """The URL of a socket."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"
