"""`bitclass inspect`: what a model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.cli.plots import check_plot, distance_plot
from bitclass.cli.text import counted, say
from bitclass.codes import hamming
from bitclass.model import PackedModel
from bitclass.storage import load, read_header

__all__ = ["run_inspect"]

_BARS = " ▁▂▃▄▅▆▇█"
_SHOWN_CLASSES = 12
# The distances between more classes than this are taken from a sample of them.
_MOST_CLASSES = 2000


def run_inspect(path: Path, *, plot: Path | None, as_json: bool) -> None:
    """Show sizes, classes, bit balance and the distances between class codes."""
    if plot is not None:
        check_plot(plot)
    header = read_header(path)
    model = load(path)
    chosen = np.linspace(0, len(model.classes) - 1, min(len(model.classes), _MOST_CLASSES))
    weights = model.weights[chosen.astype(int)]
    distances = hamming(weights[:, None, :], weights[None, :, :])
    between = distances[np.triu_indices(len(weights), 1)]
    nearest = _nearest_other(model, weights)
    balance = (model.unpacked_weights() > 0).mean(axis=0)
    facts: dict[str, Any] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "version": header.version,
        "classes": len(model.classes),
        "labels": [str(label) for label in model.classes[:_SHOWN_CLASSES].tolist()],
        "bits": model.n_bits,
        "features": model.n_features,
        "precision": model.precision,
        "temperature": model.temperature,
        "bit_balance": {"mean": float(balance.mean()), "constant": int(_constant(balance))},
        "distances": {
            "of_classes": len(weights),
            "smallest": int(between.min()),
            "mean": float(between.mean()),
            "largest": int(between.max()),
            "to_the_nearest": float(nearest.mean()),
        },
        "summary": model.summary,
    }
    if plot is not None:
        distance_plot(distances, model.classes[chosen.astype(int)].tolist(), plot)
    if as_json:
        print(json.dumps(facts, default=str))
        return
    _show(facts, balance, between, plot)


def _constant(balance: NDArray[np.float64]) -> int:
    """How many bits are the same for all classes, and so tell none apart."""
    return int(np.count_nonzero((balance == 0) | (balance == 1)))


def _nearest_other(model: PackedModel, weights: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Distance of each of some classes' weights (k, bytes) to the nearest other class, (k,)."""
    _, distances = HammingIndex(model.weights).top_k(weights, min(2, len(model.classes)))
    return distances[:, -1]


def _bars(values: NDArray[Any], low: float, high: float, width: int = 48) -> str:
    """A histogram in one line."""
    counts, _ = np.histogram(values, bins=width, range=(low, high))
    heights = np.ceil(counts / max(1, counts.max()) * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[height] for height in heights)


def _show(
    facts: dict[str, Any], balance: NDArray[np.float64], between: NDArray[Any], plot: Path | None
) -> None:

    def line(name: str, text: str) -> None:
        say(f"{name:<10} {text}")

    n_compared = facts["distances"]["of_classes"]
    sample = "" if n_compared == facts["classes"] else f"{n_compared:,} of the "
    more = ", ..." if facts["classes"] > _SHOWN_CLASSES else ""
    line("model", f"{facts['file']}, {facts['bytes'] / 1e6:.2f} MB, format {facts['version']}")
    line("classes", f"{facts['classes']:,}: {', '.join(facts['labels'])}{more}")
    line(
        "codes",
        f"{facts['bits']} bits from {facts['features']:,} features, encoded in "
        f"{facts['precision']}",
    )
    summary = facts["summary"]
    if summary:
        line(
            "learned",
            f"{summary.get('loss')} loss, {counted(summary.get('n_rows'), 'row')}, "
            f"{counted(summary.get('n_rounds'), 'round')}, bitclass {summary.get('bitclass')}",
        )
    extractor = summary.get("extractor")
    if isinstance(extractor, dict):
        options = (f"{name}={value}" for name, value in extractor.items() if name != "kind")
        line("pictures", ", ".join([str(extractor.get("kind")), *options]))
    line("balance", f"0 |{_bars(balance, 0, 1)}| 1  share of classes with the bit set, over bits")
    line(
        "distances",
        f"0 |{_bars(between, 0, facts['bits'])}| {facts['bits']}  between {sample}classes: "
        f"smallest {facts['distances']['smallest']}, mean {facts['distances']['mean']:.1f}, to the "
        f"nearest {facts['distances']['to_the_nearest']:.1f}",
    )
    if facts["bit_balance"]["constant"]:
        line("note", f"{facts['bit_balance']['constant']} bits are the same for all classes")
    if plot is not None:
        line("wrote", str(plot))
