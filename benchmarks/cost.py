"""Time and peak memory against the number of classes: `make cost`.

Fits, predicts, evaluates, loads and inspects with 1,000 to 1,000,000 classes of two rows each. Each
measurement runs in a separate process, whose peak memory is reported. Seconds are wall time, CPU
seconds those of all threads. Results and models are kept in `build/cost`, so that a run can be
interrupted; delete the folder after changes to the library. Writes `results/cost.md` and
`docs/figures/cost.png`.

The classes are synthetic: class means vary in 64 directions with decreasing variance, and rows
scatter around them in all directions.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass import BinaryCodeClassifier, load
from bitclass.cli import main as bitclass_main
from harness import BUILD, checked, in_child, parse_options, peak_mb, sweep, timed, write_page

FOLDER = BUILD / "cost"
PLOT = Path(__file__).parents[1] / "docs" / "figures" / "cost.png"
CLASSES = (1_000, 10_000, 100_000, 1_000_000)
WHAT = ("fit", "fit refined", "load", "predict", "predict one row", "evaluate", "inspect")
VALUES = ("seconds", "cpu_seconds", "peak_mb", "input_mb")
N_DIRECTIONS = 64
N_ROWS_PER_CLASS = 2
N_TEST = 2_000
BLOCK = 1 << 16


def class_rows(
    labels: NDArray[np.integer], d: int, seed: int = 0, noise: float = 1.5
) -> NDArray[np.float32]:
    """Rows (n, d) of synthetic classes; the mean of a class is a function of its number."""
    axes = np.random.default_rng(0).standard_normal((N_DIRECTIONS, d)).astype(np.float32)
    axes *= (np.arange(1, N_DIRECTIONS + 1, dtype=np.float32) ** -0.5)[:, None]
    X = np.empty((len(labels), d), dtype=np.float32)
    random = np.random.default_rng(seed)
    for start in range(0, len(labels), BLOCK):
        part = slice(start, start + BLOCK)
        latent = hashed_normal(labels[part], N_DIRECTIONS)
        X[part] = latent @ axes
        X[part] += np.float32(noise) * random.standard_normal((len(latent), d), dtype=np.float32)
    return X


def hashed_normal(labels: NDArray[np.integer], n: int) -> NDArray[np.float32]:
    """Nearly normal numbers (m, n), each row a hash of its label."""
    mixed = labels.astype(np.uint64)[:, None] * np.uint64(n) + np.arange(n, dtype=np.uint64)
    mixed = (mixed + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    quarters = mixed.view(np.uint16).reshape(*mixed.shape, 4).astype(np.float32)
    # The sum of four uniform numbers, scaled to variance 1.
    return np.asarray((quarters.sum(axis=2) / 65535.0 - 2.0) * np.float32(3.0**0.5))


def measured(what: str, n_classes: int, d: int, n_bits: int) -> dict[str, Any]:
    """Make one measurement, in this process; "fit" writes a model and test rows for the others."""
    path = FOLDER / f"{n_classes}-{d}-{n_bits}.safetensors"
    rows = FOLDER / f"{n_classes}-{d}.npz"
    found: dict[str, Any] = {}
    n = 1
    work: Callable[[], Any]
    if what.startswith("fit"):
        labels = np.random.default_rng(1).permutation(
            np.repeat(np.arange(n_classes), N_ROWS_PER_CLASS)
        )
        X = class_rows(labels, d, seed=2)
        found["input_mb"] = (X.nbytes + labels.nbytes) / 1e6
        refine = "auto" if what == "fit refined" else False
        classifier = BinaryCodeClassifier(n_bits, refine=refine, random_state=0)
        work = partial(classifier.fit, X, labels)
    elif what in ("evaluate", "inspect"):
        files = [str(path), str(rows)] if what == "evaluate" else [str(path)]
        work = partial(run_command, what, *files, "--json")
    elif what == "load":
        work = partial(load, path)
    else:
        X, model = np.load(rows)["X"], load(path)
        batches = [X[i : i + 1] for i in range(64)] if what == "predict one row" else [X]
        n = sum(map(len, batches))
        work = lambda: [model.predict(batch) for batch in batches]  # noqa: E731
        model.predict(X[:100])
    _, seconds, cpu = timed(work)
    found |= {"seconds": seconds / n, "cpu_seconds": cpu / n, "peak_mb": peak_mb()}
    if what == "fit":
        classifier.save(path)
        y = np.random.default_rng(3).integers(n_classes, size=N_TEST)
        np.savez(rows, X=class_rows(y, d, seed=4), y=y)
    return found


def run_command(*arguments: str) -> None:
    """Run `bitclass` in this process and discard its output."""
    sys.argv = ["bitclass", *arguments]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            bitclass_main()
        except SystemExit as end:
            if end.code:
                raise


def shown(row: Mapping[str, str]) -> dict[str, Any]:
    """Format a measurement for the table."""
    unit, factor = ("µs", 1e6) if row["what"].startswith("predict") else ("s", 1.0)
    seconds, memory = factor * float(row["cpu_seconds"]), memory_mb(row)
    return {"classes": int(row["classes"]), unit: seconds, "MB": memory}


def memory_mb(row: Mapping[str, str]) -> float:
    """Peak memory without the rows."""
    return float(row["peak_mb"]) - float(row["input_mb"] or 0)


def plot(results: list[dict[str, str]], path: Path) -> None:
    """Plot time and memory against the number of classes, one line per operation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for what in WHAT:
        points = sorted(
            (int(row["classes"]), float(row["cpu_seconds"]), memory_mb(row))
            for row in results
            if row["what"] == what
        )
        if points:
            classes, seconds, memory = zip(*points, strict=True)
            panels[0].loglog(classes, seconds, marker="o", markersize=3, label=what)
            panels[1].loglog(classes, memory, marker="o", markersize=3, label=what)
    panels[0].set_ylabel("CPU seconds (predict: per row)")
    panels[1].set_ylabel("peak memory, MB, without the rows")
    for panel in panels:
        panel.set_xlabel("classes")
        panel.grid(alpha=0.3)
    panels[1].legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--bits", type=int, default=128)
    options, complete = parse_options(parser)
    sizes = {"features": options.features, "bits": options.bits}
    cells = [
        {"what": what, "classes": n_classes} | sizes
        for n_classes, what in itertools.product(options.classes, options.what)
    ]

    def run(cell: Mapping[str, Any]) -> Any:
        return checked(in_child(measured, *cell.values()))

    rows = [
        row
        for row in sweep(FOLDER / "cost.csv", cells, VALUES, run)
        if all(row[name] == str(size) for name, size in sizes.items())
    ]
    if complete:
        plot(rows, PLOT)
    write_page(
        "cost",
        "Cost over the number of classes",
        f"{options.features} features, {options.bits} bits, {N_ROWS_PER_CLASS} rows per class: "
        "`make cost`. Times are CPU time, per row for predictions; memory is the peak of the "
        "process without the rows.",
        {what: [shown(row) for row in rows if row["what"] == what] for what in WHAT},
        keep=complete,
    )


if __name__ == "__main__":
    main()
