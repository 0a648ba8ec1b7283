"""Whoever waits for a cluster gets an answer, or an error that says what is wrong."""

import threading
import time
from contextlib import contextmanager

import dask
import numpy as np
import pytest
from clusters import HINGE, QUIET, fitted, lazy, problem, until
from distributed import Client, LocalCluster, Status, wait

from bitclass.distributed import ClusterError, PartitionMemoryError
from bitclass.distributed.cluster import Run
from bitclass.distributed.errors import SumsMoved


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("bitclass.distributed.cluster._POLL_SECONDS", 0.2)
    monkeypatch.setattr("bitclass.distributed.cluster._WORKER_SECONDS", 1.5)


@contextmanager
def threads(n_workers):
    """A client of workers in this process, which nothing pauses but the tests."""
    settings = {"threads_per_worker": 1, "processes": False, "memory_limit": 0, "silence_logs": 50}
    with LocalCluster(n_workers=n_workers, **settings, **QUIET) as local, Client(local) as client:
        client.wait_for_workers(n_workers)
        yield client


def set_status(client, worker, status):
    client.run(lambda dask_worker: setattr(dask_worker, "status", status), workers=[worker])
    until(
        lambda: client.scheduler_info(n_workers=-1)["workers"][worker]["status"] == status.name,
        status.name,
    )


def in_time(function):
    """What a function returns or raises; a failure if it hangs."""
    found = []

    def call():
        try:
            found.append((function(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    assert found, "it hangs"
    value, error = found[0]
    if error is not None:
        raise error
    return value


def test_a_result_whose_holder_is_gone_is_not_waited_for_in_vain():
    with threads(1) as client:
        run = Run(client)
        future = run.start(dask.delayed(lambda: 1)())
        wait(future)
        client.cluster.scale(0)
        until(lambda: not client.scheduler_info(n_workers=-1)["workers"], "no workers")
        with pytest.raises(ClusterError, match="has lost all its workers"):
            in_time(lambda: run._gathered([future], lambda _: "partition 0"))


def test_a_result_that_cannot_be_made_anew_is_named(client):
    def fails():
        raise ArithmeticError("no")

    run = Run(client)
    future = run.start(dask.delayed(fails)())
    with pytest.raises(ArithmeticError) as raised:
        in_time(lambda: run._gathered([future], lambda _: "partition 7"))
    assert raised.value.__notes__ == ["This was met at partition 7."]


def test_the_first_of_several_failures_is_named(client):
    def fails(before):
        raise ArithmeticError("no")

    run = Run(client)
    futures = []
    for _ in range(10):
        futures.append(run.start(dask.delayed(fails)(futures[-1] if futures else None)))
    wait(futures)
    with pytest.raises(ArithmeticError) as raised:
        run.done(futures, lambda one: f"partition {futures.index(one)}")
    assert raised.value.__notes__ == ["This was met at partition 0."]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_fit_that_fails_leaves_nothing_to_do(client, error):
    def load(index):
        if index % 4 == 0 and error is OSError:
            raise OSError("no such bucket")
        time.sleep(1)
        return np.ones((10, 2))

    def progress(name, done, total):
        raise KeyboardInterrupt

    def keys(dask_scheduler):
        return {key for key in dask_scheduler.tasks if "bitclass_" in str(key)}

    before = client.run_on_scheduler(keys)
    parts = [dask.delayed(load)(index) for index in range(40)]
    with pytest.raises(error) as raised:
        fitted(HINGE, parts, [dask.delayed(np.arange(10)) for _ in parts], progress=progress)
    until(lambda: not client.run_on_scheduler(keys) - before, "no tasks")
    assert raised.tb is not None  # which held the futures all the while


def test_sums_that_move_without_end_are_told_with_the_address(client, monkeypatch):
    def moved(*arguments):
        raise SumsMoved("gone")

    monkeypatch.setattr("bitclass.distributed.fitting.summed", moved)
    with pytest.raises(ClusterError, match=f"workers of {client.scheduler.address} came and went"):
        fitted(HINGE, *lazy(*problem(n=400), 100))


def test_a_client_that_is_closed_in_the_middle_is_told_with_the_address():
    with threads(1) as client:
        address = client.scheduler.address

        def progress(name, done, total):
            client.close()

        with client.as_current(), pytest.raises(ClusterError, match=f"at {address} was lost"):
            in_time(lambda: fitted(HINGE, *lazy(*problem(n=400), 100), progress=progress))
        # What is known of the cluster is empty by now.
        run = object.__new__(Run)
        run.client, run.address = client, address
        with pytest.raises(ClusterError, match=f"at {address} was lost"):
            run.workers()


def test_a_task_whose_home_died_while_the_others_were_paused_is_given_out_anew():
    with threads(2) as client:
        run = Run(client)
        home, other = sorted(run.workers())
        future = run.start(dask.delayed(time.sleep)(5, dask_key_name=run.key("sums")), home)
        until(lambda: any(map(len, client.processing().values())), "begun")
        set_status(client, other, Status.paused)
        client.retire_workers([home])
        until(lambda: home not in run.workers(), "gone")
        set_status(client, other, Status.running)
        with pytest.raises(SumsMoved, match="wait for workers that are gone"):
            in_time(lambda: run.result(future, "a lane"))


def test_one_worker_paused_for_good_is_told():
    # With stealing the second task might go to the other worker, but not if it came alone.
    with dask.config.set({"distributed.scheduler.work-stealing": False}), threads(2) as client:
        run = Run(client)
        home = min(run.workers())
        # One runs to its end, however long that takes; the other is never begun.
        both = [
            run.start(dask.delayed(time.sleep)(4, dask_key_name=run.key("sums", place)), home)
            for place in range(2)
        ]
        until(lambda: len(client.processing()[home]) == 2, "begun")
        set_status(client, home, Status.paused)
        message = f"partition 1: worker {home} of .* has been paused"
        with pytest.raises(PartitionMemoryError, match=message):
            in_time(lambda: run.results(both, lambda one: "partition 1"))
        assert sorted(future.status for future in both) == ["finished", "pending"]
        set_status(client, home, Status.running)
