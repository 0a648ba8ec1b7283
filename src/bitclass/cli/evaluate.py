"""`bitclass evaluate`: how good a model is on labelled rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bitclass.calibration import Calibration
from bitclass.cli.checks import load_for_files, require_labels, require_width
from bitclass.cli.errors import UsageError
from bitclass.cli.plots import check_plot, confusion_plot
from bitclass.cli.progress import rows_progress
from bitclass.cli.text import cell, say
from bitclass.data import Reader
from bitclass.model import PackedModel
from bitclass.streaming import batch_rows_for, labels_of

__all__ = ["Evaluation", "run_evaluate"]

_WORST_CLASSES = 10
_PROBABILITIES_AT_ONCE = 1 << 22


@dataclass
class Evaluation:
    """Counts over labelled rows; memory grows with the pairs of classes that are confused.

    Attributes
    ----------
    n_rows : int
    n_in_top : int, rows whose label is among the nearest `k`
    k : int
    pairs : how often each (label, prediction) pair occurred
    calibration : Calibration, of the probabilities
    """

    k: int
    n_rows: int = 0
    n_in_top: int = 0
    pairs: Counter[tuple[Any, Any]] = field(default_factory=Counter)
    calibration: Calibration = field(default_factory=Calibration)

    def add(self, model: PackedModel, X: Any, labels: NDArray[Any]) -> None:
        """Count a batch of rows X (m, d) with labels (m,)."""
        nearest, _ = model.top_classes(X, self.k)
        self.n_rows += len(labels)
        self.n_in_top += int(np.any(nearest == labels[:, None], axis=1).sum())
        self.pairs.update(zip(labels.tolist(), nearest[:, 0].tolist(), strict=True))
        step = max(1, _PROBABILITIES_AT_ONCE // len(model.classes))
        for start in range(0, len(labels), step):
            part = slice(start, start + step)
            confidence = model.predict_proba(X[part]).max(axis=1)
            self.calibration.add(confidence, nearest[part, 0] == labels[part])

    @property
    def accuracy(self) -> float:
        """Share of rows whose nearest class is their own."""
        return sum(n for (own, found), n in self.pairs.items() if own == found) / self.n_rows

    def per_class(self) -> list[dict[str, Any]]:
        """Rows, recall and precision of each class that occurs."""
        rows: Counter[Any] = Counter()
        found: Counter[Any] = Counter()
        for (own, predicted), n in self.pairs.items():
            rows[own] += n
            found[predicted] += n
        return [
            {
                "class": label,
                "rows": rows[label],
                "recall": self.pairs[label, label] / rows[label] if rows[label] else None,
                "precision": self.pairs[label, label] / found[label] if found[label] else None,
            }
            for label in sorted(rows.keys() | found.keys())
        ]

    def confused(self, n_most: int) -> list[dict[str, Any]]:
        """The pairs of classes most often confused."""
        wrong = [(n, own, found) for (own, found), n in self.pairs.items() if own != found]
        wrong.sort(key=lambda pair: (-pair[0], str(pair[1]), str(pair[2])))
        return [{"class": own, "taken for": found, "rows": n} for n, own, found in wrong[:n_most]]

    def summary(self, n_confused: int) -> dict[str, Any]:
        """All figures, for JSON."""
        classes = self.per_class()
        recalls = [row["recall"] for row in classes if row["recall"] is not None]
        return {
            "rows": self.n_rows,
            "accuracy": self.accuracy,
            f"top_{self.k}": self.n_in_top / self.n_rows,
            "macro_recall": float(np.mean(recalls)),
            "calibration_error": self.calibration.expected_error,
            "confused": self.confused(n_confused),
            "classes": classes,
        }


def run_evaluate(
    model_path: Path,
    reader: Reader,
    *,
    confused: int,
    plot: Path | None,
    all_classes: bool,
    as_json: bool,
) -> None:
    """Evaluate a model on labelled files."""
    model = load_for_files(model_path)
    require_labels(reader)
    require_width(reader, model, model_path)
    if plot is not None:
        check_plot(plot)
    evaluation = Evaluation(k=min(5, len(model.classes)))
    with rows_progress(reader.n_rows) as progress:
        for batch in reader.batches(batch_rows_for(reader)):
            labels = labels_of(batch)
            if _family(labels) != _family(model.classes):
                raise UsageError(
                    f"{reader.description}: labels are of type {labels.dtype}, those of the model "
                    f"of type {model.classes.dtype}"
                )
            evaluation.add(model, batch.X, labels)
            progress("evaluating", evaluation.n_rows)
    if evaluation.n_rows == 0:
        raise UsageError(f"{reader.description}: no rows")
    if plot is not None:
        confusion_plot(evaluation.pairs, model.classes.tolist(), plot)
    summary = evaluation.summary(confused)
    if as_json:
        print(json.dumps(summary, default=str))
        return
    _show(summary, evaluation.k, all_classes, plot)


def _family(labels: NDArray[Any]) -> str:
    """Labels of one family can be compared: all numbers are one, all text is one."""
    return "number" if labels.dtype.kind in "biuf" else labels.dtype.kind


def _show(summary: dict[str, Any], k: int, all_classes: bool, plot: Path | None) -> None:
    console = Console()
    say(
        f"{summary['rows']:,} rows: accuracy {summary['accuracy']:.2%}, among the nearest {k} "
        f"{summary[f'top_{k}']:.2%}, mean recall of classes {summary['macro_recall']:.2%}, "
        f"expected calibration error {summary['calibration_error']:.3f}"
    )
    if summary["confused"]:
        table = Table(title="Most confused", title_justify="left")
        for column in ("class", "taken for"):
            table.add_column(column)
        table.add_column("rows", justify="right")
        for row in summary["confused"]:
            table.add_row(cell(row["class"]), cell(row["taken for"]), f"{row['rows']:,}")
        console.print(table)
    rows = summary["classes"]
    title = "Classes"
    if not all_classes and len(rows) > 2 * _WORST_CLASSES:
        rows = sorted(rows, key=lambda row: (row["recall"] is None, row["recall"]))
        rows = rows[:_WORST_CLASSES]
        title = f"The {_WORST_CLASSES} classes of lowest recall (--all-classes shows all)"
    table = Table(title=title, title_justify="left")
    table.add_column("class")
    for column in ("rows", "recall", "precision"):
        table.add_column(column, justify="right")
    for row in rows:
        shares = ["" if row[c] is None else f"{row[c]:.1%}" for c in ("recall", "precision")]
        table.add_row(cell(row["class"]), f"{row['rows']:,}", *shares)
    console.print(table)
    if plot is not None:
        say(f"wrote {plot}")
