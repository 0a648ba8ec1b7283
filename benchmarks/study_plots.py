"""Plots of the study: accuracy by the length of the codes, one panel a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bitclass.storage import atomic_write

try:
    import matplotlib
except ImportError:
    raise SystemExit(
        "drawing needs matplotlib; install it with: pip install 'bitclass[plots]'"
    ) from None
matplotlib.use("Agg")
from matplotlib import pyplot

#: Accuracy by data set, stage and bits.
Curves = Mapping[str, Mapping[str, Mapping[int, float]]]

# Colour and dash of each curve; colours are those of Okabe and Ito, apart for all eyes.
_STAGES = {
    "plain, projection": ("plain, projection codes", "#999999", ":"),
    "plain, means": ("plain, class means", "#56B4E9", "-"),
    "alpha auto": ("+ alpha auto", "#0072B2", "--"),
    "refined": ("+ refinement", "#D55E00", "-"),
    "rbf": ("kernel", "#009E73", "--"),
    "rbf, refined": ("kernel + refinement", "#000000", "-"),
}
_CODES = {"random": "#E69F00", "projection": "#999999", "cca_itq": "#009E73", "means": "#D55E00"}
_STARTS = {
    **{f"plain, {codes}": (f"{codes}, plain", c, ":") for codes, c in _CODES.items()},
    **{
        "refined" if codes == "means" else f"refined, from {codes}": (f"{codes}, refined", c, "-")
        for codes, c in _CODES.items()
    },
}


def draw(curves: Curves, split: str, folder: Path) -> None:
    """Draw the stages, and the starting codes before and after refinement."""
    folder.mkdir(parents=True, exist_ok=True)
    _panels(curves, _STAGES, folder / f"study-{split}-stages.png")
    _panels(curves, _STARTS, folder / f"study-{split}-starting-codes.png")


def _panels(curves: Curves, styles: Mapping[str, tuple[str, str, str]], out: Path) -> None:
    columns = min(3, len(curves))
    lines = -(-(len(curves) + (len(curves) % columns == 0)) // columns) if columns > 1 else 2
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4.2 * columns, 3.4 * lines), squeeze=False, layout="constrained"
    )
    shown = {}
    for axis, (title, stages) in zip(axes.flat, curves.items(), strict=False):
        for stage, (label, colour, dash) in styles.items():
            points = stages.get(stage)
            if not points:
                continue
            bits, accuracy = zip(*sorted(points.items()), strict=True)
            (line,) = axis.plot(
                bits,
                [100 * value for value in accuracy],
                dash,
                color=colour,
                marker="o",
                markersize=3.5,
                linewidth=1.6,
            )
            shown[label] = line
        axis.set_title(title, fontsize=11)
        axis.set_xscale("log", base=2)
        ticks = sorted({r for points in stages.values() for r in points})
        axis.set_xticks(ticks, [str(r) for r in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.set_xlabel("bits")
        axis.set_ylabel("accuracy in %")
    empty = list(axes.flat)[len(curves) :]
    for axis in empty:
        axis.axis("off")
    ordered = [label for label, *_ in styles.values() if label in shown]
    empty[0].legend([shown[label] for label in ordered], ordered, loc="center", frameon=False)
    with atomic_write(out) as file:
        figure.savefig(file, format="png", dpi=110)
    pyplot.close(figure)
