"""Kernel anchors in a file: four arrays, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.hash_function import MAX_DISTANCE, MAX_GAMMA, MIN_GAMMA, RbfAnchors
from bitclass.storage.layout import Expected
from bitclass.storage.strict_json import ModelFileError

__all__ = ["ANCHOR_LAYOUT", "anchors_from", "saved_anchors"]

#: The features of the projection are then the anchors, and the rows have the inputs.
ANCHOR_LAYOUT = {
    "anchors": Expected("F32", ("features", "inputs"), required=False),
    "anchor_centre": Expected("F32", ("inputs",), required=False),
    "anchor_scale": Expected("F32", ("inputs",), required=False),
    "anchor_gamma": Expected("F64", ("one",), required=False),
}


def saved_anchors(anchors: RbfAnchors | None) -> dict[str, NDArray[Any]]:
    """Arrays of the anchors by name."""
    if anchors is None:
        return {}
    return {
        "anchors": np.ascontiguousarray(anchors.anchors),
        "anchor_centre": anchors.centre,
        "anchor_scale": anchors.scale,
        "anchor_gamma": np.array([anchors.gamma], dtype=np.float64),
    }


def anchors_from(tensors: Mapping[str, NDArray[Any]]) -> RbfAnchors | None:
    """Anchors of a file whose layout has been checked, None where it has none."""
    there = [name for name in ANCHOR_LAYOUT if name in tensors]
    if not there:
        return None
    missing = [name for name in ANCHOR_LAYOUT if name not in tensors]
    if missing:
        raise ModelFileError(f"tensor {missing[0]!r} is missing beside {there[0]!r}")
    anchors, centre, scale, gamma = (tensors[name] for name in ANCHOR_LAYOUT)
    for name, values in zip(ANCHOR_LAYOUT, (anchors, centre, scale, gamma), strict=True):
        if not np.isfinite(values).all():
            raise ModelFileError(f"tensor {name!r} must hold finite numbers only")
    if not (scale >= np.finfo(np.float32).tiny).all():
        raise ModelFileError("tensor 'anchor_scale' must hold positive numbers only")
    if gamma.shape != (1,) or not MIN_GAMMA <= gamma[0] <= MAX_GAMMA:
        raise ModelFileError("tensor 'anchor_gamma' must hold one number from 1e-30 to 1e30")
    if not (np.abs(anchors) <= MAX_DISTANCE).all():
        raise ModelFileError("tensor 'anchors' must hold numbers from -1e9 to 1e9")
    with np.errstate(over="ignore", invalid="ignore"):
        return RbfAnchors(anchors, centre, scale, float(gamma[0]))
