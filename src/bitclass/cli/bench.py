"""`bitclass bench`: how fast this machine predicts, beside a float32 linear model in NumPy."""

from __future__ import annotations

import json as json_format
import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bitclass._native import get_config
from bitclass.cli.options import Json
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel

__all__ = ["command"]


def command(
    features: Annotated[int, typer.Option(min=1, help="Number of features.")] = 4096,
    classes: Annotated[int, typer.Option(min=2, help="Number of classes.")] = 1000,
    bits: Annotated[int, typer.Option(min=1, max=2048, help="Length of the codes.")] = 128,
    rows: Annotated[int, typer.Option(min=1, help="Rows per batch.")] = 4000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Number of timed rounds.")] = 7,
    json: Json = False,
) -> None:
    """Time predictions on this machine beside a float32 matrix product."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features), dtype=np.float32)
    coefficients = rng.standard_normal((features, classes), dtype=np.float32)
    model = _random_model(rng, features, classes, bits)
    one = X[:1]
    work: dict[str, Callable[[], Any]] = {
        "batch, NumPy": lambda: (X @ coefficients).argmax(axis=1),
        "batch, bitclass": lambda: model.predict(X),
        "one row, NumPy": lambda: (one @ coefficients).argmax(axis=1),
        "one row, bitclass": lambda: model.predict(one),
    }
    medians = _medians(work, rounds)
    sizes = {"NumPy": coefficients.nbytes, "bitclass": model.nbytes}
    speed = {
        kind: medians[f"{kind}, NumPy"] / medians[f"{kind}, bitclass"]
        for kind in ("batch", "one row")
    }
    facts = {
        "features": features,
        "classes": classes,
        "bits": bits,
        "rows": rows,
        "seconds": medians,
        "speed-up": speed,
        "bytes": sizes,
        "config": get_config(),
    }
    if json:
        print(json_format.dumps(facts, default=str))
        return
    table = Table(
        title=f"{features:,} features, {classes:,} classes, {bits} bits", title_justify="left"
    )
    table.add_column("")
    for column in ("per row of a batch", "one row", "model"):
        table.add_column(column, justify="right")
    for name in ("NumPy", "bitclass"):
        table.add_row(
            "NumPy float32 product" if name == "NumPy" else "bitclass, int8",
            f"{1e6 * medians[f'batch, {name}'] / rows:.2f} µs",
            f"{1e6 * medians[f'one row, {name}']:.1f} µs",
            f"{sizes[name] / 1e6:.2f} MB",
        )
    table.add_row("speed-up", f"{speed['batch']:.1f}", f"{speed['one row']:.1f}", "")
    Console().print(table)


def _random_model(
    rng: np.random.Generator, n_features: int, n_classes: int, n_bits: int
) -> PackedModel:
    weights = rng.integers(0, 256, (n_classes, -(-n_bits // 8)), dtype=np.uint8)
    weights[:, -1] &= np.uint8((1 << ((n_bits - 1) % 8 + 1)) - 1)
    hash_function = HashFunction(
        rng.standard_normal((n_features, n_bits), dtype=np.float32),
        np.zeros(n_bits),
        centre=np.zeros(n_features, dtype=np.float32),
        scale=np.ones(n_features, dtype=np.float32),
    )
    return PackedModel(np.arange(n_classes), weights, hash_function)


def _medians(work: dict[str, Callable[[], Any]], n_rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for run in work.values():
        run()
    for _ in range(n_rounds):
        for name, run in work.items():
            # Threads of the one before may still be spinning.
            time.sleep(0.05)
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}
