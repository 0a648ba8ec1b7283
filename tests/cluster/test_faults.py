"""Killed and retired workers, lost clients and schedulers, concurrent fits."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
from clusters import (
    HINGE,
    PATIENCE,
    QUIET,
    assert_same_model,
    cluster,
    fitted,
    kill_workers,
    lazy,
    on_one_machine,
    problem,
    slow_rows,
    until,
)
from distributed import Client, LocalCluster, wait

from bitclass.distributed import ClusterError


def once(name, action):
    """Progress that acts once, in the middle of a pass."""
    done = []

    def progress(found, n_done, n_all):
        if found == name and 0.2 * n_all <= n_done < n_all and not done:
            done.append(n_done)
            action()

    progress.done = done
    return progress


def test_concurrent_fits_and_other_work_on_the_cluster(client):
    X, y = problem()
    others = client.map(lambda number: time.sleep(0.01) or number, range(200), pure=False)
    mine = client.persist(da.ones((1000, 10), chunks=(100, 10)))
    models = [HINGE, HINGE | {"n_bits": 32, "loss": "exponential", "scale": 0.2}]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda parameters: fitted(parameters, *lazy(X, y, 200)), models))
    for one, parameters in zip(found, models, strict=True):
        assert_same_model(one, on_one_machine(parameters, X, y, 200))
    assert client.gather(others) == list(range(200))
    wait(mine)
    assert mine.sum().compute() == 10_000


def test_workers_may_be_threads():
    X, y = problem()
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, processes=False, **QUIET) as local,
        Client(local) as client,
        client.as_current(),
    ):
        found = fitted(HINGE, *lazy(X, y, 200))
    assert_same_model(found, on_one_machine(HINGE, X, y, 200))


def test_a_client_that_is_closed_meanwhile_is_one_error():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **QUIET) as local,
        Client(local) as client,
        client.as_current(),
        pytest.raises(ClusterError, match="connection to the Dask scheduler was lost"),
    ):
        fitted(HINGE, *slow_rows(*problem(), 100), progress=once("learning", client.close))


@pytest.mark.faults
@pytest.mark.parametrize(
    ("phase", "action"),
    [
        ("sampling", kill_workers),
        ("sampling", partial(kill_workers, n_workers=2)),
        ("learning", kill_workers),
        ("learning", partial(kill_workers, n_workers=2)),
        ("learning", lambda client: client.cluster.scale(1)),
    ],
)
def test_workers_that_are_killed_or_retired_change_nothing(phase, action):
    X, y = problem()
    settings = {
        "distributed.scheduler.allowed-failures": 20,
        # After this time a local cluster closes nannies of dead workers, even if restarted.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with dask.config.set(settings), cluster() as client, client.as_current():
        progress = once(phase, lambda: action(client))
        found = fitted(HINGE, *slow_rows(X, y, 100, 0.2), progress=progress)
    assert progress.done
    assert_same_model(found, on_one_machine(HINGE, X, y, 100))


@pytest.mark.faults
def test_a_cluster_that_loses_all_workers_for_good_is_one_error(monkeypatch):
    monkeypatch.setattr("bitclass.distributed.cluster.WORKER_SECONDS", 3.0)
    with cluster() as client, client.as_current():
        progress = once("learning", lambda: client.cluster.scale(0))
        with pytest.raises(ClusterError, match="no running workers for 3 s: none are left"):
            fitted(HINGE, *slow_rows(*problem(), 100, 0.2), progress=progress)


@pytest.mark.faults
def test_a_partition_too_large_for_a_worker_is_named():
    def load(index):
        if index == 2:
            filled = np.ones(200_000_000, dtype=np.float64)
            time.sleep(60)  # to be killed in
            return filled
        return np.random.default_rng(index).standard_normal((50, 4))

    lengths = [50, 50, 50_000_000, 50]
    blocks = [
        da.from_delayed(dask.delayed(load)(index), (n, 4), dtype="f8")
        for index, n in enumerate(lengths)
    ]
    y = da.concatenate([da.zeros(n, chunks=n, dtype=int) for n in lengths])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        cluster(n_workers=1, memory_limit="700MB") as client,
        client.as_current(),
        pytest.raises(ClusterError, match=r".*partition 2.*: 2 workers died .* memory"),
    ):
        fitted(HINGE, da.concatenate(blocks), y)


CLIENT = """
import sys, time
import dask.array as da
from distributed import Client
from bitclass.distributed import DaskBinaryCodeClassifier

def slowly(block):
    time.sleep(0.05)
    return block

client = Client(sys.argv[1])
X = da.random.default_rng(0).standard_normal((20_000, 8), chunks=(100, 8)).map_blocks(slowly)
y = (X[:, 0] > 0).astype(int)

def progress(name, done, total):
    print(name, flush=True)

DaskBinaryCodeClassifier(16, refine=False).fit(X, y, progress=progress)
"""


@pytest.mark.faults
@pytest.mark.parametrize("phase", ["sampling", "learning"])
def test_no_tasks_are_left_when_the_client_is_killed(client, phase):
    def keys(dask_scheduler):
        return set(dask_scheduler.tasks)

    before = client.run_on_scheduler(keys)
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, client.scheduler.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        for line in process.stdout:
            if line.strip() == phase:
                break
        else:
            pytest.fail("the client ended by itself")
        # The client may report the phase before the scheduler has received its tasks.
        until(lambda: client.run_on_scheduler(keys) - before, "tasks of the client")
        process.send_signal(signal.SIGKILL)
    until(lambda: not client.run_on_scheduler(keys) - before, "tasks of a dead client")


SCHEDULER = [
    "--host",
    "127.0.0.1",
    "--port",
    "0",
    "--no-dashboard",
    "--dashboard-address",
    "127.0.0.1:0",
]
WORKER = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "20"]


@pytest.mark.faults
def test_a_lost_scheduler_is_one_error():
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *SCHEDULER],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at:" in line)
        threading.Thread(target=scheduler.stderr.read, daemon=True).start()
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", address, *WORKER],
            stderr=subprocess.DEVNULL,
        )
        try:
            with (
                dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
                Client(address, timeout=PATIENCE) as client,
                client.as_current(),
            ):
                client.wait_for_workers(1, timeout=PATIENCE)
                progress = once("learning", lambda: os.kill(scheduler.pid, signal.SIGKILL))
                with pytest.raises(ClusterError, match="connection to the Dask scheduler was lost"):
                    fitted(HINGE, *slow_rows(*problem(), 100, 0.2), progress=progress)
        finally:
            worker.kill()
            worker.wait()
    finally:
        scheduler.kill()
        scheduler.wait()
