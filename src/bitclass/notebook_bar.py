"""A progress bar for refinement in notebooks."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from bitclass.training import Epoch

__all__ = ["with_bar"]


def with_bar(callback: Callable[[Epoch], Any] | None) -> Callable[[Epoch], Any] | None:
    """Wrap a callback of `fit` to show a progress bar; outside notebooks, return it unchanged."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return callback
    from IPython.display import display

    shown: Any = None

    def show(epoch: Epoch) -> Any:
        nonlocal shown
        text = f"refining: epoch {epoch.epoch} of {epoch.n_epochs}"
        if math.isnan(epoch.accuracy):  # wide rows are evaluated only at the end
            text += f", mean cross-entropy {epoch.objective:.3f}"
        else:
            text += f", held-out accuracy {epoch.accuracy:.2%}"
        bar = f'<progress value="{epoch.epoch}" max="{epoch.n_epochs}"></progress>'
        content = {"text/html": f"<div>{bar} {text}</div>", "text/plain": text}
        if shown is None:
            shown = display(content, raw=True, display_id=True)
        else:
            shown.update(content, raw=True)
        return None if callback is None else callback(epoch)

    return show
