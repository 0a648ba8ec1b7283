"""Refinement: projection and weights improved together on the classification loss."""

from bitclass.training.refinement.refine import Refined, class_mean_weights, refine
from bitclass.training.refinement.split import Batch, Rows

__all__ = ["Batch", "Refined", "Rows", "class_mean_weights", "refine"]
