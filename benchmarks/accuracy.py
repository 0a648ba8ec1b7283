"""Accuracy on the real datasets: one sweep, one row per fit, in `results/accuracy.csv`.

A fit that is in the file already is not run again, so that a sweep can be interrupted; delete the
file after a change of the library. `results/accuracy.md` has the means over seeds. Settings are
compared on a held-out fifth of the training rows with `--split held-out`.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from bitclass import BinaryCodeClassifier
from bitclass.cli.evaluate import calibration_gaps
from real_data import DATA, NAMES, Rows, load, present

RESULTS = Path(__file__).parent / "results"
#: What is compared, by name.
METHODS: dict[str, Callable[..., BinaryCodeClassifier]] = {
    "default": BinaryCodeClassifier,
    "refine=False": partial(BinaryCodeClassifier, refine=False),
    "paper, hinge": partial(BinaryCodeClassifier.paper, loss="hinge"),
    "paper, exponential": partial(BinaryCodeClassifier.paper, loss="exponential"),
}
#: Test accuracy of LinearSVC at the C that is best on the test rows, and of a linear softmax.
LINEAR = {
    "letter16": "78.3 / -",
    "caltech101_cnn1280": "94.6 / 94.3",
    "clinc150_minilm384": "95.1 / 94.3",
    "cifar10_gist512": "59.5 / -",
    "tinyimagenet100_cnn1280": "73.0 / 73.4",
    "omniglot1623_cnn1280": "- / 53.6",
}
KEYS = ("data", "split", "method", "kernel", "n_bits", "seed")
VALUES = ("accuracy", "nearest", "rescore", "top5", "calibration_error", "fit_seconds", "epochs")


def held_out(rows: Rows, seed: int) -> Rows:
    """A fifth of the training rows in place of the test rows, the same share of each class."""
    X, X_test, y, y_test = train_test_split(
        rows.X, rows.y, test_size=0.2, stratify=rows.y, random_state=seed
    )
    return Rows(X, y, X_test, y_test)


def fit_and_measure(rows: Rows, classifier: BinaryCodeClassifier) -> dict[str, Any]:
    """Fit on the training rows and measure on the others."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier.fit(rows.X, rows.y)
    seconds = time.perf_counter() - start
    right = classifier.predict(rows.X_test) == rows.y_test
    top, _ = classifier.top_classes(rows.X_test, min(5, len(classifier.classes_)))
    gaps = calibration_gaps(classifier.predict_proba(rows.X_test).max(axis=1), right)
    model = classifier.packed()
    rescore, model.rescore = model.rescore, 0
    nearest = float(np.mean(model.predict(rows.X_test) == rows.y_test))
    model.rescore = rescore
    return {
        "accuracy": round(float(right.mean()), 5),
        "nearest": round(nearest, 5),
        "rescore": rescore,
        "top5": round(float((top == rows.y_test[:, None]).any(axis=1).mean()), 5),
        "calibration_error": round(float(np.abs(gaps).sum()) / len(right), 4),
        "fit_seconds": round(seconds, 2),
        "epochs": (classifier.refinement_ or {}).get("epochs", 0),
    }


def sweep(chosen: argparse.Namespace, path: Path) -> list[dict[str, Any]]:
    """Run what is asked for and not in the file yet; all rows of the file."""
    done = list(csv.DictReader(path.open())) if path.exists() else []
    known = {tuple(row[key] for key in KEYS) for row in done}
    path.parent.mkdir(exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*KEYS, *VALUES])
        if not done:
            writer.writeheader()
        for name in present(chosen.datasets, chosen.data):
            published = load(name, chosen.data)
            for method in chosen.methods:
                for kernel in kernels(name, method):
                    for n_bits in chosen.bits:
                        for seed in range(chosen.seeds):
                            cell = (name, chosen.split, method, kernel, str(n_bits), str(seed))
                            if cell in known:
                                continue
                            rows = (
                                published if chosen.split == "test" else held_out(published, seed)
                            )
                            classifier = METHODS[method](
                                n_bits=n_bits,
                                random_state=seed,
                                kernel=None if kernel == "linear" else kernel,
                            )
                            found = fit_and_measure(rows, classifier)
                            row = dict(zip(KEYS, cell, strict=True)) | found
                            writer.writerow(row)
                            file.flush()
                            done.append({key: str(value) for key, value in row.items()})
                            print(*cell, found["accuracy"], f"{found['fit_seconds']} s", flush=True)
    return done


def kernels(name: str, method: str) -> tuple[str, ...]:
    """Kernels that make sense for a dataset."""
    if method.startswith("paper"):
        return ("linear",)
    return {"letter16": ("rbf",), "cifar10_gist512": ("linear", "rbf")}.get(name, ("linear",))


def markdown(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, one line per dataset, kernel and method."""
    cells: dict[tuple[str, ...], dict[int, list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row["split"] == "test":
            cells[row["data"], row["kernel"], row["method"]][int(row["n_bits"])].append(row)
    bits = sorted({n_bits for by_bits in cells.values() for n_bits in by_bits})
    lines = [
        "# Accuracy",
        "",
        "Test accuracy in %, mean of the seeds (± standard deviation), and in brackets that of the "
        "nearest class of the same model, without rescoring; the parameters named, all others as "
        "they are by default. LinearSVC has the C that is best on the test rows, beside "
        "a linear softmax. The last column is the largest expected calibration error of the row. "
        "Made by `make accuracy`.",
        "",
        f"| | method | {' | '.join(f'{n} bits' for n in bits)} | LinearSVC / softmax | ECE |",
        "|---" * (len(bits) + 4) + "|",
    ]
    order = {name: place for place, name in enumerate(NAMES)}
    for (name, kernel, method), by_bits in sorted(
        cells.items(), key=lambda item: order[item[0][0]]
    ):
        shown = []
        for n_bits in bits:
            values, nearest = (
                [100 * float(row[key]) for row in by_bits[n_bits]]
                for key in ("accuracy", "nearest")
            )
            spread = f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else ""
            shown.append(f"{spread} ({np.mean(nearest):.1f})" if values else "")
        title = NAMES[name] + (", `rbf`" if kernel == "rbf" else "")
        worst = max(float(row["calibration_error"]) for found in by_bits.values() for row in found)
        lines.append(f"| {title} | {method} | {' | '.join(shown)} | {LINEAR[name]} | {worst:.3f} |")
    return "\n".join(lines) + "\n"


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
    try:
        rows = sweep(chosen, RESULTS / "accuracy.csv")
    except KeyboardInterrupt:
        raise SystemExit("interrupted; run again to continue") from None
    text = markdown(rows)
    (RESULTS / "accuracy.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
