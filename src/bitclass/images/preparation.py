"""Decoding, cropping and resizing of images."""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitclass.images.image_set import ImageError, printable

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["FORMATS", "centre_square", "decode", "import_extra"]

#: Supported formats, by Pillow's names; some of its other formats run external programs.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

_MAX_MESSAGE = 200


def import_extra(module: str) -> Any:
    """Import a module of the extra `images`; if it is missing, say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"images require {module.split('.')[0]}; install it with: "
            "pip install 'bitclass[images]'"
        ) from error


def decode(
    content: bytes | NDArray[np.uint8],
    name: str,
    *,
    side: int | None = None,
    max_pixels: int | None = None,
) -> Image:
    """Decode an image.

    The image is rotated according to its EXIF orientation. The first frame of an animation is used.
    Transparency is blended with white. 16-bit and float pixels become 8-bit; all modes become RGB.

    Parameters
    ----------
    content : bytes or ndarray of shape (h, w) or (h, w, 3), uint8
        Content of an image file, or pixels.
    name : str
        Name of the image, for error messages.
    side : int, optional
        Side length to which the image will be reduced. A JPEG of more than twice this size is
        decoded at a half, a quarter or an eighth of its size, which is much faster.
    max_pixels : int, optional
        Maximum number of pixels; by default that of Pillow.

    Returns
    -------
    PIL.Image.Image
        Image of mode RGB.

    Raises
    ------
    ImageError
        If the image cannot be decoded, is truncated, or has more pixels than Pillow's limit for
        decompression bombs (`PIL.Image.MAX_IMAGE_PIXELS`).

    Examples
    --------
    >>> decode(np.zeros((2, 3), dtype=np.uint8), "black").size
    (3, 2)
    >>> decode(b"", "broken.gif")
    Traceback (most recent call last):
    bitclass.images.image_set.ImageError: broken.gif: the file is empty
    """
    name = printable(name)
    pillow = import_extra("PIL.Image")
    if isinstance(content, bytes) and not content:
        raise ImageError(f"{name}: the file is empty")
    try:
        if isinstance(content, np.ndarray):
            image = pillow.fromarray(np.ascontiguousarray(content))
        else:
            image = pillow.open(io.BytesIO(content), formats=FORMATS)
        n_pixels, limit = image.width * image.height, max_pixels or pillow.MAX_IMAGE_PIXELS
        # Pillow only warns up to twice its limit.
        if not 0 < n_pixels <= (limit or n_pixels):
            raise ValueError(f"it has {image.width} x {image.height} pixels, the limit is {limit}")
        if side is not None and isinstance(content, bytes):
            image.draft(None, (2 * side, 2 * side))
        image.load()
        rgb: Image = _to_rgb(_upright(image))
        return rgb
    except MemoryError as error:
        raise ImageError(f"{name}: not enough memory to decode it") from error
    except Exception as error:  # Pillow raises almost any type on a damaged file
        reason = printable(" ".join(str(error).split()))[:_MAX_MESSAGE] or type(error).__name__
        if isinstance(error, import_extra("PIL").UnidentifiedImageError):
            reason = "it is damaged or not one of the formats " + ", ".join(FORMATS)
        raise ImageError(f"{name}: cannot be read as an image: {reason}") from error


def count_pixels(content: bytes) -> int:
    """Number of pixels of an image, from its header; 0 if it cannot be read."""
    try:
        image = import_extra("PIL.Image").open(io.BytesIO(content), formats=FORMATS)
    except Exception:  # reported when it is decoded
        return 0
    return int(image.width * image.height)


def _upright(image: Any) -> Any:
    with contextlib.suppress(Exception):  # damaged EXIF data; the image may still be valid
        return import_extra("PIL.ImageOps").exif_transpose(image)
    return image


def _to_rgb(image: Any) -> Any:
    pillow = import_extra("PIL.Image")
    if image.mode.startswith(("I", "F")):
        return pillow.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = pillow.new("RGBA", layer.size, "white")
        return pillow.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert 16-bit or float grey values (h, w) to 8 bits."""
    if values.dtype.kind != "f":
        return np.asarray(np.clip(values, 0, 65_535).astype(np.uint16) >> 8, dtype=np.uint8)
    if not np.isfinite(values).all():
        raise ValueError("pixels are not finite")
    # Floats range from 0 to 1 or, in files of some programs, from 0 to 255.
    white = 1.0 if values.max() <= 1 else 255.0
    return np.asarray(np.rint(np.clip(values, 0, white) * (255 / white)), dtype=np.uint8)


def centre_square(
    image: Image | NDArray[np.uint8], side: int, crop: float = 0.875
) -> NDArray[np.uint8]:
    """Crop the centre square of an image and resize it.

    Parameters
    ----------
    image : PIL.Image.Image of mode RGB, or ndarray of shape (h, w, 3), uint8
    side : int
        New side length in pixels.
    crop : float in (0, 1], default=0.875
        Side of the square as a fraction of the shorter side of the image. 0.875 is the usual
        evaluation crop of networks trained on ImageNet.

    Returns
    -------
    ndarray of shape (side, side, 3), uint8

    Examples
    --------
    >>> centre_square(np.zeros((100, 300, 3), dtype=np.uint8), 64).shape
    (64, 64, 3)
    """
    pillow = import_extra("PIL.Image")
    if isinstance(image, np.ndarray):
        image = decode(image, "image")
    old = max(1.0, crop * min(image.size))
    left, top = (image.width - old) / 2, (image.height - old) / 2
    box = (left, top, left + old, top + old)
    return np.asarray(image.resize((side, side), pillow.Resampling.BICUBIC, box=box))
