"""The compiled kernels, each behind a function or class of Python.

Callers import from here and do not know whether NumPy or compiled code serves them.
`bitclass._native.reference` defines what each returns.
"""

from bitclass._native.class_index import ClusteredIndex
from bitclass._native.config import get_config, show_config, use_level_of_environment
from bitclass._native.encoding import Precision, Projection, QuantisedProjection
from bitclass._native.reference import RELATIVE_TOLERANCE
from bitclass._native.search import HammingIndex, predict, predict_rescored
from bitclass._native.sparse import SparseProjection, SparseRows, sparse_scores, sparse_step
from bitclass._native.threads import effective_threads, set_num_threads, thread_limit
from bitclass._native.training import (
    add_gram,
    class_sums,
    flip_bits,
    group_rows,
    half_margins,
    pair_sums,
    update_codes,
)

__all__ = [
    "RELATIVE_TOLERANCE",
    "ClusteredIndex",
    "HammingIndex",
    "Precision",
    "Projection",
    "QuantisedProjection",
    "SparseProjection",
    "SparseRows",
    "add_gram",
    "class_sums",
    "effective_threads",
    "flip_bits",
    "get_config",
    "group_rows",
    "half_margins",
    "pair_sums",
    "predict",
    "predict_rescored",
    "set_num_threads",
    "show_config",
    "sparse_scores",
    "sparse_step",
    "thread_limit",
    "update_codes",
]

use_level_of_environment()
