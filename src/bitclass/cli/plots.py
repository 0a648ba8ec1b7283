"""Figures of `evaluate`, `inspect` and `demo`; matplotlib is an extra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.cli.errors import UsageError
from bitclass.cli.text import printable
from bitclass.storage import atomic_write, check_writable

__all__ = ["check_plot", "confusion_plot", "distance_plot", "save_figure"]

# A figure of more classes than this is averaged down to as many cells.
_MAX_CELLS = 400
_MAX_NAMES = 40


def _pyplot(out: Path) -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ImportError(
            f"{out}: drawing needs matplotlib; install it with: pip install 'bitclass[plots]'"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def check_plot(out: Path, option: str = "--plot") -> None:
    """Check before the work that a figure can be drawn and written to what `option` names."""
    _pyplot(out)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    known = FigureCanvasAgg.get_supported_filetypes()
    if _ending(out) not in known:
        raise UsageError(f"{out}: {option} must end in one of .{', .'.join(sorted(known))}")
    check_writable(out)


def _ending(out: Path) -> str:
    return out.suffix.lower().removeprefix(".") or "png"


def save_figure(figure: Any, out: Path) -> None:
    """Write a figure to a file, whole or not at all."""
    with atomic_write(out) as file:
        figure.savefig(file, format=_ending(out), dpi=150, bbox_inches="tight")


def _matrix_plot(
    matrix: NDArray[Any], names: list[Any], out: Path, colours: str, bar: str, axes: str
) -> None:
    pyplot = _pyplot(out)
    side = min(12.0, 4.0 + 0.12 * min(len(names), _MAX_NAMES * 2))
    figure, axis = pyplot.subplots(figsize=(side, side))
    try:
        image = axis.imshow(matrix, cmap=colours, interpolation="nearest")
        figure.colorbar(image, ax=axis, shrink=0.8, label=bar)
        if len(names) <= _MAX_NAMES:
            shown = [printable(str(name))[:24] for name in names]
            # A dollar in a label does not start a formula.
            look = {"fontsize": 7, "parse_math": False}
            axis.set_xticks(range(len(names)), shown, rotation=90, **look)
            axis.set_yticks(range(len(names)), shown, **look)
        else:
            axis.set_xticks([])
            axis.set_yticks([])
        first, second = axes.split("|")
        axis.set_ylabel(first)
        axis.set_xlabel(second)
        save_figure(figure, out)
    finally:
        pyplot.close(figure)


def confusion_plot(pairs: Mapping[tuple[Any, Any], int], names: list[Any], out: Path) -> None:
    """Draw how often each class (row) is predicted as each (column), as shares of the row."""
    every = list(dict.fromkeys([*names, *sorted({own for own, _ in pairs} - set(names), key=str)]))
    place = {name: j for j, name in enumerate(every)}
    rows = Counter[Any]()
    for (own, _), n in pairs.items():
        rows[own] += n
    # Neighbours share a cell of the figure where there are more classes than cells.
    cells = np.arange(len(every)) * min(len(every), _MAX_CELLS) // len(every)
    matrix = np.zeros((cells[-1] + 1, cells[-1] + 1))
    for (own, found), n in pairs.items():
        matrix[cells[place[own]], cells[place[found]]] += n / rows[own]
    sizes = np.bincount(cells)
    matrix /= np.outer(sizes, sizes)
    _matrix_plot(matrix, every, out, "viridis", "share of the class's rows", "class|predicted")


def distance_plot(distances: NDArray[np.int32], names: list[Any], out: Path) -> None:
    """Draw the Hamming distances (C, C) between class codes."""
    _matrix_plot(distances, names, out, "magma", "Hamming distance", "class|class")
