"""A progress bar of refinement below the cell of a notebook."""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Callable
from typing import Any

from bitclass.training import Epoch

__all__ = ["with_bar"]


class _Bar:
    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch

    def __repr__(self) -> str:
        epoch = self._epoch
        text = f"refining: epoch {epoch.epoch} of {epoch.n_epochs}"
        if math.isnan(epoch.accuracy):  # wide rows are not judged until the end
            return f"{text}, mean cross-entropy {epoch.objective:.3f}"
        return f"{text}, held-out accuracy {epoch.accuracy:.2%}"

    def _repr_html_(self) -> str:
        epoch = self._epoch
        bar = f'<progress value="{epoch.epoch}" max="{epoch.n_epochs}"></progress>'
        return f"<div>{bar} {html.escape(repr(self))}</div>"


def with_bar(callback: Callable[[Epoch], Any] | None) -> Any:
    """A callback of `fit` that also shows a bar, if this is a notebook.

    Parameters
    ----------
    callback : callable or None

    Returns
    -------
    callable or None
        `callback` itself where there is no bar.
    """
    display = _display()
    if display is None:
        return callback
    shown: Any = None

    def show(epoch: Epoch) -> Any:
        nonlocal shown
        if shown is None:
            shown = display(_Bar(epoch), display_id=True)
        else:
            shown.update(_Bar(epoch))
        return None if callback is None else callback(epoch)

    return show


def _display() -> Callable[..., Any] | None:
    """IPython's function to show objects below a cell; None if this is no notebook."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display  # type: ignore[no-any-return]
