"""The B-step: codes for given class weights, one bit of each code at a time.

Bit k of sample i takes the sign of smaller loss; only classes whose weight bit differs from the
own class's matter, and a tie keeps the present bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitclass._native import update_codes
from bitclass.codes import pack
from bitclass.losses import LossTable
from bitclass.training.groups import Groups

__all__ = ["b_step"]

_LOOK_UPS_AT_ONCE = 1 << 31


def b_step(
    groups: Groups, weights: NDArray[np.int8], table: LossTable
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Update every bit of the code of every group once.

    Parameters
    ----------
    groups : Groups
    weights : (C, r) int8 in {-1, +1}
    table : LossTable

    Returns
    -------
    codes : (g, bytes) packed
    log_decreases : (r,) logarithm of what the update of each bit took off the objective
    """
    n_bits = weights.shape[1]
    packed = pack(weights)
    codes = np.empty_like(groups.codes)
    log_decreases = np.full(n_bits, -np.inf)
    # In parts, so that an interrupt is heard between them.
    step = max(1, _LOOK_UPS_AT_ONCE // (n_bits * len(weights)))
    for start in range(0, len(codes), step):
        rows = slice(start, start + step)
        codes[rows], decreases = update_codes(
            groups.codes[rows],
            packed,
            groups.labels[rows],
            groups.weights[rows],
            n_bits,
            table.values,
            table.log_step,
        )
        log_decreases = np.logaddexp(log_decreases, decreases)
    return codes, log_decreases
