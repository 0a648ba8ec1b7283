"""Python functions and classes that wrap the compiled kernels.

tests/native/reference.py has NumPy equivalents.
"""

from bitclass._native.config import get_config, use_level_of_environment
from bitclass._native.linear_algebra import add_gram, cholesky, product, solve_triangular
from bitclass._native.prediction import (
    HammingIndex,
    Precision,
    QuantisedProjection,
    quantise,
)
from bitclass._native.sparse import SparseRows, sparse_scores, sparse_step
from bitclass._native.threads import effective_threads, set_num_threads, thread_limit
from bitclass._native.training import (
    adam_step,
    class_gradients,
    class_sums,
    log_probabilities,
    standardise,
)

__all__ = [
    "HammingIndex",
    "Precision",
    "QuantisedProjection",
    "SparseRows",
    "adam_step",
    "add_gram",
    "cholesky",
    "class_gradients",
    "class_sums",
    "effective_threads",
    "get_config",
    "log_probabilities",
    "product",
    "quantise",
    "set_num_threads",
    "solve_triangular",
    "sparse_scores",
    "sparse_step",
    "standardise",
    "thread_limit",
]

use_level_of_environment()
