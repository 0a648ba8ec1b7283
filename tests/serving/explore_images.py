"""Images drawn for the tests of the page, and a model trained on them."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from bitclass import BinaryCodeClassifier
from bitclass.images import image_rows, open_images
from bitclass.serving import Gallery, ServedModel
from small_network import small_network

# Names that would be markup, or a path, if they were not escaped.
CLASSES = ("stripes", "<b>bars", "<img src=x onerror=alert(1)>", "rings & dots")
HOSTILE_NAME = "\"'><svg onload=alert(2)>.png"
N_EACH = 12


def drawn(kind, seed, side=48):
    """An image of one of the four classes, (side, side, 3)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    phase, waves = rng.uniform(0, 6), rng.uniform(3.5, 5)
    kinds = (y, x, (x + y) / 1.4, np.hypot(x - 0.5, y - 0.5) * 1.6)
    grey = 0.5 + 0.4 * np.sin(2 * np.pi * waves * kinds[kind] + phase)
    colours = np.array([[90, 160, 255], [255, 150, 80], [130, 220, 120], [230, 110, 210]])
    image = grey[:, :, None] * colours[kind] + rng.normal(0, 6, (side, side, 1))
    return np.clip(image, 0, 255).astype(np.uint8)


def encoded(pixels, format="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format, **options)
    return stream.getvalue()


def draw_folder(folder):
    for kind, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for seed in range(N_EACH):
            path = folder / name / f"{seed:02d}.png"
            if kind == 0 and seed == 0:
                path = folder / name / HOSTILE_NAME
            path.write_bytes(encoded(drawn(kind, 100 * kind + seed)))


def served_folder(folder, n_bits=96):
    """A model trained on a folder of images, which is also its gallery."""
    rows = image_rows(open_images(folder), small_network(), n_jobs=1)
    X, labels = rows.sample(rows.n_rows)
    model = BinaryCodeClassifier(n_bits, random_state=0).fit(X, labels).packed()
    return ServedModel("drawn", model, small_network(), Gallery.of_rows(rows, model))
