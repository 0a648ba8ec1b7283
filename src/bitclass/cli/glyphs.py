"""Characters of the typefaces that come with matplotlib, as images and gradient features."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEARNED_FACES",
    "UNSEEN_FACES",
    "draw_characters",
    "gradient_features",
    "load_faces",
    "resampled",
]

#: The three faces that are only read: one of each family, in different styles.
UNSEEN_FACES = ("DejaVuSans-BoldOblique", "DejaVuSansMono-Oblique", "DejaVuSerif-Bold")
LEARNED_FACES = (
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
#: Pixels per side of an image.
SIDE = 24
# Characters are drawn larger, so that moving, turning and shrinking them costs no detail.
_DRAWN_SIDE = 72
_REDUCED = 2
_FONT_SIZE = 44
_BASELINE = 50
_DIRECTIONS = 8
_CELLS = 6
# Standard deviations of the jitter: turn and shear in radians, logarithm of size, shift in pixels.
_TURN, _SHEAR, _SIZE, _SHIFT = 0.03, 0.06, 0.04, 0.4
# Separators, controls, and marks that are drawn onto another character.
_SKIPPED_CATEGORIES = "ZCM"


def load_faces() -> dict[str, Any]:
    """The twelve typefaces as Pillow fonts by name, those of `LEARNED_FACES` first."""
    try:
        import matplotlib
        from PIL import ImageFont
    except ImportError as error:
        raise ImportError(
            f"the demo needs matplotlib and Pillow ({error}); install them with: "
            "pip install 'bitclass[plots,images]'"
        ) from None
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return {
        name: ImageFont.truetype(folder / f"{name}.ttf", _FONT_SIZE)
        for name in (*LEARNED_FACES, *UNSEEN_FACES)
    }


def draw_characters(
    faces: dict[str, Any], n_characters: int | None, show: Callable[[int, int], None]
) -> tuple[list[str], dict[str, list[Any]]]:
    """Draw the characters that all faces have, or the first ones.

    Gives one string per class, a character followed by those that look the same in every face, and
    for each face one Pillow image per class. `show` is told how many are done of all.
    """
    from matplotlib.ft2font import FT2Font

    shared = set.intersection(*(set(FT2Font(face.path).get_charmap()) for face in faces.values()))
    characters = [
        character
        for character in map(chr, sorted(shared))
        if unicodedata.category(character)[0] not in _SKIPPED_CATEGORIES
    ][:n_characters]
    classes: dict[bytes, str] = {}
    drawings: dict[str, list[Any]] = {name: [] for name in faces}
    for j, character in enumerate(characters):
        images = [_drawn(face, character) for face in faces.values()]
        look = b"".join(image.tobytes() for image in images)
        if look not in classes and all(image.getbbox() for image in images):
            classes[look] = character
            for of_face, image in zip(drawings.values(), images, strict=True):
                of_face.append(image.reduce(_REDUCED))
        elif look in classes:
            classes[look] += character
        show(j + 1, len(characters))
    return list(classes.values()), drawings


def _drawn(face: Any, character: str) -> Any:
    from PIL import Image, ImageDraw

    image = Image.new("L", (_DRAWN_SIDE, _DRAWN_SIDE))
    where = (_DRAWN_SIDE / 2, _BASELINE)
    ImageDraw.Draw(image).text(where, character, fill=255, font=face, anchor="ms")
    return image


def resampled(drawings: list[Any], rng: np.random.Generator | None = None) -> NDArray[np.uint8]:
    """Images (n, SIDE, SIDE) of n drawings: 0 is paper, 255 is ink.

    With `rng`, each character is turned, sheared, resized and moved a little.
    """
    from PIL import Image

    jitter = np.zeros((5, len(drawings)))
    if rng is not None:
        scale = np.array([_TURN, _SHEAR, _SIZE, _SHIFT, _SHIFT])
        jitter = scale[:, None] * rng.standard_normal(jitter.shape)
    turn, shear, size, right, down = jitter
    # Pillow asks where in the drawing each pixel of the image comes from.
    zoom = np.exp(size) * _DRAWN_SIDE / SIDE / _REDUCED
    a, b = zoom * np.cos(turn), zoom * (shear * np.cos(turn) - np.sin(turn))
    c, d = zoom * np.sin(turn), zoom * (shear * np.sin(turn) + np.cos(turn))
    x, y, middle = SIDE / 2 + right, SIDE / 2 + down, _DRAWN_SIDE / _REDUCED / 2
    sources = np.stack([a, b, middle - a * x - b * y, c, d, middle - c * x - d * y], axis=1)
    images = np.empty((len(drawings), SIDE, SIDE), dtype=np.uint8)
    for j, (drawing, source) in enumerate(zip(drawings, sources.tolist(), strict=True)):
        images[j] = drawing.transform(
            (SIDE, SIDE), Image.Transform.AFFINE, source, Image.Resampling.BILINEAR
        )
    return images


def gradient_features(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """How much edge images (n, side, side) have in each direction and each cell, (n, 8 * 6 * 6).

    Square roots of the sums, scaled to length 1.
    """
    pixels = images.astype(np.float32)
    down, right = np.gradient(pixels, axis=(1, 2))
    # Neighbouring cells overlap, so that a small shift moves little from one to the next.
    side = images.shape[1]
    centres = (np.arange(_CELLS) + 0.5) * side / _CELLS
    cells = np.maximum(
        0, 1 - np.abs(np.arange(side)[:, None] + 0.5 - centres) * _CELLS / side
    ).astype(np.float32)
    features = np.empty((len(images), _DIRECTIONS, _CELLS, _CELLS), dtype=np.float32)
    for j in range(_DIRECTIONS):
        angle = 2 * np.pi * j / _DIRECTIONS
        along = np.float32(np.cos(angle)) * right + np.float32(np.sin(angle)) * down
        features[:, j] = cells.T @ np.maximum(along, 0) @ cells
    flat = np.sqrt(features.reshape(len(images), -1))
    return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6))
