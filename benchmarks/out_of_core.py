"""Training on a file larger than memory: `make out-of-core`.

Creates a float32 `.npy` file of shape 3,000,000 x 1,024 (12 GB) in a temporary folder, trains on it
with `bitclass fit` in a separate process, and deletes it. Reports the peak resident memory, and the
ratio of the time to that of training in memory, scaled to as many rows, plus a plain read of the
file. Writes `results/out_of_core.md`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from bitclass import BinaryCodeClassifier
from harness import parse_options, seconds_of, write_page

N_CLASSES = 500
BLOCK = 20_000
# The peak is measured in the process itself: the value seen by its parent includes the parent's.
_RUN_AND_PRINT_PEAK = """
import re, sys
from bitclass.cli import main
sys.argv[0] = "bitclass"
try:
    main()
finally:
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
    print(int(peak[1]) * 1024 / 1e6)
"""


def make_files(folder: Path, n: int, d: int) -> tuple[Path, Path]:
    """Write features and labels in blocks, with classes in random order."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_CLASSES, d), dtype=np.float32)
    labels = rng.integers(0, N_CLASSES, n)
    features = folder / "X.npy"
    array = open_memmap(features, mode="w+", dtype=np.float32, shape=(n, d))
    noise = 3 * rng.standard_normal((BLOCK, d), dtype=np.float32)
    for start in range(0, n, BLOCK):
        y = labels[start : start + BLOCK]
        # All blocks have the same noise, shifted: generating it would take too long.
        array[start : start + BLOCK] = centres[y] + np.roll(noise, start // BLOCK, 1)[: len(y)]
    array.flush()
    del array
    np.save(folder / "y.npy", labels)
    return features, folder / "y.npy"


def drop_cache(path: Path) -> None:
    """Ask the system to drop the file from its cache, so that it is read from disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(path: Path) -> float:
    """Seconds to read the whole file."""
    drop_cache(path)
    buffer = bytearray(16 << 20)

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return seconds_of(read)


def in_memory(features: Path, labels: Path, n: int) -> float:
    """Seconds per row to fit the first n rows in memory."""
    X = np.array(np.load(features, mmap_mode="r")[:n])
    y = np.load(labels)[:n]
    classifier = BinaryCodeClassifier(128, random_state=0)
    classifier.fit(X[:5000], y[:5000])  # imports everything
    return seconds_of(lambda: classifier.fit(X, y)) / n


def streamed(folder: Path, features: Path, labels: Path) -> tuple[float, float]:
    """Seconds and peak resident MB of `bitclass fit`."""
    drop_cache(features)
    arguments = ["fit", str(features), "--labels", str(labels)]
    arguments += ["--model", str(folder / "model.safetensors")]
    command = [sys.executable, "-c", _RUN_AND_PRINT_PEAK, *arguments]
    output = []
    seconds = seconds_of(lambda: output.append(subprocess.check_output(command, text=True)))
    return seconds, float(output[0].splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--memory-rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="folder for the temporary file")
    options, complete = parse_options(parser)
    n, d = options.rows, options.features
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        features, labels = make_files(Path(name), n, d)
        print(f"wrote {features.stat().st_size / 1e9:.1f} GB", flush=True)
        read = plain_read(features)
        seconds, peak = streamed(Path(name), features, labels)
        per_row = in_memory(features, labels, min(options.memory_rows, n))
    result = {
        "peak memory, MB": peak,
        "limit, MB": 1000,
        "`bitclass fit`, s": seconds,
        "plain read, s": read,
        "as many rows in memory, s": n * per_row,
        "ratio": seconds / (n * per_row + read),
    }
    print(result, flush=True)
    note = (
        f"{n:,} rows of {d:,} float32 features, {4 * n * d / 1e9:.1f} GB. *ratio* is "
        "relative to a plain read plus training in memory. Measured by `make out-of-core`."
    )
    title = "Training on a file larger than memory"
    write_page("out_of_core", title, note, {"": [result]}, keep=complete)


if __name__ == "__main__":
    main()
