"""`bitclass evaluate`: accuracy, confusions and calibration on labelled rows or images."""

from __future__ import annotations

import json as json_format
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bitclass.cli import options
from bitclass.cli.calibration import Calibration
from bitclass.cli.data import (
    Inputs,
    check_outputs,
    labels_of,
    load_model,
    require_labels,
)
from bitclass.cli.plots import check_plot, confusion_plot
from bitclass.cli.progress import progress_of_passes
from bitclass.cli.text import cell, counted, say

if TYPE_CHECKING:
    from bitclass.model import PackedModel

__all__ = ["Evaluation", "command"]

_N_WORST = 10
_SHOWN_LABELS = 10
# Calibration needs the probabilities of all classes, at a cost that grows with their number.
_MAX_CALIBRATED_CLASSES = 1024


def command(
    model: options.Model,
    data: options.Data,
    features: options.Features = None,
    labels: options.Labels = None,
    labels_file: options.LabelsFile = None,
    text: options.Text = None,
    header: options.Header = None,
    format: options.Format = None,
    first_index: options.FirstIndex = None,
    confused: Annotated[int, typer.Option(min=0, help="Number of confused pairs to show.")] = 10,
    calibration: Annotated[
        bool | None,
        typer.Option(
            help="Compute the calibration error, which takes time proportional to rows x classes; "
            f"by default up to {_MAX_CALIBRATED_CLASSES:,} classes.",
            show_default=False,
        ),
    ] = None,
    plot: options.Plot = None,
    all_classes: Annotated[
        bool, typer.Option("--all-classes", help="Show all classes, not only the worst.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Measure the accuracy of a model on labelled rows or images.

    Rows with labels that the model does not know count as errors, and are reported. The exit code
    is 1 if the model knows none of the labels.
    """
    inputs = Inputs(
        data, features, labels, labels_file, header, format, first_index=first_index, text=text
    )
    check_outputs({"--plot": plot}, [model, *inputs.files()])
    if plot is not None:
        check_plot(plot)
    packed = load_model(model)
    rows, _ = inputs.open(packed)
    require_labels(rows)
    if calibration is None:
        calibration = len(packed.classes) <= _MAX_CALIBRATED_CLASSES
    evaluation = Evaluation(packed, calibration)
    with progress_of_passes() as progress:
        for batch in rows.batches():
            found = labels_of(batch)
            if _kind(found) != _kind(packed.classes):
                raise ValueError(
                    f"{rows.paths[0]}: labels are of type {found.dtype}, those of the model "
                    f"of type {packed.classes.dtype}"
                )
            evaluation.add(batch.X, found)
            progress("evaluating", evaluation.n_rows, rows.n_rows)
    if evaluation.n_rows == 0:
        raise ValueError(f"{rows.paths[0]}: no rows")
    if plot is not None:
        confusion_plot(evaluation.pairs, packed.classes.tolist(), plot)
    facts = evaluation.facts(confused)
    if json:
        print(json_format.dumps(facts, default=str))
    else:
        _show(facts, evaluation.k, all_classes, plot)
    if facts["unknown_rows"] == facts["rows"]:
        raise typer.Exit(1)


@dataclass
class Evaluation:
    """Counts over labelled rows; memory grows with the pairs of classes that are confused."""

    model: PackedModel
    with_calibration: bool
    n_rows: int = 0
    n_in_top: int = 0  # rows whose label is among the nearest `k`
    pairs: Counter[tuple[Any, Any]] = field(default_factory=Counter)  # (label, prediction)
    unknown: Counter[Any] = field(default_factory=Counter)  # labels that the model does not know
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def k(self) -> int:
        """Length of the list of nearest classes."""
        return min(5, len(self.model.classes))

    def add(self, X: Any, labels: NDArray[Any]) -> None:
        """Count a batch of rows X (m, d) with labels (m,)."""
        found = self.model.top_classes(X, self.k, probabilities=self.with_calibration)
        nearest = found[0]
        self.n_rows += len(labels)
        self.n_in_top += int(np.any(nearest == labels[:, None], axis=1).sum())
        self.pairs.update(zip(labels.tolist(), nearest[:, 0].tolist(), strict=True))
        self.unknown.update(labels[~np.isin(labels, self.model.classes)].tolist())
        if self.with_calibration:
            self.calibration.add(found[2][:, 0], nearest[:, 0] == labels)

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

    def confused(self, n: int) -> list[dict[str, Any]]:
        """The n pairs of classes that are confused most often."""
        wrong = [(count, own, found) for (own, found), count in self.pairs.items() if own != found]
        wrong.sort(key=lambda pair: (-pair[0], str(pair[1]), str(pair[2])))
        return [{"class": own, "predicted": found, "rows": m} for m, own, found in wrong[:n]]

    def facts(self, n_confused: int) -> dict[str, Any]:
        """All figures, in values that JSON can hold."""
        classes = self.per_class()
        n_right = sum(n for (own, found), n in self.pairs.items() if own == found)
        n_unknown = self.unknown.total()
        n_known = self.n_rows - n_unknown
        return {
            "rows": self.n_rows,
            "unknown_rows": n_unknown,
            "unknown_labels": sorted(self.unknown),
            "accuracy": n_right / self.n_rows,
            "accuracy_of_known": n_right / n_known if n_known else None,
            f"top_{self.k}": self.n_in_top / self.n_rows,
            "macro_recall": float(
                np.mean([row["recall"] for row in classes if row["recall"] is not None])
            ),
            "calibration_error": (
                self.calibration.expected_error if self.with_calibration else None
            ),
            "confused": self.confused(n_confused),
            "classes": classes,
        }


def _kind(labels: NDArray[Any]) -> str:
    """Labels of one kind can be compared: numbers, text, or dates."""
    return "number" if labels.dtype.kind in "biuf" else labels.dtype.kind


def _show(facts: dict[str, Any], k: int, all_classes: bool, plot: Path | None) -> None:
    error = facts["calibration_error"]
    say(
        f"{counted(facts['rows'], 'row')}: accuracy {facts['accuracy']:.2%}, among the nearest {k} "
        f"{facts[f'top_{k}']:.2%}, mean recall of classes {facts['macro_recall']:.2%}"
        + ("" if error is None else f", expected calibration error {error:.3f}")
    )
    if facts["unknown_rows"]:
        labels = facts["unknown_labels"]
        more = ", ..." if len(labels) > _SHOWN_LABELS else ""
        known = facts["accuracy_of_known"]
        say(
            f"{counted(facts['unknown_rows'], 'row')} with {counted(len(labels), 'label')} that "
            f"the model does not know: {', '.join(map(str, labels[:_SHOWN_LABELS]))}{more}"
            + ("" if known is None else f"; accuracy on the other rows {known:.2%}")
        )
    console = Console()
    if facts["confused"]:
        table = Table(title="Most confused", title_justify="left")
        for column in ("class", "predicted"):
            table.add_column(column)
        table.add_column("rows", justify="right")
        for row in facts["confused"]:
            table.add_row(cell(row["class"]), cell(row["predicted"]), f"{row['rows']:,}")
        console.print(table)
    rows, title = facts["classes"], "Classes"
    if not all_classes and len(rows) > 2 * _N_WORST:
        rows = sorted(rows, key=lambda row: (row["recall"] is None, row["recall"]))[:_N_WORST]
        title = f"The {_N_WORST} classes of lowest recall (--all-classes shows all)"
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
