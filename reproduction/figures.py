"""The paper's figures, as SVG files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

from reproduction.datasets import DATASETS
from reproduction.methods import BITCLASS, HASHING, METHODS, PAPER, SVMS
from reproduction.results import Results

__all__ = ["draw_figures", "history_dataset"]

matplotlib.use("Agg")

# Distinguishable for colour-blind readers.
_STYLES = {
    "lsh": ("#cc79a7", "v"),
    "cca-itq": ("#009e73", "^"),
    "sdh": ("#e69f00", "s"),
    "paper-exponential": ("#2a86c8", "o"),
    "paper-hinge": ("#d55e00", "D"),
    "bitclass": ("#222222", "*"),
}
_SETTINGS: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "bitclass",  # the same file for the same numbers
    "svg.fonttype": "none",  # text as text, which is smaller
}
_OURS = (*PAPER, *BITCLASS)

Panel = Callable[[Any], None]


def history_dataset(results: Results) -> str | None:
    """The dataset of Figure 3: the last real dataset with curves, else the last with a history."""
    names = [
        name for name in results.datasets if results.values("paper-exponential", name, "n_updates")
    ]
    curves = [name for name in names if name in results.curves and name in results.real_datasets]
    return (curves or names)[-1] if names else None


def draw_figures(results: Results, folder: Path) -> dict[str, str]:
    """Draw the figures for which there are results.

    Returns
    -------
    dict of str to str
        Caption by file name, in the order of the report.
    """
    curve = partial(_curve, results)
    real = [name for name in results.curves if not DATASETS[name].synthetic]
    first, times = real[:1], "train_seconds"
    figures = {
        "figure4.svg": (
            "**Figure 4: accuracy against code length.** Filled marks: the methods of the "
            "paper. Open marks: bitclass with its defaults. Bars: uncertainty. Dashed line: "
            "the better linear SVM.",
            [partial(curve, name, "accuracy", (*HASHING, *_OURS)) for name in real],
        ),
        "figure5.svg": (
            "**Figure 5: training time against code length**, both axes logarithmic. Dashed "
            "line: the faster linear SVM, or the time after which it was stopped (dotted).",
            [partial(curve, name, times, _OURS) for name in results.curves],
        ),
        "figure1.svg": (
            f"**Figure 1: accuracy and training time, {_titles(first)}**, compared "
            "with the linear SVMs (dashed).",
            [partial(curve, name, field, _OURS) for name in first for field in ("accuracy", times)],
        ),
        "figure3.svg": (
            f"**Figure 3: objective against bit updates, {_titles(results.history)}.** Logarithm "
            "of the exponential objective after each bit of W, then of B, in the first round; "
            "one line per seed.",
            [
                partial(_objective, seeds, step)
                for seeds in results.history.values()
                for step in ("W", "B")
            ],
        ),
    }
    for name, (_, panels) in figures.items():
        if panels:
            _draw(panels, folder / name)
    return {name: caption for name, (caption, panels) in figures.items() if panels}


def _titles(names: Iterable[str]) -> str:
    return ", ".join(DATASETS[name].title for name in names)


def _draw(panels: Sequence[Panel], path: Path) -> None:
    with matplotlib.rc_context(_SETTINGS):
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        size = (4.6 * columns, 3.3 * rows + 0.9)
        figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
        for axis in axes.ravel()[len(panels) :]:
            axis.set_visible(False)
        handles: dict[str, Any] = {}
        for panel, axis in zip(panels, axes.ravel(), strict=False):
            panel(axis)
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        lines = -(-len(handles) // columns)
        figure.tight_layout(rect=(0, (0.1 + 0.19 * lines) / size[1], 1, 1))
        if handles:
            figure.legend(
                handles.values(), handles.keys(), loc="lower center", ncols=columns, fontsize=8
            )
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _curve(results: Results, data: str, field: str, methods: Sequence[str], axis: Any) -> None:
    for name in methods:
        points = []
        for n_bits in results.lengths(name, data):
            found = (
                results.accuracy(name, data, n_bits)
                if field == "accuracy"
                else results.seconds(name, data, field, n_bits)
            )
            if found is not None:
                points.append((n_bits, found.mean, found.spread))
        if len(points) < 2:
            continue
        bits, means, spreads = zip(*points, strict=True)
        colour, marker = _STYLES[name]
        is_bitclass = METHODS[name].kind == "bitclass"
        axis.errorbar(
            bits,
            means,
            yerr=spreads,
            color=colour,
            marker=marker,
            markersize=4.5,
            markerfacecolor="none" if is_bitclass else colour,
            linestyle="--" if is_bitclass else "-",
            linewidth=1.4,
            capsize=2,
            label=METHODS[name].title,
        )
    _svm_line(results, data, field, axis)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if field == "train_seconds":
        axis.set_yscale("log")
    axis.set_xlabel("bits")
    axis.set_ylabel("accuracy, %" if field == "accuracy" else "training, s")
    axis.set_title(DATASETS[data].title, fontsize=9)


def _svm_line(results: Results, data: str, field: str, axis: Any) -> None:
    found = [mean for name in SVMS if (mean := results.mean(name, data, field)) is not None]
    stopped = [t for name in SVMS for t in results.values(name, data, "learned_for")]
    if found:
        best = 100 * max(found) if field == "accuracy" else min(found)
        axis.axhline(best, color="#777777", linestyle="--", label="linear SVM")
    elif stopped and field == "train_seconds":
        label = "linear SVM, stopped while training"
        axis.axhline(max(stopped), color="#777777", linestyle=":", label=label)


def _objective(seeds: Sequence[dict[str, list[float]]], step: str, axis: Any) -> None:
    for history in seeds:
        updates = range(1, len(history[step]) + 1)
        axis.plot(updates, history[step], color=_STYLES["paper-exponential"][0], alpha=0.7)
    axis.set_xlabel("bit update")
    axis.set_ylabel("log objective")
    axis.set_title(f"updating {step}", fontsize=9)
