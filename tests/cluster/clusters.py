"""Local clusters of real processes, and training problems."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from bitclass import BinaryCodeClassifier
from bitclass.dask import DaskBinaryCodeClassifier

#: Learned from sums alone.
PARAMETERS = {"n_bits": 64, "refine": False, "random_state": 3}
PATIENCE = 120.0
#: No dashboard, and the scheduler's pages at a free port.
QUIET = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}


@contextmanager
def cluster(n_workers=2, **options):
    """A client of a new cluster of worker processes with one thread each."""
    settings = {"threads_per_worker": 1, "host": "127.0.0.1", "silence_logs": 50} | QUIET
    with (
        LocalCluster(n_workers=n_workers, **(settings | options)) as local,
        Client(local, timeout=PATIENCE) as client,
    ):
        client.wait_for_workers(n_workers, timeout=PATIENCE)
        yield client


def problem(n=3000, d=24, n_classes=7, seed=0):
    """Rows around one centre per class: X (n, d) float32, y (n,)."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_classes, d))
    y = rng.integers(0, n_classes, size=n)
    return (centres[y] + rng.standard_normal((n, d))).astype(np.float32), y


def lazy(X, y, rows):
    """Dask arrays in partitions of `rows` rows."""
    return da.from_array(X, chunks=(rows, X.shape[1])), da.from_array(y, chunks=rows)


def slow_rows(X, y, rows, seconds=0.05, log=None):
    """Partitions that are slow to load, so that faults can happen in between.

    The file `log` gets one byte whenever a partition is loaded.
    """

    def slowly(block):
        if log is not None and len(block):
            with open(log, "ab") as file:
                file.write(b"*")
        time.sleep(seconds)
        return block

    X, y = lazy(X, y, rows)
    return X.map_blocks(slowly, dtype=X.dtype, meta=np.empty((0, 0), X.dtype)), y


@contextmanager
def acting(log, n_loaded, action):
    """Act once in a thread, as soon as this many partitions have been loaded."""
    done, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            if log.exists() and log.stat().st_size >= n_loaded:
                done.append(n_loaded)
                action()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def blocks(parts, *shape):
    """A Dask array of these blocks, which may be of another shape or kind than they claim."""
    found = [da.from_delayed(dask.delayed(part), shape, dtype=float) for part in parts]
    return da.concatenate(found)


def on_one_machine(parameters, *rows):
    """Model trained in memory."""
    return BinaryCodeClassifier(**parameters).fit(*rows)


def assert_same_model(found, expected):
    """Assert equal weights, and equal projections except for rounding."""
    np.testing.assert_array_equal(found.classes_, expected.classes_)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    size = np.abs(expected.projection_).max()
    np.testing.assert_allclose(found.projection_, expected.projection_, atol=1e-5 * size)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-5)


def fitted(parameters, *rows):
    return DaskBinaryCodeClassifier(**parameters).fit(*rows)


def kill_workers(client, n_workers=1):
    """Kill worker processes; their nannies start new ones."""
    processes = sorted(client.run(os.getpid, on_error="ignore").values())
    for process in processes[:n_workers]:
        os.kill(process, signal.SIGKILL)


def until(holds, what):
    """Wait until a condition is true."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE:.0f} s"
        time.sleep(0.1)
