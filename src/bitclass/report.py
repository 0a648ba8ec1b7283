"""What training reports about itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Epoch", "Report"]


@dataclass(frozen=True)
class Epoch:
    """Progress of refinement, passed to `callback` after each epoch.

    Attributes
    ----------
    epoch : int, counted from 1
    n_epochs : int, total number unless refinement stops early
    accuracy : float, on the rows that judge the model
    objective : float, mean cross-entropy of the training rows during this epoch
    """

    epoch: int
    n_epochs: int
    accuracy: float
    objective: float


@dataclass(frozen=True)
class Report:
    """What is known about a fitted model.

    Attributes
    ----------
    n_rows : int, number of rows
    n_judged : int, number of rows that the model was judged on, without having seen them
    accuracy : float or None, accuracy of the model on these rows
    accuracy_closed_form : float or None, accuracy of the closed form on these rows
    refined : bool, whether refinement was accepted
    alpha : float or None, penalty on the scatter within classes
    epochs : tuple of Epoch
    stopped : "callback", "max_time" or None, why refinement ended early
    """

    n_rows: int
    n_judged: int = 0
    accuracy: float | None = None
    accuracy_closed_form: float | None = None
    refined: bool = False
    alpha: float | None = None
    epochs: tuple[Epoch, ...] = ()
    stopped: str | None = None
