"""Images of characters, rendered from the DejaVu typefaces bundled with matplotlib."""

from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

FOLDER = Path(get_data_path()) / "fonts" / "ttf"
#: Training typefaces, and an unseen one for testing.
TRAINING_FACES = [
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-BoldItalic",
]
UNSEEN_FACE = "DejaVuSerif-Italic"


def characters() -> list[str]:
    """Latin, Greek and Cyrillic letters, without those that look like an earlier one."""
    blocks = [(0x41, 0x180), (0x391, 0x3CA), (0x400, 0x460)]
    letters = [chr(code) for first, last in blocks for code in range(first, last)]
    letters = [letter for letter in letters if letter.isalpha()]
    distinct: dict[str, NDArray[np.float32]] = {}
    for letter in letters:
        image = draw(letter, "DejaVuSerif", 28, (20, 29))
        if all(np.abs(image - other).max() > 0.2 for other in distinct.values()):
            distinct[letter] = image
    return list(distinct)


def draw(letter: str, face: str, size: int, place: tuple[float, float]) -> NDArray[np.float32]:
    """Draw a letter in 16 x 16 pixels; 1 is ink."""
    font = ImageFont.truetype(str(FOLDER / f"{face}.ttf"), size)
    image = Image.new("L", (40, 40))
    ImageDraw.Draw(image).text(place, letter, fill=255, font=font, anchor="ms")
    small = image.resize((16, 16), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


def render(letters: list[str], face: str, n_copies: int, seed: int) -> NDArray[np.float32]:
    """Draw copies of all letters in varying sizes and positions; shape (n_copies * n, 256)."""
    rng = np.random.default_rng(seed)
    rows = []
    for letter in letters * n_copies:
        place = (20 + rng.uniform(-1.5, 1.5), 29 + rng.uniform(-1.5, 1.5))
        rows.append(draw(letter, face, int(rng.integers(26, 30)), place).ravel())
    return np.stack(rows)
