"""`bitclass bench`: how fast this machine predicts, beside a float32 linear model in NumPy."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bitclass._native import get_config
from bitclass.model import PackedModel

__all__ = ["run_bench"]


def run_bench(
    n_features: int, n_classes: int, n_bits: int, n_rows: int, n_rounds: int, *, as_json: bool
) -> None:
    """Time a batch and a single row, ours and the peer's in turn; medians."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    coefficients = rng.standard_normal((n_features, n_classes), dtype=np.float32)
    weights = rng.integers(0, 256, (n_classes, -(-n_bits // 8)), dtype=np.uint8)
    weights[:, -1] &= np.uint8((1 << ((n_bits - 1) % 8 + 1)) - 1)
    model = PackedModel(
        np.arange(n_classes),
        weights,
        rng.standard_normal((n_features, n_bits), dtype=np.float32),
        np.zeros(n_bits),
        centre=np.zeros(n_features, dtype=np.float32),
        scale=np.ones(n_features, dtype=np.float32),
    )
    one = X[:1]
    work: dict[str, Callable[[], Any]] = {
        "batch, NumPy": lambda: (X @ coefficients).argmax(axis=1),
        "batch, bitclass": lambda: model.predict(X),
        "one row, NumPy": lambda: (one @ coefficients).argmax(axis=1),
        "one row, bitclass": lambda: model.predict(one),
    }
    medians = _medians(work, n_rounds)
    sizes = {"NumPy": coefficients.nbytes, "bitclass": model.nbytes}
    speed = {
        kind: medians[f"{kind}, NumPy"] / medians[f"{kind}, bitclass"]
        for kind in ("batch", "one row")
    }
    facts = {
        "features": n_features,
        "classes": n_classes,
        "bits": n_bits,
        "rows": n_rows,
        "seconds": medians,
        "speed-up": speed,
        "bytes": sizes,
        "config": get_config(),
    }
    if as_json:
        print(json.dumps(facts, default=str))
        return
    table = Table(
        title=f"{n_features:,} features, {n_classes:,} classes, {n_bits} bits", title_justify="left"
    )
    table.add_column("")
    for column in ("a row of a batch", "one row", "model"):
        table.add_column(column, justify="right")
    for name in ("NumPy", "bitclass"):
        table.add_row(
            "NumPy float32 product" if name == "NumPy" else "bitclass, int8",
            f"{1e6 * medians[f'batch, {name}'] / n_rows:.2f} µs",
            f"{1e6 * medians[f'one row, {name}']:.1f} µs",
            f"{sizes[name] / 1e6:.2f} MB",
        )
    table.add_row("speed-up", f"{speed['batch']:.1f}", f"{speed['one row']:.1f}", "")
    Console().print(table)


def _medians(work: dict[str, Callable[[], Any]], n_rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for one in work.values():
        one()
    for _ in range(n_rounds):
        for name, one in work.items():
            # Threads of the one before may still be spinning.
            time.sleep(0.05)
            start = time.perf_counter()
            one()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}
