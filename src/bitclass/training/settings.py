"""Training settings: the validated parameters of the estimator, and limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitclass.report import Epoch


@dataclass(frozen=True)
class Settings:
    """Training settings."""

    n_bits: int
    alpha: float | None  # penalty on the scatter within classes, or None to choose it
    refine: bool | Literal["auto"]
    kernel: bool  # whether rows are hashed by their similarities to anchors
    n_anchors: int | str
    gamma: float | str  # coefficient of the kernel
    rescore: int | None  # length of the short list, or None to choose it
    prior: str | NDArray[np.float64]  # shares of the classes (C,) where the model is used
    seed: int
    print_line: Callable[[str], None]  # called with each line of progress, for `verbose`
    deadline: float | None = None  # value of `time.monotonic` at which refinement stops
    callback: Callable[[Epoch], Any] | None = None  # called after each epoch; True stops
    max_bytes: int = 1 << 30  # memory that the rows to refine on may take
    pool_rows: int = 4096  # number of rows from which the judged ones are taken
    learned_classes: int = 2048  # with more classes weights follow the class means
    span_rows: int = 2048  # up to so many rows, fewer than features, are solved for in their span

    @property
    def shifts_prior(self) -> bool:
        """Whether classes have other shares where the model is used than in training."""
        return not (isinstance(self.prior, str) and self.prior == "train")

    def quiet(self) -> Settings:
        """The same without progress."""
        return replace(self, callback=None, print_line=lambda line: None)

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline
