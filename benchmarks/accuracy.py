"""Accuracy of the plain method on real data: both losses, both simple starts, both encodings.

What goes beyond it is in `study.py` and `floors.py`.

Writes `results/accuracy.json` and `results/accuracy.md`: `make accuracy`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler

from bitclass import BinaryCodeClassifier
from measures import with_precision
from real_data import NAMES, load, present
from timing import machine

HERE = Path(__file__).parent
LEARNERS: dict[str, dict[str, Any]] = {
    "hinge": {"loss": "hinge"},
    "exponential": {"loss": "exponential"},
    "exponential, scale 8/r": {"loss": "exponential", "scale": 8 / 128},
}
_PLAIN = {"refine": False, "alpha": 0.01}
SEEDS = range(3)


def measure(name: str) -> list[dict[str, Any]]:
    rows_of_data = load(name)
    scaler = StandardScaler().fit(rows_of_data.X)
    X, X_test = scaler.transform(rows_of_data.X), scaler.transform(rows_of_data.X_test)
    y, y_test = rows_of_data.y, rows_of_data.y_test
    ridge = float(RidgeClassifier(alpha=1e-2 * len(y)).fit(X, y).score(X_test, y_test))
    rows = []
    for learner, parameters in LEARNERS.items():
        for codes in ("random", "projection"):
            taken: dict[str, list[float]] = {"float32": [], "int8": []}
            for seed in SEEDS:
                classifier = BinaryCodeClassifier(
                    128, initial_codes=codes, random_state=seed, **_PLAIN, **parameters
                ).fit(X, y)
                for precision, scores in taken.items():
                    model = with_precision(classifier.packed(), precision)
                    scores.append(float(np.mean(model.predict(X_test) == y_test)))
            rows.append(
                {
                    "data": name,
                    "learner": learner,
                    "initial_codes": codes,
                    "float32": taken["float32"],
                    "int8": taken["int8"],
                    "one-vs-all ridge": ridge,
                }
            )
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Accuracy of the plain method at 128 bits",
        "",
        "Without refinement, at `alpha=0.01`: test accuracy in %, mean of 3 seeds. `random` / "
        "`projection` are the starting codes. The last column is what int8 encoding adds or takes "
        "away, in points, over all runs of the row. Made by `make accuracy`.",
        "",
        "| | one-vs-all ridge | " + " | ".join(LEARNERS) + " | int8 - float32, mean (worst) |",
        "|---" * (len(LEARNERS) + 3) + "|",
    ]
    for name, title in NAMES.items():
        of_data = [row for row in rows if row["data"] == name]
        if not of_data:
            continue
        cells = [title, f"{100 * of_data[0]['one-vs-all ridge']:.1f}"]
        for learner in LEARNERS:
            means = {
                row["initial_codes"]: 100 * np.mean(row["int8"])
                for row in of_data
                if row["learner"] == learner
            }
            cells.append(f"{means['random']:.1f} / {means['projection']:.1f}")
        differences = [100 * (np.mean(row["int8"]) - np.mean(row["float32"])) for row in of_data]
        cells.append(f"{np.mean(differences):+.2f} ({min(differences):+.2f})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    chosen = parser.parse_args()
    console = Console()
    there = present(list(NAMES))
    rows = [row for name in track(there, "learning", console=console) for row in measure(name)]
    chosen.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "rows": rows}
    (chosen.out / "accuracy.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(rows)
    (chosen.out / "accuracy.md").write_text(text)
    console.print(text, highlight=False)


if __name__ == "__main__":
    main()
