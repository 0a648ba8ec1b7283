"""Training on a local Dask cluster: overhead, traffic, and killed workers.

python benchmarks/cluster.py [--part overhead|traffic|kills] [--rows 400000] ...
A run of all parts writes `results/cluster.md`.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from bitclass import BinaryCodeClassifier
from bitclass.dask import DaskBinaryCodeClassifier
from harness import seconds_of, threads_of_all, write_page

PARAMETERS: dict[str, Any] = {"n_bits": 128, "random_state": 0}


@contextmanager
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.CRITICAL,
            memory_limit=0,
        ) as local,
        Client(local) as client,
    ):
        yield client


def make_rows(n: int, d: int, n_classes: int, n_partitions: int) -> tuple[da.Array, da.Array]:
    """Rows around one centre per class, generated on the workers, and their labels."""
    chunks = da.core.normalize_chunks((-(-n // n_partitions),), (n,))[0]
    meta: Any = np.empty((0, 0), np.float32)

    def features(block_info: Any = None) -> Any:
        start, stop = block_info[None]["array-location"][0]
        y = np.arange(start, stop) % n_classes
        centres = np.random.default_rng(1).standard_normal((n_classes, d), dtype=np.float32)
        noise = np.random.default_rng(start + 2).standard_normal((stop - start, d))
        return centres[y] + noise.astype(np.float32)

    X = da.map_blocks(features, chunks=(chunks, (d,)), dtype=np.float32, meta=meta)
    return X, da.arange(n, chunks=(chunks,)) % n_classes


def overhead(n: int, d: int, n_classes: int, n_rounds: int) -> list[dict[str, Any]]:
    """Fit on 2 single-threaded workers with persisted rows, and locally with 2 threads, in turn."""
    seconds: dict[str, list[float]] = {"cluster": [], "memory": []}
    rows = make_rows(n, d, n_classes, 16)
    # Computed locally: the cluster would join all blocks on one worker, and keep them there.
    here, labels = dask.compute(*rows, scheduler="synchronous")
    with cluster() as client:
        client.wait_for_workers(2)
        X, y = client.persist(rows)
        wait([X, y])
        # A worker sums the rows in its memory: on a busy machine, one may have most of them.
        client.rebalance([X, y])
        held = Counter(itertools.chain.from_iterable(client.who_has(X).values()))
        DaskBinaryCodeClassifier(**PARAMETERS).fit(X[: n // 16], y[: n // 16])
        for _ in range(n_rounds):
            distributed = DaskBinaryCodeClassifier(**PARAMETERS)
            seconds["cluster"].append(seconds_of(lambda: distributed.fit(X, y)))
            with threads_of_all(2):
                alone = BinaryCodeClassifier(**PARAMETERS)
                seconds["memory"].append(seconds_of(lambda: alone.fit(here, labels)))
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return [
        {
            "rows": n,
            "features": d,
            "classes": n_classes,
            "blocks of rows per worker": " and ".join(map(str, held.values())),
            "2 workers, s": medians["cluster"],
            "in memory, 2 threads, s": medians["memory"],
            "ratio": medians["cluster"] / medians["memory"],
            "limit": 1.3,
        }
    ]


def traffic(n: int, d: int, n_classes: int) -> list[dict[str, Any]]:
    """Bytes transferred between workers, for increasing numbers of rows."""

    def received(dask_worker: Any) -> int:
        return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)

    found = []
    for rows in (n // 16, n // 4, n):
        with cluster() as client:
            # Partitions of equal length, so that only their number grows.
            X, y = client.persist(make_rows(rows, d, n_classes, 64 * rows // n))
            wait([X, y])
            y = y.compute()  # its blocks may be on other workers than those of X
            before = sum(client.run(received).values())
            DaskBinaryCodeClassifier(**PARAMETERS).fit(X, y)
            between = sum(client.run(received).values()) - before
            sums = 8 * d * (d + n_classes)
            found.append({"rows": rows, "bytes of rows": X.nbytes})
            found[-1] |= {"bytes between workers": between, "bytes of sums": sums}
    return found


def kills(n_kills: int, n: int, d: int, n_classes: int) -> list[dict[str, Any]]:
    """Kill a worker at a random time in each of several fits; the model must be the same."""
    X, y = make_rows(n, d, n_classes, 24)
    fits = []
    settings = {
        "distributed.scheduler.allowed-failures": 20,
        # After this time a local cluster closes nannies of dead workers, even if restarted.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with dask.config.set(settings), cluster() as client:
        for _ in range(2):  # the second time, everything is imported
            expected = DaskBinaryCodeClassifier(**PARAMETERS)
            undisturbed = seconds_of(lambda: expected.fit(X, y))
        for number in range(n_kills):
            client.wait_for_workers(2)
            time.sleep(1.0)  # until the nannies watch their workers again
            draw = random.Random(number)

            def kill(draw: random.Random = draw) -> None:
                processes = sorted(client.run(os.getpid, on_error="ignore").values())
                os.kill(draw.choice(processes), signal.SIGKILL)

            killer = threading.Timer(draw.uniform(0.05, 0.9) * undisturbed, kill)
            killer.start()
            found = DaskBinaryCodeClassifier(**PARAMETERS)
            taken = seconds_of(lambda: found.fit(X, y))
            killer.cancel()
            killer.join()
            same = np.array_equal(found.weights_, expected.weights_) and np.allclose(
                found.projection_, expected.projection_, rtol=0, atol=1e-4
            )
            fits.append(
                {"undisturbed, s": undisturbed, "killed, s": taken, "same model": bool(same)}
            )
            print(fits[-1], flush=True)
    assert all(fit["same model"] for fit in fits), "a kill changed the model"
    return fits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["overhead", "traffic", "kills"], default=None)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    shape = (options.rows, options.features, options.classes)
    parts: dict[str, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
        "overhead": ("Overhead over one process", lambda: overhead(*shape, options.rounds)),
        "traffic": ("Bytes between workers", lambda: traffic(*shape)),
        "kills": (
            "Fits during which a worker is killed",
            lambda: kills(options.kills, options.rows // 8, 256, options.classes),
        ),
    }
    results: dict[str, list[dict[str, Any]]] = {}
    for name, (heading, part) in parts.items():
        if options.part in (None, name):
            results[heading] = part()
            print(heading, results[heading], flush=True)
    if options.part is None and options.rows == parser.get_default("rows"):
        note = "A local cluster of 2 processes with 1 thread each. Measured by `make cluster`."
        write_page("cluster", "Training on a Dask cluster", note, results)


if __name__ == "__main__":
    main()
