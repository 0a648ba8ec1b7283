"""Refinement: joint optimisation of projection and weights on the classification loss."""

from bitclass.training.refinement.extend import updated_model
from bitclass.training.refinement.refine import (
    Batch,
    Facts,
    Refined,
    Rows,
    Start,
    refine,
)

__all__ = ["Batch", "Facts", "Refined", "Rows", "Start", "refine", "updated_model"]
