"""Peak memory of hinge training above its input, 1,000,000 x 512 float32: `make memory`.

Writes `results/memory.md`. Each part runs in a process of its own.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from bitclass import BinaryCodeClassifier
from harness import in_child, peak_mb, write_page

NOTE = "Peak memory of `fit` above its input, without refinement. Measured by `make memory`."
CASES = {
    # rows, features, classes, loss; and what may be taken above the input, in MB
    "hinge, 1,000,000 x 512": (1_000_000, 512, 100, "hinge", 200),
    "exponential, 1,000,000 x 64, 1,000 classes": (1_000_000, 64, 1000, "exponential", None),
}


def run(name: str) -> None:
    """Fit in this process, and print the peak above what stood there before."""
    n, d, n_classes, loss, _ = CASES[name]
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, d), dtype=np.float32)
    y = np.arange(n) % n_classes
    X = np.empty((n, d), dtype=np.float32)
    for start in range(0, n, 10_000):
        block = slice(start, start + 10_000)
        X[block] = rng.standard_normal((len(y[block]), d), dtype=np.float32)
        X[block] += centres[y[block]]
    classifier = BinaryCodeClassifier(128, loss=loss, random_state=0, refine=False)
    classifier.fit(X[:2000], y[:2000])  # so that all is imported
    before = peak_mb(reset=True)
    classifier.fit(X, y)
    found = {"input, MB": X.nbytes / 1e6, "above it, MB": peak_mb() - before}
    print(json.dumps(found | {"training accuracy": classifier.score(X[:5000], y[:5000])}))


def main() -> None:
    if len(sys.argv) > 1:
        run(sys.argv[1])
        return
    rows = [{"": name} | in_child(name) | {"limit, MB": case[-1]} for name, case in CASES.items()]
    write_page("memory", "Memory of training", NOTE, {"": rows})


if __name__ == "__main__":
    main()
