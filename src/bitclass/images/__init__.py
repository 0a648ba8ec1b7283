"""Pictures in, rows of features out."""

from bitclass.images.cnn import EfficientNetLite0
from bitclass.images.decoding import PictureError, decode
from bitclass.images.extraction import PictureWarning, extract_features
from bitclass.images.extractors import Extractor, extractor_named, from_specification
from bitclass.images.gist import Gist
from bitclass.images.onnx_network import OnnxNetwork
from bitclass.images.timm_network import TimmNetwork

__all__ = [
    "EfficientNetLite0",
    "Extractor",
    "Gist",
    "OnnxNetwork",
    "PictureError",
    "PictureWarning",
    "TimmNetwork",
    "decode",
    "extract_features",
    "extractor_named",
    "from_specification",
]
