"""`bitclass inspect`: describe a model file."""

from __future__ import annotations

import json as json_format
from typing import Any

import numpy as np

from bitclass._native import HammingIndex
from bitclass.cli import options
from bitclass.cli.console import describe_training, format_size, pluralise, print_lines
from bitclass.codes import unpack
from bitclass.storage import VERSION, load

__all__ = ["command"]

_SHOWN_CLASSES = 12
# Above this many classes, distances are computed between a sample of them.
_MAX_CLASSES = 1000


def command(model: options.Model, json: options.Json = False) -> None:
    """Show a model's size, classes, training and distances between classes.

    Above 1,000 classes, distances are computed for a sample of 1,000 classes; the nearest class is
    searched among all.
    """
    loaded = load(model)
    labels, weights, n_bits = loaded.classes, loaded.weights, loaded.n_bits
    n_classes = len(labels)
    sample = np.linspace(0, n_classes - 1, min(n_classes, _MAX_CLASSES)).astype(int)
    signs = unpack(weights[sample], n_bits).astype(np.float32)
    distances = ((n_bits - signs @ signs.T) / 2).astype(np.int32)
    between = distances[np.triu_indices(len(sample), 1)]
    _, nearest = HammingIndex(weights).top_k(weights[sample], min(2, n_classes))
    facts: dict[str, Any] = {
        "file": str(model),
        "bytes": model.stat().st_size,
        "version": VERSION,
        "classes": n_classes,
        "labels": [str(label) for label in labels[:_SHOWN_CLASSES].tolist()],
        "bits": n_bits,
        "features": loaded.n_features,
        "precision": loaded.hash_function.precision,
        "temperature": loaded.temperature,
        "distances": {
            "n_classes": len(sample),
            "smallest": int(between.min()),
            "mean": float(between.mean()),
            "largest": int(between.max()),
            "mean_to_nearest": float(nearest[:, -1].mean()),
        },
        "training": describe_training(loaded.summary),
        "summary": loaded.summary,
    }
    if json:
        print(json_format.dumps(facts, default=str))
    else:
        _show(facts)


def _show(facts: dict[str, Any]) -> None:
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
    line(
        "distances",
        f"smallest {distances['smallest']}, mean {distances['mean']:.1f}, mean to the nearest "
        f"{distances['mean_to_nearest']:.1f}, between {sample}{distances['n_classes']:,} classes",
    )
