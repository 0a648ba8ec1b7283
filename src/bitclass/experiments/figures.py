"""The paper's figures, drawn for light and dark pages."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitclass.experiments.datasets import DATA_SETS
from bitclass.experiments.methods import METHODS
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
    "ours-exponential": "#0072b2",
    "ours-hinge": "#d55e00",
    "ours-exponential-default": "#0072b2",
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
_INK = {"light": "#222222", "dark": "#dddddd"}


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Attributes
    ----------
    name : str, of its file
    title, note : str
    light, dark : SVG
    png : bytes, on white
    """

    name: str
    title: str
    note: str
    light: str
    dark: str
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
        title = DATA_SETS[real[0]].title
        figures.append(
            _figure(
                "figure1",
                f"Figure 1: accuracy and training time against code length, {title}",
                "Ours beside LibLinear (dashed, grey). The paper has SUN397.",
                2,
                lambda axes: _accuracy_and_time(axes, results, real[0]),
            )
        )
    with_history = [
        name for name in results.data_sets if results.values("ours-exponential", name, "history")
    ]
    if with_history:
        chosen = (real or with_history)[-1]
        chosen = chosen if chosen in with_history else with_history[-1]
        figures.append(
            _figure(
                "figure3",
                f"Figure 3: objective against bit updates, {DATA_SETS[chosen].title}",
                "Logarithm of the exponential objective after each bit of W, then of B, in the "
                "first round; one line a seed. The paper has SUN397.",
                2,
                lambda axes: _objectives(axes, results, chosen),
            )
        )
    if real:
        figures.append(
            _figure(
                "figure4",
                "Figure 4: accuracy against code length",
                "Bars are standard deviations over seeds. Open marks go beyond the paper. Dashed, "
                "grey: the better linear SVM.",
                len(real),
                lambda axes: _curves(axes, results, real, "accuracy", _ALL),
            )
        )
    if curves:
        figures.append(
            _figure(
                "figure5",
                "Figure 5: training time against code length",
                "Both axes logarithmic. Dashed, grey: the faster linear SVM, or the limit it "
                "passed (dotted).",
                len(curves),
                lambda axes: _curves(axes, results, curves, "train_seconds", _OURS),
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


def _figure(name: str, title: str, note: str, n_panels: int, fill: Callable[[Any], Any]) -> Figure:
    drawn: dict[str, bytes] = {}
    for theme, kind in (("light", "svg"), ("dark", "svg"), ("light", "png")):
        with _style(theme) as pyplot:
            # Panels stand below each other: as wide on a phone as on a desk.
            columns = min(2, n_panels)
            rows = -(-n_panels // columns)
            figure, axes = pyplot.subplots(
                rows, columns, figsize=(4.4 * columns, 3.3 * rows + 0.7), squeeze=False
            )
            try:
                flat = axes.ravel()
                for spare in flat[n_panels:]:
                    spare.set_visible(False)
                fill(flat[:n_panels])
                _legend(figure, flat[:n_panels])
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
        drawn[f"{theme} {kind}"] = buffer.getvalue()
    svg = {theme: drawn[f"{theme} svg"].decode() for theme in ("light", "dark")}
    return Figure(name, title, note, svg["light"], svg["dark"], drawn["light png"])


def _legend(figure: Any, axes: Any) -> None:
    """One legend below all panels."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        height = figure.get_size_inches()[1]
        rows = -(-len(handles) // 3)
        figure.tight_layout(rect=(0, (0.1 + 0.19 * rows) / height, 1, 1))
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=3, fontsize=8)
    else:
        figure.tight_layout()


def _accuracy_and_time(axes: Any, results: Results, data: str) -> None:
    _curve(axes[0], results, data, "accuracy", _OURS)
    _curve(axes[1], results, data, "train_seconds", _OURS)


def _curves(
    axes: Any, results: Results, names: list[str], field: str, methods: tuple[str, ...]
) -> None:
    for axis, name in zip(axes, names, strict=True):
        _curve(axis, results, name, field, methods)


def _curve(axis: Any, results: Results, data: str, field: str, methods: tuple[str, ...]) -> None:
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
    found = [
        mean
        for name in ("ova-svm", "multi-svm")
        if (mean := results.mean(name, data, field)) is not None
    ]
    if found:
        best = max(found) if field == "accuracy" else min(found)
        axis.axhline(factor * best, color="#888888", linestyle="--", label="linear SVM")
        return
    limit = results.limit("multi-svm", data) or results.limit("ova-svm", data)
    if limit is not None and field == "train_seconds":
        axis.axhline(limit, color="#888888", linestyle=":", label="limit that the SVM passed")


def _objectives(axes: Any, results: Results, data: str) -> None:
    for history in results.values("ours-exponential", data, "history"):
        for axis, step in zip(axes, ("W", "B"), strict=True):
            values = np.array(history[step][:TABLE_BITS])
            axis.plot(
                np.arange(1, len(values) + 1), values, color=_COLOURS["ours-exponential"], alpha=0.7
            )
            axis.set_xlabel("bit update")
            axis.set_title(f"updating {step}", fontsize=9)
    axes[0].set_ylabel("log objective")
