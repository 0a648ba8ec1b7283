"""`bitclass demo`: both losses of the paper beside LibLinear, on the digits of scikit-learn."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bitclass.classifier import BinaryCodeClassifier

__all__ = ["command"]


@dataclass
class _Method:
    name: str
    make: Callable[[], Any]
    model_bytes: Callable[[Any], int]
    accuracy: float = 0.0
    n_bytes: int = 0
    fit_seconds: list[float] = field(default_factory=list)
    predict_seconds: list[float] = field(default_factory=list)


def _methods(n_bits: int) -> list[_Method]:
    def of_svm(svm: LinearSVC) -> int:
        return int(svm.coef_.nbytes + svm.intercept_.nbytes)

    def of_ours(classifier: BinaryCodeClassifier) -> int:
        return classifier.packed().nbytes

    def ours(loss: str) -> Callable[[], BinaryCodeClassifier]:
        return lambda: BinaryCodeClassifier(n_bits, loss=loss, random_state=0)

    return [
        _Method("SVM one-vs-all", lambda: LinearSVC(C=0.01, random_state=0), of_svm),
        _Method(
            "SVM Crammer-Singer",
            lambda: LinearSVC(C=0.01, multi_class="crammer_singer", random_state=0),
            of_svm,
        ),
        _Method("bitclass hinge", ours("hinge"), of_ours),
        _Method("bitclass exponential", ours("exponential"), of_ours),
    ]


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
    console = Console()
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    methods = _methods(n_bits)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=n_rounds * len(methods))
        for _ in range(n_rounds):
            for method in methods:
                progress.update(task, description=f"{method.name:<20}")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    start = time.perf_counter()
                    model = method.make().fit(X, y)
                    method.fit_seconds.append(time.perf_counter() - start)
                start = time.perf_counter()
                predicted = model.predict(X_test)
                method.predict_seconds.append(time.perf_counter() - start)
                method.accuracy = float((predicted == y_test).mean())
                method.n_bytes = method.model_bytes(model)
                progress.advance(task)

    title = (
        f"{len(y)} training digits, {len(y_test)} test digits; {X.shape[1]} features, "
        f"10 classes, {n_bits} bits"
    )
    console.print(_table(title, methods, len(y_test)))
    console.print(
        f"SVM is LibLinear's. Times of training and of prediction per row are medians of "
        f"{n_rounds} rounds; x is the speed-up over the first row. Ten classes are few: with "
        f"1,000 classes and 4,096 features the SVM takes {8 * 4097 * 1000 / 1e6:.1f} MB and "
        f"bitclass {_size_at(4096, 1000, n_bits) / 1e6:.1f}.",
        highlight=False,
    )


def _table(title: str, methods: list[_Method], n_test: int) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for column in ("accuracy", "training", "x", "per row", "x", "model"):
        table.add_column(column, justify="right")
    first = methods[0]
    for method in methods:
        fit, predict = (statistics.median(s) for s in (method.fit_seconds, method.predict_seconds))
        table.add_row(
            method.name,
            f"{method.accuracy:.1%}",
            f"{1e3 * fit:.1f} ms",
            f"{statistics.median(first.fit_seconds) / fit:.1f}",
            f"{1e6 * predict / n_test:.2f} µs",
            f"{statistics.median(first.predict_seconds) / predict:.1f}",
            f"{method.n_bytes / 1e3:.1f} kB",
        )
    return table


def _size_at(n_features: int, n_classes: int, n_bits: int) -> int:
    """Bytes of a model: a float32 projection, float64 intercepts, packed weights."""
    return 4 * n_features * n_bits + 8 * n_bits + n_classes * -(-n_bits // 8)
