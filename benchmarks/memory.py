"""Peak memory of hinge training above its input, 1,000,000 x 512 float32: `make memory`.

Writes `results/memory.md`. Each part runs in a process of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from tables import write_page

NOTE = "Peak memory of `fit` above its input, without refinement. Measured by `make memory`."
CASES = {
    # rows, features, classes, loss; and what may be taken above the input, in MB
    "hinge, 1,000,000 x 512": (1_000_000, 512, 100, "hinge", 200),
    "exponential, 1,000,000 x 64, 1,000 classes": (1_000_000, 64, 1000, "exponential", None),
}


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def present_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def run(name: str) -> None:
    """Fit in this process, and print the peak above what stood there before."""
    from bitclass import BinaryCodeClassifier

    n, d, n_classes, loss, _ = CASES[name]
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, d), dtype=np.float32)
    y = np.arange(n) % n_classes
    X = np.empty((n, d), dtype=np.float32)
    for start in range(0, n, 10_000):
        block = slice(start, start + 10_000)
        X[block] = rng.standard_normal((len(y[block]), d), dtype=np.float32)
        X[block] += centres[y[block]]
    small = BinaryCodeClassifier(128, loss=loss, random_state=0, refine=False).fit(
        X[:2000], y[:2000]
    )
    before = present_bytes()
    classifier = BinaryCodeClassifier(128, loss=loss, random_state=0, refine=False).fit(X, y)
    after = peak_bytes()
    accuracy = classifier.score(X[:5000], y[:5000])
    assert small.classes_.size == n_classes
    found = {"input, MB": X.nbytes / 1e6, "above it, MB": (after - before) / 1e6}
    print(json.dumps(found | {"training accuracy": accuracy}))


def main() -> None:
    if len(sys.argv) > 1:
        run(sys.argv[1])
        return
    results = []
    for name, (*_, most) in CASES.items():
        done = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, check=True
        )
        results.append({"": name} | json.loads(done.stdout) | {"limit, MB": most})
    write_page("memory", "Memory of training", NOTE, {"": results})


if __name__ == "__main__":
    main()
