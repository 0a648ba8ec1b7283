"""Hundreds to tens of thousands of classes of a few rows each: `make many-classes`.

No data set of so many classes is at hand, so they are made of one that is: a class is one of its
training rows, and the rows of the class are that row plus the difference of two rows of one of the
real classes, made smaller or larger. Test rows are made alike, of other differences. Results are
kept in `results/many_classes.json` as they come, the table is written to `results/many_classes.md`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from bitclass import BinaryCodeClassifier
from cells import Cells, count, interruptible, write_table
from real_data import DATA, NAMES, Rows, load, present

RESULTS = Path(__file__).parent / "results"
BITS = (128, 256)
_MOST_TEST_ROWS = 5000
# Of the scatter within classes that the real-valued reference works with.
_REGULARISATION = 0.1


@dataclass(frozen=True)
class Case:
    """Classes made of a data set: how many, with how many rows, how far from their centre."""

    name: str
    n_classes: int
    rows_a_class: int
    spread: float

    @property
    def key(self) -> str:
        """What its results are kept under."""
        return f"{self.name} | {self.n_classes} | {self.rows_a_class} | {self.spread:g}"


CASES = (
    Case("cifar10_gist512", 1_000, 6, 1.0),
    Case("cifar10_gist512", 1_000, 20, 1.2),
    Case("cifar10_gist512", 1_000, 60, 1.4),
    Case("cifar10_gist512", 5_000, 10, 1.0),
    Case("cifar10_gist512", 20_000, 6, 0.7),
    Case("cifar10_gist512", 40_000, 4, 0.7),
    Case("tinyimagenet100_cnn1280", 1_000, 6, 1.4),
    Case("tinyimagenet100_cnn1280", 5_000, 10, 1.4),
    Case("tinyimagenet100_cnn1280", 20_000, 4, 1.0),
)


def made(case: Case, rows: Rows, seed: int) -> Rows:
    """Rows of the classes of a case, and test rows."""
    random = np.random.default_rng(seed)
    order = np.argsort(rows.y, kind="stable")
    X, y = rows.X[order], rows.y[order]
    first = np.searchsorted(y, y)
    n_alike = np.searchsorted(y, y, side="right") - first
    centres = random.choice(len(X), case.n_classes, replace=False)

    def draw(labels: NDArray[np.intp]) -> NDArray[np.float32]:
        one = random.integers(len(X), size=len(labels))
        other = first[one] + random.integers(n_alike[one])
        return X[centres[labels]] + np.float32(case.spread) * (X[one] - X[other])

    labels = random.permutation(np.repeat(np.arange(case.n_classes), case.rows_a_class))
    asked = random.integers(case.n_classes, size=_MOST_TEST_ROWS)
    return Rows(draw(labels), labels, draw(asked), asked)


def nearest_mean(rows: Rows) -> float:
    """Accuracy of the nearest class mean in coordinates without scatter within classes."""
    centre, deviation = rows.X.mean(axis=0), rows.X.std(axis=0) + 1e-6
    X, X_test = (rows.X - centre) / deviation, (rows.X_test - centre) / deviation
    counts = np.bincount(rows.y)
    means = np.zeros((len(counts), X.shape[1]))
    np.add.at(means, rows.y, X)
    means /= counts[:, None]
    within = (X.T @ X).astype(float) / len(X) - (means * counts[:, None]).T @ means / len(X)
    within[np.diag_indices_from(within)] += _REGULARISATION
    factor = scipy.linalg.cholesky(within, lower=True)
    codes, of_classes = (
        scipy.linalg.solve_triangular(factor, part.T, lower=True).T for part in (X_test, means)
    )
    sizes = np.square(of_classes).sum(axis=1) / 2
    nearest = [np.argmax(part @ of_classes.T - sizes, axis=1) for part in np.array_split(codes, 20)]
    return float(np.mean(np.concatenate(nearest) == rows.y_test))


def measured(rows: Rows, n_bits: int, refine: bool, seed: int) -> dict[str, Any]:
    """Accuracy, seconds, and what refinement tells of itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the alternation compares", UserWarning)
        classifier = BinaryCodeClassifier(n_bits, refine=refine, random_state=seed)
        begin = time.perf_counter()
        classifier.fit(rows.X, rows.y)
        seconds = time.perf_counter() - begin
    accuracy = float(classifier.score(rows.X_test, rows.y_test))
    return {"accuracy": accuracy, "seconds": seconds, "refinement": classifier.refinement_}


def run(cells: Cells, chosen: argparse.Namespace) -> None:
    """Compute all results that are asked for and not there yet."""
    there = present(sorted({case.name for case in CASES}), chosen.data)
    for case in CASES:
        if case.name not in there:
            continue
        for seed in range(chosen.seeds):
            rows = made(case, load(case.name, chosen.data), seed)
            key = f"{case.key} | {seed}"
            mean = cells.get(f"{key} | mean", lambda: {"accuracy": nearest_mean(rows)})
            print(f"{key}: nearest mean {mean['accuracy']:.4f}", flush=True)
            for n_bits in BITS:
                for refine in (False, True):
                    found = cells.get(
                        f"{key} | {n_bits} | {'refined' if refine else 'plain'}",
                        lambda: measured(rows, n_bits, refine, seed),
                    )
                    print(f"  {n_bits} bits, refine={refine}: {found['accuracy']:.4f}", flush=True)


def markdown(cells: Cells) -> str:
    """The table of all results that there are."""
    columns = [f"{n_bits} | {stage}" for n_bits in BITS for stage in ("plain", "refined")]
    lines = [
        "# Many classes of few rows",
        "",
        "Test accuracy in %, mean of the seeds. *plain* is the default without refinement, "
        "*refined* the default; the mean is the nearest class mean in coordinates without scatter "
        "within classes, real numbers all of them. Classes are made of real rows: see "
        "[many_classes.py](../many_classes.py). Made by `make many-classes`.",
        "",
        "| made of | classes | rows of each | nearest mean | "
        + " | ".join(f"{column.replace(' | ', ' bits, ')}" for column in columns)
        + " |",
        "|---" * (4 + len(columns)) + "|",
    ]
    for case in CASES:
        entries = []
        for column in ("mean", *columns):
            of_seeds = [cells.values.get(f"{case.key} | {seed} | {column}") for seed in range(100)]
            found = [100 * result["accuracy"] for result in of_seeds if result is not None]
            entries.append(f"{np.mean(found):.1f}" if found else "")
        title = f"{NAMES[case.name]}, {case.spread:g} times"
        facts = f"| {title} | {case.n_classes:,} | {case.rows_a_class} | "
        lines.append(facts + " | ".join(entries) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the .npz files")
    parser.add_argument("--seeds", type=count, default=2, help="how many")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    cells = Cells(chosen.out / "many_classes.json")
    with interruptible():
        run(cells, chosen)
    write_table(chosen.out / "many_classes.md", markdown(cells))


if __name__ == "__main__":
    main()
