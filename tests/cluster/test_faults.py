"""Killed and retired workers, lost clients and schedulers, concurrent fits."""

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
from distributed import Client, LocalCluster, wait

from bitclass.dask import ClusterError

from .clusters import (
    PARAMETERS,
    PATIENCE,
    QUIET,
    acting,
    assert_same_model,
    cluster,
    fitted,
    kill_workers,
    lazy,
    on_one_machine,
    problem,
    slow_rows,
)

pytestmark = pytest.mark.slow

N_PARTITIONS = 30
#: Partitions loaded when a pass is at about a third: all are loaded once in each.
IN_PASS = {"sampling": N_PARTITIONS // 3, "summing": N_PARTITIONS + N_PARTITIONS // 3}


def test_concurrent_fits_and_other_work_on_the_cluster(client):
    X, y = problem()
    others = client.map(lambda number: time.sleep(0.01) or number, range(200), pure=False)
    mine = client.persist(da.ones((1000, 10), chunks=(100, 10)))
    models = [PARAMETERS, PARAMETERS | {"n_bits": 32}]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda parameters: fitted(parameters, *lazy(X, y, 200)), models))
    for one, parameters in zip(found, models, strict=True):
        assert_same_model(one, on_one_machine(parameters, X, y))
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
        found = fitted(PARAMETERS, *lazy(X, y, 200))
    assert_same_model(found, on_one_machine(PARAMETERS, X, y))


def test_a_client_that_is_closed_meanwhile_is_one_error(tmp_path):
    log = tmp_path / "loaded"
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **QUIET) as local,
        Client(local) as client,
        client.as_current(),
        acting(log, IN_PASS["summing"], client.close),
        pytest.raises(ClusterError, match="connection to the Dask scheduler was lost"),
    ):
        fitted(PARAMETERS, *slow_rows(*problem(), 100, log=log))


@pytest.mark.faults
@pytest.mark.parametrize(
    ("phase", "action"),
    [
        ("sampling", kill_workers),
        ("sampling", partial(kill_workers, n_workers=2)),
        ("summing", kill_workers),
        ("summing", partial(kill_workers, n_workers=2)),
        ("summing", lambda client: client.cluster.scale(1)),
    ],
)
def test_workers_that_are_killed_or_retired_change_nothing(phase, action, tmp_path):
    X, y = problem()
    log = tmp_path / "loaded"
    settings = {
        "distributed.scheduler.allowed-failures": 20,
        # After this time a local cluster closes nannies of dead workers, even if restarted.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with (
        dask.config.set(settings),
        cluster() as client,
        client.as_current(),
        acting(log, IN_PASS[phase], lambda: action(client)) as done,
    ):
        found = fitted(PARAMETERS, *slow_rows(X, y, 100, 0.2, log))
    assert done
    assert_same_model(found, on_one_machine(PARAMETERS, X, y))


@pytest.mark.faults
def test_a_cluster_that_loses_all_workers_for_good_is_one_error(monkeypatch, tmp_path):
    monkeypatch.setattr("bitclass.dask.WORKER_SECONDS", 3.0)
    log = tmp_path / "loaded"
    with (
        cluster() as client,
        client.as_current(),
        acting(log, IN_PASS["summing"], lambda: client.cluster.scale(0)),
        pytest.raises(ClusterError, match="no running workers for 3 s: none are left"),
    ):
        fitted(PARAMETERS, *slow_rows(*problem(), 100, 0.2, log))


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
        fitted(PARAMETERS, da.concatenate(blocks), y)


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
def test_a_lost_scheduler_is_one_error(tmp_path):
    log = tmp_path / "loaded"
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
                with (
                    acting(log, IN_PASS["summing"], scheduler.kill),
                    pytest.raises(ClusterError, match="connection to the Dask scheduler was lost"),
                ):
                    fitted(PARAMETERS, *slow_rows(*problem(), 100, 0.2, log))
        finally:
            worker.kill()
            worker.wait()
    finally:
        scheduler.kill()
        scheduler.wait()
