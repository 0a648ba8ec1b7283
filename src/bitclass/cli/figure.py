"""The picture of `bitclass evaluate --figure`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bitclass._warn import how_to_install

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError(f"--figure needs matplotlib ({error}); {how_to_install('plots')}") from None

if TYPE_CHECKING:
    from bitclass.cli.evaluate import Evaluation

_MAX_NAME = 24
_BLUE, _RED, _PALE = "#3a4e7a", "#c93c37", "#8a8f9c"


def draw(evaluation: Evaluation, facts: dict[str, Any]) -> Any:
    """Draw confused classes, calibration, and accuracy against coverage side by side."""
    figure = Figure(figsize=(14, 4.6), layout="constrained", facecolor="white")
    figure.suptitle(
        f"{facts['rows']:,} rows: accuracy {facts['accuracy']:.1%}, macro-F1 "
        f"{facts['macro_f1']:.1%}, calibration error {facts['calibration_error']:.3f}",
        weight="bold",
    )
    pairs, calibration, coverage = figure.subplots(1, 3)
    _draw_pairs(pairs, facts["confused"])
    _draw_calibration(calibration, evaluation)
    _draw_coverage(coverage, evaluation)
    return figure


def _draw_pairs(panel: Any, confused: list[dict[str, Any]]) -> None:
    names = [f"{_short(pair['class'])} as {_short(pair['predicted'])}" for pair in confused]
    bars = panel.barh(range(len(names)), [pair["rows"] for pair in confused], color=_BLUE)
    panel.bar_label(bars, padding=3)
    # Names are data: "$" does not start a formula.
    panel.set_yticks(range(len(names)), names, parse_math=False)
    panel.invert_yaxis()
    panel.set(title="most confused classes", xlabel="rows")
    panel.spines[["top", "right"]].set_visible(False)


def _draw_calibration(panel: Any, evaluation: Evaluation) -> None:
    n, confidence, accuracy = evaluation.bins().T
    used = n > 0
    panel.plot([0, 1], [0, 1], color=_PALE, linestyle="dashed", label="perfect")
    panel.plot(confidence[used], accuracy[used], color=_BLUE, marker="o", label="model")
    panel.bar(confidence[used], n[used] / n.sum(), width=0.04, color=_PALE, alpha=0.5, label="rows")
    panel.set(title="calibration", xlabel="probability of the best class", ylabel="accuracy")
    panel.set(xlim=(0, 1.02), ylim=(0, 1.02))
    panel.legend(frameon=False)


def _draw_coverage(panel: Any, evaluation: Evaluation) -> None:
    """Accuracy of the most confident and of the most typical rows, by their share of all rows."""
    is_correct: Any = evaluation.of_rows("is_correct")
    n = np.arange(1, len(is_correct) + 1)
    for name, values, colour in (
        ("probability", evaluation.of_rows("confidence"), _BLUE),
        ("typicality", evaluation.of_rows("typicality"), _PALE),
    ):
        if values is not None:
            order = np.argsort(-values, kind="stable")
            share = np.cumsum(is_correct[order]) / n
            panel.plot(n / len(n), share, color=colour, label=f"by {name}")
    panel.axhline(is_correct.mean(), color=_RED, linestyle="dotted", label="all rows")
    rejection = evaluation.rejection()
    if rejection and rejection["coverage"]:
        place = rejection["coverage"], rejection["accuracy_of_accepted"]
        panel.plot(*place, "o", color=_RED, label=f"rejecting {rejection['reject']:.1%}")
    panel.set(
        title="accuracy against coverage",
        xlabel="share of rows answered, best first",
        ylabel="accuracy",
        xlim=(0, 1.02),
    )
    panel.legend(frameon=False)


def _short(label: Any) -> str:
    name = "".join(letter if letter.isprintable() else "?" for letter in str(label))
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
