"""From the bytes of an image file to pixels: decoding, cropping and resizing."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitclass._warn import how_to_install, printable

if TYPE_CHECKING:
    from PIL.Image import Image

#: Supported formats, by Pillow's names; some of its other formats run external programs.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
#: Maximum number of pixels of an image by default, as in Pillow: a quarter of a GB of RGB.
MAX_PIXELS = (1 << 30) // 12

_MAX_MESSAGE = 200


class ImageError(ValueError):
    """An image or image dataset that cannot be read; the message is one line that names it."""


def import_extra(module: str) -> Any:
    """Import a module of the extra `images`; if it is missing, say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"images require {module.split('.')[0]}; {how_to_install('images')}"
        ) from error


def decode(
    content: bytes, name: str, *, side: int | None = None, max_pixels: int = MAX_PIXELS
) -> Image:
    """Decode an image.

    The image is rotated according to its EXIF orientation. The first frame of an animation is used.
    Transparency is blended with white. 16-bit and float pixels become 8-bit; all modes become RGB.

    Parameters
    ----------
    content : bytes
        Content of an image file.
    name : str
        Name of the image, for error messages.
    side : int, optional
        Side length to which the image will be reduced. A JPEG of more than twice this size is
        decoded at a half, a quarter or an eighth of its size, which is much faster.
    max_pixels : int
        Images with more pixels are refused before they are decoded.

    Returns
    -------
    PIL.Image.Image
        Image of mode RGB.

    Raises
    ------
    ImageError
        If the image cannot be decoded, is truncated, or has more than `max_pixels` pixels.
    """
    with _errors_name(name):
        image = _open(content, name, max_pixels)
        if side is not None:
            image.draft(None, (2 * side, 2 * side))
        image.load()
        rgb: Image = _to_rgb(_upright(image))
        return rgb


def count_pixels(content: bytes, name: str, max_pixels: int = MAX_PIXELS) -> int:
    """Number of pixels of an image, from its header; errors as in `decode`."""
    with _errors_name(name):
        image = _open(content, name, max_pixels)
        return int(image.width * image.height)


@contextlib.contextmanager
def _errors_name(name: str) -> Iterator[None]:
    """Turn all errors into an `ImageError` that names the image."""
    name = printable(name)
    try:
        yield
    except (ImportError, ImageError):
        raise
    except MemoryError as error:
        raise ImageError(f"{name}: not enough memory to decode it") from error
    except Exception as error:  # Pillow raises almost any type on a damaged file
        reason = printable(" ".join(str(error).split()))[:_MAX_MESSAGE] or type(error).__name__
        if isinstance(error, import_extra("PIL").UnidentifiedImageError):
            reason = "it is damaged or not one of the formats " + ", ".join(FORMATS)
        raise ImageError(f"{name}: cannot be read as an image: {reason}") from error


def _open(content: bytes, name: str, max_pixels: int) -> Any:
    """Read the header of an image."""
    if not content:
        raise ImageError(f"{printable(name)}: the file is empty")
    image = import_extra("PIL.Image").open(io.BytesIO(content), formats=FORMATS)
    if not 0 < image.width * image.height <= max_pixels:
        raise ValueError(f"it has {image.width} x {image.height} pixels, the limit is {max_pixels}")
    return image


def _upright(image: Any) -> Any:
    with contextlib.suppress(Exception):  # damaged EXIF data; the image may still be valid
        return import_extra("PIL.ImageOps").exif_transpose(image)
    return image


def _to_rgb(image: Any) -> Any:
    pillow = import_extra("PIL.Image")
    if image.mode == "F":
        raise ValueError("its pixels are floats; expected integers of at most 16 bits")
    if image.mode.startswith("I"):  # Pillow would clip what is above 255
        high = np.clip(np.asarray(image), 0, 65_535).astype(np.uint16) >> 8
        return pillow.fromarray(high.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = pillow.new("RGBA", layer.size, "white")
        return pillow.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


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
    whole: Any = pillow.fromarray(image) if isinstance(image, np.ndarray) else image
    old = max(1.0, crop * min(whole.size))
    left, top = (whole.width - old) / 2, (whole.height - old) / 2
    box = (left, top, left + old, top + old)
    return np.asarray(whole.resize((side, side), pillow.Resampling.BICUBIC, box=box))
