"""Classification with very many classes by binary codes and binary class weights."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitclass._native import get_config, set_num_threads
    from bitclass.classifier import BinaryCodeClassifier
    from bitclass.codes import CodeWarning
    from bitclass.model import PackedModel
    from bitclass.storage import ModelFileError, load
    from bitclass.text.classifier import TextClassifier

__version__ = "0.2.0"

__all__ = [
    "BinaryCodeClassifier",
    "CodeWarning",
    "ModelFileError",
    "PackedModel",
    "TextClassifier",
    "__version__",
    "get_config",
    "load",
    "set_num_threads",
]

# Imported on first use, so that a program that only predicts does not load scikit-learn.
_MODULES = {
    "BinaryCodeClassifier": "bitclass.classifier",
    "CodeWarning": "bitclass.codes",
    "ModelFileError": "bitclass.storage",
    "PackedModel": "bitclass.model",
    "TextClassifier": "bitclass.text.classifier",
    "get_config": "bitclass._native",
    "load": "bitclass.storage",
    "set_num_threads": "bitclass._native",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bitclass' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
