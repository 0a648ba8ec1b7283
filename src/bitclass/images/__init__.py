"""Features of images: folders of images, networks that describe them, and rows of features."""

from bitclass.images.decoding import MAX_PIXELS, ImageError, centre_square, decode
from bitclass.images.folders import find_images
from bitclass.images.network import ImageNetwork, extractor_named, recorded_extractor
from bitclass.images.rows import ImageRows, ImageWarning, open_images

__all__ = [
    "MAX_PIXELS",
    "ImageError",
    "ImageNetwork",
    "ImageRows",
    "ImageWarning",
    "centre_square",
    "decode",
    "extractor_named",
    "find_images",
    "open_images",
    "recorded_extractor",
]
