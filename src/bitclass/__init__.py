"""Classification with very many classes: codes and class weights are both bits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitclass._native import get_config, set_num_threads, show_config
    from bitclass.classifier import BinaryCodeClassifier
    from bitclass.codes import CodeWarning
    from bitclass.model import PackedModel
    from bitclass.storage import ModelFileError, load

__version__ = "0.2.0"

__all__ = [
    "BinaryCodeClassifier",
    "CodeWarning",
    "ModelFileError",
    "PackedModel",
    "__version__",
    "get_config",
    "load",
    "set_num_threads",
    "show_config",
]

# Loaded when first asked for, so that a program that only predicts does not pay for scikit-learn.
_HOMES = {
    "BinaryCodeClassifier": "bitclass.classifier",
    "CodeWarning": "bitclass.codes",
    "ModelFileError": "bitclass.storage",
    "PackedModel": "bitclass.model",
    "get_config": "bitclass._native",
    "load": "bitclass.storage",
    "set_num_threads": "bitclass._native",
    "show_config": "bitclass._native",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bitclass' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
