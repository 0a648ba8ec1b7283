"""The uvicorn server: one process, or several that share the models."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from multiprocessing.connection import wait

import uvicorn
from prometheus_client import values

from bitclass._native import set_num_threads
from bitclass._native.threads import effective_threads
from bitclass.serving.app import Service
from bitclass.serving.models import ModelFiles
from bitclass.serving.settings import Limits, Settings

__all__ = ["configuration", "listen", "serve"]


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Parameters
    ----------
    host : str
        Name or address.
    port : int
        Port number; 0 for any free port.

    Raises
    ------
    OSError
        If the socket cannot be opened.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def serve(settings: Settings, listener: socket.socket, title: str) -> None:
    """Serve models until SIGINT or SIGTERM, then answer open requests and stop.

    Parameters
    ----------
    settings : Settings
    listener : socket
    title : str
        Printed when the models are loaded.

    Raises
    ------
    OSError, ValueError
        If a model cannot be loaded.
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            # M_MMAP_THRESHOLD: glibc would keep the freed buffers of large requests.
            ctypes.CDLL(None).mallopt(-3, 1 << 18)
    models = ModelFiles(settings)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises the signal again when it has stopped, which would look like a failure.
        signal.signal(number, lambda *_: sys.exit(0))
    print(title, flush=True)
    if settings.workers == 1:
        _run(settings, models, listener)
        return
    with tempfile.TemporaryDirectory(prefix="bitclass-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # where processes add up their metrics
        # As the library itself does when it is imported, which was before.
        values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
        _supervise(settings, models, listener)


def _supervise(settings: Settings, models: ModelFiles, listener: socket.socket) -> None:
    """Fork workers, which share the models that are loaded, and replace those that end."""
    # Not uvicorn's supervisor: its workers are new interpreters, and load everything again.
    context = multiprocessing.get_context("fork")
    workers: list[multiprocessing.process.BaseProcess] = []
    try:
        while True:
            while len(workers) < settings.workers:
                arguments = (settings, models, listener, os.getpid())
                workers.append(context.Process(target=_run, args=arguments))
                workers[-1].start()
            wait([worker.sentinel for worker in workers])
            workers = [worker for worker in workers if worker.is_alive()]
            time.sleep(0.1)  # workers that fail at once must not keep the machine busy
    finally:
        listener.close()  # so that new connections are refused
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def _run(
    settings: Settings, models: ModelFiles, listener: socket.socket, parent: int | None = None
) -> None:
    """Serve in this process until a signal arrives, or until the parent has died."""
    if parent is not None and any(served.extractor is not None for served in models.values()):
        models = ModelFiles(settings)  # the threads of a network do not survive a fork
    n_threads = settings.n_jobs
    if n_threads is None and settings.workers > 1:
        n_threads = max(1, effective_threads() // settings.workers)
    if n_threads is not None:
        set_num_threads(n_threads)
    app = Service(
        models,
        limits=settings.limits,
        host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        parent=parent,
    )
    uvicorn.Server(configuration(app, settings.limits)).run([listener])


def configuration(app: Service, limits: Limits) -> uvicorn.Config:
    """The configuration of uvicorn."""
    return uvicorn.Config(
        app,
        http="bitclass.serving.connections:Connection",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # uvicorn warns of every malformed request
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=limits.stop_seconds,
    )
