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
    return update_codes(
        groups.codes,
        pack(weights),
        groups.labels,
        groups.weights,
        weights.shape[1],
        table.values,
        table.log_step,
    )
