"""Refinement: projection and weights improved together on the classification loss."""

from bitclass.training.refinement.extend import MAX_CLASSES as MAX_EXTENDED_CLASSES
from bitclass.training.refinement.extend import extend
from bitclass.training.refinement.refine import (
    RESCORE_LENGTHS,
    Refined,
    Start,
    class_mean_weights,
    refine,
)
from bitclass.training.refinement.split import Batch, Rows

__all__ = [
    "MAX_EXTENDED_CLASSES",
    "RESCORE_LENGTHS",
    "Batch",
    "Refined",
    "Rows",
    "Start",
    "class_mean_weights",
    "extend",
    "refine",
]
