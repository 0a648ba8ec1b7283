"""Python functions and classes that wrap the compiled kernels.

tests/native/reference.py has NumPy equivalents.
"""

from bitclass._native.config import get_config, show_config, use_level_of_environment
from bitclass._native.linear_algebra import add_gram, cholesky, product, solve_triangular
from bitclass._native.paper import (  # until the old training code is gone
    RELATIVE_TOLERANCE,
    flip_bits,
    group_rows,
    half_margins,
    pair_sums,
    update_codes,
)
from bitclass._native.prediction import (
    ClusteredIndex,
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
    dense_scores,
    scale_columns,
    standardise,
)

__all__ = [
    "RELATIVE_TOLERANCE",
    "ClusteredIndex",
    "HammingIndex",
    "Precision",
    "QuantisedProjection",
    "SparseRows",
    "adam_step",
    "add_gram",
    "cholesky",
    "class_gradients",
    "class_sums",
    "dense_scores",
    "effective_threads",
    "flip_bits",
    "get_config",
    "group_rows",
    "half_margins",
    "pair_sums",
    "product",
    "quantise",
    "scale_columns",
    "set_num_threads",
    "show_config",
    "solve_triangular",
    "sparse_scores",
    "sparse_step",
    "standardise",
    "thread_limit",
    "update_codes",
]

use_level_of_environment()
