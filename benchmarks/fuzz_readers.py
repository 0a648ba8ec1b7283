"""Damaged feature files of every format: `python benchmarks/fuzz_readers.py --n 1000`.

Each trial must end in rows or in a `DataFileError`. Files are read in one process per format: the
libraries are trusted with a user's own files, and on damaged ones some of them can crash (SciPy's
reader of MATLAB 5 does), which is reported but is no failure of ours.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "io"))

from feature_files import BY_NAME, labels_of, make
from mutated_files import mutated, read_all


def fuzz(name: str, n_trials: int, seed: int) -> int:
    """Read damaged files of one format; return the number of unexpected errors."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        X = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
        paths, how = make(BY_NAME[name], Path(folder), X, labels_of("text", 9))
        content = paths[0].read_bytes()
        for trial in range(n_trials):
            paths[0].write_bytes(mutated(content, np.random.default_rng([seed, trial])))
            try:
                counts[read_all(paths, how)] += 1
            except Exception as error:
                counts["failed"] += 1
                print(f"{name}, seed {seed}, trial {trial}: {type(error).__name__}: {error}")
    print(f"{name:22} {dict(counts)}", flush=True)
    return counts["failed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000, help="trials per format")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--only", nargs="*", default=list(BY_NAME), choices=list(BY_NAME))
    options = parser.parse_args()
    if len(options.only) == 1:
        sys.exit(min(fuzz(options.only[0], options.n, options.seed), 100))
    failed = False
    for name in options.only:
        numbers = ["--n", str(options.n), "--seed", str(options.seed)]
        done = subprocess.run([sys.executable, __file__, *numbers, "--only", name])
        if done.returncode < 0:
            print(f"{name:22} the library crashed (signal {-done.returncode})", flush=True)
        failed |= done.returncode > 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
