"""`bitclass inspect`: describe a model file."""

from __future__ import annotations

import json as json_format
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.cli import options
from bitclass.cli.console import describe_training, format_size, pluralise, print_lines
from bitclass.codes import unpack
from bitclass.storage import read_classes, read_header

__all__ = ["command"]

_BARS = " ▁▂▃▄▅▆▇█"
_SHOWN_CLASSES = 12
# Above this many classes, distances are computed between a sample of them.
_MAX_CLASSES = 1000
_BLOCK_CLASSES = 1 << 14


def command(model: options.Model, json: options.Json = False) -> None:
    """Show a model's size, classes, bit balance and distances between classes.

    Above 1,000 classes, distances are computed for a sample of 1,000 classes; the nearest class is
    searched among all.
    """
    header = read_header(model)
    labels, weights = read_classes(model)  # not the projection, which may be large
    n_classes, n_bits = header.n_classes, header.n_bits
    sample = np.linspace(0, n_classes - 1, min(n_classes, _MAX_CLASSES)).astype(int)
    signs = unpack(weights[sample], n_bits).astype(np.float32)
    distances = ((n_bits - signs @ signs.T) / 2).astype(np.int32)
    between = distances[np.triu_indices(len(sample), 1)]
    _, nearest = HammingIndex(weights).top_k(weights[sample], min(2, n_classes))
    balance = _bit_balance(weights, n_bits)
    facts: dict[str, Any] = {
        "file": str(model),
        "bytes": model.stat().st_size,
        "version": header.version,
        "classes": n_classes,
        "labels": [str(label) for label in labels[:_SHOWN_CLASSES].tolist()],
        "bits": n_bits,
        "features": header.n_features,
        "precision": header.precision,
        "temperature": header.temperature,
        "bit_balance": {
            "mean": float(balance.mean()),
            "constant": int(np.count_nonzero((balance == 0) | (balance == 1))),
        },
        "distances": {
            "n_classes": len(sample),
            "smallest": int(between.min()),
            "mean": float(between.mean()),
            "largest": int(between.max()),
            "mean_to_nearest": float(nearest[:, -1].mean()),
        },
        "training": describe_training(header.summary),
        "summary": header.summary,
    }
    if json:
        print(json_format.dumps(facts, default=str))
    else:
        _show(facts, balance, between)


def _bit_balance(weights: NDArray[np.uint8], n_bits: int) -> NDArray[np.float64]:
    """Fraction of classes in which each bit is set, shape (r,)."""
    n_set = np.zeros(n_bits)
    for start in range(0, len(weights), _BLOCK_CLASSES):
        signs = unpack(weights[start : start + _BLOCK_CLASSES], n_bits)
        n_set += (signs > 0).sum(axis=0)
    return n_set / len(weights)


def _bars(values: NDArray[Any], low: float, high: float, width: int = 32) -> str:
    """One-line histogram."""
    counts, _ = np.histogram(values, bins=width, range=(low, high))
    heights = np.ceil(counts / max(1, counts.max()) * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[height] for height in heights)


def _show(facts: dict[str, Any], balance: NDArray[np.float64], between: NDArray[Any]) -> None:
    def line(name: str, text: str) -> None:
        print_lines(f"{name:<10} {text}")

    distances, summary = facts["distances"], facts["summary"]
    sample = "" if distances["n_classes"] == facts["classes"] else "a sample of "
    more = ", ..." if facts["classes"] > _SHOWN_CLASSES else ""
    line("model", f"{facts['file']}, {format_size(facts['bytes'])}, format {facts['version']}")
    line("classes", f"{facts['classes']:,}: {', '.join(facts['labels'])}{more}")
    line(
        "codes",
        f"{facts['bits']} bits from {pluralise(facts['features'], 'feature')}, encoded in "
        f"{facts['precision']}",
    )
    line("training", facts["training"])
    columns, extractor = summary.get("columns"), summary.get("extractor")
    if isinstance(columns, dict) and columns:
        line("columns", ", ".join(f"{name} {value!r}" for name, value in columns.items()))
    if isinstance(extractor, dict):
        settings = (f"{name}={value}" for name, value in extractor.items() if name != "kind")
        line("extractor", ", ".join([str(extractor.get("kind")), *settings]))
    line("balance", f"0 |{_bars(balance, 0, 1)}| 1  share of classes that set a bit")
    line("distances", f"0 |{_bars(between, 0, facts['bits'])}| {facts['bits']}  between classes")
    line(
        "",
        f"{sample}{distances['n_classes']:,} classes: smallest {distances['smallest']}, mean "
        f"{distances['mean']:.1f}, mean to the nearest {distances['mean_to_nearest']:.1f}",
    )
    if facts["bit_balance"]["constant"]:
        line(
            "note", f"{pluralise(facts['bit_balance']['constant'], 'bit')} identical in all classes"
        )
