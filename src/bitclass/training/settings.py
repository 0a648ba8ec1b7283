"""Training settings: the validated parameters of the estimator, and limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitclass.report import Epoch


@dataclass(frozen=True)
class Settings:
    """Training settings.

    Attributes
    ----------
    n_bits : int
    alpha : float, penalty on the scatter within classes, or None to choose it
    refine : bool or "auto"
    kernel : bool, whether rows are hashed by their similarities to anchors
    n_anchors : int or "auto"
    gamma : float or str, coefficient of the kernel
    rescore : int, length of the short list, or None to choose it
    prior : "train", "uniform" or (C,) array, shares of the classes where the model is used
    seed : int
    print_line : called with each line of progress, for `verbose`
    deadline : float, value of `time.monotonic` at which refinement stops, or None
    callback : called with an `Epoch` after each epoch of refinement; returns True to stop it
    max_bytes : int, memory that the rows to refine on may take
    pool_rows : int, number of rows from which the judged ones are taken
    learned_classes : int, with more classes weights follow the class means
    span_rows : int, up to so many rows, fewer than features, are solved for in their span
    """

    n_bits: int
    alpha: float | None
    refine: bool | Literal["auto"]
    kernel: bool
    n_anchors: int | str
    gamma: float | str
    rescore: int | None
    prior: str | NDArray[np.float64]
    seed: int
    print_line: Callable[[str], None]
    deadline: float | None = None
    callback: Callable[[Epoch], Any] | None = None
    max_bytes: int = 1 << 30
    pool_rows: int = 4096
    learned_classes: int = 2048
    span_rows: int = 2048

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline
