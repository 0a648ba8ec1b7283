"""The classifier on a cluster of this machine's processes: overhead, traffic, and worker kills.

python benchmarks/cluster.py [--part overhead|traffic|kills|model] [--rows 400000] ...
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, Status, wait

from bitclass import BinaryCodeClassifier
from bitclass.distributed import DaskBinaryCodeClassifier
from timing import machine, threads_of_all

RESULTS = Path(__file__).parent / "results" / "cluster.json"
HINGE: dict[str, Any] = {"n_bits": 128, "loss": "hinge", "random_state": 0}
# Leaves most rows with codes of their own, so that there is a second pass.
CLIPPED: dict[str, Any] = {"n_bits": 64, "loss": "crammer_singer", "random_state": 0}


@contextmanager
def cluster(n_workers: int = 2, **options: Any) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.CRITICAL,
            memory_limit=0,
            **options,
        ) as local,
        Client(local) as client,
    ):
        yield client


def made_rows(n: int, d: int, n_classes: int, n_partitions: int) -> tuple[da.Array, da.Array]:
    """Rows around a centre for each class, which the workers make; labels beside them."""
    step = -(-n // n_partitions)
    lengths = tuple(min(step, n - start) for start in range(0, n, step))

    def block(start: int, length: int) -> np.ndarray[Any, Any]:
        own = np.arange(start, start + length) % n_classes
        centres = np.random.default_rng(1).standard_normal((n_classes, d), dtype=np.float32)
        noise = np.random.default_rng(start + 2).standard_normal((length, d), dtype=np.float32)
        return centres[own] + noise

    starts = np.cumsum([0, *lengths])
    X = da.concatenate(
        [
            da.from_delayed(dask.delayed(block)(int(start), length), (length, d), dtype=np.float32)
            for start, length in zip(starts, lengths, strict=False)
        ]
    )
    y = da.concatenate(
        [
            da.from_delayed(
                dask.delayed(lambda start, length: np.arange(start, start + length) % n_classes)(
                    int(start), length
                ),
                (length,),
                dtype=np.int64,
            )
            for start, length in zip(starts, lengths, strict=False)
        ]
    )
    return X, y


def received(dask_worker: Any) -> int:
    """Bytes that a worker got from others."""
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def overhead(n: int, d: int, n_classes: int, rounds: int) -> dict[str, Any]:
    """Fit on 2 workers of 1 thread, rows in their memory, beside the in-memory fit of 2 threads."""
    seconds: dict[str, list[float]] = {"cluster": [], "memory": []}
    with cluster() as client:
        X, y = client.persist(made_rows(n, d, n_classes, 16))
        wait([X, y])
        here, labels = X.compute(), y.compute()
        DaskBinaryCodeClassifier(**HINGE).fit(X[: n // 16], y[: n // 16])
        for _ in range(rounds):
            start = time.perf_counter()
            found = DaskBinaryCodeClassifier(**HINGE).fit(X, y)
            seconds["cluster"].append(time.perf_counter() - start)
            with threads_of_all(2):
                start = time.perf_counter()
                local = BinaryCodeClassifier(**HINGE).fit(here, labels)
                seconds["memory"].append(time.perf_counter() - start)
        assert np.array_equal(found.weights_, local.weights_) or n > 10_000
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return {
        "rows": n,
        "features": d,
        "classes": n_classes,
        "seconds on 2 workers": medians["cluster"],
        "seconds in memory": medians["memory"],
        "ratio": medians["cluster"] / medians["memory"],
        "at most": 1.3,
    }


def traffic(n: int, d: int, n_classes: int) -> list[dict[str, Any]]:
    """Bytes between workers, as each worker counts them, for more and more rows."""
    found = []
    for rows in (n // 16, n // 4, n):
        with cluster() as client:
            # As many rows in a partition, so that only their number grows.
            X, _ = made_rows(rows, d, n_classes, 16 * rows // n * 4)
            X = client.persist(X)
            wait(X)
            y = X.map_blocks(
                lambda block: (np.abs(block[:, 0]) * 1e6).astype(np.int64) % 100,
                drop_axis=1,
                dtype=np.int64,
                meta=np.empty(0, np.int64),
            )
            before = sum(client.run(received).values())
            fitted = DaskBinaryCodeClassifier(**HINGE).fit(X, y)
            between = sum(client.run(received).values()) - before
            sums = 8 * d * (d + len(fitted.classes_))
            found.append(
                {"rows": rows, "bytes of rows": X.nbytes, "bytes": between, "of the sums": sums}
            )
    return found


def wait_for_nannies(client: Client) -> None:
    """Wait for killed workers to be back: a nanny minds its worker once it runs."""
    while (
        not all(
            nanny.status is Status.running and nanny.process.status is Status.running
            for nanny in client.cluster.workers.values()
        )
        or len(client.scheduler_info(n_workers=-1)["workers"]) < 2
    ):
        time.sleep(0.1)


def kills(n_kills: int, n: int, d: int, n_classes: int) -> dict[str, Any]:
    """Kill a worker at a random moment of each of several fits; each must give the same model."""
    X, y = made_rows(n, d, n_classes, 24)
    fits = []
    settings = {
        "distributed.scheduler.allowed-failures": 20,
        # After this time a local cluster closes nannies whose worker died, though it is back.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with dask.config.set(settings), cluster() as client:
        for _ in range(2):  # the second time all is imported
            start = time.perf_counter()
            expected = DaskBinaryCodeClassifier(**CLIPPED).fit(X, y)
            undisturbed = time.perf_counter() - start
        number = 0
        while sum(fit["killed in"] is not None for fit in fits) < n_kills:
            number += 1
            wait_for_nannies(client)
            phases: list[str] = []
            draw = random.Random(number)
            delay = draw.uniform(0.05, 0.95) * undisturbed
            done = threading.Event()
            told: list[str] = ["opening"]

            def kill(delay=delay, done=done, draw=draw, told=told, phases=phases) -> None:
                if done.wait(delay):
                    return
                processes = sorted(client.run(os.getpid, on_error="ignore").values())
                phases.append(told[-1])
                os.kill(draw.choice(processes), signal.SIGKILL)

            def progress(name: str, rows: int, total: int, told=told) -> None:
                told.append(name if rows < total else f"after {name}")

            killer = threading.Thread(target=kill)
            killer.start()
            start = time.perf_counter()
            found = DaskBinaryCodeClassifier(**CLIPPED).fit_with(X, y, progress=progress)
            taken = time.perf_counter() - start
            done.set()
            killer.join()
            same = np.array_equal(found.weights_, expected.weights_) and np.allclose(
                found.projection_, expected.projection_, rtol=0, atol=1e-6
            )
            fits.append({"killed in": phases[0] if phases else None, "s": taken, "same": same})
            print(fits[-1], flush=True)
    assert all(fit["same"] for fit in fits), "a kill changed the model"
    return {"undisturbed s": undisturbed, "fits": fits}


def cost_model(rounds: int) -> list[dict[str, Any]]:
    """Seconds without refinement against n, d and C, to check the costs in docs/cluster.md."""
    found = []
    with cluster() as client:
        for n, d, n_classes in (
            (100_000, 512, 100),
            (400_000, 512, 100),
            (100_000, 1024, 100),
            (400_000, 1024, 100),
            (100_000, 512, 4000),
        ):
            X, y = client.persist(made_rows(n, d, n_classes, 8))
            wait([X, y])
            taken = []
            for _ in range(rounds):
                start = time.perf_counter()
                DaskBinaryCodeClassifier(**HINGE, refine=False).fit(X, y)
                taken.append(time.perf_counter() - start)
            found.append(
                {"rows": n, "features": d, "classes": n_classes, "s": statistics.median(taken)}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["overhead", "traffic", "kills", "model"], default=None)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write the results down")
    options = parser.parse_args()
    shape = (options.rows, options.features, options.classes)
    parts = {
        "overhead": lambda: overhead(*shape, options.rounds),
        "traffic": lambda: traffic(*shape),
        "kills": lambda: kills(options.kills, options.rows // 8, 256, options.classes),
        "model": lambda: cost_model(options.rounds),
    }
    results: dict[str, Any] = {"machine": machine()}
    for name, part in parts.items():
        if options.part in (None, name):
            results[name] = part()
            print(json.dumps({name: results[name]}, indent=1), flush=True)
    if options.save:
        # One part alone leaves the others as they are.
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(before | results, indent=1) + "\n")


if __name__ == "__main__":
    main()
