"""Accuracy on the real datasets: one sweep, with one row per fit in `results/accuracy.csv`.

Fits that are already in the file are not repeated, so that a sweep can be interrupted; delete the
file after changes to the library. `results/accuracy.md` has the means over seeds. With
`--split held-out`, settings are compared on a held-out fifth of the training rows.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from bitclass import BinaryCodeClassifier
from bitclass.cli.evaluate import calibration_bins, calibration_error
from bitclass.paper import PaperClassifier
from harness import DATA, NAMES, RESULTS, Rows, load, present, seconds_of, sweep, write_page

Classifier = BinaryCodeClassifier | PaperClassifier

#: The methods to compare.
METHODS: dict[str, Callable[..., Classifier]] = {
    "default": BinaryCodeClassifier,
    "refine=False": partial(BinaryCodeClassifier, refine=False),
    "paper, hinge": partial(PaperClassifier, loss="hinge"),
    "paper, exponential": partial(PaperClassifier, loss="exponential"),
}
#: Test accuracy of LinearSVC with the C that is best on the test rows, and of a linear softmax.
LINEAR = {
    "letter16": "78.3 / -",
    "caltech101_cnn1280": "94.6 / 94.3",
    "clinc150_minilm384": "95.1 / 94.3",
    "cifar10_gist512": "59.5 / -",
    "tinyimagenet100_cnn1280": "73.0 / 73.4",
    "omniglot1623_cnn1280": "- / 53.6",
}
VALUES = ("accuracy", "nearest", "rescore", "top5", "calibration_error", "fit_seconds", "epochs")
NOTE = (
    "Test accuracy in %, mean over seeds ± standard deviation; in brackets, the accuracy of the "
    "same models without rescoring. Parameters that are not mentioned have their defaults. C of "
    "LinearSVC is tuned on the test rows. ECE is the largest expected calibration error in the "
    "row. Measured by `make accuracy`."
)


def held_out(rows: Rows, seed: int) -> Rows:
    """A stratified fifth of the training rows instead of the test rows."""
    X, X_test, y, y_test = train_test_split(
        rows.X, rows.y, test_size=0.2, stratify=rows.y, random_state=seed
    )
    return Rows(X, y, X_test, y_test)


def fit_and_measure(rows: Rows, classifier: Classifier) -> dict[str, Any]:
    """Fit on the training rows and measure on the test rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = seconds_of(lambda: classifier.fit(rows.X, rows.y))
    right = classifier.predict(rows.X_test) == rows.y_test
    top, *_ = classifier.top_classes(rows.X_test, min(5, len(classifier.classes_)))
    bins = calibration_bins(classifier.predict_proba(rows.X_test).max(axis=1), right)
    model = classifier.packed()
    rescore, model.rescore = model.rescore, 0
    nearest = float(np.mean(model.predict(rows.X_test) == rows.y_test))
    model.rescore = rescore
    return {
        "accuracy": round(float(right.mean()), 5),
        "nearest": round(nearest, 5),
        "rescore": rescore,
        "top5": round(float((top == rows.y_test[:, None]).any(axis=1).mean()), 5),
        "calibration_error": round(calibration_error(bins), 4),
        "fit_seconds": round(seconds, 2),
        "epochs": len(classifier.report_.epochs) if hasattr(classifier, "report_") else "",
    }


def cells(chosen: argparse.Namespace, names: Iterator[str]) -> Iterator[dict[str, Any]]:
    for name, method in itertools.product(names, chosen.methods):
        kernels = {"letter16": ("rbf",), "cifar10_gist512": ("linear", "rbf")}.get(
            name, ("linear",)
        )
        if method.startswith("paper"):
            kernels = ("linear",)
        for kernel, n_bits, seed in itertools.product(kernels, chosen.bits, range(chosen.seeds)):
            yield {
                "data": name,
                "split": chosen.split,
                "method": method,
                "kernel": kernel,
                "n_bits": n_bits,
                "seed": seed,
            }


def table(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Means over seeds, one line per dataset, kernel and method."""
    found: dict[tuple[str, ...], dict[int, list[dict[str, str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row["split"] == "test":
            found[row["data"], row["kernel"], row["method"]][int(row["n_bits"])].append(row)
    bits = sorted({n_bits for by_bits in found.values() for n_bits in by_bits})
    lines = []
    order = list(NAMES)
    for (name, kernel, method), by_bits in sorted(
        found.items(), key=lambda item: order.index(item[0][0])
    ):
        line = {"": NAMES[name] + (", `rbf`" if kernel == "rbf" else ""), "method": method}
        for n_bits in bits:
            values, nearest = (
                [100 * float(row[key]) for row in by_bits[n_bits]]
                for key in ("accuracy", "nearest")
            )
            shown = f"{np.mean(values):.1f} ± {np.std(values):.1f} ({np.mean(nearest):.1f})"
            line[f"{n_bits} bits"] = shown if values else ""
        worst = max(float(row["calibration_error"]) for found in by_bits.values() for row in found)
        lines.append(line | {"LinearSVC / softmax": LINEAR[name], "ECE": f"{worst:.3f}"})
    return lines


def main() -> None:
    """Run the sweep and write its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--bits", nargs="+", type=int, default=[32, 64, 128, 256, 512])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--split", choices=["test", "held-out"], default="test")
    parser.add_argument("--data", type=Path, default=DATA)
    chosen = parser.parse_args()
    paths = present(chosen.datasets, chosen.data)
    loaded = cache(lambda name: load(paths[name]))

    def run(cell: Mapping[str, Any]) -> dict[str, Any]:
        rows = loaded(cell["data"])
        if cell["split"] != "test":
            rows = held_out(rows, cell["seed"])
        options = {} if cell["kernel"] == "linear" else {"kernel": cell["kernel"]}
        make = METHODS[cell["method"]]
        classifier = make(n_bits=cell["n_bits"], random_state=cell["seed"], **options)
        return fit_and_measure(rows, classifier)

    try:
        rows = sweep(RESULTS / "accuracy.csv", cells(chosen, iter(paths)), VALUES, run)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; run again to continue") from None
    write_page("accuracy", "Accuracy", NOTE, {"": table(rows)}, with_machine=False)


if __name__ == "__main__":
    main()
