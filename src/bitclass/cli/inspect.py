"""`bitclass inspect`: describe a model file."""

from __future__ import annotations

import json as json_format
from typing import Any

from bitclass.cli import options
from bitclass.cli.console import describe_training, format_size, pluralise, print_lines
from bitclass.storage import VERSION, load

_SHOWN_CLASSES = 12


def command(model: options.Model, json: options.Json = False) -> None:
    """Show a model's size, classes and training."""
    loaded = load(model)
    facts: dict[str, Any] = {
        "file": str(model),
        "bytes": model.stat().st_size,
        "version": VERSION,
        "classes": len(loaded.classes),
        "labels": [str(label) for label in loaded.classes[:_SHOWN_CLASSES].tolist()],
        "bits": loaded.n_bits,
        "features": loaded.n_features,
        "precision": loaded.hash_function.precision,
        "temperature": loaded.temperature,
        "reject": loaded.reject,
        "unknown_label": loaded.unknown_label,
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

    summary = facts["summary"]
    more = ", ..." if facts["classes"] > _SHOWN_CLASSES else ""
    line("model", f"{facts['file']}, {format_size(facts['bytes'])}, format {facts['version']}")
    line("classes", f"{facts['classes']:,}: {', '.join(facts['labels'])}{more}")
    line(
        "codes",
        f"{facts['bits']} bits from {pluralise(facts['features'], 'feature')}, encoded in "
        f"{facts['precision']}",
    )
    line("training", facts["training"])
    if facts["reject"]:
        label = facts["unknown_label"]
        named = "" if label is None else f", which get the label {str(label)!r}"
        line("rejected", f"rows with a typicality below {facts['reject']:g}{named}")
    columns, extractor = summary.get("columns"), summary.get("extractor")
    if isinstance(columns, dict) and columns:
        line("columns", ", ".join(f"{name} {value!r}" for name, value in columns.items()))
    if isinstance(extractor, dict):
        settings = (f"{name}={value}" for name, value in extractor.items() if name != "kind")
        line("extractor", ", ".join([str(extractor.get("kind")), *settings]))
