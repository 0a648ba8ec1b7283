"""Size and loading time of a model file: `make loading`.

At 4,096 features, 128 bits and 1,000 classes, `import bitclass; bitclass.load(path)` in a fresh
process beside `import numpy` alone, in turn, medians. Writes `results/loading.md`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bitclass import PackedModel, load
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.storage import PROJECTION_TYPES, save
from tables import write_page

NOTE = (
    "4,096 features, 128 bits, 1,000 classes; medians. The limit is 1.5 times `import numpy` plus "
    "50 ms. Measured by `make loading`."
)
MOST_BYTES = {"float32": 2_200_000, "int8": 600_000}


def example() -> PackedModel:
    rng = np.random.default_rng(0)
    d, n_bits, n_classes = 4096, 128, 1000
    return PackedModel(
        np.array([f"n{i:08d}" for i in range(n_classes)]),
        pack(rng.standard_normal((n_classes, n_bits)) > 0),
        HashFunction(
            rng.standard_normal((d, n_bits)).astype(np.float32),
            rng.standard_normal(n_bits),
            centre=rng.standard_normal(d).astype(np.float32),
            scale=rng.uniform(1, 2, d).astype(np.float32),
        ),
    )


def seconds(code: str, *arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: str(Path(folder) / kind) for kind in PROJECTION_TYPES}
        for kind, path in paths.items():
            save(path, example(), projection=kind)
            loads = []
            for _ in range(options.rounds):
                began = time.perf_counter()
                load(path)
                loads.append(time.perf_counter() - began)
            results[kind] = {
                "bytes": Path(path).stat().st_size,
                "load_ms": 1e3 * statistics.median(loads),
            }
        times: dict[str, list[float]] = {kind: [] for kind in ("numpy", *paths)}
        for _ in range(options.rounds):
            times["numpy"].append(seconds("import numpy"))
            for kind, path in paths.items():
                code = "import sys, bitclass; bitclass.load(sys.argv[1])"
                times[kind].append(seconds(code, path))
    numpy_ms = 1e3 * statistics.median(times["numpy"])
    limit = 1.5 * numpy_ms + 50
    for kind, found in results.items():
        found["process_ms"] = 1e3 * statistics.median(times[kind])
    rows = [
        {
            "projection": kind,
            "bytes": found["bytes"],
            "`load`, ms": found["load_ms"],
            "new process, import and `load`, ms": found["process_ms"],
            "`import numpy`, ms": numpy_ms,
            "limit, ms": limit,
        }
        for kind, found in results.items()
    ]
    write_page("loading", "Loading a model", NOTE, {"": rows})
    assert all(found["process_ms"] <= limit for found in results.values())
    assert all(results[kind]["bytes"] <= most for kind, most in MOST_BYTES.items())


if __name__ == "__main__":
    main()
