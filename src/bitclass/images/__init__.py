"""Pictures in, rows of features out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Loaded when first asked for, so that a process that only decodes pictures starts quickly.
_HOMES = {
    "EfficientNetLite0": "cnn",
    "Extractor": "extractors",
    "Gist": "gist",
    "OnnxNetwork": "onnx_network",
    "PictureError": "decoding",
    "PictureWarning": "extraction",
    "TimmNetwork": "timm_network",
    "decode": "decoding",
    "extract_features": "extraction",
    "extractor_named": "extractors",
    "from_specification": "extractors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bitclass.images' has no attribute {name!r}")
    return getattr(import_module(f"bitclass.images.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
