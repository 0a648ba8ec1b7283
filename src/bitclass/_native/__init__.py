"""The heavy loops of bitclass, each behind one small function.

Callers import the functions from here and do not know whether NumPy or compiled code serves them.
`bitclass._native.reference` defines what each returns.
"""

from bitclass._native.reference import (
    add_gram,
    class_sums,
    encode,
    flip_bits,
    group_rows,
    half_margins,
    nearest,
    pair_sums,
    shift_margins,
    top_k,
    update_codes,
)

__all__ = [
    "add_gram",
    "class_sums",
    "encode",
    "flip_bits",
    "group_rows",
    "half_margins",
    "nearest",
    "pair_sums",
    "shift_margins",
    "top_k",
    "update_codes",
]
