"""The methods that the paper compares with, each a scikit-learn estimator of its own.

Linear support vector machines by LibLinear, and three hashing methods: an encoder that gives codes
in {-1, +1}, followed by a linear support vector machine on the codes that it predicts.
"""

from bitclass.baselines.anchors import AnchorFeatures
from bitclass.baselines.cca_itq import CCAITQEncoder
from bitclass.baselines.hashed import HashedClassifier
from bitclass.baselines.linear_svm import LinearSVM
from bitclass.baselines.lsh import LSHEncoder
from bitclass.baselines.penalty import PENALTIES
from bitclass.baselines.sdh import SDHEncoder

__all__ = [
    "PENALTIES",
    "AnchorFeatures",
    "CCAITQEncoder",
    "HashedClassifier",
    "LSHEncoder",
    "LinearSVM",
    "SDHEncoder",
]
