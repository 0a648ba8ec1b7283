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
from bitclass.cli.console import counted, say, show_table, shown_progress
from bitclass.cli.data import load_model, open_rows_of

if TYPE_CHECKING:
    from bitclass.model import PackedModel

__all__ = ["calibration_gaps", "command"]

_N_WORST = 10
_SHOWN_LABELS = 10
_CALIBRATION_BINS = 15
# Calibration needs the probabilities of all classes, at a cost that grows with their number.
_MAX_CALIBRATED_CLASSES = 1024


@options.expanded()
def command(
    *,
    model: options.Model,
    data: options.Data,
    rows: options.RowOptions,
    confused: Annotated[int, typer.Option(min=0, help="Number of confused pairs to show.")] = 10,
    calibration: Annotated[
        bool | None,
        typer.Option(
            help="Compute the calibration error, which takes time proportional to rows x classes; "
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

    Rows with labels that the model does not know count as errors, and are reported. The exit code
    is 1 if the model knows none of the labels.
    """
    packed = load_model(model)
    opened = open_rows_of(data, rows, packed, part="test")
    if calibration is None:
        calibration = len(packed.classes) <= _MAX_CALIBRATED_CLASSES
    evaluation = Evaluation(packed, calibration)
    with shown_progress() as progress:
        for batch in progress.batches("evaluating", opened):
            evaluation.add(batch.X, batch.labels)
    if evaluation.n_rows == 0:
        raise ValueError(f"{opened.paths[0]}: no rows")
    facts = evaluation.facts(confused)
    if json:
        print(json_format.dumps(facts, default=str))
    else:
        _show(facts, evaluation.k, all_classes)
    if facts["unknown_rows"] == facts["rows"]:
        raise typer.Exit(1)


def calibration_gaps(
    confidence: NDArray[np.float64], right: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Confidence (n,) minus right predictions (n,), summed in 15 equal bins of confidence.

    The sum of their sizes over n is the expected calibration error.

    Examples
    --------
    >>> gaps = calibration_gaps(np.array([0.9, 0.9]), np.array([True, False]))
    >>> round(float(np.abs(gaps).sum()) / 2, 3)
    0.4
    """
    bins = np.minimum((confidence * _CALIBRATION_BINS).astype(np.intp), _CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=_CALIBRATION_BINS)
    return np.asarray(gaps, dtype=np.float64)


@dataclass
class Evaluation:
    """Counts over labelled rows; memory grows with the pairs of classes that are confused."""

    model: PackedModel
    with_calibration: bool
    n_rows: int = 0
    n_in_top: int = 0  # rows whose label is among the nearest `k`
    pairs: Counter[tuple[Any, Any]] = field(default_factory=Counter)  # (label, prediction)
    unknown: Counter[Any] = field(default_factory=Counter)  # labels that the model does not know
    gaps: Any = 0.0  # of calibration

    @property
    def k(self) -> int:
        """Length of the list of nearest classes."""
        return min(5, len(self.model.classes))

    def add(self, X: Any, labels: NDArray[Any]) -> None:
        """Count a batch of rows X (m, d) with labels (m,)."""
        nearest, _, *confidence = self.model.top_classes(
            X, self.k, probabilities=self.with_calibration
        )
        self.n_rows += len(labels)
        self.n_in_top += int(np.any(nearest == labels[:, None], axis=1).sum())
        self.pairs.update(zip(labels.tolist(), nearest[:, 0].tolist(), strict=True))
        self.unknown.update(labels[~np.isin(labels, self.model.classes)].tolist())
        if confidence:
            self.gaps += calibration_gaps(confidence[0][:, 0], nearest[:, 0] == labels)

    def facts(self, n_confused: int) -> dict[str, Any]:
        """All figures, in values that JSON can hold."""
        n_own: Counter[Any] = Counter()
        n_found: Counter[Any] = Counter()
        wrong = []
        for (own, found), n in self.pairs.items():
            n_own[own] += n
            n_found[found] += n
            if own != found:
                wrong.append({"class": own, "predicted": found, "rows": n})
        wrong.sort(key=lambda pair: (-pair["rows"], str(pair["class"]), str(pair["predicted"])))
        classes = []
        for label in sorted(n_own.keys() | n_found.keys()):
            right = self.pairs[label, label]
            recall = right / n_own[label] if n_own[label] else None
            precision = right / n_found[label] if n_found[label] else None
            classes.append(
                {"class": label, "rows": n_own[label], "recall": recall, "precision": precision}
            )
        n_right = self.n_rows - sum(pair["rows"] for pair in wrong)
        n_known = self.n_rows - self.unknown.total()
        recalls = [row["recall"] for row in classes if row["recall"] is not None]
        error = float(np.abs(self.gaps).sum()) / self.n_rows if self.with_calibration else None
        return {
            "rows": self.n_rows,
            "unknown_rows": self.unknown.total(),
            "unknown_labels": sorted(self.unknown),
            "accuracy": n_right / self.n_rows,
            "accuracy_of_known": n_right / n_known if n_known else None,
            f"top_{self.k}": self.n_in_top / self.n_rows,
            "macro_recall": float(np.mean(recalls)),
            "calibration_error": error,
            "confused": wrong[:n_confused],
            "classes": classes,
        }


def _show(facts: dict[str, Any], k: int, all_classes: bool) -> None:
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
    if facts["confused"]:
        cells = [
            [str(pair["class"]), str(pair["predicted"]), f"{pair['rows']:,}"]
            for pair in facts["confused"]
        ]
        show_table("Most confused", ["class", "predicted", "rows"], cells, n_names=2)
    rows, title = facts["classes"], "Classes"
    if not all_classes and len(rows) > 2 * _N_WORST:
        rows = sorted(rows, key=lambda row: (row["recall"] is None, row["recall"]))[:_N_WORST]
        title = f"The {_N_WORST} classes of lowest recall (--all-classes shows all)"
    shares = ("recall", "precision")
    cells = [
        [str(row["class"]), f"{row['rows']:,}"]
        + ["" if row[name] is None else f"{row[name]:.1%}" for name in shares]
        for row in rows
    ]
    show_table(title, ["class", "rows", *shares], cells, n_names=1)
