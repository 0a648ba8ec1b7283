"""The uvicorn server: one process, or several that share the models."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import wait

import uvicorn
from prometheus_client import values

from bitclass._native import set_num_threads
from bitclass._native.threads import effective_threads
from bitclass.serving.app import Service
from bitclass.serving.limits import Limits
from bitclass.serving.models import ModelFiles


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket at a name or address; port 0 is any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def serve(
    paths: Mapping[str, str],
    listener: socket.socket,
    title: str,
    *,
    hosts: Sequence[str] = (),
    allow_external: bool = False,
    workers: int = 1,
    n_jobs: int | None = None,
    limits: Limits | None = None,
) -> None:
    """Serve models until SIGINT or SIGTERM, then answer open requests and stop.

    Parameters
    ----------
    paths : mapping of str to str
        Paths of the model files by name; the first is the default model.
    listener : socket
    title : str
        Printed when the models are loaded.
    hosts, allow_external : see `Service` and `load_model`
    workers : int
        Number of processes.
    n_jobs : int, optional
        Threads per process; by default all cores, divided evenly.
    limits : Limits, optional
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):
            # M_MMAP_THRESHOLD: glibc would keep the freed buffers of large requests.
            ctypes.CDLL(None).mallopt(-3, 1 << 17)
    models = ModelFiles(paths, allow_external=allow_external)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises the signal again when it has stopped, which would look like a failure.
        signal.signal(number, lambda *_: sys.exit(0))
    if n_jobs is None and workers > 1:
        n_jobs = max(1, effective_threads() // workers)
    if n_jobs is not None:
        set_num_threads(n_jobs)
    run = partial(_run, models, listener, hosts, limits or Limits())
    print(title, flush=True)
    if workers == 1:
        run()
        return
    with tempfile.TemporaryDirectory(prefix="bitclass-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # where processes add up their metrics
        # As the library itself does when it is imported, which was before.
        values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
        _supervise(partial(run, os.getpid()), workers, listener)


def _supervise(run: Callable[[], None], n_workers: int, listener: socket.socket) -> None:
    """Fork workers, which share the models that are loaded, and replace those that end."""
    # Not uvicorn's supervisor: its workers are new interpreters, and load everything again.
    context = multiprocessing.get_context("fork")
    workers: list[multiprocessing.process.BaseProcess] = []
    try:
        while True:
            while len(workers) < n_workers:
                workers.append(context.Process(target=run))
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
    models: ModelFiles,
    listener: socket.socket,
    hosts: Sequence[str],
    limits: Limits,
    parent: int | None = None,
) -> None:
    """Serve in this process until a signal arrives, or until the parent has died."""
    if parent is not None and any(served.extractor is not None for served in models.values()):
        models = models.loaded_again()  # the threads of a network do not survive a fork
    app = Service(models, limits=limits, hosts=hosts, parent=parent)
    uvicorn.Server(configuration(app, limits)).run([listener])


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
