"""Images to rows of features: image sets, feature extractors, and the rows they give."""

from bitclass.images.extractors import (
    Extractor,
    extractor_named,
    from_specification,
    recorded_extractor,
)
from bitclass.images.gist import Gist
from bitclass.images.image_set import (
    ImageError,
    ImageSet,
    ImageWarning,
    find_images,
    open_images,
)
from bitclass.images.networks import EfficientNetLite0, OnnxNetwork
from bitclass.images.preparation import Preparation, decode
from bitclass.images.rows import ImageRows, image_rows

__all__ = [
    "EfficientNetLite0",
    "Extractor",
    "Gist",
    "ImageError",
    "ImageRows",
    "ImageSet",
    "ImageWarning",
    "OnnxNetwork",
    "Preparation",
    "decode",
    "extractor_named",
    "find_images",
    "from_specification",
    "image_rows",
    "open_images",
    "recorded_extractor",
]
