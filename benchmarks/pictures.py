"""Pictures a second: `make pictures`.

GIST of 32 x 32 pixels in one batch beside one at a time; EfficientNet-Lite0; and a folder of PNG
files from disk to GIST. Medians of several rounds. Writes `results/pictures.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from bitclass import get_config
from bitclass.data.pictures import open_folder
from bitclass.images import EfficientNetLite0, Gist, extract_features

HERE = Path(__file__).parent


def rate(work: Callable[[], object], n_pictures: int, rounds: int) -> float:
    """Pictures a second, in the middle of several rounds after one that does not count."""
    work()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return n_pictures / statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=2000, help="pictures for GIST")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    n, rounds = options.n, options.rounds
    pictures = list(np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8))
    gist, network = Gist(), EfficientNetLite0()
    alone, few = pictures[: max(1, n // 10)], pictures[: max(1, n // 20)]
    results = {
        "gist": rate(lambda: gist.extract(pictures), n, rounds),
        "gist_one_at_a_time": rate(lambda: [gist.extract([p]) for p in alone], len(alone), rounds),
        "cnn_224": rate(lambda: network.extract(few), len(few), rounds),
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, picture in enumerate(pictures):
            Image.fromarray(picture).save(Path(folder) / f"{number:06d}.png")
        files = open_folder(folder)
        results["gist_from_files"] = rate(lambda: list(extract_features(files, gist)), n, rounds)
    results["gist_batch_over_one"] = results["gist"] / results["gist_one_at_a_time"]
    for name, value in results.items():
        print(f"{name:<22} {value:10.1f}")
    facts = {"pictures_a_second": results, "n": n, "config": get_config()}
    (HERE / "results" / "pictures.json").write_text(json.dumps(facts, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
