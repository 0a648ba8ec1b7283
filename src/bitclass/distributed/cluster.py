"""One fit's dealings with a cluster: finding it, giving it work, waiting without hanging."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import dask
import distributed
from dask.delayed import Delayed
from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
from distributed.comm import CommClosedError

from bitclass.distributed.errors import (
    ClusterError,
    PartitionError,
    PartitionMemoryError,
    SumsMoved,
)
from bitclass.distributed.obstacles import Obstacles, obstacles

__all__ = ["Run", "connected", "current_client"]

Found = TypeVar("Found")

# How long to wait for a scheduler to answer, and for a cluster without workers to have some.
_CONNECT_SECONDS = 10.0
_WORKER_SECONDS = 60.0
_POLL_SECONDS = 2.0
# What is raised only where the scheduler is gone, whoever raises it.
_LOST = (
    FutureCancelledError,
    FuturesCancelledError,
    concurrent.futures.CancelledError,
    ClosedClientError,
    CommClosedError,
)


def current_client() -> Client:
    """The client that Dask's own collections would use; an error where there is none."""
    try:
        client = distributed.default_client()
    except ValueError:
        raise ClusterError(
            "no Dask client: make one before, for example distributed.Client('tcp://HOST:8786') or "
            "distributed.Client(distributed.LocalCluster())"
        ) from None
    if client.asynchronous:
        raise ClusterError("the Dask client is asynchronous; make one with asynchronous=False")
    if client.status != "running":
        raise ClusterError(f"the Dask client of {_address(client)} is {client.status}")
    return client


@contextlib.contextmanager
def connected(where: str) -> Iterator[Client]:
    """A client of the cluster that a person names: ``tcp://HOST:PORT`` or ``local:WORKERS``.

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
        client = Client(where, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ClusterError(f"no Dask scheduler can be reached at {where}: {error}") from None
    with client:
        yield client


class Run:
    """The work of one fit, under keys of its own; what nobody asks for any more Dask lets go.

    Parameters
    ----------
    client : Client
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        #: Of the scheduler, for errors: a client that is closed no longer knows it.
        self.address = _address(client)
        self.present_workers()
        self.token = uuid.uuid4().hex[:12]

    @contextlib.contextmanager
    def minded(self) -> Iterator[None]:
        """Let go of all tasks where something fails, and tell of a lost scheduler as such.

        A traceback holds futures, and as long as it does the cluster would go on computing.
        """
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(Exception):
                self.let_go(set())
            if isinstance(error, SumsMoved):
                raise ClusterError(
                    f"workers of {self.address} came and went too fast to learn on them: {error}"
                ) from error
            if self._tells_of_loss(error):
                raise self._lost() from error
            raise

    def key(self, what: str, *numbers: int) -> str:
        """A key on the cluster that is this run's alone."""
        return "-".join([f"bitclass_{what}", self.token, *map(str, numbers)])

    def start(self, task: Delayed, home: str | None = None) -> Future:
        """Begin a task, on the worker `home` if that is still there."""
        where = {} if home is None else {"workers": [home], "allow_other_workers": True}
        # What a lane begins with may be some tens of megabytes, which is meant.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            return self.client.compute(task, **where)

    def let_go(self, keys: set[str]) -> None:
        """Give up all tasks of this run but those of some keys.

        A task that waits for a home that is gone may be held by a traceback for a while. As long
        as it is, whatever else needs the same partition waits with it.
        """
        own = [key for key in list(self.client.futures) if self.token in str(key)]
        self.client.cancel([Future(key, self.client) for key in own if key not in keys])

    def workers(self) -> dict[str, Any]:
        """Workers by address."""
        # What is known of a cluster that was lost is empty, or old. A client whose connection
        # broke, as it may where all workers die at once, makes another by itself.
        self._wait_for_connection()
        found: dict[str, Any] = self.client.scheduler_info(n_workers=-1).get("workers") or {}
        self._wait_for_connection()
        return found

    def present_workers(self) -> dict[str, Any]:
        """Workers by address, at least one: it is waited for where all are gone."""
        while not (found := self.workers()):
            self._wait_for_workers()
        return found

    def done(self, futures: Sequence[Future], name: Callable[[Future], str]) -> list[Future]:
        """Those of some futures that are finished, once at least one is.

        Parameters
        ----------
        futures : of which none has been seen finished
        name : says what a future is about, for errors

        Raises
        ------
        ClusterError
            If the cluster is gone, or without workers for a minute.
        """

        def ask() -> set[Future] | None:
            try:
                finished: set[Future] = distributed.wait(
                    futures, timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED"
                ).done
            except (TimeoutError, distributed.TimeoutError):
                return None
            return finished or None

        finished = self._waited(ask, name(futures[0]))
        # In their order: where a step of a lane fails, those after it fail with it.
        ordered = [future for future in futures if future in finished]
        for future in ordered:
            self._check(future, name)
        return ordered

    def result(self, future: Future, what: str) -> Any:
        """The result of one future; `what` it is about."""
        return self.results([future], lambda _: what)[0]

    def results(
        self,
        futures: Sequence[Future],
        name: Callable[[Future], str],
        tell: Callable[[Future], None] | None = None,
    ) -> list[Any]:
        """Results of several futures, in order."""
        waiting = list(futures)
        found: dict[str, Any] = {}
        while waiting:
            finished = self.done(waiting, name)
            for future, value in zip(finished, self._gathered(finished, name), strict=True):
                found[future.key] = value
                if tell is not None:
                    tell(future)
            waiting = [future for future in waiting if future.key not in found]
        return [found[future.key] for future in futures]

    def _gathered(self, futures: Sequence[Future], name: Callable[[Future], str]) -> list[Any]:
        """Results of finished futures; those whose holder died meanwhile are computed anew."""
        gathering = asyncio.run_coroutine_threadsafe(
            self.client.gather(list(futures), asynchronous=True), self.client.loop.asyncio_loop
        )

        def ask() -> list[Any] | None:
            try:
                return list(gathering.result(_POLL_SECONDS))
            except TimeoutError:
                if gathering.done():  # a task raised it
                    raise
                return None

        try:
            return self._waited(ask, name(futures[0]))
        except Exception:
            for future in futures:
                self._check(future, name)
            raise
        finally:
            gathering.cancel()

    def _waited(self, ask: Callable[[], Found | None], what: str) -> Found:
        """Ask until there is an answer, as long as one can come.

        Parameters
        ----------
        ask : waits a little and gives None where there is no answer yet
        what : it is about, for errors
        """
        stuck_since = None
        n_stranded = 0
        while True:
            try:
                found = ask()
            except _LOST:
                raise self._lost() from None
            if found is not None:
                return found
            try:
                workers = self.workers()
                in_the_way = self.client.run_on_scheduler(obstacles, self.token)
            except ImportError:  # the scheduler does without this package, and cannot tell
                in_the_way = Obstacles(stranded=False, paused=())
            except (OSError, RuntimeError, *_LOST):  # whatever a closed connection shows as
                raise self._lost() from None
            stuck_since = self._check_moving(stuck_since, workers, in_the_way.paused, what)
            n_stranded = n_stranded + 1 if in_the_way.stranded else 0
            if n_stranded == 2:
                raise SumsMoved("tasks wait for workers that are gone")

    def _check(self, future: Future, name: Callable[[Future], str]) -> None:
        if future.status == "cancelled":
            raise self._lost()
        if future.status != "error":
            return
        error = future.exception()
        if isinstance(error, KilledWorker):
            limit = getattr(error.last_worker, "memory_limit", 0)
            of_limit = f" of {limit / 1e9:.2f} GB" if limit else ""
            raise PartitionMemoryError(
                f"{name(future)}: {error.allowed_failures + 1} workers died at it, the last at "
                f"{error.last_worker.address}; most likely it does not fit into the memory"
                f"{of_limit} of a worker: make partitions smaller or give workers more memory"
            ) from None
        if isinstance(error, MemoryError) and not isinstance(error, PartitionMemoryError):
            raise PartitionMemoryError(
                f"{name(future)}: no memory for it on its worker ({error}); make partitions "
                "smaller or give workers more memory"
            ) from error
        if not isinstance(error, PartitionError | PartitionMemoryError | SumsMoved):
            error.add_note(f"This was met at {name(future)}.")
        raise error.with_traceback(future.traceback())

    def _check_moving(
        self,
        stuck_since: float | None,
        workers: dict[str, Any],
        paused: Sequence[str],
        what: str,
    ) -> float | None:
        """Since when nothing of this run could go on somewhere; an error if that is too long.

        Parameters
        ----------
        workers : by address
        paused : those of them that hold up this run
        """
        n_running = sum(one.get("status", "running") == "running" for one in workers.values())
        if n_running and not paused:
            return None
        now = time.monotonic()
        stuck_since = now if stuck_since is None else stuck_since
        if now - stuck_since > _WORKER_SECONDS:
            if not workers:
                raise ClusterError(f"{self.address} has lost all its workers")
            which = (
                f"worker {paused[0]} of {self.address} has"
                if n_running
                else f"all {len(workers)} workers of {self.address} have"
            )
            raise PartitionMemoryError(
                f"{what}: {which} been paused for {_WORKER_SECONDS:.0f} s for want of memory; make "
                "partitions smaller or give workers more memory"
            )
        return stuck_since

    def _wait_for_connection(self) -> None:
        until = time.monotonic() + _CONNECT_SECONDS
        while self.client.status == "connecting" and time.monotonic() < until:
            time.sleep(0.05)
        if self.client.status != "running":
            raise self._lost()

    def _wait_for_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        except (TimeoutError, distributed.TimeoutError):
            raise ClusterError(
                f"{self.address} has no workers, after {_WORKER_SECONDS:.0f} s"
            ) from None

    def _tells_of_loss(self, error: BaseException) -> bool:
        if isinstance(error, ClusterError):
            return False
        # A closed connection also shows as an error of any kind of the client's inner parts; but
        # an OSError may be that of a file, which a worker did not find.
        return isinstance(error, _LOST) or (
            isinstance(error, OSError | RuntimeError | KeyError) and self.client.status != "running"
        )

    def _lost(self) -> ClusterError:
        return ClusterError(f"the Dask scheduler at {self.address} was lost")


def _address(client: Client) -> str:
    scheduler = client.scheduler
    return str(scheduler.address if scheduler is not None else "a closed cluster")
