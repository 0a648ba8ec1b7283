"""Mutated feature files of every format, in numbers: `python benchmarks/fuzz_readers.py --n 5000`.

Prints the seed, and for each kind of file how many were refused, how many still gave rows, the
slowest trial and the memory it took. A failure is named by its trial, which
`--only npz --first 17 --n 18` with the same seed runs again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "data"))

from fuzzing import NAMES, fuzz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=5000, help="trials a kind of file")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    failures: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = {
            name: pool.submit(fuzz, {name: range(options.first, options.n)}, options.seed)
            for name in options.only
        }
        for name, job in jobs.items():
            done = job.result()[name]
            failures += done["failures"]
            print(
                f"{name:22} {done['refused']:6} refused {done['valid']:6} valid  "
                f"slowest {done['slowest']:5.2f} s  memory +{done['memory'] >> 20} MB  "
                f"failures {len(done['failures'])}",
                flush=True,
            )
    for failure in failures:
        print(failure)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
