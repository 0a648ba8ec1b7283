"""The heavy loops of bitclass, each behind one small function.

Callers import the functions from here and do not know whether NumPy or compiled code serves them.
`bitclass._native.reference` defines what each returns.
"""

from bitclass._native.config import get_config, show_config, use_level_of_environment
from bitclass._native.reference import (
    encode,
    flip_bits,
    half_margins,
    nearest,
    pair_sums,
    shift_margins,
    top_k,
    update_codes,
)
from bitclass._native.threads import effective_threads, set_num_threads

__all__ = [
    "effective_threads",
    "encode",
    "flip_bits",
    "get_config",
    "half_margins",
    "nearest",
    "pair_sums",
    "set_num_threads",
    "shift_margins",
    "show_config",
    "top_k",
    "update_codes",
]

use_level_of_environment()
