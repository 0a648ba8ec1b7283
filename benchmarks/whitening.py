"""How much to add to the variances before refinement whitens rows: `make whitening`.

Accuracy on held-out training rows at 128 bits, by what is added in units of the penalty that
cross-validation chose. Results are kept in `results/whitening.json` as they come, the table is
written to `results/whitening.md`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bitclass import remaining
from cells import Cells, count, interruptible, write_table
from measures import fit_and_measure
from real_data import DATA, NAMES, load, present

RESULTS = Path(__file__).parent / "results"
FACTORS = (0.3, 1.0, 3.0, 10.0, 30.0)
_LEAST = 1e-6  # below the library's, so that it does not hide what the factor does
#: Data sets and kernels.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "letters": ("letter16", {}),
    "letters-rbf": ("letter16", {"kernel": "rbf"}),
    "caltech": ("caltech101_cnn1280", {}),
    "clinc": ("clinc150_minilm384", {}),
    "cifar": ("cifar10_gist512", {}),
    "cifar-rbf": ("cifar10_gist512", {"kernel": "rbf"}),
    "tiny": ("tinyimagenet100_cnn1280", {}),
}


def run(cells: Cells, chosen: argparse.Namespace) -> None:
    """Compute all results that are asked for and not there yet."""
    for case in chosen.rows:
        name, parameters = CASES[case]
        present([name], chosen.data)
        for seed in range(chosen.seeds):
            rows = load(name, chosen.data).held_out(seed)
            for factor in FACTORS:
                with (
                    patch.object(remaining, "_WHITENING", factor),
                    patch.object(remaining, "_LEAST_WHITENING", _LEAST),
                ):
                    found = cells.get(
                        f"{case} | {factor:g} | {seed}",
                        lambda: fit_and_measure(rows, {"n_bits": 128} | parameters, seed),
                    )
                at = time.strftime("%H:%M:%S")
                print(f"{at}  {case} | {factor:g} | {seed}: {found['accuracy']:.4f}", flush=True)


def markdown(cells: Cells) -> str:
    """The table of all results that there are."""
    lines = [
        "# What is added before whitening",
        "",
        "Accuracy in % on a fifth of the training rows held out, 128 bits, refined; mean ± "
        "standard deviation of the seeds, by what is added to the variances of the features in "
        "units of the cross-validated penalty. Made by `make whitening`.",
        "",
        "| | penalty | " + " | ".join(f"{factor:g} times" for factor in FACTORS) + " |",
        "|---" * (len(FACTORS) + 2) + "|",
    ]
    for case, (name, parameters) in CASES.items():
        columns, penalties = [], []
        for factor in FACTORS:
            of_seeds = [cells.values.get(f"{case} | {factor:g} | {seed}") for seed in range(100)]
            found = [result for result in of_seeds if result is not None]
            penalties += [result["alpha"] for result in found]
            accuracy = [100 * result["accuracy"] for result in found]
            spread = f" ± {np.std(accuracy, ddof=1):.2f}" if len(accuracy) > 1 else ""
            columns.append(f"{np.mean(accuracy):.2f}{spread}" if accuracy else "")
        if penalties:
            title = NAMES[name] + (", rbf" if parameters else "")
            lines.append(f"| {title} | {np.median(penalties):.1g} | " + " | ".join(columns) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the .npz files")
    parser.add_argument("--rows", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=count, default=3, help="how many")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    cells = Cells(chosen.out / "whitening.json")
    with interruptible():
        run(cells, chosen)
    write_table(chosen.out / "whitening.md", markdown(cells))


if __name__ == "__main__":
    main()
