"""Images per second: `make images`.

EfficientNet-Lite0 on prepared images, and from PNG and JPEG files on disk to features. Medians of
several rounds. Writes `results/images.md`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from bitclass.images import extractor_named, open_images
from harness import parse_options, seconds_of, write_page

NOTE = "Median images per second, on all cores. Measured by `make images`."


def rate(work: Callable[[], object], n_images: int, rounds: int) -> float:
    """Images per second, median of several rounds after a warm-up."""
    work()
    return n_images / seconds_of(work, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100, help="number of images")
    parser.add_argument("--rounds", type=int, default=5)
    options, complete = parse_options(parser)
    n, rounds = options.n, options.rounds
    images = list(np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8))
    network = extractor_named("cnn")
    prepared = [network.prepare(image) for image in images]
    results = {
        "EfficientNet-Lite0, 224 x 224 pixels": rate(lambda: network.extract(prepared), n, rounds)
    }
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        small.mkdir()
        large.mkdir()
        for number, image in enumerate(images):
            Image.fromarray(image).save(small / f"{number:06d}.png")
        for number, image in enumerate(images):
            photo = Image.fromarray(image).resize((1024, 768), Image.Resampling.BICUBIC)
            photo.save(large / f"{number:06d}.jpg", quality=90)
        for title, files in (
            ("EfficientNet-Lite0, PNG files of 32 x 32", small),
            ("EfficientNet-Lite0, JPEG files of 1024 x 768", large),
        ):
            results[title] = rate(lambda: open_images(files, network), n, rounds)
    rows = [{"": title, "images per second": value} for title, value in results.items()]
    write_page("images", "Image features", NOTE, {"": rows}, keep=complete)


if __name__ == "__main__":
    main()
