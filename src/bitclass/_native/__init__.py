"""Python functions and classes that wrap the compiled kernels.

tests/native/reference.py has NumPy equivalents.
"""

from bitclass._native.config import get_config, show_config, use_level_of_environment
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
from bitclass._native.training import add_gram, class_sums

__all__ = [
    "RELATIVE_TOLERANCE",
    "ClusteredIndex",
    "HammingIndex",
    "Precision",
    "QuantisedProjection",
    "SparseRows",
    "add_gram",
    "class_sums",
    "effective_threads",
    "flip_bits",
    "get_config",
    "group_rows",
    "half_margins",
    "pair_sums",
    "quantise",
    "set_num_threads",
    "show_config",
    "sparse_scores",
    "sparse_step",
    "thread_limit",
    "update_codes",
]

use_level_of_environment()
