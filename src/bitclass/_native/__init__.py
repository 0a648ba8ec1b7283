"""The heavy loops of bitclass, each behind one small door.

Callers import from here and do not know whether NumPy or compiled code serves them.
`bitclass._native.reference` defines what each returns.
"""

from bitclass._native.config import get_config, show_config, use_level_of_environment
from bitclass._native.encoding import Precision, Projection
from bitclass._native.prediction import predict
from bitclass._native.reference import (
    flip_bits,
    half_margins,
    pair_sums,
    shift_margins,
    update_codes,
)
from bitclass._native.search import HammingIndex
from bitclass._native.threads import effective_threads, set_num_threads

__all__ = [
    "HammingIndex",
    "Precision",
    "Projection",
    "effective_threads",
    "flip_bits",
    "get_config",
    "half_margins",
    "pair_sums",
    "predict",
    "set_num_threads",
    "shift_margins",
    "show_config",
    "update_codes",
]

use_level_of_environment()
