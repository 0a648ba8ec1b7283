"""Image classification, on images drawn by this script.

Draws folders of shapes and textures, extracts features, trains a classifier, and writes a contact
sheet of test images with their predicted classes:

    python examples/images.py --out sheet.png

The same on the command line: `bitclass fit FOLDER --model model.safetensors`, and then
`bitclass predict model.safetensors IMAGE...`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bitclass import BinaryCodeClassifier
from bitclass.images import ImageRows, extractor_named, open_images

SIDE = 64
TRAINING_IMAGES, TEST_IMAGES = 25, 9

Colour = tuple[int, int, int]
Painter = Callable[[ImageDraw.ImageDraw, np.random.Generator, Colour], None]


def disc(draw: ImageDraw.ImageDraw, rng: np.random.Generator, colour: Colour) -> None:
    """A filled circle."""
    x, y, r = *rng.uniform(24, 40, 2), rng.uniform(12, 22)
    draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def ring(draw: ImageDraw.ImageDraw, rng: np.random.Generator, colour: Colour) -> None:
    """An empty circle."""
    x, y, r = *rng.uniform(26, 38, 2), rng.uniform(14, 22)
    draw.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=int(rng.integers(3, 6)))


def polygon(n_corners: int, depth: float = 1.0) -> Painter:
    """A regular polygon, or a star if `depth` is less than 1."""

    def paint(draw: ImageDraw.ImageDraw, rng: np.random.Generator, colour: Colour) -> None:
        x, y, r = *rng.uniform(26, 38, 2), rng.uniform(16, 24)
        turn = -np.pi / 2 + (np.pi / n_corners if n_corners % 2 == 0 else 0)
        angles = np.arange(2 * n_corners) * np.pi / n_corners + turn + rng.normal(0, 0.15)
        flat = np.cos(np.pi / n_corners)  # inner corners at the middle of the sides
        radii = np.where(np.arange(2 * n_corners) % 2, r * flat * depth, r)
        corners = zip(x + radii * np.cos(angles), y + radii * np.sin(angles), strict=True)
        draw.polygon(list(corners), fill=colour)

    return paint


def cross(draw: ImageDraw.ImageDraw, rng: np.random.Generator, colour: Colour) -> None:
    """Two bars."""
    x, y, r, w = *rng.uniform(26, 38, 2), rng.uniform(16, 24), rng.uniform(3, 6)
    draw.rectangle((x - r, y - w, x + r, y + w), fill=colour)
    draw.rectangle((x - w, y - r, x + w, y + r), fill=colour)


def stripes(draw: ImageDraw.ImageDraw, rng: np.random.Generator, colour: Colour) -> None:
    """Nearly vertical stripes."""
    step, slant = rng.uniform(6, 10), rng.uniform(-8, 8)
    for x in np.arange(-10 + rng.uniform(0, step), SIDE + 10, step):
        draw.line((x, 0, x + slant, SIDE), fill=colour, width=int(step / 2))


def chequers(draw: ImageDraw.ImageDraw, rng: np.random.Generator, colour: Colour) -> None:
    """A chequerboard."""
    step = int(rng.integers(6, 12))
    for row in range(SIDE // step + 1):
        for column in range(row % 2, SIDE // step + 1, 2):
            x, y = column * step, row * step
            draw.rectangle((x, y, x + step - 1, y + step - 1), fill=colour)


def dots(draw: ImageDraw.ImageDraw, rng: np.random.Generator, colour: Colour) -> None:
    """Small discs at random positions."""
    for x, y in rng.uniform(0, SIDE, (int(rng.integers(20, 30)), 2)):
        draw.ellipse((x - 2.5, y - 2.5, x + 2.5, y + 2.5), fill=colour)


PAINTERS: dict[str, Painter] = {
    "chequers": chequers,
    "cross": cross,
    "disc": disc,
    "dots": dots,
    "ring": ring,
    "square": polygon(4),
    "star": polygon(5, depth=0.5),
    "stripes": stripes,
    "triangle": polygon(3),
}


def draw_image(painter: Painter, rng: np.random.Generator) -> Image.Image:
    """Draw one image with two colours and some noise."""
    dark, bright = rng.integers(30, 120, 3), rng.integers(135, 226, 3)
    if rng.random() < 0.5:
        dark, bright = bright, dark
    ground, ink = tuple(dark.tolist()), tuple(bright.tolist())
    image = Image.new("RGB", (SIDE, SIDE), ground)
    painter(ImageDraw.Draw(image), rng, ink)
    noisy = np.asarray(image) + rng.normal(0, 40, (SIDE, SIDE, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def draw_folder(folder: Path, n_each: int, seed: int) -> Path:
    """Draw `n_each` images of each class, in one folder per class."""
    rng = np.random.default_rng(seed)
    for name, painter in PAINTERS.items():
        (folder / name).mkdir(parents=True)
        for number in range(n_each):
            draw_image(painter, rng).save(folder / name / f"{number:03d}.png")
    return folder


def contact_sheet(
    images: ImageRows, predicted: NDArray[np.str_], scale: int = 2, columns: int = 9
) -> Image.Image:
    """All images in a grid, with their predicted classes below, errors in red."""
    assert images.labels is not None
    cell, caption = SIDE * scale + 8, 18
    n_lines = -(-images.n_rows // columns)
    sheet = Image.new("RGB", (columns * cell + 8, n_lines * (cell + caption) + 8), "white")
    draw = ImageDraw.Draw(sheet)
    for row, (label, found) in enumerate(zip(images.labels, predicted, strict=True)):
        image = Image.open(images.paths[0] / images.names[row])
        x, y = 8 + row % columns * cell, 8 + row // columns * (cell + caption)
        sheet.paste(image.resize((SIDE * scale, SIDE * scale), Image.Resampling.NEAREST), (x, y))
        correct = label == found
        text = str(found) if correct else f"{found}, not {label}"
        draw.text((x, y + SIDE * scale + 2), text, fill=(0, 110, 40) if correct else (200, 0, 0))
    return sheet


def main() -> None:
    """Draw images, train, predict, and write the contact sheet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extractor", default="cnn", help="cnn or onnx:FILE")
    parser.add_argument("--out", type=Path, default=Path("sheet.png"), help="contact sheet")
    options = parser.parse_args()
    extractor = extractor_named(options.extractor)
    with tempfile.TemporaryDirectory() as folder:
        training = open_images(
            draw_folder(Path(folder) / "train", TRAINING_IMAGES, seed=0), extractor
        )
        test = open_images(draw_folder(Path(folder) / "test", TEST_IMAGES, seed=1), extractor)
        classifier = BinaryCodeClassifier(n_bits=128, random_state=0)
        assert training.labels is not None
        predicted = classifier.fit(training.X, training.labels).predict(test.X)
        contact_sheet(test, predicted).save(options.out)
    n_correct = int(np.sum(predicted == test.labels))
    print(f"trained on {training.n_rows} images of {len(PAINTERS)} classes with {extractor.name}")
    print(f"{n_correct} of {test.n_rows} test images correct; see {options.out}")


if __name__ == "__main__":
    main()
