"""The heavy loops of bitclass, each behind one small door.

Callers import from here and do not know whether NumPy or compiled code serves them.
`bitclass._native.reference` defines what each returns.
"""

from bitclass._native.class_index import ClusteredIndex
from bitclass._native.config import get_config, show_config, use_level_of_environment
from bitclass._native.encoding import Precision, Projection
from bitclass._native.gram import add_gram
from bitclass._native.prediction import predict, predict_rescored
from bitclass._native.reference import RELATIVE_TOLERANCE, QuantisedProjection
from bitclass._native.search import HammingIndex
from bitclass._native.sparse import SparseProjection, SparseRows, sparse_scores, sparse_step
from bitclass._native.threads import effective_threads, set_num_threads, thread_limit
from bitclass._native.training import (
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
