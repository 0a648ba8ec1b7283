"""Accuracy on the real data sets: both losses, both simple starts, int8 beside float32 encoding.

Writes `results/accuracy.json` and `results/accuracy.md`: `make accuracy`.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler

from bitclass import BinaryCodeClassifier, PackedModel
from timing import machine

HERE = Path(__file__).parent
DATA = Path(os.environ.get("BITCLASS_DATA", HERE.parents[1] / "shared" / "data"))
NAMES = {
    "letter16": "letters",
    "cifar10_gist512": "CIFAR-10 GIST",
    "caltech101_cnn1280": "Caltech-101 CNN",
    "clinc150_minilm384": "CLINC-150 MiniLM",
    "tinyimagenet100_cnn1280": "Tiny-ImageNet-100 CNN",
}
LEARNERS: dict[str, dict[str, Any]] = {
    "hinge": {"loss": "hinge"},
    "exponential": {"loss": "exponential"},
    "exponential, scale 8/r": {"loss": "exponential", "scale": 8 / 128},
}
SEEDS = range(3)


def with_precision(model: PackedModel, precision: Any) -> PackedModel:
    """The same model, encoding in another precision."""
    return PackedModel(
        model.classes,
        model.weights,
        model.projection,
        model.intercept,
        centre=model.centre,
        scale=model.scale,
        precision=precision,
    )


def measure(name: str) -> list[dict[str, Any]]:
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        X, y, X_test, y_test = (arrays[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    scaler = StandardScaler().fit(X.astype(np.float32))
    X, X_test = (scaler.transform(part.astype(np.float32)) for part in (X, X_test))
    ridge = float(RidgeClassifier(alpha=1e-2 * len(y)).fit(X, y).score(X_test, y_test))
    rows = []
    for learner, parameters in LEARNERS.items():
        for codes in ("random", "projection"):
            taken: dict[str, list[float]] = {"float32": [], "int8": []}
            for seed in SEEDS:
                classifier = BinaryCodeClassifier(
                    128, initial_codes=codes, random_state=seed, **parameters
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
        "# Accuracy at 128 bits",
        "",
        "Test accuracy in %, mean of 3 seeds, features standardised. `random` / `projection` are "
        "the starting codes. The last column is what int8 encoding adds or takes away, in points, "
        "over all runs of the row. Made by `make accuracy`.",
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
    there = [name for name in NAMES if (DATA / f"{name}.npz").exists()]
    if not there:
        raise SystemExit(f"no data in {DATA}; set BITCLASS_DATA to the folder with the .npz files")
    rows = [row for name in track(there, "learning", console=console) for row in measure(name)]
    chosen.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "rows": rows}
    (chosen.out / "accuracy.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(rows)
    (chosen.out / "accuracy.md").write_text(text)
    console.print(text, highlight=False)


if __name__ == "__main__":
    main()
