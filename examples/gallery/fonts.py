"""Images of characters, rendered from the DejaVu typefaces that come with matplotlib."""

from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

FOLDER = Path(get_data_path()) / "fonts" / "ttf"
#: Faces to learn from, and one that is read without having been seen.
TRAINING_FACES = [
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSansMono",
]
UNSEEN_FACE = "DejaVuSerif-Italic"


def characters() -> list[str]:
    """Letters of the Latin, Greek and Cyrillic alphabets, about 400."""
    blocks = [(0x41, 0x180), (0x391, 0x3CA), (0x400, 0x460)]
    letters = [chr(code) for first, last in blocks for code in range(first, last)]
    return [letter for letter in letters if letter.isalpha()]


def render(letters: list[str], face: str, n_copies: int, seed: int) -> NDArray[np.float32]:
    """Images of 16 x 16 pixels, each copy at another size and place; (n_copies * n, 256)."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_copies):
        for letter in letters:
            font = ImageFont.truetype(str(FOLDER / f"{face}.ttf"), int(rng.integers(26, 30)))
            image = Image.new("L", (40, 40))
            place = (20 + rng.uniform(-1.5, 1.5), 29 + rng.uniform(-1.5, 1.5))
            ImageDraw.Draw(image).text(place, letter, fill=255, font=font, anchor="ms")
            small = image.resize((16, 16), Image.Resampling.BOX)
            rows.append(np.asarray(small, dtype=np.float32).ravel() / 255)
    return np.stack(rows)
