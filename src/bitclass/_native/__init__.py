"""Python functions and classes that wrap the compiled kernels.

tests/native/reference.py has NumPy equivalents.
"""

from bitclass._native.config import get_config, use_level_of_environment
from bitclass._native.prediction import (
    ClusteredIndex,
    HammingIndex,
    Precision,
    QuantisedProjection,
    quantise,
)
from bitclass._native.sparse import SparseRows, sparse_scores, sparse_step
from bitclass._native.threads import effective_threads, set_num_threads, thread_limit
from bitclass._native.training import add_gram, class_sums

__all__ = [
    "ClusteredIndex",
    "HammingIndex",
    "Precision",
    "QuantisedProjection",
    "SparseRows",
    "add_gram",
    "class_sums",
    "effective_threads",
    "get_config",
    "quantise",
    "set_num_threads",
    "sparse_scores",
    "sparse_step",
    "thread_limit",
]

use_level_of_environment()
