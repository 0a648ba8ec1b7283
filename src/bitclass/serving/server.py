"""The uvicorn server: one process, or several that uvicorn supervises."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile

import uvicorn
from uvicorn.supervisors import Multiprocess

from bitclass._native import set_num_threads
from bitclass._native.threads import effective_threads
from bitclass.serving.app import Service
from bitclass.serving.models import ModelFiles
from bitclass.serving.settings import Limits, Settings

__all__ = ["configuration", "create_app", "listen", "serve"]

# Variables from which the workers learn what to serve, and without whom to stop.
_SETTINGS, _PARENT = "BITCLASS_SERVE", "BITCLASS_SERVE_PARENT"


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
    models = ModelFiles(settings)  # also in the parent of workers, so that errors are reported once
    if settings.workers == 1:
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn raises the signal again when it has stopped, which would look like a failure.
            signal.signal(number, lambda *_: sys.exit(0))
        print(title, flush=True)
        app = _service(settings, models)
        uvicorn.Server(configuration(app, settings.limits)).run([listener])
        return
    del models
    config = configuration(
        f"{__name__}:create_app", settings.limits, factory=True, workers=settings.workers
    )
    with tempfile.TemporaryDirectory(prefix="bitclass-metrics-") as folder:
        # Inherited by the workers: prometheus_client adds up the metrics that it finds there.
        os.environ |= {"PROMETHEUS_MULTIPROC_DIR": folder, _SETTINGS: settings.to_json()}
        os.environ[_PARENT] = str(os.getpid())
        print(title, flush=True)
        Multiprocess(config, [listener]).run()


def create_app() -> Service:
    """The application of a worker, whose settings are in the environment."""
    settings = Settings.from_json(os.environ[_SETTINGS])
    try:
        return _service(settings, ModelFiles(settings), int(os.environ[_PARENT]))
    except (OSError, ValueError, ImportError) as error:
        # The files were valid when the parent started; it tries again.
        sys.exit(f"a worker cannot load the models: {error}")


def _service(settings: Settings, models: ModelFiles, parent: int | None = None) -> Service:
    n_threads = settings.n_jobs
    if n_threads is None and settings.workers > 1:
        n_threads = max(1, effective_threads() // settings.workers)
    if n_threads is not None:
        set_num_threads(n_threads)
    return Service(
        models,
        limits=settings.limits,
        host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        parent=parent,
    )


def configuration(
    app: Service | str, limits: Limits, *, factory: bool = False, workers: int = 1
) -> uvicorn.Config:
    """The configuration of uvicorn."""
    return uvicorn.Config(
        app,
        factory=factory,
        workers=workers,
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
        timeout_worker_healthcheck=10,  # also the time to notice that a worker has been killed
    )
