"""The paper's figures, drawn for light and dark pages."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bitclass.experiments.datasets import DATA_SETS
from bitclass.experiments.methods import METHODS, SVMS
from bitclass.experiments.plan import TABLE_BITS
from bitclass.experiments.results import Results

__all__ = ["Figure", "draw_figures", "require_matplotlib"]

# Distinguishable for colour-blind readers, and on white and black alike.
_COLOURS = {
    "ova-svm": "#888888",
    "multi-svm": "#888888",
    "lsh": "#cc79a7",
    "cca-itq": "#009e73",
    "sdh": "#e69f00",
    "ours-exponential": "#2a86c8",
    "ours-hinge": "#d55e00",
    "ours-exponential-default": "#2a86c8",
    "ours-hinge-default": "#d55e00",
}
_MARKERS = {
    "lsh": "v",
    "cca-itq": "^",
    "sdh": "s",
    "ours-exponential": "o",
    "ours-hinge": "D",
    "ours-exponential-default": "o",
    "ours-hinge-default": "D",
}
_OURS = ("ours-exponential", "ours-hinge", "ours-exponential-default", "ours-hinge-default")
_ALL = ("lsh", "cca-itq", "sdh", *_OURS)
Panel = Callable[[Any], None]

_INK = {"light": "#222222", "dark": "#dddddd"}


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Attributes
    ----------
    name : str, of its file
    title, note : str
    panels : SVG of each panel, for light and for dark pages
    png : bytes, all panels on white
    """

    name: str
    title: str
    note: str
    panels: list[tuple[str, str]]
    png: bytes


def require_matplotlib() -> None:
    """Say what to install where matplotlib is missing, before any work."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            "the report is drawn with matplotlib; install it with: pip install 'bitclass[plots]'"
        ) from None


def draw_figures(results: Results) -> list[Figure]:
    """All figures for which there are numbers."""
    figures = []
    curves = results.curves()
    real = [name for name in curves if not DATA_SETS[name].synthetic]
    if real:
        figures.append(
            _figure(
                "figure1",
                "Figure 1: accuracy and training time against code length, "
                + DATA_SETS[real[0]].title,
                "Ours beside LibLinear (dashed, grey). The paper has SUN397.",
                [
                    partial(_curve, results, real[0], "accuracy", _OURS),
                    partial(_curve, results, real[0], "train_seconds", _OURS),
                ],
            )
        )
    with_history = [
        name for name in results.data_sets if results.values("ours-exponential", name, "history")
    ]
    if with_history:
        chosen = next((name for name in reversed(real) if name in with_history), with_history[-1])
        figures.append(
            _figure(
                "figure3",
                f"Figure 3: objective against bit updates, {DATA_SETS[chosen].title}",
                "Logarithm of the exponential objective after each bit of W, then of B, in the "
                "first round; one line a seed. The paper has SUN397.",
                [partial(_objective, results, chosen, step) for step in ("W", "B")],
            )
        )
    if real:
        figures.append(
            _figure(
                "figure4",
                "Figure 4: accuracy against code length",
                "Bars are standard deviations over seeds. Dashed with open marks: beyond the "
                "paper. Dashed, grey: the better linear SVM.",
                [partial(_curve, results, name, "accuracy", _ALL) for name in real],
            )
        )
    if curves:
        figures.append(
            _figure(
                "figure5",
                "Figure 5: training time against code length",
                "Both axes logarithmic. Dashed, grey: the faster linear SVM, or the limit it "
                "passed (dotted).",
                [partial(_curve, results, name, "train_seconds", _OURS) for name in curves],
            )
        )
    return figures


@contextmanager
def _style(theme: str) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ink = _INK[theme]
    settings: Any = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": ink,
        "svg.hashsalt": "bitclass",  # the same file for the same numbers
        "legend.frameon": False,
    }
    with pyplot.rc_context(settings):
        yield pyplot


def _figure(name: str, title: str, note: str, panels: list[Panel]) -> Figure:
    """Each panel as an SVG of its own, which a phone shows below each other, and all as a PNG."""
    svgs = [
        (_drawn([panel], "light", "svg").decode(), _drawn([panel], "dark", "svg").decode())
        for panel in panels
    ]
    return Figure(name, title, note, svgs, _drawn(panels, "light", "png"))


def _drawn(panels: list[Panel], theme: str, kind: str) -> bytes:
    with _style(theme) as pyplot:
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(4.4 * columns, 3.3 * rows + 0.8), squeeze=False
        )
        try:
            flat = axes.ravel()
            for spare in flat[len(panels) :]:
                spare.set_visible(False)
            for panel, axis in zip(panels, flat, strict=False):
                panel(axis)
            _legend(figure, flat[: len(panels)], 2 * columns)
            buffer = io.BytesIO()
            figure.savefig(
                buffer,
                format=kind,
                dpi=150,
                transparent=kind == "svg",
                metadata={"Date": None} if kind == "svg" else None,
            )
        finally:
            pyplot.close(figure)
    return buffer.getvalue()


def _legend(figure: Any, axes: Any, n_columns: int) -> None:
    """One legend below all panels."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        figure.tight_layout()
        return
    rows = -(-len(handles) // n_columns)
    figure.tight_layout(rect=(0, (0.1 + 0.19 * rows) / figure.get_size_inches()[1], 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=n_columns, fontsize=8)


def _curve(results: Results, data: str, field: str, methods: tuple[str, ...], axis: Any) -> None:
    factor = 100.0 if field == "accuracy" else 1.0
    for name in methods:
        points = [
            (n_bits, factor * found.mean, factor * found.spread)
            for n_bits in results.lengths(name, data)
            if (found := results.statistic(name, data, field, n_bits)) is not None
        ]
        if len(points) < 2:
            continue
        bits, means, spreads = zip(*points, strict=True)
        beyond = METHODS[name].beyond_paper
        axis.errorbar(
            bits,
            means,
            yerr=spreads,
            color=_COLOURS[name],
            marker=_MARKERS[name],
            markersize=4.5,
            markerfacecolor="none" if beyond else _COLOURS[name],
            linestyle="--" if beyond else "-",
            linewidth=1.4,
            capsize=2,
            label=METHODS[name].title,
        )
    _svm_line(axis, results, data, field, factor)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if field == "train_seconds":
        axis.set_yscale("log")
    axis.set_xlabel("bits")
    axis.set_ylabel("accuracy, %" if field == "accuracy" else "training, s")
    axis.set_title(DATA_SETS[data].title, fontsize=9)


def _svm_line(axis: Any, results: Results, data: str, field: str, factor: float) -> None:
    found = [mean for name in SVMS if (mean := results.mean(name, data, field)) is not None]
    if found:
        best = max(found) if field == "accuracy" else min(found)
        axis.axhline(factor * best, color="#888888", linestyle="--", label="linear SVM")
        return
    bounds = [
        max(learned) for name in SVMS if (learned := results.values(name, data, "learned_for"))
    ]
    if bounds and field == "train_seconds":
        label = "linear SVM, stopped while learning"
        axis.axhline(max(bounds), color="#888888", linestyle=":", label=label)


def _objective(results: Results, data: str, step: str, axis: Any) -> None:
    for history in results.values("ours-exponential", data, "history"):
        values = np.array(history[step][:TABLE_BITS])
        updates = np.arange(1, len(values) + 1)
        axis.plot(updates, values, color=_COLOURS["ours-exponential"], alpha=0.7)
    axis.set_xlabel("bit update")
    axis.set_ylabel("log objective")
    axis.set_title(f"updating {step}", fontsize=9)
