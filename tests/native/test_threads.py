"""The thread pool: every chunk once, exceptions, forks, many callers; and its size."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import bitclass
from bitclass._native import (
    HammingIndex,
    _kernels,
    effective_threads,
    thread_limit,
    threads,
)

from . import reference

PATIENCE = 120.0  # of a busy machine


def random_search(seed=0, n=2000):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 256, (300, 16), dtype=np.uint8)
    codes = rng.integers(0, 256, (n, 16), dtype=np.uint8)
    return HammingIndex(weights), codes, reference.nearest(codes, weights)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("n_chunks", [0, 1, 2, 100])
def test_every_chunk_runs_once(n_chunks, n_threads):
    seen = []
    _kernels._parallel_for(n_chunks, n_threads, seen.append)
    assert sorted(seen) == list(range(n_chunks))


def test_several_threads_take_part():
    everybody = threading.Barrier(3, timeout=PATIENCE)
    _kernels._parallel_for(3, 3, lambda _: everybody.wait())


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_an_exception_of_a_chunk_reaches_the_caller(n_threads):
    def fail_at_five(chunk):
        if chunk == 5:
            raise KeyError("five")

    for _ in range(20):
        with pytest.raises(KeyError, match="five"):
            _kernels._parallel_for(100, n_threads, fail_at_five)
    _kernels._parallel_for(3, n_threads, lambda _: None)


def test_a_chunk_may_call_the_pool_again():
    seen = []
    _kernels._parallel_for(
        4, 3, lambda i: _kernels._parallel_for(5, 3, lambda j: seen.append((i, j)))
    )
    assert sorted(seen) == [(i, j) for i in range(4) for j in range(5)]


def test_many_python_threads_search_at_once():
    index, codes, (indices, distances) = random_search()
    failures = []

    def search():
        for n_threads in (1, 2, 3, 7):
            found = thread_limit(n_threads)(index.nearest)(codes)
            if not (np.array_equal(found[0], indices) and np.array_equal(found[1], distances)):
                failures.append(n_threads)

    callers = [threading.Thread(target=search) for _ in range(12)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=PATIENCE)
    assert not any(caller.is_alive() for caller in callers)
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_working_pool():
    index, codes, (indices, _) = random_search()
    thread_limit(3)(index.nearest)(
        codes
    )  # the parent's workers exist now, the child will have none
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            thread_limit(3)(index.nearest)(codes)

    busy = threading.Thread(target=keep_busy)
    busy.start()  # some children are made in the middle of a call
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                ok = np.array_equal(thread_limit(3)(index.nearest)(codes)[0], indices)
                seen = []
                _kernels._parallel_for(8, 3, seen.append)
                os._exit(0 if ok and sorted(seen) == list(range(8)) else 1)
            deadline = time.monotonic() + PATIENCE
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(child, 9)
                    os.waitpid(child, 0)
                    pytest.fail("the child hangs")
                time.sleep(0.005)
            assert os.waitstatus_to_exitcode(ended[1]) == 0
    finally:
        stop.set()
        busy.join()
    assert_array_equal(thread_limit(3)(index.nearest)(codes)[0], indices)


BLOCKED_SIGNALS = """
import os, signal, threading
from bitclass._native import _kernels

def blocked(task):
    with open(f"/proc/self/task/{task}/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))
    return {number for number in range(1, 65) if mask >> number - 1 & 1}

before = set(os.listdir("/proc/self/task"))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
everybody = threading.Barrier(4, timeout=120)  # a thread that has not begun blocks all signals
_kernels._parallel_for(4, 4, lambda _: everybody.wait())
workers = set(os.listdir("/proc/self/task")) - before
faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
assert len(workers) == 3, workers
for worker in workers:
    taken = set(range(1, 32)) - blocked(worker) - {signal.SIGKILL, signal.SIGSTOP}
    assert taken == faults | {signal.SIGTRAP, signal.SIGSYS}, taken
assert blocked(os.getpid()) == {signal.SIGUSR2}
_kernels._parallel_for(8, 2, lambda _: None)
assert set(os.listdir("/proc/self/task")) - before == workers
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux")
def test_workers_leave_signals_to_the_program():
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED_SIGNALS],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr


def test_idle_workers_use_no_time():
    _kernels._parallel_for(8, 4, lambda _: None)

    def used():
        before = time.process_time()
        time.sleep(0.3)
        return time.process_time() - before

    # Other threads of this process may work for a while; workers that wait actively always would.
    assert any(used() < 0.1 for _ in range(20))


@pytest.mark.parametrize(
    ("n_jobs", "expected"), [(5, 5), (np.int64(2), 2), (64, 8), (-1, 8), (-2, 7), (-1000, 1)]
)
def test_positive_and_negative_n_jobs_count_as_in_scikit_learn(n_jobs, expected):
    assert effective_threads(n_jobs) == expected
    with thread_limit(n_jobs):
        assert effective_threads() == expected


def test_none_uses_the_setting_then_the_environment_then_the_number_of_cpus(monkeypatch):
    monkeypatch.delenv("BITCLASS_NUM_THREADS", raising=False)
    assert bitclass.set_num_threads(None) is None
    assert effective_threads() == 8
    for text, expected in (("64", 8), ("3", 3)):
        monkeypatch.setenv("BITCLASS_NUM_THREADS", text)
        assert effective_threads() == expected
    try:
        assert bitclass.set_num_threads(64) is None
        assert effective_threads() == 8
        assert bitclass.set_num_threads(5) == 64
        assert effective_threads() == 5
        assert effective_threads(2) == 2
    finally:
        bitclass.set_num_threads(None)
    assert effective_threads() == 3


@pytest.mark.parametrize(
    ("text", "expected"), [("3", 3), ("64", 8), ("2,4", 2), ("0", 1), ("many", 8), ("", 8)]
)
def test_the_share_of_a_worker_process_is_the_default(monkeypatch, text, expected):
    monkeypatch.delenv("BITCLASS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert effective_threads() == effective_threads(-1) == expected
    assert effective_threads(6) == 6
    monkeypatch.setenv("BITCLASS_NUM_THREADS", "5")
    assert effective_threads() == 5


def test_workers_of_joblib_share_the_cpus():
    """Together they start no more threads than there are CPUs, unless there are more workers."""
    with joblib.parallel_config("loky", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(effective_threads)() for _ in range(2))
    assert found == [max(1, joblib.cpu_count() // 2)] * 2


@pytest.mark.parametrize("bad", [0, 1.5, 2**31, -(2**31), 10**30, True, np.True_, "2"])
def test_wrong_thread_counts_are_refused_by_name(bad):
    with pytest.raises(ValueError, match="n_jobs: "):
        effective_threads(bad)
    with pytest.raises(ValueError, match="n_threads: "):
        bitclass.set_num_threads(bad)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_wrong_environment_variable_is_refused_by_name(monkeypatch, text):
    monkeypatch.setenv("BITCLASS_NUM_THREADS", text)
    with pytest.raises(ValueError, match=r"BITCLASS_NUM_THREADS: .*positive integer"):
        effective_threads()


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/elsewhere", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/", {"cpu.max": "max 100000\n"}, threads.MAX_THREADS),
        (
            "5:memory:/x\n4:cpu,cpuacct:/x",
            {
                "cpu,cpuacct/x/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/x/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        (
            "4:cpu,cpuacct:/host/path",
            {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            4,
        ),
        (
            "4:cpu:/",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            threads.MAX_THREADS,
        ),
        (None, {}, threads.MAX_THREADS),
    ],
)
def test_the_cpu_quota_of_a_cgroup_is_respected(tmp_path, membership, files, expected):
    if membership is not None:
        (tmp_path / "membership").write_text(membership + "\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert threads.cgroup_quota(tmp_path / "membership", tmp_path) == expected


def blas_threads():
    return [library.get_num_threads() for library in threads._libraries()]


def test_the_last_of_several_threads_restores_blas():
    before = blas_threads()
    first, second = threads.training_threads(1), threads.training_threads(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before
    together = threading.Barrier(4, timeout=PATIENCE)

    def limited(_):
        with threads.training_threads(1):
            together.wait()
            return blas_threads()

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(set(seen) == {1} for seen in pool.map(limited, range(4)))
            assert blas_threads() == before
