"""From the content of a picture file to pixels, whatever is in the file."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.pictures import PictureError, printable
from bitclass.images.pillow import import_images_extra, pillow_image

__all__ = ["FORMATS", "MOST_PIXELS", "PictureError", "decode"]

#: Formats that are decoded, by Pillow's names; others of its formats start other programs.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
#: A picture of more pixels is refused before it is decoded: a small file can claim any number.
MOST_PIXELS = 100_000_000

_ORIENTATION = 0x0112
_MOST_CHARACTERS = 200


def decode(content: bytes | NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """Pixels of a picture.

    The picture is turned as its camera says. Of an animation the first frame is taken. What shines
    through is laid on white. Sixteen bits become eight, CMYK becomes RGB.

    Parameters
    ----------
    content : bytes of a picture file, or uint8 pixels of shape (h, w) or (h, w, 3)
    name : what the picture is called, for errors

    Returns
    -------
    (h, w, 3) uint8

    Raises
    ------
    PictureError
        If it cannot be decoded, is cut short, or has more than `MOST_PIXELS` pixels.

    Examples
    --------
    >>> import numpy as np
    >>> decode(np.zeros((2, 3), dtype=np.uint8), "black").shape
    (2, 3, 3)
    >>> decode(b"", "broken.gif")
    Traceback (most recent call last):
    bitclass.data.picture_sources.PictureError: broken.gif: is empty, it has 0 bytes
    """
    name = printable(name)
    if isinstance(content, np.ndarray):
        return _checked(content, name)
    if not content:
        raise PictureError(f"{name}: is empty, it has 0 bytes")
    image = pillow_image()
    with warnings.catch_warnings():
        # Pillow warns of sizes that are checked here, and of damage that it mends.
        warnings.simplefilter("ignore")
        try:
            with image.open(io.BytesIO(content), formats=FORMATS) as opened:
                width, height = opened.size
                if width * height > MOST_PIXELS:
                    raise PictureError(
                        f"{name}: is a picture of {width} x {height}; at most {MOST_PIXELS:,} "
                        "pixels are decoded"
                    )
                opened.load()
                return np.asarray(_upright(_rgb(opened), opened))
        except PictureError:
            raise
        except MemoryError as error:
            raise PictureError(f"{name}: takes more memory than there is for it") from error
        except Exception as error:  # Pillow raises nearly anything on damaged files
            raise PictureError(f"{name}: cannot be read as a picture ({_why(error)})") from error


def _why(error: Exception) -> str:
    unidentified = import_images_extra("PIL", "reading pictures").UnidentifiedImageError
    if isinstance(error, unidentified):
        return "it is damaged, or none of " + ", ".join(FORMATS)
    why = printable(" ".join(str(error).split())) or type(error).__name__
    return why[:_MOST_CHARACTERS]


def _checked(pixels: NDArray[Any], name: str) -> NDArray[np.uint8]:
    is_picture = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not is_picture or 0 in pixels.shape:
        raise PictureError(
            f"{name}: pixels must be uint8 of shape (h, w) or (h, w, 3), found {pixels.dtype} of "
            f"shape {pixels.shape}"
        )
    return np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def _rgb(opened: Any) -> Any:
    """The picture in red, green and blue of eight bits."""
    image = pillow_image()
    if opened.mode.startswith(("I", "F")):
        return image.fromarray(_eight_bits(np.asarray(opened), opened.mode)).convert("RGB")
    see_through = "A" in opened.getbands() or opened.mode in ("La", "RGBa")
    if see_through or "transparency" in opened.info:
        layer = opened.convert("RGBA")
        white = image.new("RGBA", layer.size, (255, 255, 255, 255))
        return image.alpha_composite(white, layer).convert("RGB")
    return opened.convert("RGB")


def _eight_bits(values: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Grey values of sixteen bits or of floats, (h, w), in eight bits."""
    if mode.startswith("I"):
        return np.asarray(np.clip(values, 0, 65_535).astype(np.uint16) >> 8, dtype=np.uint8)
    if not np.isfinite(values).all():
        raise ValueError("it has values that are no finite numbers")
    # Floats go from 0 to 1 or, as some programs write them, from 0 to 255.
    brightest = 1.0 if values.max() <= 1 else 255.0
    return np.asarray(np.rint(np.clip(values, 0, brightest) * (255 / brightest)), dtype=np.uint8)


def _upright(rgb: Any, opened: Any) -> Any:
    """The picture turned as the camera was held."""
    turn = pillow_image().Transpose
    turns = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    orientation = None
    with contextlib.suppress(Exception):  # notes of a camera that are damaged cost no picture
        orientation = opened.getexif().get(_ORIENTATION)
    return rgb.transpose(turns[orientation]) if orientation in turns else rgb
