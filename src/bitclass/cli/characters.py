"""Characters drawn in typefaces, and their gradient features: for the demo, gallery and benchmarks.

The typefaces are those bundled with matplotlib.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import how_to_install

#: One per family, in different styles.
UNSEEN_FACES = ("DejaVuSans-BoldOblique", "DejaVuSansMono-Oblique", "DejaVuSerif-Bold")
TRAINING_FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
)


def load_faces() -> dict[str, Any]:
    """Load the twelve typefaces as Pillow fonts, by name."""
    try:
        import matplotlib
        from PIL import ImageFont
    except ImportError as error:
        raise ImportError(
            f"drawing characters needs matplotlib and Pillow ({error}); "
            f"{how_to_install('plots,images')}"
        ) from None
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return {
        name: ImageFont.truetype(folder / f"{name}.ttf", 44)
        for name in (*TRAINING_FACES, *UNSEEN_FACES)
    }


def draw_characters(
    faces: dict[str, Any], characters: Iterable[str] | None = None
) -> tuple[list[str], dict[str, list[Any]]]:
    """Draw characters in all faces; by default all characters that every face has.

    Returns one string per class, a character followed by those that look the same in every face,
    and for each face one Pillow image per class. The 36 x 36 pixels are more than the features
    need, so that jittering loses no detail.
    """
    from PIL import Image, ImageDraw

    classes: dict[bytes, str] = {}
    drawings: dict[str, list[Any]] = {name: [] for name in faces}
    for character in _shared_characters(faces) if characters is None else characters:
        images = []
        for face in faces.values():
            image = Image.new("L", (72, 72))
            ImageDraw.Draw(image).text((36, 50), character, fill=255, font=face, anchor="ms")
            images.append(image)
        look = b"".join(image.tobytes() for image in images)
        if look not in classes and all(image.getbbox() for image in images):
            classes[look] = character
            for of_face, image in zip(drawings.values(), images, strict=True):
                of_face.append(image.reduce(2))
        elif look in classes:
            classes[look] += character
    return list(classes.values()), drawings


def _shared_characters(faces: dict[str, Any]) -> list[str]:
    from matplotlib.ft2font import FT2Font

    shared = set.intersection(*(set(FT2Font(face.path).get_charmap()) for face in faces.values()))
    # Without separators, control characters and combining marks.
    return [c for c in map(chr, sorted(shared)) if unicodedata.category(c)[0] not in "ZCM"]


def resample(drawings: Sequence[Any], rng: np.random.Generator | None = None) -> NDArray[np.uint8]:
    """Resample n drawings to images of shape (n, 24, 24): 0 is paper, 255 is ink.

    With `rng`, each character is rotated, sheared, scaled and shifted a little.
    """
    from PIL import Image

    jitter = np.zeros((5, len(drawings)))
    if rng is not None:
        scale = np.array([0.03, 0.06, 0.04, 0.4, 0.4])  # radians, logarithm of size, pixels
        jitter = scale[:, None] * rng.standard_normal(jitter.shape)
    turn, shear, growth, right, down = jitter
    # Pillow expects the inverse transform, from output pixels to input pixels.
    zoom = np.exp(growth) * 36 / 24
    a, b = zoom * np.cos(turn), zoom * (shear * np.cos(turn) - np.sin(turn))
    c, d = zoom * np.sin(turn), zoom * (shear * np.sin(turn) + np.cos(turn))
    x, y = 12 + right, 12 + down
    sources = np.stack([a, b, 18 - a * x - b * y, c, d, 18 - c * x - d * y], axis=1)
    images = [
        drawing.transform((24, 24), Image.Transform.AFFINE, source, Image.Resampling.BILINEAR)
        for drawing, source in zip(drawings, sources.tolist(), strict=True)
    ]
    return np.stack([np.asarray(image) for image in images])


def gradient_features(images: NDArray[np.uint8], n_cells: int) -> NDArray[np.float32]:
    """Gradients in 8 directions, summed in overlapping cells: a classic of character recognition.

    Parameters
    ----------
    images : (n, s, s) uint8
    n_cells : int
        Cells along each side of an image.

    Returns
    -------
    (n, 8 * n_cells**2) float32
        Square roots of the sums.
    """
    padded = np.pad(images.astype(np.float32) / 255.0, ((0, 0), (1, 1), (1, 1)))
    rows = padded[:, :-2] + 2.0 * padded[:, 1:-1] + padded[:, 2:]
    columns = padded[:, :, :-2] + 2.0 * padded[:, :, 1:-1] + padded[:, :, 2:]
    gx = rows[:, :, 2:] - rows[:, :, :-2]  # Sobel filters
    gy = columns[:, 2:] - columns[:, :-2]
    # Each gradient is decomposed into the two neighbouring directions.
    ax, ay = np.abs(gx), np.abs(gy)
    along_x, along_y = np.maximum(ax - ay, 0.0), np.maximum(ay - ax, 0.0)
    diagonal = np.sqrt(2.0, dtype=np.float32) * np.minimum(ax, ay)
    right, up = gx > 0, gy > 0
    parts = (
        along_x * right,
        diagonal * (right & up),
        along_y * up,
        diagonal * (~right & up),
        along_x * ~right,
        diagonal * ~(right | up),
        along_y * ~up,
        diagonal * (right & ~up),
    )
    cells = _cell_weights(images.shape[1], n_cells)
    pooled = [cells.T @ (part @ cells) for part in parts]
    features: NDArray[np.float32] = np.sqrt(np.stack(pooled, axis=1))
    return features.reshape(len(images), -1)


def _cell_weights(size: int, n_cells: int) -> NDArray[np.float32]:
    """Weights (size, n_cells) of the pixels of a line in the cells: Gaussians at the centres."""
    width = size / n_cells
    centres = (np.arange(n_cells) + 0.5) * width - 0.5
    deviation = np.sqrt(2.0) * width / np.pi
    distance = (np.arange(size)[:, None] - centres) / deviation
    return np.asarray(np.exp(-0.5 * distance**2), dtype=np.float32)
