"""`bitclass demo`: both losses of the paper beside LibLinear, on the digits of scikit-learn."""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bitclass.classifier import BinaryCodeClassifier

__all__ = ["command"]


def command(
    n_bits: Annotated[
        int, typer.Option("--bits", min=1, max=2048, help="Length of the codes.")
    ] = BinaryCodeClassifier().n_bits,
    n_rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=100, help="Number of timed rounds.")
    ] = 5,
) -> None:
    """Compare with LibLinear on the digits of scikit-learn.

    Prints accuracy, training time, prediction time and model size; times are medians over rounds.
    """
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    methods: dict[str, Any] = {
        "SVM one-vs-all": LinearSVC(C=0.01, random_state=0),
        "SVM Crammer-Singer": LinearSVC(C=0.01, multi_class="crammer_singer", random_state=0),
        "bitclass hinge": BinaryCodeClassifier(n_bits, loss="hinge", random_state=0),
        "bitclass exponential": BinaryCodeClassifier(n_bits, loss="exponential", random_state=0),
    }
    fit_seconds: dict[str, list[float]] = {name: [] for name in methods}
    predict_seconds: dict[str, list[float]] = {name: [] for name in methods}
    console = Console()
    rounds = track(range(n_rounds), "timing", console=console, transient=True)
    for _, (name, method) in itertools.product(rounds, methods.items()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            start = time.perf_counter()
            method.fit(X, y)
            fit_seconds[name].append(time.perf_counter() - start)
        start = time.perf_counter()
        method.predict(X_test)
        predict_seconds[name].append(time.perf_counter() - start)

    table = Table(
        title=f"{len(y)} training digits, {len(y_test)} test digits; {X.shape[1]} features, "
        f"10 classes, {n_bits} bits",
        title_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for column in ("accuracy", "training", "x", "per row", "x", "model"):
        table.add_column(column, justify="right")
    fit, predict = (
        {name: statistics.median(taken) for name, taken in seconds.items()}
        for seconds in (fit_seconds, predict_seconds)
    )
    first = next(iter(methods))
    for name, method in methods.items():
        table.add_row(
            name,
            f"{np.mean(method.predict(X_test) == y_test):.1%}",
            f"{1e3 * fit[name]:.1f} ms",
            f"{fit[first] / fit[name]:.1f}",
            f"{1e6 * predict[name] / len(y_test):.2f} µs",
            f"{predict[first] / predict[name]:.1f}",
            f"{_n_bytes(method) / 1e3:.1f} kB",
        )
    console.print(table)
    console.print(
        f"SVM is LibLinear's. Times of training and of prediction per row are medians of "
        f"{n_rounds} rounds; x is the speed-up over the first row. Ten classes are few: `bitclass "
        "bench` shows 1,000 classes and 4,096 features.",
        highlight=False,
    )


def _n_bytes(method: Any) -> int:
    if isinstance(method, BinaryCodeClassifier):
        return method.packed().nbytes
    return int(method.coef_.nbytes + method.intercept_.nbytes)
