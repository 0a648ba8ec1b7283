"""How to learn: the checked parameters of the estimator, as training takes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bitclass._native import Precision
from bitclass.losses import LossTable
from bitclass.training.bqp import Solver

__all__ = ["RESCORE_LENGTHS", "Epoch", "Settings"]

#: Lengths of the short list that ``rescore="auto"`` chooses from; the first where nothing is known.
RESCORE_LENGTHS = (16, 0, 64)


@dataclass(frozen=True)
class Epoch:
    """Progress of refinement, as a `callback` gets it after each epoch.

    Attributes
    ----------
    epoch : int, counted from 1
    n_epochs : int, how many there are unless refinement stops early
    accuracy : float, share of the held-out rows that are predicted right; NaN where wide rows are
        learned, which are judged at the end only
    objective : float, mean cross-entropy of the training rows during this epoch
    """

    epoch: int
    n_epochs: int
    accuracy: float
    objective: float


@dataclass(frozen=True)
class Settings:
    """How to learn: the checked parameters of the estimator.

    Attributes
    ----------
    n_bits : int
    table : LossTable, of the loss; None for the closed forms of the hinge loss
    solver : solves the binary quadratic program of one bit
    max_rounds : int, limit on the rounds of the alternation
    alpha : float, penalty that the hash function is learned with, or None to choose it
    refine : bool or "auto"
    kernel : bool, whether rows are hashed by their similarities to anchors
    n_anchors : int or "auto"
    gamma : float or str, width of the kernel
    class_weighted : bool, whether classes have weights of their own
    rescore : int, length of the short list, or None to choose it
    precision : what codes are computed in at prediction
    random_state : seed or source of randomness
    max_bytes : int, memory that a sample of rows for refinement may take a quarter of
    print_line : called with each line of progress, for `verbose`
    deadline : float, value of `time.monotonic` at which refinement stops, or None
    callback : called with the progress of refinement after each epoch; stops it by returning True
    """

    n_bits: int
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
    print_line: Callable[[str], None]
    deadline: float | None = None
    callback: Callable[[Epoch], Any] | None = None

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return "hinge" if self.table is None else self.table.name

    @property
    def default_rescore(self) -> int:
        """Length of the short list where no held-out rows tell it."""
        return RESCORE_LENGTHS[0] if self.rescore is None else self.rescore

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline
