"""What each part of training brings, by data set and length of the codes: `make study`.

By default on held-out slices of training rows, which is what defaults are chosen from; `--split
test` learns from all training rows and judges by the test rows. Every result is kept in
`results/study.json` as it comes, so that a run can be interrupted and go on; tables are written to
`results/study.md` and `docs/accuracy.md`, plots to `docs/images`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bitclass.storage import atomic_write
from cells import Cells, count, interruptible
from measures import fit_and_measure
from pages import fill
from real_data import CLASSES, DATA, NAMES, Rows, load, present
from study_plots import draw

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGES = HERE.parent / "docs"
BITS = (32, 64, 128, 256, 512, 1024)
SEEDS = 3
SPLITS = {"held-out": "a fifth of the training rows, held out", "test": "test rows"}

# The paper's method is without refinement, and had the penalty 0.01 for all data.
_PLAIN = {"refine": False, "alpha": 0.01}
#: Parameters of each stage, beside the number of bits.
STAGES: dict[str, dict[str, Any]] = {
    "plain, random": _PLAIN | {"initial_codes": "random"},
    "plain, projection": _PLAIN | {"initial_codes": "projection"},
    "plain, cca_itq": _PLAIN | {"initial_codes": "cca_itq"},
    "plain, means": _PLAIN | {"initial_codes": "means"},
    "alpha auto": {"refine": False},
    "refined": {},
    "refined, from random": {"initial_codes": "random"},
    "refined, from projection": {"initial_codes": "projection"},
    "refined, from cca_itq": {"initial_codes": "cca_itq"},
    "rbf": {"kernel": "rbf", "refine": False},
    "rbf, refined": {"kernel": "rbf"},
}
#: Data sets that are far from linear, on which the kernel is tried.
BENT = ("letter16", "cifar10_gist512")
QUICK: dict[str, Any] = {
    "datasets": ["letter16", "caltech101_cnn1280", "clinc150_minilm384"],
    "bits": [32, 128],
    "seeds": 1,
}


def stages_of(name: str) -> list[str]:
    """Stages that are tried on a data set."""
    return [stage for stage in STAGES if name in BENT or not stage.startswith("rbf")]


def cell(split: str, name: str, n_bits: int, stage: str, seed: int) -> str:
    """Name of one result."""
    return f"{split} | {name} | {n_bits} | {stage} | {seed}"


def run(cells: Cells, chosen: argparse.Namespace) -> None:
    """Compute all results that are asked for and not there yet."""
    for name in present(chosen.datasets, chosen.data):
        rows = load(name, chosen.data)
        for seed in range(chosen.seeds):
            of_seed: Rows | None = None
            for n_bits in chosen.bits:
                for stage in stages_of(name):
                    key = cell(chosen.split, name, n_bits, stage, seed)
                    if key in cells.values:
                        continue
                    if of_seed is None:
                        of_seed = rows.held_out(seed) if chosen.split == "held-out" else rows
                    parameters = STAGES[stage] | {"n_bits": n_bits}
                    found = cells.get(key, lambda: fit_and_measure(of_seed, parameters, seed))
                    accuracy, taken = found["accuracy"], found["seconds"]
                    at = time.strftime("%H:%M:%S")
                    print(f"{at}  {key}: {100 * accuracy:.2f} %, {taken:.1f} s", flush=True)


def values(cells: Cells, split: str, name: str, n_bits: int, stage: str, field: str) -> list[float]:
    """A field of the results of all seeds."""
    found = []
    for seed in range(100):
        result = cells.values.get(cell(split, name, n_bits, stage, seed))
        if result is None:
            break
        found.append(float(result[field]))
    return found


def lengths(cells: Cells, split: str, name: str) -> list[int]:
    """Lengths of codes that there are results of, ascending."""
    parts = (key.split(" | ") for key in cells.values)
    return sorted({int(part[2]) for part in parts if part[:2] == [split, name]})


def _percent(found: list[float]) -> str:
    if not found:
        return ""
    spread = f" ± {100 * np.std(found, ddof=1):.1f}" if len(found) > 1 else ""
    return f"{100 * np.mean(found):.1f}{spread}"


def _table(head: list[str], body: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in body:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _accuracy_table(cells: Cells, split: str, name: str) -> Iterator[str]:
    bits = lengths(cells, split, name)
    body = []
    for stage in stages_of(name):
        of_stage = [_percent(values(cells, split, name, r, stage, "accuracy")) for r in bits]
        if any(of_stage):
            body.append([stage, *of_stage])
    counts = {
        len(found) for r in bits if (found := values(cells, split, name, r, "refined", "accuracy"))
    }
    seeds = " to ".join(str(n) for n in sorted({min(counts), max(counts)})) if counts else "0"
    title = f"{NAMES[name]}, {CLASSES[name]} classes, seeds: {seeds}"
    yield from _table([title, *(f"{r} bits" for r in bits)], body)


def _gain(cells: Cells, split: str, name: str, n_bits: int, stage: str, before: str) -> str:
    """Points that a stage brings, by the seeds that both have."""
    after = values(cells, split, name, n_bits, stage, "accuracy")
    start = values(cells, split, name, n_bits, before, "accuracy")
    pairs = list(zip(after, start, strict=False))
    return f"{100 * np.mean([a - b for a, b in pairs]):+.1f}" if pairs else ""


_GAINS = (
    ("codes of class means for projections", "plain, means", "plain, projection"),
    ("alpha auto", "alpha auto", "plain, means"),
    ("refinement", "refined", "alpha auto"),
    ("kernel", "rbf", "alpha auto"),
    ("refinement with the kernel", "rbf, refined", "rbf"),
)


def _gain_table(cells: Cells, split: str, names: list[str]) -> Iterator[str]:
    bits = sorted({r for name in names for r in lengths(cells, split, name)})
    body = []
    for what, stage, before in _GAINS:
        for name in names:
            gains = [_gain(cells, split, name, r, stage, before) for r in bits]
            if any(gains):
                body.append([what, NAMES[name], *gains])
    yield from _table(["part", "data", *(f"{r} bits" for r in bits)], body)


def _rest_table(cells: Cells, split: str, names: list[str]) -> Iterator[str]:
    """The other measures of the refined models."""
    head = ["data", "bits", "top-5", "top-5, rescored", "nearest", "nearest, rescored"]
    head += ["calibration error", "int8 - float32", "alpha"]
    body = []
    for name in names:
        for stage in ("refined", "rbf, refined"):
            for r in lengths(cells, split, name):

                def mean(field: str) -> float:
                    return float(np.mean(values(cells, split, name, r, stage, field)))

                if not values(cells, split, name, r, stage, "accuracy"):
                    continue
                shares = ("top5", "top5_rescored", "accuracy", "top1_rescored")
                difference = mean("accuracy") - mean("accuracy_float32")
                body.append(
                    [NAMES[name] + (", rbf" if stage.startswith("rbf") else ""), str(r)]
                    + [f"{100 * mean(field):.1f}" for field in shares]
                    + [f"{mean('calibration_error'):.3f}", f"{100 * difference:+.2f}"]
                    + [f"{mean('alpha'):.2g}"]
                )
    yield from _table(head, body)


def blocks(cells: Cells, split: str) -> dict[str, str]:
    """Tables of a split by name: accuracy, gains, and the other measures."""
    names = [name for name in NAMES if lengths(cells, split, name)]
    tables = {
        "accuracy": [line for name in names for line in _accuracy_table(cells, split, name)],
        "gains": _gain_table(cells, split, names),
        "rest": _rest_table(cells, split, names),
    }
    return {name: "\n".join(lines) for name, lines in tables.items()}


def markdown(cells: Cells) -> str:
    """Tables of all results that there are."""
    parts = ["# What each part brings\n\nMade by `make study`.\n"]
    for split, rows in SPLITS.items():
        if not any(lengths(cells, split, name) for name in NAMES):
            continue
        tables = blocks(cells, split)
        parts += [
            f"## Judged by {rows}\n",
            "Accuracy in %, mean ± standard deviation of the seeds.\n",
            tables["accuracy"],
            "Points that each part brings over the stage before it:\n",
            tables["gains"],
            "The refined models, in % and in points. *nearest* is plain accuracy; *rescored* takes "
            "the best of the nearest classes by real-valued scores. With a kernel, rows are "
            "encoded in float32.\n",
            tables["rest"],
        ]
    return "\n".join(parts)


def write(cells: Cells, chosen: argparse.Namespace) -> None:
    """Write tables, and draw the plots of each split that there is."""
    with atomic_write(chosen.out / "study.md") as file:
        file.write(markdown(cells).encode())
    for split in SPLITS:
        names = [name for name in NAMES if lengths(cells, split, name)]
        if names:
            draw({NAMES[name]: _curves(cells, split, name) for name in names}, split, chosen.images)
    if chosen.page is not None:
        for name, text in blocks(cells, "held-out").items():
            fill(chosen.page, name, text)


def _curves(cells: Cells, split: str, name: str) -> dict[str, dict[int, float]]:
    """Mean accuracy by stage and bits."""
    curves: dict[str, dict[int, float]] = {}
    for stage in stages_of(name):
        for r in lengths(cells, split, name):
            found = values(cells, split, name, r, stage, "accuracy")
            if found:
                curves.setdefault(stage, {})[r] = float(np.mean(found))
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the .npz files")
    parser.add_argument("--datasets", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--bits", nargs="+", type=count, default=list(BITS))
    parser.add_argument("--seeds", type=count, default=SEEDS, help="how many")
    parser.add_argument("--split", choices=list(SPLITS), default="held-out")
    parser.add_argument("--quick", action="store_true", help="small data, two lengths, one seed")
    parser.add_argument("--tables", action="store_true", help="only write what there is anew")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    if chosen.quick:
        vars(chosen).update(QUICK)
    # Results that go elsewhere leave the pages as they are.
    elsewhere = chosen.out != RESULTS
    chosen.images = chosen.out if elsewhere else PAGES / "images"
    chosen.page = None if elsewhere else PAGES / "accuracy.md"
    cells = Cells(chosen.out / "study.json")
    with interruptible():
        if not chosen.tables:
            run(cells, chosen)
    write(cells, chosen)


if __name__ == "__main__":
    main()
