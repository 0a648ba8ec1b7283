"""`bitclass serve`: an HTTP service for models."""

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
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")
]


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL...", help="Model files; a name is by default that of the file."
        ),
    ],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Further name that clients use for this server; may be repeated."),
    ] = None,
    max_body: Annotated[
        float, typer.Option(min=0.001, max=4096, help="Largest body of a request, in MB.")
    ] = 20,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Most rows, texts or images per request.")
    ] = 10_000,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Most connections at the same time.")
    ] = 256,
    workers: Annotated[
        int, typer.Option(min=1, max=1000, help="Processes, which share the models.")
    ] = 1,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", help="Threads per process; the cores by default, shared out."),
    ] = None,
) -> None:
    """Serve models over HTTP: Open Inference Protocol, plain JSON, metrics and a page.

    SIGTERM or Ctrl-C stops it after all accepted requests are answered. With --workers, each
    process has its own connections, up to --max-connections, and one that dies is replaced.
    """
    from bitclass._native import set_num_threads
    from bitclass._native.threads import effective_threads
    from bitclass.serving import Metrics, Service, create_server, fork_workers

    if workers > 1 and not hasattr(os, "fork"):
        raise UsageError("--workers: this system has no fork; start several services instead")
    if jobs is not None:
        set_num_threads(jobs)
    elif workers > 1:
        set_num_threads(max(1, effective_threads() // workers))
    plain = [_loaded(given) for given in models]
    names = [each.name for each in plain]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name}: two models have this name; write NAME=MODEL")
    listener = listen_on(host, port, "use the models")
    title = f"serving {', '.join(names)} at {address(host, listener)}, stop with Ctrl-C"
    metrics = Metrics(names, workers)
    index = 0
    tell_started: Callable[[], None] = partial(print, title, flush=True)
    if workers > 1:
        index, tell_started = fork_workers(workers, listener, title)
    metrics.use(index)
    # After the fork: the threads of other libraries do not survive it.
    served = [each.with_extractor() for each in plain]
    app = Service(
        served,
        max_body_bytes=int(max_body * 1e6),
        max_rows=max_rows,
        host=host,
        allowed_hosts=allow_host or (),
        metrics=metrics,
    )
    server = create_server(app, max_connections=max_connections, on_start=tell_started)
    server.run(sockets=[listener])


def _loaded(given: str) -> ServedModel:
    """A model from an argument, [NAME=]MODEL, that takes rows alone."""
    from bitclass.serving import ServedModel
    from bitclass.storage import load

    name, equals, path = given.rpartition("=")
    model = load(Path(path))
    try:
        return ServedModel(name if equals else Path(path).stem, model)
    except ValueError as error:
        raise UsageError(f"{given}: {error}; write NAME=MODEL to give one") from error


def listen_on(host: str, port: int, what: str) -> socket.socket:
    """Open a socket before any work, and warn if everybody who reaches it can do `what`."""
    from bitclass.serving import is_loopback, listen

    try:
        listener = listen(host, port)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(f"--host {host} --port {port}: cannot listen there ({reason})") from error
    if not is_loopback(host):
        warnings.warn(
            f"--host {host}: everybody who can reach this machine can {what}", stacklevel=1
        )
    return listener


def address(host: str, listener: socket.socket) -> str:
    """The URL of a socket."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"
