"""Refinement: projection and weights improved together on the classification loss."""

from bitclass.training.refinement.extend import updated_model
from bitclass.training.refinement.refine import RESCORE_LENGTHS, Refined, Start, refine
from bitclass.training.refinement.split import Batch, Rows

__all__ = ["RESCORE_LENGTHS", "Batch", "Refined", "Rows", "Start", "refine", "updated_model"]
