"""Refinement: projection and weights improved together on the classification loss."""

from bitclass.training.refinement.refine import (
    RESCORE_LENGTHS,
    Refined,
    Start,
    class_mean_weights,
    refine,
)
from bitclass.training.refinement.split import Batch, Rows

__all__ = [
    "RESCORE_LENGTHS",
    "Batch",
    "Refined",
    "Rows",
    "Start",
    "class_mean_weights",
    "refine",
]
