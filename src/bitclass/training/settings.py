"""How to learn: the checked parameters of the estimator, as training takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bitclass._native import Precision
from bitclass.losses import Loss, LossTable
from bitclass.training.bqp import Solver

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How to learn: the checked parameters of the estimator.

    Attributes
    ----------
    n_bits : int
    loss : Loss
    table : LossTable, or None for the closed forms of the hinge loss
    solver : solves the binary quadratic program of one bit
    max_rounds : int, limit on the rounds of the alternation
    alpha : float, penalty of the ridge regression, or None to choose it by cross-validation
    refine : bool or "auto"
    kernel : bool, whether rows are hashed by their similarities to anchors
    n_anchors : int or "auto"
    gamma : float or str, width of the kernel
    class_weighted : bool, whether classes have weights of their own
    rescore : int, length of the short list, or None to choose it
    precision : what codes are computed in at prediction
    random_state : seed or source of randomness
    max_bytes : int, memory that a sample of rows for refinement may take a quarter of
    report : called with each line of progress
    """

    n_bits: int
    loss: Loss
    table: LossTable | None
    solver: Solver
    max_rounds: int
    alpha: float | None
    refine: bool | Literal["auto"]
    kernel: bool
    n_anchors: int | str
    gamma: float | str
    class_weighted: bool
    rescore: int | None
    precision: Precision
    random_state: int | np.random.RandomState | None
    max_bytes: int
    report: Callable[[str], None]
