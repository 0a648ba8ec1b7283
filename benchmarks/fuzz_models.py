"""Fuzz the readers of model and statistics files: `python benchmarks/fuzz_models.py --n 100000`.

Each damaged file must raise a one-line `ModelFileError` that names the file, or give a model that
predicts. Files are read in separate processes with limits on additional memory and on the time per
file; a crash or a hang counts as a failure. The seed is printed; `--seed` repeats a run.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from bitclass import BinaryCodeClassifier, ModelFileError, load  # noqa: E402
from bitclass.training import load_statistics  # noqa: E402
from mutations import mutated  # noqa: E402

GOLDEN = sorted((HERE.parent / "tests" / "golden").glob("*.safetensors"))
FILES_PER_PROCESS = 5000


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def read(path: str, kind: str) -> None:
    """Read a file and use the result."""
    if kind == "statistics":
        statistics, _ = load_statistics(path)
        X = np.ones((2, statistics.n_features), dtype=np.float32)
        if len(statistics.classes):
            with contextlib.suppress(ValueError):  # sums that are impossible for any rows
                statistics.add(X, statistics.classes[[0, -1]])
                statistics.starting.code_sums(statistics.sums())
        return
    model = load(path)
    X = np.linspace(-2, 2, 3 * model.n_features, dtype=np.float32).reshape(3, -1)
    try:
        assert np.isin(model.predict(X), model.classes).all()
        model.top_classes(X, 1)
        model.top_classes(X, 1, probabilities=True)
        assert np.isfinite(model.predict_proba(X)).all()
        BinaryCodeClassifier.load(path).predict(X)
    except ModelFileError as error:
        check_message(error, path)  # a damaged summary, which `load` does not read
    except ValueError as error:  # finite numbers whose products overflow
        if "too large to be encoded" not in str(error):
            raise


def check_message(error: ModelFileError, path: str) -> None:
    message = str(error)
    assert "\n" not in message, message
    assert message.startswith(f"{path}: "), message
    assert len(message) < 500, message


def run(seed: int, n: int, memory: int, seconds: float) -> None:
    """Damage and read n files in this process, and print the counts of outcomes."""
    rng = np.random.default_rng(seed)
    contents = [(path.read_bytes(), path.name) for path in GOLDEN]
    outcomes: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # spares the disk
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        path = os.path.join(folder, "damaged.safetensors")
        for content, name in contents:  # loads everything before memory is limited
            Path(path).write_bytes(content)
            read(path, "statistics" if name.startswith("statistics") else "model")
        limit = address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for i in range(n):
            content, name = contents[rng.integers(len(contents))]
            damaged, way = mutated(rng, content)
            Path(path).write_bytes(damaged)
            faulthandler.dump_traceback_later(10 * seconds, exit=True)
            start = time.process_time()  # a busy machine may delay it
            try:
                with np.errstate(all="ignore"):
                    read(path, "statistics" if name.startswith("statistics") else "model")
                outcome = "valid"
            except ModelFileError as error:
                check_message(error, path)
                outcome = "refused"
            except BaseException:
                print(f"seed {seed}, file {i}: {way} of {name}", file=sys.stderr)
                raise
            elapsed = time.process_time() - start
            assert elapsed < seconds, f"seed {seed}, file {i}: {way} of {name}: {elapsed:.1f} s"
            slowest = max(slowest, elapsed)
            outcomes[outcome] += 1
        faulthandler.cancel_dump_traceback_later()
    print(json.dumps({**outcomes, "slowest": slowest}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="number of damaged files")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--memory", type=int, default=64, help="maximum additional MiB")
    parser.add_argument("--seconds", type=float, default=2.0, help="maximum CPU seconds per file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run(options.seed, options.n, options.memory << 20, options.seconds)
        return

    print(f"seed {options.seed}, {options.n} damaged files of {len(GOLDEN)}", flush=True)
    start = time.perf_counter()
    totals: collections.Counter[str] = collections.Counter()
    slowest, n_failed = 0.0, 0
    for first in range(0, options.n, FILES_PER_PROCESS):
        n = min(FILES_PER_PROCESS, options.n - first)
        command = [sys.executable, __file__, "--worker", "--n", str(n)]
        command += ["--seed", str(options.seed + first), "--memory", str(options.memory)]
        command += ["--seconds", str(options.seconds)]
        environment = {**os.environ, "BITCLASS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            n_failed += 1
            print(f"FAILED with {done.returncode}:\n{done.stderr[-3000:]}", flush=True)
            continue
        found = json.loads(done.stdout)
        slowest = max(slowest, found.pop("slowest"))
        totals.update(found)
    print(
        f"{totals['refused']} refused, {totals['valid']} still valid, {n_failed} processes failed; "
        f"slowest file {slowest * 1e3:.1f} ms, {time.perf_counter() - start:.0f} s in total"
    )
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
