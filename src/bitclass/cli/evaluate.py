"""`bitclass evaluate`: accuracy, confusions and calibration on labelled rows, texts or images."""

from __future__ import annotations

import json as json_format
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass.cli import options
from bitclass.cli.console import pluralise, print_lines, progress_bars, show_table
from bitclass.cli.data import load_model, open_rows_of

if TYPE_CHECKING:
    from bitclass.model import PackedModel

__all__ = ["calibration_gaps", "command"]

_N_WORST = 10
_SHOWN_LABELS = 10
_CALIBRATION_BINS = 15
# Calibration needs the probabilities of all classes, which is slow for many classes.
_MAX_CALIBRATED_CLASSES = 1024


@options.expanded()
def command(
    *,
    model: options.Model,
    data: options.Data,
    rows: options.RowOptions,
    confused: Annotated[
        int, typer.Option(min=0, help="Number of confused class pairs to show.")
    ] = 10,
    calibration: Annotated[
        bool | None,
        typer.Option(
            help="Compute the calibration error, in time proportional to rows x classes; "
            f"by default up to {_MAX_CALIBRATED_CLASSES:,} classes.",
            show_default=False,
        ),
    ] = None,
    all_classes: Annotated[
        bool, typer.Option("--all-classes", help="Show all classes, not only the worst.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Measure the accuracy of a model on labelled rows or images.

    Rows with labels unknown to the model are reported and count as errors. The exit code is 1 if
    all labels are unknown.
    """
    packed = load_model(model)
    opened = open_rows_of(data, rows, packed)
    if calibration is None:
        calibration = len(packed.classes) <= _MAX_CALIBRATED_CLASSES
    evaluation = Evaluation(packed, calibration)
    with progress_bars() as progress:
        for batch in progress.batches("evaluating", opened):
            evaluation.add(batch.X, batch.labels)
    facts = evaluation.facts(confused)
    if json:
        print(json_format.dumps(facts, default=str))
    else:
        _show(facts, evaluation.k, all_classes)
    if facts["unknown_rows"] == facts["rows"]:
        raise typer.Exit(1)


def calibration_gaps(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Confidence (n,) minus correct predictions (n,), summed in 15 equal bins of confidence.

    The sum of their absolute values divided by n is the expected calibration error.

    Examples
    --------
    >>> gaps = calibration_gaps(np.array([0.9, 0.9]), np.array([True, False]))
    >>> round(float(np.abs(gaps).sum()) / 2, 3)
    0.4
    """
    bins = np.minimum((confidence * _CALIBRATION_BINS).astype(np.intp), _CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=confidence - correct, minlength=_CALIBRATION_BINS)
    return np.asarray(gaps, dtype=np.float64)


@dataclass
class Evaluation:
    """Counts over labelled rows; memory grows with the number of confused class pairs."""

    model: PackedModel
    with_calibration: bool
    n_rows: int = 0
    n_in_top: int = 0  # rows whose label is among the `k` nearest classes
    pairs: Counter[tuple[Any, Any]] = field(default_factory=Counter)  # (label, prediction)
    unknown: Counter[Any] = field(default_factory=Counter)  # labels unknown to the model
    gaps: Any = 0.0  # see `calibration_gaps`

    @property
    def k(self) -> int:
        """Number of nearest classes of the top-k accuracy."""
        return min(5, len(self.model.classes))

    def add(self, X: Any, labels: NDArray[Any]) -> None:
        """Count a batch of rows X (m, d) with labels (m,)."""
        found = self.model.top_classes(X, self.k, probabilities=self.with_calibration)
        nearest = found.labels
        self.n_rows += len(labels)
        self.n_in_top += int(np.any(nearest == labels[:, None], axis=1).sum())
        self.pairs.update(zip(labels.tolist(), nearest[:, 0].tolist(), strict=True))
        self.unknown.update(labels[~np.isin(labels, self.model.classes)].tolist())
        if found.probabilities is not None:
            self.gaps += calibration_gaps(found.probabilities[:, 0], nearest[:, 0] == labels)

    def facts(self, n_confused: int) -> dict[str, Any]:
        """All metrics, as values that JSON can hold."""
        n_true: Counter[Any] = Counter()
        n_predicted: Counter[Any] = Counter()
        wrong = []
        for (label, predicted), n in self.pairs.items():
            n_true[label] += n
            n_predicted[predicted] += n
            if label != predicted:
                wrong.append({"class": label, "predicted": predicted, "rows": n})
        wrong.sort(key=lambda pair: (-pair["rows"], str(pair["class"]), str(pair["predicted"])))
        classes = []
        for label in sorted(n_true.keys() | n_predicted.keys()):
            n_hits = self.pairs[label, label]
            recall = n_hits / n_true[label] if n_true[label] else None
            precision = n_hits / n_predicted[label] if n_predicted[label] else None
            classes.append(
                {"class": label, "rows": n_true[label], "recall": recall, "precision": precision}
            )
        n_correct = self.n_rows - sum(pair["rows"] for pair in wrong)
        n_known = self.n_rows - self.unknown.total()
        recalls = [row["recall"] for row in classes if row["recall"] is not None]
        error = float(np.abs(self.gaps).sum()) / self.n_rows if self.with_calibration else None
        return {
            "rows": self.n_rows,
            "unknown_rows": self.unknown.total(),
            "unknown_labels": sorted(self.unknown),
            "accuracy": n_correct / self.n_rows,
            "accuracy_of_known": n_correct / n_known if n_known else None,
            f"top_{self.k}": self.n_in_top / self.n_rows,
            "macro_recall": float(np.mean(recalls)),
            "calibration_error": error,
            "confused": wrong[:n_confused],
            "classes": classes,
        }


def _show(facts: dict[str, Any], k: int, all_classes: bool) -> None:
    error = facts["calibration_error"]
    print_lines(
        f"{pluralise(facts['rows'], 'row')}: accuracy {facts['accuracy']:.2%}, top-{k} accuracy "
        f"{facts[f'top_{k}']:.2%}, mean recall per class {facts['macro_recall']:.2%}"
        + ("" if error is None else f", expected calibration error {error:.3f}")
    )
    if facts["unknown_rows"]:
        labels = facts["unknown_labels"]
        more = ", ..." if len(labels) > _SHOWN_LABELS else ""
        known = facts["accuracy_of_known"]
        print_lines(
            f"{pluralise(facts['unknown_rows'], 'row')} with {pluralise(len(labels), 'label')} "
            f"unknown to the model: {', '.join(map(str, labels[:_SHOWN_LABELS]))}{more}"
            + ("" if known is None else f"; accuracy on the other rows {known:.2%}")
        )
    if facts["confused"]:
        cells = [
            [str(pair["class"]), str(pair["predicted"]), f"{pair['rows']:,}"]
            for pair in facts["confused"]
        ]
        show_table("Most confused", ["class", "predicted", "rows"], cells, n_names=2)
    rows, title = facts["classes"], "Classes"
    if not all_classes and len(rows) > 2 * _N_WORST:
        rows = sorted(rows, key=lambda row: (row["recall"] is None, row["recall"]))[:_N_WORST]
        title = f"The {_N_WORST} classes with the lowest recall (--all-classes shows all)"
    metrics = ("recall", "precision")
    cells = [
        [str(row["class"]), f"{row['rows']:,}"]
        + ["" if row[name] is None else f"{row[name]:.1%}" for name in metrics]
        for row in rows
    ]
    show_table(title, ["class", "rows", *metrics], cells, n_names=1)
