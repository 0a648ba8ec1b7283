"""Clusters of real processes on this machine, and problems to learn on them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, Status

from bitclass import BinaryCodeClassifier
from bitclass.distributed import DaskBinaryCodeClassifier

#: Learned from sums alone: the model is that of `partial_fit`.
HINGE = {"n_bits": 64, "loss": "hinge", "refine": False, "random_state": 3}
#: Leaves most rows with codes of their own, so that there is a second pass.
CLIPPED = {
    "n_bits": 48,
    "loss": "crammer_singer",
    "initial_codes": "projection",
    "refine": False,
    "random_state": 3,
}
PATIENCE = 120.0
#: No dashboard, and the scheduler's pages at a port that is free.
QUIET = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}


@contextmanager
def cluster(n_workers=2, **options):
    """A client of a new cluster of worker processes with one thread each."""
    settings = {"threads_per_worker": 1, "host": "127.0.0.1"} | QUIET
    with (
        LocalCluster(n_workers=n_workers, **(settings | {"silence_logs": 50} | options)) as local,
        Client(local, timeout=PATIENCE) as client,
    ):
        client.wait_for_workers(n_workers, timeout=PATIENCE)
        yield client


@contextmanager
def mortal_cluster():
    """A cluster whose workers are killed; more of them may die at a task than Dask allows."""
    settings = {
        "distributed.scheduler.allowed-failures": 20,
        # After this time a local cluster closes nannies whose worker died, though it is back.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with dask.config.set(settings), cluster() as client:
        yield client


def problem(n=3000, d=24, n_classes=7, seed=0):
    """Rows around a centre for each class: X (n, d) float32, y (n,)."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_classes, d))
    y = rng.integers(0, n_classes, size=n)
    return (centres[y] + rng.standard_normal((n, d))).astype(np.float32), y


def lazy(X, y, rows):
    """Dask arrays in partitions of so many rows."""
    return da.from_array(X, chunks=(rows, X.shape[1])), da.from_array(y, chunks=rows)


def slow_rows(X, y, rows):
    """Partitions that take a little while to load, so that a kill comes in the middle."""

    def slowly(block):
        time.sleep(0.02)
        return block

    X, y = lazy(X, y, rows)
    return X.map_blocks(slowly, dtype=X.dtype, meta=np.empty((0, 0), X.dtype)), y


def by_partial_fit(parameters, X, y, rows):
    """What one machine learns that begins with all rows and then gets partition by partition."""
    local = BinaryCodeClassifier(**parameters).begin(X, y)
    for start in range(0, len(y), rows):
        local.partial_fit(X[start : start + rows], y[start : start + rows])
    return local.solve(lambda: iter([(0, X, y, None)]))


def assert_same_model(found, expected):
    """The same weights to the bit, the same projection but for the rounding of float32."""
    np.testing.assert_array_equal(found.classes_, expected.classes_)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    size = np.abs(expected.projection_).max()
    error = np.abs(found.projection_ - expected.projection_).max()
    assert error <= 4 * np.finfo(np.float32).eps * size
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=0, atol=1e-5)


def fitted(parameters, *rows, progress=lambda name, done, total: None):
    return DaskBinaryCodeClassifier(**parameters).fit_with(*rows, progress=progress)


def kill_a_worker(client, chosen):
    """End one of the worker processes at once; its nanny will start another."""
    process_of = client.run(os.getpid, on_error="ignore")
    process = sorted(process_of.items())[chosen % len(process_of)][1]
    os.kill(process, signal.SIGKILL)


def all_running(client, n_workers):
    """Wait for workers that were killed to be back: a nanny minds its worker once it runs."""

    def running():
        nannies = list(client.cluster.workers.values())
        return (
            len(client.scheduler_info(n_workers=-1)["workers"]) == len(nannies) == n_workers
            and all(nanny.status is Status.running for nanny in nannies)
            and all(nanny.process.status is Status.running for nanny in nannies)
        )

    until(running, f"{n_workers} workers")


def until(holds, what):
    """Wait for something that must come about."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE:.0f} s"
        time.sleep(0.1)
