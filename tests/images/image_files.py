"""Image files of common kinds, and invalid ones."""

import functools
import io
import struct
import zlib

import numpy as np
from PIL import Image

from ..drawing import scene


def encoded(image, format, **options):
    """Content of an image file."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def chunk(name, data):
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_claiming(width, height, data=b""):
    """A PNG file that claims a size, with arbitrary data."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    content = chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + content


@functools.cache
def bomb():
    """A file of some kilobytes that unpacks to 144 million pixels."""
    return encoded(Image.new("1", (12_000, 12_000)), "PNG")


@functools.cache
def whole(side=48):
    """The same scene in many formats, by name."""
    pixels = scene(side, 7)
    image = Image.fromarray(pixels)
    return {
        "plain.png": encoded(image, "PNG"),
        "photo.jpg": encoded(image, "JPEG", quality=90),
        "print.jpg": encoded(image.convert("CMYK"), "JPEG", quality=90),
        "grey.png": encoded(image.convert("L"), "PNG"),
        "ink.png": encoded(image.convert("1"), "PNG"),
        "palette.png": encoded(image.convert("P"), "PNG", transparency=0),
        "clear.png": encoded(image.convert("RGBA"), "PNG"),
        "deep.png": encoded(pixels[:, :, 0].astype(np.uint16) * 257, "PNG"),
        "deep.tiff": encoded(pixels[:, :, 0].astype(np.uint16) * 257, "TIFF"),
        "moving.gif": encoded(image, "GIF", save_all=True, append_images=[image.rotate(90)] * 3),
        "web.webp": encoded(image, "WEBP", quality=90),
        "old.bmp": encoded(image, "BMP"),
        "plain.ppm": encoded(image, "PPM"),
    }


@functools.cache
def broken():
    """Files that cannot be decoded, by name."""
    photo = whole()["photo.jpg"]
    return {
        "empty.png": b"",
        "text.jpg": b"This is not an image.",
        "cut.jpg": photo[: len(photo) // 2],
        "cut.png": whole()["plain.png"][:-200],
        "claims.png": png_claiming(100_000, 100_000),
        "claims less.png": png_claiming(9_000, 9_000),
        "bomb.png": bomb(),
        "float.tiff": encoded(np.ones((8, 8), dtype=np.float32), "TIFF"),
        "script.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
    }
