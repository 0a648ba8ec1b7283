"""Damaged files of every format give an error or rows: no crash, no hang, no flood of memory.

`benchmarks/fuzz_readers.py` does the same for as long as one likes.
"""

import secrets
import signal

import h5py
import numpy as np
import pytest
from feature_files import BY_NAME, MAKERS, labels_of, make
from fuzzing import APART, NAMES, fuzz

from bitclass.data import DataFileError, isolation, open_rows

X = np.arange(30, dtype=np.float32).reshape(10, 3)


def test_mutated_files_are_refused_or_read():
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    numbers = {name: range(20 if name in APART else 60) for name in NAMES}
    results = fuzz(numbers, seed)
    failures = [failure for result in results.values() for failure in result["failures"]]
    assert not failures, f"seed {seed}: {failures}"
    for name, result in results.items():
        assert result["refused"] + result["valid"] == len(numbers[name])


def test_a_damaged_file_cannot_make_its_library_take_much_memory():
    # Both made the HDF5 library ask for all that it was allowed.
    for name, number in (("hdf5", 1951), ("hdf5_sparse", 1111)):
        result = fuzz({name: range(number, number + 1)}, seed=1870204704)[name]
        assert not result["failures"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in APART])
def test_a_file_cut_short_anywhere_is_refused_or_read(tmp_path, name):
    paths, options = make(BY_NAME[name], tmp_path, X, labels_of("text", 10))
    content = paths[0].read_bytes()
    refused = 0
    for length in np.linspace(0, len(content) - 1, 25).astype(int):
        paths[0].write_bytes(content[:length])
        try:
            for batch in open_rows(paths, **options).batches(4):
                assert batch.X.shape[1] <= 3
        except DataFileError:
            refused += 1
    # A text file that ends between two lines is a whole file of fewer rows.
    assert refused > (0 if MAKERS[BY_NAME[name]][0] in (".csv", ".tsv", ".svm") else 20)


@pytest.fixture
def hdf5_file(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
    return tmp_path / "a.h5"


def test_a_reading_process_that_dies_is_an_error(hdf5_file, monkeypatch):
    rows = open_rows(hdf5_file)
    workers = []
    ask = isolation._Worker.ask

    def ask_and_kill(worker, question):
        workers.append(worker)
        worker._process.send_signal(signal.SIGSTOP)  # or it might answer before it is killed
        ask(worker, question)
        worker._process.kill()

    monkeypatch.setattr(isolation._Worker, "ask", ask_and_kill)
    with pytest.raises(DataFileError, match="the process that read it has died"):
        list(rows.batches(4))
    assert not workers[0].is_alive()


def test_a_reading_process_that_is_gone_before_the_request_is_an_error(hdf5_file, monkeypatch):
    rows = open_rows(hdf5_file)
    ask = isolation._Worker.ask

    def kill_and_ask(worker, question):
        worker._process.kill()
        worker._process.wait()
        ask(worker, question)

    monkeypatch.setattr(isolation._Worker, "ask", kill_and_ask)
    with pytest.raises(DataFileError, match="the process that read it has died"):
        list(rows.batches(4))


def test_a_reading_process_that_hangs_is_an_error(hdf5_file, monkeypatch):
    rows = open_rows(hdf5_file)
    monkeypatch.setattr(isolation, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(isolation._Worker, "ask", lambda worker, question: None)
    with pytest.raises(DataFileError, match="nothing came for"):
        list(rows.batches(4))


def test_a_process_is_not_left_behind_when_reading_ends_early(hdf5_file):
    isolation.stop_idle_process()
    batches = open_rows(hdf5_file).batches(1)
    worker = isolation._workers._idle
    next(batches)
    batches.close()
    assert not worker.is_alive()
    assert isolation._workers._idle is None


def test_the_folder_may_change_between_opening_and_reading(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    rows = open_rows("a.h5")
    monkeypatch.chdir("elsewhere")
    np.testing.assert_array_equal(next(rows.batches(10)).X, X)


def test_modules_in_the_present_folder_are_not_imported(tmp_path, monkeypatch):
    isolation.stop_idle_process()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
    (tmp_path / "json.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    assert open_rows("a.h5").n_rows == 10
