"""Images per second: `make images`.

GIST of 32 x 32 pixels in one batch and one image at a time; EfficientNet-Lite0; and folders of PNG
and JPEG files from disk to features. Medians of several rounds. Writes `results/images.md`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from bitclass.images import EfficientNetLite0, Gist, image_rows, open_images
from harness import seconds_of, write_page

NOTE = "Images per second, medians, all cores. Measured by `make images`."


def rate(work: Callable[[], object], n_images: int, rounds: int) -> float:
    """Images per second, median of several rounds after a warm-up."""
    work()
    return n_images / seconds_of(work, rounds)


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
        "GIST, 32 x 32 pixels, in one batch": rate(lambda: gist.extract(images), n, rounds),
        "GIST, one image at a time": rate(
            lambda: [gist.extract([image]) for image in alone], len(alone), rounds
        ),
        "EfficientNet-Lite0, 224 x 224 pixels": rate(
            lambda: network.extract(prepared), len(few), rounds
        ),
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
        for title, files, extractor in (
            ("GIST, PNG files of 32 x 32", png, gist),
            ("GIST, JPEG files of 1024 x 768", jpeg, gist),
            ("EfficientNet-Lite0, JPEG files of 1024 x 768", jpeg, network),
        ):
            results[title] = rate(lambda: image_rows(files, extractor), len(files), rounds)
    rows = [{"": title, "images per second": value} for title, value in results.items()]
    if n == parser.get_default("n"):
        write_page("images", "Image features", NOTE, {"": rows})
    else:
        print(*rows, sep="\n")


if __name__ == "__main__":
    main()
