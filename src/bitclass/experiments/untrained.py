"""Models that were never trained: their size and speed are those of trained ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.codes import packed_width, sign
from bitclass.experiments.cells import Cell
from bitclass.model import PackedModel

__all__ = ["MADE_UP", "MadeUp", "made_up"]

#: Methods of which a model can be made up.
MADE_UP = ("ova-svm", "lsh", "ours-hinge")


@dataclass(frozen=True)
class MadeUp:
    """A predictor of random numbers."""

    predict: Callable[[NDArray[np.float32]], NDArray[Any]]
    model_bytes: int


def made_up(cell: Cell, n_features: int, n_classes: int) -> MadeUp:
    """A model of a method's kind, of the given size: float64 for SVMs, as LibLinear has them."""
    rng = np.random.default_rng(cell.seed)
    if cell.method == "ova-svm":
        weights = rng.standard_normal((n_features, n_classes))
        return MadeUp(lambda X: (X @ weights).argmax(axis=1), weights.nbytes)
    projection = rng.standard_normal((n_features, cell.n_bits), dtype=np.float32)
    if cell.method == "lsh":
        of_codes = rng.standard_normal((cell.n_bits, n_classes))
        size = projection.nbytes + of_codes.nbytes
        return MadeUp(lambda X: (sign(X @ projection) @ of_codes).argmax(axis=1), size)
    if cell.method != "ours-hinge":
        raise ValueError(f"a model can be made up of {', '.join(MADE_UP)}, found {cell.method}")
    packed = rng.integers(0, 256, (n_classes, packed_width(cell.n_bits)), dtype=np.uint8)
    packed[:, -1] &= np.uint8((1 << ((cell.n_bits - 1) % 8 + 1)) - 1)
    model = PackedModel(
        np.arange(n_classes),
        packed,
        projection,
        np.zeros(cell.n_bits),
        centre=np.zeros(n_features, dtype=np.float32),
        scale=np.ones(n_features, dtype=np.float32),
        precision="float32",
    )
    return MadeUp(model.predict, model.nbytes)
