"""Classification with very many classes: codes and class weights are both bits."""

from bitclass.classifier import BinaryCodeClassifier
from bitclass.model import PackedModel
from bitclass.training import CodeWarning

__version__ = "0.1.0"

__all__ = ["BinaryCodeClassifier", "CodeWarning", "PackedModel", "__version__"]
