"""Features of images: image datasets, feature extractors, and rows of features."""

from bitclass.images.extractors import (
    EfficientNetLite0,
    Extractor,
    OnnxNetwork,
    extractor_named,
    recorded_extractor,
)
from bitclass.images.image_set import (
    ImageError,
    ImageSet,
    ImageWarning,
    find_images,
    open_images,
)
from bitclass.images.preparation import centre_square, decode
from bitclass.images.rows import ImageRows, image_rows

__all__ = [
    "EfficientNetLite0",
    "Extractor",
    "ImageError",
    "ImageRows",
    "ImageSet",
    "ImageWarning",
    "OnnxNetwork",
    "centre_square",
    "decode",
    "extractor_named",
    "find_images",
    "image_rows",
    "open_images",
    "recorded_extractor",
]
