"""Reading takes memory for batches, not for files."""

import gzip
import json
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.io

from bitclass.data import open_rows

N_FEATURES = 64
SMALL, LARGE = 40_000, 240_000  # rows; 10 MB and 61 MB in float32

READ = """
import json, pathlib, resource, sys
from bitclass.data import isolation, open_rows
rows = open_rows(sys.argv[1])
n_rows = sum(batch.X.shape[0] for batch in rows.batches(1024))
isolation.stop_idle_process()
# Not getrusage for this process: it would also count the process that started it.
status = pathlib.Path("/proc/self/status").read_text()
own = int(status.split("VmHWM:")[1].split()[0])
apart = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([n_rows, own / 1024, apart / 1024]))
"""


def npz_deflated(path, X):
    np.savez_compressed(path, X=X)


def npz_stored(path, X):
    np.savez(path, X=X)


def npy_fortran(path, X):
    np.save(path, np.asfortranarray(X))


def matlab5(path, X):
    scipy.io.savemat(path, {"X": X})


def matlab5_deflated(path, X):
    scipy.io.savemat(path, {"X": X}, do_compression=True)


def matlab73(path, X):
    with h5py.File(path, "w", userblock_size=512) as file:
        dataset = file.create_dataset("X", data=X.T, chunks=(N_FEATURES, 500))
        dataset.attrs["MATLAB_class"] = np.bytes_("single")


def hdf5_deflated(path, X):
    with h5py.File(path, "w") as file:
        options = {"chunks": (1000, N_FEATURES), "compression": "gzip", "compression_opts": 1}
        file.create_dataset("X", data=X, **options)


def lists(X):
    return pa.table({"X": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), N_FEATURES)})


def parquet_one_group(path, X):
    pa.parquet.write_table(lists(X), path, row_group_size=len(X))


def arrow_one_batch(path, X):
    table = lists(X)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def feather(path, X):
    pa.feather.write_feather(lists(X), str(path), compression="zstd", chunksize=4096)


def text_rows(X, row):
    """The same few rows again and again, which is quicker to write."""
    block = "".join(row(x) for x in X[:2000].tolist())
    return (block * (len(X) // 2000)).encode()


def csv(path, X):
    path.write_bytes(text_rows(X, lambda x: ",".join(f"{v:.1f}" for v in x) + "\n"))


def svmlight_gzip(path, X):
    def row(x):
        return "1 " + " ".join(f"{j}:{v:.1f}" for j, v in enumerate(x[:12], 1)) + "\n"

    path.write_bytes(gzip.compress(text_rows(X, row), compresslevel=1))


MAKERS = [
    (npy_fortran, "a.npy"), (npz_stored, "a.npz"), (npz_deflated, "a.npz"), (matlab5, "a.mat"),
    (matlab5_deflated, "a.mat"), (matlab73, "a.mat"), (hdf5_deflated, "a.h5"),
    (parquet_one_group, "a.parquet"), (arrow_one_batch, "a.arrow"), (feather, "a.feather"),
    (csv, "a.csv"), (svmlight_gzip, "a.svm.gz"),
]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(("make", "name"), MAKERS, ids=[make.__name__ for make, _ in MAKERS])
def test_peak_memory_does_not_grow_with_the_file(tmp_path, make, name):
    # Runs of equal rows: quick to pack.
    X = np.repeat(np.arange(1000, dtype=np.float32), LARGE // 1000)[:, None] + np.zeros(
        N_FEATURES, np.float32
    )
    peaks = {}
    for n_rows in (SMALL, LARGE):
        path = tmp_path / name
        make(path, X[:n_rows])
        done = subprocess.run(
            [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
        )
        found, *peaks[n_rows] = json.loads(done.stdout)
        assert found == n_rows
    more = np.subtract(peaks[LARGE], peaks[SMALL])
    assert more.max() < 12, f"{more} MB more for a file that has 51 MB more"


def test_a_file_of_very_many_columns_is_not_taken_for_a_damaged_one(tmp_path):
    X = np.random.default_rng(0).random((5000, 1500), dtype=np.float32)
    table = pa.table({f"f{j}": X[:, j] for j in range(X.shape[1])})
    pa.parquet.write_table(table, tmp_path / "random.parquet")
    X[:] = 1.0
    table = pa.table({f"f{j}": X[:, j] for j in range(X.shape[1])})
    pa.parquet.write_table(table, tmp_path / "constant.parquet")
    for name in ("random", "constant"):
        rows = open_rows(tmp_path / f"{name}.parquet")
        assert sum(batch.X.shape[0] for batch in rows.batches(2048)) == 5000
