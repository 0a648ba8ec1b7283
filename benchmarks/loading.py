"""Size and loading time of a model file: `make loading`.

`import bitclass; bitclass.load(path)` in a new process, with 4,096 features, 128 bits and 1,000
classes, alternating with `import numpy` only; medians. Writes `results/loading.md`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bitclass import load
from bitclass.storage import save
from harness import parse_options, random_model, seconds_of, write_page

NOTE = (
    "4,096 features, 128 bits, 1,000 classes; medians. The limit is 1.5 times `import numpy` plus "
    "50 ms. Measured by `make loading`."
)
MAX_BYTES = {"float32": 2_200_000, "int8": 600_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    options, complete = parse_options(parser)
    rounds = options.rounds
    labels = np.array([f"n{i:08d}" for i in range(1000)])
    model = random_model(labels, 4096, 128, standardised=True)
    with tempfile.TemporaryDirectory() as folder:
        codes = {"numpy": ["import numpy"]}
        rows = []
        for kind in MAX_BYTES:
            path = Path(folder) / kind
            save(path, model, projection=kind)
            codes[kind] = ["import sys, bitclass; bitclass.load(sys.argv[1])", str(path)]
            seconds = seconds_of(lambda: load(path), rounds)
            rows.append({"projection": kind, "bytes": path.stat().st_size})
            rows[-1]["`load`, ms"] = 1e3 * seconds
        times: dict[str, list[float]] = {kind: [] for kind in codes}
        for _ in range(rounds):
            for kind, code in codes.items():
                command = [sys.executable, "-c", *code]
                times[kind].append(seconds_of(lambda: subprocess.run(command, check=True)))
    ms = {kind: 1e3 * statistics.median(taken) for kind, taken in times.items()}
    limit = 1.5 * ms["numpy"] + 50
    for row in rows:
        row["new process, import and `load`, ms"] = ms[row["projection"]]
        row |= {"`import numpy`, ms": ms["numpy"], "limit, ms": limit}
    write_page("loading", "Loading a model", NOTE, {"": rows}, keep=complete)
    assert all(row["bytes"] <= MAX_BYTES[row["projection"]] for row in rows)


if __name__ == "__main__":
    main()
