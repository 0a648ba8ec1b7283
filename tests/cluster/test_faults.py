"""Workers that die, are retired or run out of memory; clients and schedulers that go away."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np
import pytest
from clusters import (
    CLIPPED,
    HINGE,
    PATIENCE,
    QUIET,
    all_running,
    assert_same_model,
    by_partial_fit,
    cluster,
    fitted,
    kill_a_worker,
    lazy,
    mortal_cluster,
    problem,
    slow_rows,
    until,
)
from distributed import Client, LocalCluster, wait

from bitclass.distributed import ClusterError, PartitionMemoryError
from bitclass.distributed.errors import SumsMoved
from bitclass.distributed.sums import Sums

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def mortal():
    with mortal_cluster() as client:
        yield client


@pytest.mark.parametrize("phase", ["looking", "learning", "merging", "second pass"])
def test_a_worker_killed_in_any_phase_changes_nothing(mortal, phase):
    X, y = problem()
    draw = random.Random(phase)
    all_running(mortal, 2)
    at = draw.uniform(0.2, 0.8) if phase != "merging" else 1.0
    pass_name = "learning" if phase == "merging" else phase
    killed = []

    def progress(name, done, total):
        if name == pass_name and done >= at * total and not killed:
            killed.append(done)
            kill_a_worker(mortal, draw.randrange(2))

    with mortal.as_current():
        found = fitted(CLIPPED, *slow_rows(X, y, 200), progress=progress)
    assert killed
    assert_same_model(found, by_partial_fit(CLIPPED, X, y, 200))


def test_all_workers_killed_at_once_changes_nothing(mortal):
    X, y = problem()
    all_running(mortal, 2)
    killed = []

    def progress(name, done, total):
        if name == "second pass" and done >= total / 2 and not killed:
            killed.extend(mortal.run(os.getpid).values())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    with mortal.as_current():
        found = fitted(CLIPPED, *slow_rows(X, y, 200), progress=progress)
    assert len(killed) == 2
    assert_same_model(found, by_partial_fit(CLIPPED, X, y, 200))


def test_a_worker_that_is_retired_in_the_middle_changes_nothing(mortal):
    X, y = problem()
    all_running(mortal, 2)
    scaled = []

    def progress(name, done, total):
        if name == "learning" and done >= total / 2 and not scaled:
            scaled.append(done)
            mortal.cluster.scale(1)

    with mortal.as_current():
        found = fitted(HINGE, *slow_rows(X, y, 200), progress=progress)
    assert scaled
    mortal.cluster.scale(2)
    assert_same_model(found, by_partial_fit(HINGE, X, y, 200))


def test_sums_that_were_taken_are_made_anew(client, monkeypatch):
    """As when they are sent elsewhere just as a task changes them."""
    X, y = problem()
    asked = []
    summed = sys.modules["bitclass.distributed.fitting"].summed

    def moved_once(*arguments):
        asked.append(arguments)
        if len(asked) == 1:
            raise SumsMoved("gone")
        return summed(*arguments)

    monkeypatch.setattr("bitclass.distributed.fitting.summed", moved_once)
    found = fitted(HINGE, *lazy(X, y, 450))
    assert len(asked) == 2
    assert_same_model(found, by_partial_fit(HINGE, X, y, 450))


def test_a_box_is_sent_whole_or_empty():
    import pickle

    from bitclass import BinaryCodeClassifier

    X, y = problem(n=100)
    box = Sums(BinaryCodeClassifier(**HINGE).begin(X, y).partial_fit(X, y), {0: 0})
    on_the_way = []
    start = pickle.dumps(box, protocol=5, buffer_callback=on_the_way.append)
    learner = box.taken()
    empty = pickle.loads(pickle.dumps(box))
    learner.partial_fit(X, y)
    # What was being sent when the sums changed is what it was.
    whole = pickle.loads(start, buffers=on_the_way)
    assert whole.statistics().n_rows == 100
    assert whole.statistics().total_weight == 100
    assert learner.statistics_.total_weight == 200
    assert whole.starts == {0: 0}
    for one in (box, empty):
        with pytest.raises(SumsMoved):
            one.taken()
        with pytest.raises(SumsMoved):
            one.statistics()


def test_a_box_that_is_sent_while_it_is_emptied_stays_what_it_was():
    from bitclass import BinaryCodeClassifier

    X, y = problem(n=100)
    box = Sums(BinaryCodeClassifier(**HINGE).begin(X, y).partial_fit(X, y), {0: 0})
    sent = box.__reduce__()[1][0]

    class SentOnceMore:
        """A lock whose next holder sends the box, empty as it is by then."""

        def __enter__(self):
            pass

        def __exit__(self, *error):
            box._lock = threading.Lock()
            assert box.__reduce__()[1][0] is None

    box._lock = SentOnceMore()
    assert box.taken() is not sent


SCHEDULER = [
    "--host",
    "127.0.0.1",
    "--port",
    "0",
    "--dashboard-address",
    "127.0.0.1:0",
    "--no-dashboard",
]
PAGES = ["--dashboard-address", "127.0.0.1:0"]
WORKER = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "20"]
CLIENT = """
import pathlib, sys, time
import dask.array as da
from distributed import Client
from bitclass.distributed import DaskBinaryCodeClassifier

slow = pathlib.Path(sys.argv[2])

def slowly(block, slow=slow):
    time.sleep(2 * slow.exists())
    return block

client = Client(sys.argv[1])
X = da.random.default_rng(0).standard_normal((60_000, 8), chunks=(100, 8)).map_blocks(slowly)
y = (X[:, 0] > 0).astype(int)

def progress(name, done, total):
    if name == "looking" and done == total:
        slow.touch()
    print(name, flush=True)

DaskBinaryCodeClassifier(16, loss="hinge").fit_with(X, y, progress=progress)
"""


@pytest.mark.parametrize("phase", ["looking", "learning"])
def test_nothing_is_left_to_do_when_the_client_is_killed(client, phase, tmp_path):
    """The pass that is killed would take 10 minutes."""
    slow = tmp_path / "slow"
    if phase == "looking":
        slow.touch()

    def keys(dask_scheduler):
        return set(dask_scheduler.tasks)

    before = client.run_on_scheduler(keys)
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, client.scheduler.address, str(slow)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        for line in process.stdout:
            if line.strip() == phase:
                break
        else:
            pytest.fail("the client ended by itself")
        assert any("bitclass_" in str(key) for key in client.run_on_scheduler(keys) - before)
        process.send_signal(signal.SIGKILL)
    until(lambda: not client.run_on_scheduler(keys) - before, "tasks of a dead client")


def test_a_partition_too_large_for_a_worker_is_named_with_its_size():
    def load(index):
        if index == 2:
            filled = np.ones(200_000_000, dtype=np.float64)
            time.sleep(60)  # to be killed in
            return filled
        return np.random.default_rng(index).standard_normal((50, 4))

    blocks = [
        da.from_delayed(
            dask.delayed(load)(index), (50 if index != 2 else 50_000_000, 4), dtype="f8"
        )
        for index in range(4)
    ]
    y = da.concatenate([da.zeros(len(block), chunks=len(block), dtype=int) for block in blocks])
    settings = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(settings),
        cluster(n_workers=1, memory_limit="700MB") as client,
        client.as_current(),
        pytest.raises(PartitionMemoryError) as raised,
    ):
        fitted(HINGE, da.concatenate(blocks), y)
    message = str(raised.value)
    assert message.startswith("partition 2 (50,000,000 rows, 1,600.0 MB): 1 workers died at it")
    assert "memory of 0.70 GB of a worker" in message


def test_a_lost_scheduler_is_told_with_its_address():
    X, y = problem()
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *SCHEDULER, *PAGES],
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

                def progress(name, done, total):
                    os.kill(scheduler.pid, signal.SIGKILL)

                with pytest.raises(ClusterError, match=f"scheduler at {address} was lost"):
                    fitted(HINGE, *slow_rows(X, y, 200), progress=progress)
        finally:
            worker.kill()
            worker.wait()
    finally:
        scheduler.kill()
        scheduler.wait()


def test_fits_at_once_and_other_work_on_the_cluster(client):
    X, y = problem()
    others = client.map(lambda number: time.sleep(0.01) or number, range(200), pure=False)
    mine = client.persist(da.ones((1000, 10), chunks=(100, 10)))

    def fit(parameters):
        return fitted(parameters, *lazy(X, y, 200))

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(fit, [HINGE, CLIPPED]))
    for one, parameters in zip(found, (HINGE, CLIPPED), strict=True):
        assert_same_model(one, by_partial_fit(parameters, X, y, 200))
    assert client.gather(others) == list(range(200))
    wait(mine)
    assert all(future.status == "finished" for future in client.futures_of(mine))
    assert mine.sum().compute() == 10_000


def test_a_thread_pool_for_workers_will_do():
    X, y = problem()
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, processes=False, **QUIET) as local,
        Client(local) as client,
        client.as_current(),
    ):
        found = fitted(CLIPPED, *lazy(X, y, 200))
    assert_same_model(found, by_partial_fit(CLIPPED, X, y, 200))
