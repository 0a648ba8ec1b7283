"""Training settings: the validated parameters of the estimator."""

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

#: Short-list lengths that ``rescore="auto"`` chooses from; the first is the default.
RESCORE_LENGTHS = (16, 0, 64)


@dataclass(frozen=True)
class Epoch:
    """Progress of refinement, passed to `callback` after each epoch.

    Attributes
    ----------
    epoch : int, counted from 1
    n_epochs : int, total number unless refinement stops early
    accuracy : float, accuracy on the held-out rows; NaN for wide rows, which are evaluated only at
        the end
    objective : float, mean cross-entropy of the training rows during this epoch
    """

    epoch: int
    n_epochs: int
    accuracy: float
    objective: float


@dataclass(frozen=True)
class Settings:
    """Training settings: the validated parameters of the estimator.

    Attributes
    ----------
    n_bits : int
    table : LossTable, or None for the closed forms of the hinge loss
    solver : solver of the binary quadratic program of one bit
    max_rounds : int, maximum number of rounds of the alternation
    alpha : float, regularisation strength of the hash function, or None to choose it
    refine : bool or "auto"
    kernel : bool, whether rows are hashed by their similarities to anchors
    n_anchors : int or "auto"
    gamma : float or str, coefficient of the kernel
    class_weighted : bool, whether `class_weight` is set
    rescore : int, length of the short list, or None to choose it
    precision : arithmetic in which codes are computed at prediction
    random_state : seed or random number generator
    max_bytes : int, memory budget; a sample of rows for refinement may take a quarter of it, and
        rows kept for later batches of wide rows a sixteenth
    print_line : called with each line of progress, for `verbose`
    deadline : float, value of `time.monotonic` at which refinement stops, or None
    callback : called with an `Epoch` after each epoch of refinement; returns True to stop it
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
        """Length of the short list if it is not chosen on held-out rows."""
        return RESCORE_LENGTHS[0] if self.rescore is None else self.rescore

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline
