"""Gradient features of the Han characters in Debian's fonts, cached in `build/characters`.

A glyph is drawn at 64 pixels per em, and normalised to 64 x 64 pixels by its moments. Its gradients
are decomposed into 8 directions, each summed in 8 x 8 overlapping cells: 512 numbers, whose square
roots are kept in float16.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitclass.cli.characters import gradient_features

ROOT = Path("/usr/share/fonts")
CACHE = Path(__file__).parents[1] / "build" / "characters"
#: The CJK Unified Ideographs of Unicode 1.1.
UNIFIED = range(0x4E00, 0x9FA6)
# With the extensions A to H, without compatibility ideographs, which look like others.
_BLOCKS = (range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0x20000, 0x323B0))

SIZE = 64
N_CELLS = 8
# A glyph shared by more characters than this is a placeholder.
_MAX_SHARED = 4
_GLYPHS_PER_BLOCK = 256


#: For each typeface: Debian package, files below `ROOT` that together contain its characters, and
#: index of the face in each file.
FACES: dict[str, tuple[str, tuple[str, ...], int]] = {
    "noto-sans": ("noto-cjk", ("opentype/noto/NotoSansCJK-Regular.ttc",), 2),
    "noto-sans-bold": ("noto-cjk", ("opentype/noto/NotoSansCJK-Bold.ttc",), 2),
    "noto-serif": ("noto-cjk", ("opentype/noto/NotoSerifCJK-Regular.ttc",), 2),
    "noto-serif-bold": ("noto-cjk", ("opentype/noto/NotoSerifCJK-Bold.ttc",), 2),
    "tw-sung": (
        "cns11643-sung",
        ("truetype/cns11643/TW-Sung-98_1.ttf", "truetype/cns11643/TW-Sung-Ext-B-98_1.ttf"),
        0,
    ),
    "tw-kai": (
        "cns11643-kai",
        ("truetype/cns11643/TW-Kai-98_1.ttf", "truetype/cns11643/TW-Kai-Ext-B-98_1.ttf"),
        0,
    ),
    "hanamin": (
        "hanazono",
        ("truetype/hanazono/HanaMinA.ttf", "truetype/hanazono/HanaMinB.ttf"),
        0,
    ),
    "babelstone": ("babelstone-han", ("truetype/babelstone/BabelStoneHan.ttf",), 0),
    "ipamj": ("ipamj-mincho", ("truetype/ipamj/ipamjm.ttf",), 0),
    "zenhei": ("wqy-zenhei", ("truetype/wqy/wqy-zenhei.ttc",), 0),
    "droid": ("droid-fallback", ("truetype/droid/DroidSansFallbackFull.ttf",), 0),
    "uming": ("arphic-uming", ("truetype/arphic/uming.ttc",), 0),
    "ukai": ("arphic-ukai", ("truetype/arphic/ukai.ttc",), 0),
    "wenkai": ("lxgw-wenkai", ("truetype/lxgw-wenkai/LXGWWenKai-Regular.ttf",), 0),
    "seto": ("seto", ("truetype/seto/setofont.ttf",), 0),
}


def missing_packages() -> list[str]:
    """Debian packages with missing font files."""
    return sorted(
        {
            f"fonts-{package}"
            for package, files, _ in FACES.values()
            if not all((ROOT / file).exists() for file in files)
        }
    )


def load_face(name: str) -> tuple[NDArray[np.int32], NDArray[np.float16]]:
    """Load the sorted characters (n,) and features (n, 512) that `draw_all` has cached."""
    folder = CACHE / name
    return np.load(folder / "characters.npy"), np.load(folder / "features.npy", mmap_mode="r")


def drawn_faces() -> list[str]:
    """Names of the faces in the cache."""
    return [name for name in FACES if (CACHE / name / "features.npy").exists()]


def draw_all(n_processes: int = 2) -> None:
    """Draw every installed face that is not in the cache (3 minutes on 2 idle cores)."""
    missing, drawn = missing_packages(), drawn_faces()
    waiting = [
        name
        for name, (package, _, _) in FACES.items()
        if f"fonts-{package}" not in missing and name not in drawn
    ]
    if waiting:
        with ProcessPoolExecutor(n_processes, initializer=partial(os.nice, 5)) as pool:
            for name, n_drawn in zip(waiting, pool.map(_draw_face, waiting), strict=True):
                print(f"drawn: {name}, {n_drawn:,} characters", flush=True)


def _draw_face(name: str) -> int:
    """Draw a face into the cache; returns the number of its characters."""
    found: dict[int, NDArray[np.float16]] = {}
    _, files, index = FACES[name]
    for file in files:
        for character, features in _drawn(ROOT / file, index):
            found.setdefault(character, features)
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    characters = np.array(sorted(found), dtype=np.int32)
    np.save(folder / "characters.npy", characters)
    # Features are written last and atomically: an interrupted face is drawn again.
    np.save(folder / "unfinished.npy", np.stack([found[c] for c in characters.tolist()]))
    (folder / "unfinished.npy").rename(folder / "features.npy")
    return len(characters)


def _drawn(path: Path, index: int):
    """Yield the characters that a font contains, with their features (512,)."""
    from PIL import ImageFont

    font = ImageFont.truetype(str(path), SIZE, index, layout_engine=ImageFont.Layout.BASIC)
    characters = _characters(path, index)
    for start in range(0, len(characters), _GLYPHS_PER_BLOCK):
        block, images = [], []
        for character in characters[start : start + _GLYPHS_PER_BLOCK]:
            image = glyph(font, chr(character))
            if image is not None:
                block.append(character)
                images.append(image)
        if block:
            features = gradient_features(np.stack(images), N_CELLS).astype(np.float16)
            yield from zip(block, features, strict=True)


def _characters(path: Path, index: int) -> list[int]:
    """Han characters with their own glyph in a font."""
    from fontTools.ttLib import TTCollection, TTFont

    opened = TTCollection(path, lazy=True).fonts[index] if path.suffix == ".ttc" else None
    font = TTFont(path, lazy=True) if opened is None else opened
    order = font.getGlyphOrder()
    cmap = font.getBestCmap()
    shared = Counter(cmap.values())
    return sorted(
        character
        for character, name in cmap.items()
        if name != order[0]  # .notdef
        and shared[name] <= _MAX_SHARED
        and any(character in block for block in _BLOCKS)
    )


def glyph(font, character: str) -> NDArray[np.uint8] | None:
    """Draw a character, normalised to 64 x 64 pixels by its moments; None if it is blank.

    The centre of gravity is moved to the centre, and each side is scaled to two standard deviations
    of the ink.
    """
    from PIL import Image

    mask = font.getmask(character, mode="L")
    width, height = mask.size
    if mask.getbbox() is None:
        return None
    image = Image.frombuffer("L", (width, height), bytes(mask))
    ink = np.asarray(image, dtype=np.float32)
    centres, deviations = [], []
    for axis, length in ((0, width), (1, height)):
        shares = ink.sum(axis=axis) / ink.sum()
        places = np.arange(length) + 0.5
        centres.append(shares @ places)
        deviations.append(np.sqrt(shares @ (places - centres[-1]) ** 2))
    # The aspect ratio of flat and narrow characters is reduced to its square root.
    reach = 2.0 * np.sqrt(np.maximum(deviations, 0.25) * max(deviations))
    box = (*(centres - reach), *(centres + reach))
    return np.asarray(
        image.transform((SIZE, SIZE), Image.Transform.EXTENT, box, Image.Resampling.BILINEAR)
    )


if __name__ == "__main__":
    print("missing packages:", ", ".join(missing_packages()) or "none")
    draw_all()
