"""`bitclass evaluate`: accuracy, confusions and calibration on labelled rows, texts or images."""

from __future__ import annotations

import csv
import json as json_format
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass.cli import options
from bitclass.cli.console import (
    as_text,
    format_size,
    pluralise,
    print_lines,
    progress_bars,
    show_table,
)
from bitclass.cli.data import RowOptions, check_outputs, files_in
from bitclass.cli.errors import UsageError
from bitclass.storage import atomic_write, load

if TYPE_CHECKING:
    from bitclass.model import PackedModel

_N_SHOWN = 10
_CALIBRATION_BINS = 15
# Probabilities need the scores of all classes, which is slow for many classes.
_MAX_CALIBRATED_CLASSES = 1024


def command(
    model: options.Model,
    data: options.Data,
    labels: options.Labels = None,
    features: options.Features = None,
    errors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV file to write, with the rows that are wrong."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Picture to write (.png, .svg or .pdf): confused classes, calibration, and "
            "accuracy against coverage.",
        ),
    ] = None,
    reject: options.Reject = None,
    json: options.Json = False,
) -> None:
    """Measure the accuracy of a model on labelled rows, texts or images.

    Files are read as in training. Rows with labels unknown to the model are reported and count as
    errors; the exit code is 1 if all labels are unknown. --reject reports how many rows are
    accepted, and the accuracy among them. --json has the figures of all classes.
    """
    if errors is not None and errors.suffix.lower() != ".csv":
        raise UsageError(f"--errors {errors}: the name must end in .csv")
    if figure is not None and figure.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--figure {figure}: the name must end in .png, .svg or .pdf")
    row_options = RowOptions(features=features, labels=labels)
    read = files_in([model, *data, row_options.labels_file])
    check_outputs({"--errors": errors, "--figure": figure}, read)
    if figure is not None:
        from bitclass.cli.figure import draw  # before the work: matplotlib may be missing
    packed = load(model)
    rows = row_options.open_for(packed, model, data, labelled=True)
    evaluation = Evaluation(packed, calibrate=figure is not None, reject=reject)
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bars())
        wrong = None
        if errors is not None:
            file = stack.enter_context(as_text(stack.enter_context(atomic_write(errors))))
            wrong = csv.writer(file, lineterminator="\n")
        names = getattr(rows, "names", None)  # of images
        for batch in stack.enter_context(closing(progress.batches("evaluating", rows))):
            X, y, *_ = batch.pair
            predicted = evaluation.add(X, y)
            if wrong is not None:
                _write_errors(wrong, batch, predicted, names)
    facts = evaluation.facts()
    if json:
        print(json_format.dumps(facts, default=str))
    else:
        _show(facts)
    if figure is not None:
        with atomic_write(figure) as picture:
            draw(evaluation, facts).savefig(picture, format=figure.suffix[1:].lower(), dpi=150)
    for path in filter(None, (errors, figure)):
        typer.echo(f"wrote {path}, {format_size(path.stat().st_size)}", err=json)
    if facts["unknown_rows"] == facts["rows"]:
        raise typer.Exit(1)


def calibration_bins(
    confidence: NDArray[np.float64], is_correct: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Rows, mean confidence and accuracy in 15 equal bins of confidence: (15, 3)."""
    bins = np.minimum((confidence * _CALIBRATION_BINS).astype(np.intp), _CALIBRATION_BINS - 1)
    n, *sums = (
        np.bincount(bins, weights=values, minlength=_CALIBRATION_BINS)
        for values in (None, confidence, is_correct)
    )
    return np.stack([n, *(total / np.maximum(n, 1) for total in sums)], axis=1)


def calibration_error(bins: NDArray[np.float64]) -> float:
    """Expected calibration error.

    Examples
    --------
    >>> bins = calibration_bins(np.array([0.9, 0.9]), np.array([True, False]))
    >>> round(calibration_error(bins), 3)
    0.4
    """
    n, confidence, accuracy = bins.T
    return float(np.abs(confidence - accuracy) @ n / n.sum())


class Evaluation:
    """What was found in labelled rows.

    With `calibrate`, probabilities are computed even if there are many classes. Rows with a
    typicality below `reject` are rejected; by default as the model says.
    """

    def __init__(
        self, model: PackedModel, calibrate: bool = False, reject: float | None = None
    ) -> None:
        self.model = model
        self.reject = model.reject if reject is None else reject
        self.k = min(5, len(model.classes))
        self.calibrate = calibrate or len(model.classes) <= _MAX_CALIBRATED_CLASSES
        self._batches: list[dict[str, Any]] = []

    def add(self, X: Any, labels: NDArray[Any]) -> NDArray[Any]:
        """Add a batch of m rows or texts with labels (m,); returns the predictions (m,)."""
        best = self.model.top_classes(
            X,
            self.k,
            probabilities=self.calibrate,
            typicality=self.reject > 0 or self.model.typicality_table is not None,
        )
        predicted: NDArray[Any] = best.labels[:, 0]
        self._batches.append(
            {
                "label": labels,
                "predicted": predicted,
                "is_correct": predicted == labels,
                "is_in_top": np.any(best.labels == labels[:, None], axis=1),
                "is_known": np.isin(labels, self.model.classes),
                "confidence": None if best.probabilities is None else best.probabilities[:, 0],
                "typicality": best.typicality,
            }
        )
        return predicted

    def of_rows(self, name: str) -> Any:
        """A value of each row; None without probabilities or typicalities."""
        parts = [batch[name] for batch in self._batches]
        return None if parts[0] is None else np.concatenate(parts)

    def bins(self) -> NDArray[np.float64]:
        """Calibration of all rows: see `calibration_bins`."""
        return calibration_bins(self.of_rows("confidence"), self.of_rows("is_correct"))

    def rejection(self) -> dict[str, Any] | None:
        """What rejecting brings and costs, or None without it.

        The share of rows accepted, the accuracy among them, and the shares that are rejected of the
        rows with known and with unknown labels.
        """
        if not self.reject:
            return None
        rejected = self.of_rows("typicality") < self.reject
        known, correct = self.of_rows("is_known"), self.of_rows("is_correct")
        shares = {
            "coverage": ~rejected,
            "accuracy_of_accepted": correct[~rejected],
            "rejected_of_known": rejected[known],
            "rejected_of_unknown": rejected[~known],
        }
        found = {name: float(rows.mean()) if len(rows) else None for name, rows in shares.items()}
        return {"reject": self.reject, **found}

    def facts(self) -> dict[str, Any]:
        """All metrics, as values that JSON can hold."""
        labels, predicted = self.of_rows("label"), self.of_rows("predicted")
        correct, known = self.of_rows("is_correct"), self.of_rows("is_known")
        names, numbers = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
        true, found = np.split(numbers, 2)
        n_true, n_predicted, n_hits = (
            np.bincount(values, minlength=len(names)).tolist()
            for values in (true, found, true[correct])
        )
        classes = [
            {
                "class": name,
                "rows": rows,
                "recall": hits / rows if rows else None,
                "precision": hits / answers if answers else None,
                "f1": 2 * hits / (rows + answers),
            }
            for name, rows, answers, hits in zip(
                names.tolist(), n_true, n_predicted, n_hits, strict=True
            )
        ]
        wrong = Counter(zip(labels[~correct].tolist(), predicted[~correct].tolist(), strict=True))
        order = sorted(wrong.items(), key=lambda item: (-item[1], str(item[0])))
        return {
            "rows": len(labels),
            "unknown_rows": int((~known).sum()),
            "unknown_labels": sorted(set(labels[~known].tolist())),
            "accuracy": float(correct.mean()),
            "accuracy_of_known": float(correct[known].mean()) if known.any() else None,
            f"top_{self.k}": float(self.of_rows("is_in_top").mean()),
            # Of the classes that occur or are predicted, as in scikit-learn.
            "macro_f1": float(np.mean([row["f1"] for row in classes])),
            "calibration_error": calibration_error(self.bins()) if self.calibrate else None,
            "rejection": self.rejection(),
            "confused": [
                {"class": label, "predicted": answer, "rows": n}
                for (label, answer), n in order[:_N_SHOWN]
            ],
            "classes": classes,
        }


def _show(facts: dict[str, Any]) -> None:
    shown = {"accuracy": "accuracy", "top_5": "top-5 accuracy", "macro_f1": "macro-F1"}
    parts = [f"{words} {facts[name]:.2%}" for name, words in shown.items() if name in facts]
    if facts["calibration_error"] is not None:
        parts.append(f"calibration error {facts['calibration_error']:.3f}")
    print_lines(f"{pluralise(facts['rows'], 'row')}: {', '.join(parts)}")
    if facts["unknown_rows"]:
        labels, known = facts["unknown_labels"], facts["accuracy_of_known"]
        more = ", ..." if len(labels) > _N_SHOWN else ""
        print_lines(
            f"{pluralise(facts['unknown_rows'], 'row')} with {pluralise(len(labels), 'label')} "
            f"unknown to the model: {', '.join(map(str, labels[:_N_SHOWN]))}{more}"
            + ("" if known is None else f"; accuracy on the other rows {known:.2%}")
        )
    if facts["rejection"]:
        print_lines(_rejection_line(facts["rejection"], facts["unknown_rows"]))
    if facts["confused"]:
        cells = [
            [str(pair["class"]), str(pair["predicted"]), f"{pair['rows']:,}"]
            for pair in facts["confused"]
        ]
        show_table("Most confused", ["class", "predicted", "rows"], cells, n_names=2)
    rows = sorted(facts["classes"], key=lambda row: row["f1"])
    if rows[0]["f1"] == 1.0:
        return  # none is worse than others
    metrics = ("recall", "precision", "f1")
    cells = [
        [str(row["class"]), f"{row['rows']:,}"]
        + ["" if row[name] is None else f"{row[name]:.1%}" for name in metrics]
        for row in rows[: 2 * _N_SHOWN]
    ]
    title = "Classes, worst first"
    if len(cells) < len(rows):
        title = f"The {len(cells)} worst of {len(rows):,} classes (--json: all)"
    show_table(title, ["class", "rows", *metrics], cells, n_names=1)


def _rejection_line(found: dict[str, Any], n_unknown: int) -> str:
    parts = [f"rejecting {found['reject']:.1%}: {found['coverage']:.2%} of the rows are accepted"]
    if found["accuracy_of_accepted"] is not None:
        parts.append(f"accuracy {found['accuracy_of_accepted']:.2%} among them")
    if found["rejected_of_known"] is not None:
        parts.append(f"rejected {found['rejected_of_known']:.2%} of the rows with known labels")
    if found["rejected_of_unknown"] is not None:
        n = round(found["rejected_of_unknown"] * n_unknown)
        parts.append(f"{n:,} of the {n_unknown:,} with unknown ones")
    return ", ".join(parts)


def _write_errors(wrong: Any, batch: Any, predicted: NDArray[Any], names: Any) -> None:
    """Write the wrong rows: number from 0, label, prediction, and the text or image if any."""
    kind = "text" if batch.texts is not None else None if names is None else "image"
    if batch.first_row == 0:
        wrong.writerow(filter(None, ("row", "label", "predicted", kind)))
    for i in np.flatnonzero(predicted != batch.labels).tolist():
        record = [batch.first_row + i, batch.labels[i], predicted[i]]
        if kind == "text":
            text = batch.texts[i]
            record.append(text.decode(errors="replace") if isinstance(text, bytes) else text)
        elif kind == "image":
            record.append(names[batch.first_row + i])
        wrong.writerow(record)
