"""Mutated files of every format: an error or rows, but no crash, no hang and no flood of memory.

Trials run in processes of their own, under limits of time and memory. A process says before each
trial which one it is, so that one that dies names its trial, and a new process goes on after it.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from feature_files import BY_NAME, MAKERS, labels_of, make

from bitclass.data import DataFileError, isolation, open_rows

SECONDS_A_TRIAL = 20
MOST_MORE_MEMORY = 128 << 20
ADDRESS_SPACE = 16 << 30
NUMBERS = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
TEXTS = (b",", b":", b'"', b"\n", b" ", b"nan", b"1e999", b"\xff\xfe", b"-1", b"9" * 30, b"\x00")


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip bytes, cut, repeat, or write absurd numbers; often near the ends, where headers are."""
    changed = bytearray(content)
    if rng.random() < 0.15:
        return bytes(changed[: rng.integers(0, len(changed))])
    for _ in range(int(rng.choice([1, 1, 1, 2, 4, 16]))):
        at = int(rng.integers(0, len(changed)))
        if rng.random() < 0.4:
            at = min(len(changed) - 1, int(rng.integers(0, 256)))
        elif rng.random() < 0.4:
            at = max(0, len(changed) - 1 - int(rng.integers(0, 1024)))
        how = rng.integers(0, 6)
        if how <= 1:
            changed[at] ^= 1 << int(rng.integers(0, 8))
        elif how == 2:
            changed[at] = int(rng.integers(0, 256))
        elif how == 3:
            size = int(rng.choice([2, 4, 8]))
            order = "little" if rng.random() < 0.8 else "big"
            number = NUMBERS[rng.integers(0, len(NUMBERS))] % (1 << 8 * size)
            changed[at : at + size] = number.to_bytes(size, order)
        elif how == 4:
            changed[at:at] = TEXTS[rng.integers(0, len(TEXTS))]
        else:
            size = int(rng.integers(1, 64))
            part = changed[at : at + size]
            changed[at : at + size] = part * 2 if rng.random() < 0.5 else b""
    return bytes(changed)


def trial(paths: list[Path], options: dict[str, object]) -> str:
    """Read everything; an error that is not a DataFileError is not caught."""
    try:
        rows = open_rows(paths, **options)
        at = 0
        for batch in rows.batches(7):
            assert batch.X.shape == (min(7, rows.n_rows - at), rows.n_features)
            assert batch.labels is None or batch.labels.shape == (batch.X.shape[0],)
            at += batch.X.shape[0]
            if at > 10_000:  # a valid file of very many rows
                break
    except DataFileError as error:
        message = str(error)
    else:
        return "valid"
    assert "\n" not in message, message
    assert len(message) < 2000, message
    return "refused"


def high_water(process: int | str = "self") -> int:
    """The most bytes that a process ever had in memory.

    Not by getrusage, which counts what its parent had when it was started.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 if "VmHWM:" in status else 0


class Apart:
    """The most memory that any reading process had, asked of each before it is stopped."""

    def __init__(self) -> None:
        self.most = 0
        for name in ("stop", "_give_up"):
            setattr(isolation._Worker, name, self._asked_before(getattr(isolation._Worker, name)))

    def _asked_before(self, stop: Callable) -> Callable:
        def ask_and_stop(worker: isolation._Worker) -> None:
            self.ask(worker)
            stop(worker)

        return ask_and_stop

    def ask(self, worker: isolation._Worker | None) -> None:
        if worker is not None:
            self.most = max(self.most, high_water(worker._process.pid))

    def peak_bytes(self) -> np.ndarray:
        """The peaks of this process and of all reading processes."""
        self.ask(isolation._workers._idle)
        return np.array([high_water(), self.most])


def run_trials(
    name: str, trials: range, seed: int, progress: Path, folder: Path, apart: Apart
) -> dict:
    """Run trials of a kind of file in this process and this folder."""
    X = np.random.default_rng(0).standard_normal((23, 5)).astype(np.float32)
    paths, options = make(BY_NAME[name], folder, X, labels_of("text", 23))
    content = paths[0].read_bytes()
    # On a busy machine a reading process takes its time to start, and this file must be read.
    isolation.PATIENCE_SECONDS = 10 * SECONDS_A_TRIAL
    assert trial(paths, options) == "valid"
    isolation.PATIENCE_SECONDS = SECONDS_A_TRIAL / 4
    counts = {"refused": 0, "valid": 0}
    slowest, largest, failures = 0.0, 0, []
    before = apart.peak_bytes()
    for number in trials:
        progress.write_text(f"{name} {number}")
        paths[0].write_bytes(mutated(content, np.random.default_rng((seed, number))))
        signal.alarm(SECONDS_A_TRIAL)
        start = time.perf_counter()
        try:
            counts[trial(paths, options)] += 1
        except BaseException as error:
            failures.append(f"{name} {number}: {type(error).__name__}: {error}"[:500])
        slowest = max(slowest, time.perf_counter() - start)
        signal.alarm(0)
        more = apart.peak_bytes() - before
        largest = max(largest, *more.tolist())
        if max(more) > MOST_MORE_MEMORY:
            failures.append(f"{name} {number}: took {max(more) >> 20} MB")
            before = apart.peak_bytes()
    return {"slowest": slowest, "memory": largest, "failures": failures} | counts


def work(jobs: list[list], seed: int, progress: Path) -> None:
    """Run jobs, each a name and the numbers of its first and last trial, and print the results."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    warnings.simplefilter("ignore")
    isolation.REUSE_AFTER_REFUSAL = True
    apart = Apart()
    for name, first, stop in jobs:
        with tempfile.TemporaryDirectory() as folder:
            trials = range(first, stop)
            result = run_trials(name, trials, seed, progress, Path(folder), apart)
        print(json.dumps([name, result]), flush=True)


def fuzz(numbers: dict[str, range], seed: int) -> dict[str, dict]:
    """Run these trials in processes of their own; what came out for each kind of file."""
    nothing = {"refused": 0, "valid": 0, "slowest": 0.0, "memory": 0}
    total = {name: nothing | {"failures": []} for name in numbers}
    jobs = [[name, trials.start, trials.stop] for name, trials in numbers.items()]
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress"
        while jobs:
            done = subprocess.run(
                [sys.executable, __file__, json.dumps(jobs), str(seed), str(progress)],
                capture_output=True,
                text=True,
            )
            for line in done.stdout.splitlines():
                name, result = json.loads(line)
                for key in ("refused", "valid"):
                    total[name][key] += result[key]
                for key in ("slowest", "memory"):
                    total[name][key] = max(total[name][key], result[key])
                total[name]["failures"] += result["failures"]
                jobs.pop(0)
            if done.returncode and not progress.exists():
                raise RuntimeError(f"no trial could be made: {done.stderr[-2000:]}")
            if done.returncode:
                name, died = progress.read_text().split()
                why = f"signal {-done.returncode}" if done.returncode < 0 else done.stderr[-500:]
                total[name]["failures"].append(f"{name} {died}: the process died, {why}")
                jobs[0][1] = int(died) + 1
    return total


NAMES = [maker.__name__ for maker in MAKERS]
# Read in a process apart, which is started again after every file that is refused.
APART = [name for name in NAMES if name.startswith(("parquet", "hdf5", "matlab73"))]

if __name__ == "__main__":
    work(json.loads(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
