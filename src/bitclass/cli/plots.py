"""Pictures for the commands that draw them; matplotlib is an extra."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.storage import atomic_write

__all__ = ["confusion_plot", "distance_plot"]

# A picture of more classes than this is averaged down to as many cells.
_MOST_CELLS = 400
_NAMED = 40


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


def _save(figure: Any, out: Path) -> None:
    ending = out.suffix.lower().removeprefix(".") or "png"
    with atomic_write(out) as file:
        figure.savefig(file, format=ending, dpi=150, bbox_inches="tight")


def _shrunk(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """A square matrix of at most `_MOST_CELLS` rows, by averaging neighbours."""
    size = len(matrix)
    if size <= _MOST_CELLS:
        return matrix
    edges = np.linspace(0, size, _MOST_CELLS + 1).astype(int)[:-1]
    counts = np.diff(np.append(edges, size))
    summed = np.add.reduceat(np.add.reduceat(matrix, edges, axis=0), edges, axis=1)
    return np.asarray(summed / np.outer(counts, counts))


def _matrix_plot(
    matrix: NDArray[np.float64], names: list[Any], out: Path, colours: str, bar: str, axes: str
) -> None:
    pyplot = _pyplot(out)
    side = min(12.0, 4.0 + 0.12 * min(len(names), _NAMED * 2))
    figure, axis = pyplot.subplots(figsize=(side, side))
    try:
        image = axis.imshow(_shrunk(matrix), cmap=colours, interpolation="nearest")
        figure.colorbar(image, ax=axis, shrink=0.8, label=bar)
        if len(names) <= _NAMED:
            shown = [str(name)[:24] for name in names]
            axis.set_xticks(range(len(names)), shown, rotation=90, fontsize=7)
            axis.set_yticks(range(len(names)), shown, fontsize=7)
        else:
            axis.set_xticks([])
            axis.set_yticks([])
        first, second = axes.split("|")
        axis.set_ylabel(first)
        axis.set_xlabel(second)
        _save(figure, out)
    finally:
        pyplot.close(figure)


def confusion_plot(pairs: Mapping[tuple[Any, Any], int], names: list[Any], out: Path) -> None:
    """Draw how often each class (row) is taken for each (column), as shares of the row.

    Parameters
    ----------
    pairs : counts of (label, prediction)
    names : labels in the order to draw them in
    out : file to write; its ending names the format
    """
    every = list(dict.fromkeys([*names, *sorted({own for own, _ in pairs} - set(names), key=str)]))
    place = {name: j for j, name in enumerate(every)}
    matrix = np.zeros((len(every), len(every)))
    for (own, found), n in pairs.items():
        matrix[place[own], place[found]] = n
    matrix /= np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    _matrix_plot(matrix, every, out, "viridis", "share of the class's rows", "class|taken for")


def distance_plot(distances: NDArray[np.int32], names: list[Any], out: Path) -> None:
    """Draw the Hamming distances (C, C) between class codes."""
    axes = "class|class"
    _matrix_plot(distances.astype(np.float64), names, out, "magma", "Hamming distance", axes)
