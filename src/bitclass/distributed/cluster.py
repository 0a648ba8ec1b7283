"""The cluster: finding it, waiting for its results, and errors that say where they happened."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import distributed
from distributed import Client, Future, KilledWorker

__all__ = [
    "ClusterError",
    "PartitionError",
    "connected",
    "current_client",
    "named_errors",
    "results",
    "worker_addresses",
    "worker_threads",
]

# How long to wait for a scheduler to answer, and for a cluster without running workers to get some.
CONNECT_SECONDS = 10.0
WORKER_SECONDS = 60.0
_POLL_SECONDS = 0.5


class PartitionError(ValueError):
    """A partition that cannot be used; the message starts with its number."""


class ClusterError(ConnectionError):
    """A cluster that cannot be reached, has no running workers, or lost them or its scheduler."""


@contextlib.contextmanager
def named_errors(partition: str) -> Iterator[None]:
    """Name the partition in any error of the block.

    Examples
    --------
    >>> with named_errors("partition 3"):
    ...     raise ValueError("found 2 features, expected 5")
    Traceback (most recent call last):
    ...
    bitclass.distributed.cluster.PartitionError: partition 3: found 2 features, expected 5
    """
    try:
        yield
    except PartitionError:
        raise
    except ValueError as error:
        raise PartitionError(f"{partition}: {error}") from error
    except Exception as error:
        raise PartitionError(f"{partition}: {type(error).__name__}: {error}") from error


def current_client() -> Client:
    """The client that Dask collections would use; an error where there is none."""
    try:
        client = distributed.default_client()
    except ValueError:
        raise ClusterError(
            "no Dask client: create one first, for example distributed.Client('tcp://HOST:8786') "
            "or distributed.Client(distributed.LocalCluster())"
        ) from None
    if client.asynchronous:
        raise ClusterError("the Dask client is asynchronous; create one with asynchronous=False")
    if client.status != "running":
        raise ClusterError(f"the Dask client is {client.status}")
    return client


@contextlib.contextmanager
def connected(where: str) -> Iterator[Client]:
    """A client of the named cluster, which is closed at the end of the block.

    Parameters
    ----------
    where : str
        ``tcp://HOST:PORT`` of a scheduler, or ``local:N`` for N new processes on this machine.

    Yields
    ------
    distributed.Client

    Examples
    --------
    >>> with connected("cluster 7"):
    ...     pass
    Traceback (most recent call last):
    ...
    ValueError: a Dask cluster is named tcp://HOST:PORT or local:WORKERS, found 'cluster 7'
    """
    kind, _, rest = where.partition(":")
    if kind == "local" and rest.isascii() and rest.isdigit() and int(rest) > 0:
        with (
            distributed.LocalCluster(
                n_workers=int(rest),
                host="127.0.0.1",
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    if "://" not in where or not rest.strip("/"):
        raise ValueError(
            f"a Dask cluster is named tcp://HOST:PORT or local:WORKERS, found {where!r}"
        )
    try:
        client = Client(where, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ClusterError(f"no Dask scheduler can be reached at {where}: {error}") from None
    with client:
        yield client


def worker_addresses(client: Client) -> list[str]:
    """Addresses of the workers, at least one: a cluster without any is waited for."""
    deadline = time.monotonic() + WORKER_SECONDS
    # The list itself is waited for: a worker that was there may be gone the next moment.
    while not (workers := sorted(client.scheduler_info(n_workers=-1)["workers"])):
        if time.monotonic() > deadline:
            raise ClusterError(f"the Dask cluster has no workers after {WORKER_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    return workers


def worker_threads(n_jobs: int | None) -> int:
    """Threads of a task: `n_jobs`, or as many as its worker has."""
    return n_jobs if n_jobs is not None else int(distributed.get_worker().state.nthreads)


def results(
    client: Client,
    futures: Sequence[Future],
    names: Sequence[str],
    report: Callable[[], None] | None = None,
) -> list[Any]:
    """Results of tasks, in order; if one fails all are cancelled."""
    try:
        _wait(client, futures, names, report)
        return list(client.gather(list(futures)))
    except BaseException as error:
        # The traceback holds futures, for which the cluster would go on computing.
        with contextlib.suppress(Exception):
            client.cancel(list(futures))
        # A lost connection shows as an error of any type.
        lost = isinstance(error, Exception) and client.status != "running"
        if lost or isinstance(error, distributed.CancelledError):
            raise ClusterError("the connection to the Dask scheduler was lost") from None
        raise


def _wait(
    client: Client,
    futures: Sequence[Future],
    names: Sequence[str],
    report: Callable[[], None] | None,
) -> None:
    last_running = time.monotonic()
    waiting = True
    while waiting:
        try:
            distributed.wait(list(futures), timeout=_POLL_SECONDS)
            waiting = False
        except (TimeoutError, distributed.TimeoutError):
            pass
        for future, name in zip(futures, names, strict=True):
            if future.status == "error":
                raise _named(future.exception(), name) from None
        if report is not None:
            report()
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        if any(worker.get("status", "running") == "running" for worker in workers):
            last_running = time.monotonic()
        elif time.monotonic() - last_running > WORKER_SECONDS:
            found = (
                "all workers are paused for lack of memory" if workers else "no workers are left"
            )
            raise ClusterError(
                f"{names[0]}: {found} for {WORKER_SECONDS:g} s; make partitions smaller or give "
                "workers more memory"
            )


def _named(error: BaseException, name: str) -> Exception:
    """The error of a task as the client raises it, without the traceback of the worker."""
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"{name}: {error.allowed_failures + 1} workers died at it, the last at "
            f"{error.last_worker.address}; most likely a partition does not fit into the memory "
            "of a worker: make partitions smaller or give workers more memory"
        )
    if isinstance(error, PartitionError):
        return PartitionError(str(error))
    found = PartitionError(f"{name}: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
