"""Images per second: `make images`.

GIST of 32 x 32 pixels in one batch and one image at a time; EfficientNet-Lite0; and folders of PNG
and JPEG files from disk to features. Medians of several rounds. Writes `results/images.json`.
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
from bitclass.images import EfficientNetLite0, Gist, image_rows, open_images

HERE = Path(__file__).parent


def rate(work: Callable[[], object], n_images: int, rounds: int) -> float:
    """Images per second, median of several rounds after a warm-up."""
    work()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return n_images / statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=2000, help="images for GIST")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    n, rounds = options.n, options.rounds
    images = list(np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8))
    gist, network = Gist(), EfficientNetLite0()
    alone, few = images[: max(1, n // 10)], images[: max(1, n // 20)]
    prepared = [network.preparation(image) for image in few]
    results = {
        "gist": rate(lambda: gist.extract(images), n, rounds),
        "gist_one_at_a_time": rate(lambda: [gist.extract([i]) for i in alone], len(alone), rounds),
        "cnn_224": rate(lambda: network.extract(prepared), len(few), rounds),
    }
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        small.mkdir()
        large.mkdir()
        for number, image in enumerate(images):
            Image.fromarray(image).save(small / f"{number:06d}.png")
        for number, image in enumerate(few):
            photo = Image.fromarray(image).resize((1024, 768), Image.Resampling.BICUBIC)
            photo.save(large / f"{number:06d}.jpg", quality=90)
        png, jpeg = open_images(small), open_images(large)
        results["gist_from_png"] = rate(lambda: image_rows(png, gist), n, rounds)
        results["gist_from_jpeg_1024"] = rate(lambda: image_rows(jpeg, gist), len(few), rounds)
        results["cnn_from_jpeg_1024"] = rate(lambda: image_rows(jpeg, network), len(few), rounds)
    results["gist_batch_over_one"] = results["gist"] / results["gist_one_at_a_time"]
    for name, value in results.items():
        print(f"{name:<22} {value:10.1f}")
    facts = {"images_per_second": results, "n": n, "config": get_config()}
    (HERE / "results" / "images.json").write_text(json.dumps(facts, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
