"""What a fit costs a cluster: memory of a worker, bytes between workers."""

import dask
import dask.array as da
import numpy as np
import pytest
from clusters import cluster, fitted
from distributed import wait

HINGE = {
    "n_bits": 128,
    "loss": "hinge",
    "initial_codes": "random",
    "refine": False,
    "random_state": 0,
}
MB = 1e6


def largest_so_far():
    """Peak memory of this process in bytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def received(dask_worker):
    """Bytes that this worker got from others."""
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def rows(n, d, n_classes, partition_rows):
    """Rows that the workers make, and labels that go with them."""

    def made(block_info=None):
        start, stop = block_info[None]["array-location"][0]
        return np.random.default_rng(start).standard_normal((stop - start, d), dtype=np.float32)

    chunks = ((partition_rows,) * (n // partition_rows), (d,))
    X = da.map_blocks(made, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0), np.float32))

    def labels(block, block_info=None):
        start, stop = block_info[0]["array-location"][0]
        return np.arange(start, stop) // 2 % n_classes

    return X, X.map_blocks(labels, drop_axis=1, dtype=np.int64, meta=np.empty(0, np.int64))


# The sample for starting codes has fewer rows than there are classes.
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_a_worker_holds_one_set_of_sums_and_no_more():
    d, n_classes, partition_rows = 1024, 24_000, 2000
    sums = 8 * d * (d + n_classes)
    partition = 4 * d * partition_rows
    # Python, libraries, sums, a few partitions: a worker with twice the sums would be killed.
    limit = 300 * MB + 1.9 * sums
    nothing_to_disk = {
        f"distributed.worker.memory.{measure}": False for measure in ("target", "spill", "pause")
    }
    with (
        dask.config.set(nothing_to_disk),
        cluster(memory_limit=int(limit)) as client,
        client.as_current(),
    ):
        fitted(HINGE | {"n_bits": 16}, *rows(400, 20, 3, 100))
        before = client.run(largest_so_far)
        found = fitted(HINGE, *rows(2 * n_classes, d, n_classes, partition_rows))
        after = client.run(largest_so_far)
        assert found.statistics_.feature_sums.nbytes + found.statistics_.gram.nbytes == sums
    # A worker that came near its limit would have been started anew, at another address.
    assert before.keys() == after.keys()
    growth = [after[worker] - before[worker] for worker in after]
    # Beside the sums and the partitions at hand there is a float32 product of d x d, a piece of
    # the sums of the other worker, and the blocks that rows are worked on in.
    allowed = sums + 3 * partition + 4 * d * d + 2 * 33 * MB
    assert max(growth) < allowed < 1.9 * sums
    assert max(growth) > sums / 2  # or this would measure something else


def test_bytes_between_workers_do_not_depend_on_the_number_of_rows(client):
    def traffic(n):
        X, y = rows(n, 256, 50, 500)
        X = client.persist(X)
        wait(X)
        y = X.map_blocks(
            lambda block: (np.abs(block[:, 0]) * 1e6).astype(np.int64) % 50,
            drop_axis=1,
            dtype=np.int64,
            meta=np.empty(0, np.int64),
        )
        before = sum(client.run(received).values())
        fitted(HINGE, X, y)
        return sum(client.run(received).values()) - before, X.nbytes

    few, few_bytes = traffic(4_000)
    many, many_bytes = traffic(32_000)
    assert many_bytes == 8 * few_bytes
    sums = 8 * 256 * (256 + 50)
    assert sums / 2 < few < 2 * sums
    # One partition may travel when a worker has nothing else to do.
    assert abs(many - few) < 1.2 * MB < (many_bytes - few_bytes) / 20
