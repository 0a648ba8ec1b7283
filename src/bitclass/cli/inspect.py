"""`bitclass inspect`: describe a model file."""

from __future__ import annotations

import json as json_format
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native import HammingIndex
from bitclass.cli import options
from bitclass.cli.console import describe_training, format_size, pluralise, print_lines
from bitclass.codes import unpack
from bitclass.storage import load, read_header

if TYPE_CHECKING:
    from bitclass.model import PackedModel

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
    packed = load(model)
    n_classes = len(packed.classes)
    sample = np.linspace(0, n_classes - 1, min(n_classes, _MAX_CLASSES)).astype(int)
    signs = unpack(packed.weights[sample], packed.n_bits).astype(np.float32)
    distances = ((packed.n_bits - signs @ signs.T) / 2).astype(np.int32)
    between = distances[np.triu_indices(len(sample), 1)]
    _, nearest = HammingIndex(packed.weights).top_k(packed.weights[sample], min(2, n_classes))
    balance = _bit_balance(packed)
    facts: dict[str, Any] = {
        "file": str(model),
        "bytes": model.stat().st_size,
        "version": header.version,
        "classes": n_classes,
        "labels": [str(label) for label in packed.classes[:_SHOWN_CLASSES].tolist()],
        "bits": packed.n_bits,
        "features": packed.n_features,
        "precision": packed.hash_function.precision,
        "temperature": packed.temperature,
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
        "training": describe_training(packed.summary),
        "summary": packed.summary,
    }
    if json:
        print(json_format.dumps(facts, default=str))
    else:
        _show(facts, balance, between)


def _bit_balance(model: PackedModel) -> NDArray[np.float64]:
    """Fraction of classes in which each bit is set, shape (r,)."""
    n_set = np.zeros(model.n_bits)
    for start in range(0, len(model.classes), _BLOCK_CLASSES):
        signs = unpack(model.weights[start : start + _BLOCK_CLASSES], model.n_bits)
        n_set += (signs > 0).sum(axis=0)
    return n_set / len(model.classes)


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
