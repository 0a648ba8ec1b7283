"""Time and peak memory over the number of classes: `make cost`.

Fits, predicts, evaluates, loads and inspects with 1,000 to 1,000,000 classes of two rows each. Each
measurement runs in a process of its own, whose peak memory it is.
Seconds are those of the clock, CPU seconds those of all threads together.
Results are kept in `build/cost/cost.json`; what is there is not measured again (`--again` does).
Writes `results/cost.md` and `docs/cost.png`; `--plot` does nothing else.

The classes are derived: their means are drawn in 64 directions of falling variance, rows scatter
about them in all directions.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass import BinaryCodeClassifier, load
from bitclass.cli import main as bitclass_main
from harness import BUILD, in_child, peak_mb, write_page

PLOT = Path(__file__).parents[1] / "docs" / "cost.png"
CLASSES = (1_000, 10_000, 100_000, 1_000_000)
WHAT = ("fit", "fit refined", "load", "predict", "predict one row", "evaluate", "inspect")
N_DIRECTIONS = 64
N_ROWS_PER_CLASS = 2
N_TEST = 2_000
BLOCK = 1 << 16


def class_rows(
    labels: NDArray[np.integer], d: int, seed: int = 0, noise: float = 1.5
) -> NDArray[np.float32]:
    """Rows (n, d) of derived classes; the mean of a class follows from its number alone."""
    axes = np.random.default_rng(0).standard_normal((N_DIRECTIONS, d)).astype(np.float32)
    axes *= (np.arange(1, N_DIRECTIONS + 1, dtype=np.float32) ** -0.5)[:, None]
    X = np.empty((len(labels), d), dtype=np.float32)
    random = np.random.default_rng(seed)
    for start in range(0, len(labels), BLOCK):
        part = slice(start, start + BLOCK)
        latent = normal_of(labels[part], N_DIRECTIONS)
        X[part] = latent @ axes
        X[part] += np.float32(noise) * random.standard_normal((len(latent), d), dtype=np.float32)
    return X


def normal_of(labels: NDArray[np.integer], n: int) -> NDArray[np.float32]:
    """Numbers (m, n) that are nearly normal, each row a function of its label: mixed bits."""
    mixed = labels.astype(np.uint64)[:, None] * np.uint64(n) + np.arange(n, dtype=np.uint64)
    mixed = (mixed + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    quarters = mixed.view(np.uint16).reshape(*mixed.shape, 4).astype(np.float32)
    # The sum of four uniform numbers, of variance 1.
    return np.asarray((quarters.sum(axis=2) / 65535.0 - 2.0) * np.float32(3.0**0.5))


@contextlib.contextmanager
def clock(found: dict[str, Any], n: int = 1) -> Iterator[None]:
    """Put the time that the block takes into `found`, over n."""
    began = time.perf_counter(), time.process_time()
    yield
    found["seconds"] = (time.perf_counter() - began[0]) / n
    found["cpu_seconds"] = (time.process_time() - began[1]) / n


def measured(what: str, n_classes: int, d: int, n_bits: int, folder: Path) -> dict[str, Any]:
    """One measurement, in this process."""
    model = folder / f"{n_classes}-{d}-{n_bits}.safetensors"
    found: dict[str, Any] = {}
    if what.startswith("fit"):
        labels = np.random.default_rng(1).permutation(
            np.repeat(np.arange(n_classes), N_ROWS_PER_CLASS)
        )
        X = class_rows(labels, d, seed=2)
        classifier = BinaryCodeClassifier(
            n_bits, refine="auto" if what == "fit refined" else False, random_state=0
        )
        found["input_mb"] = (X.nbytes + labels.nbytes) / 1e6
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with clock(found):
                classifier.fit(X, labels)
        found["warnings"] = sorted({str(warning.message) for warning in caught})
        if what == "fit":
            classifier.save(model)
            own = np.random.default_rng(3).integers(n_classes, size=N_TEST)
            np.savez(folder / f"{n_classes}-{d}.npz", X=class_rows(own, d, seed=4), y=own)
        return found
    test = np.load(folder / f"{n_classes}-{d}.npz")
    if what in ("evaluate", "inspect"):
        sys.argv = ["bitclass", what, str(model), "--json"]
        if what == "evaluate":
            sys.argv.append(str(folder / f"{n_classes}-{d}.npz"))
        with clock(found), contextlib.redirect_stdout(io.StringIO()):
            try:
                bitclass_main()
            except SystemExit as end:
                if end.code:
                    raise
        return found
    with clock(found):
        packed = load(model)
    if what == "load":
        found["file_mb"] = model.stat().st_size / 1e6
        return found
    X, y = test["X"], test["y"]
    if what == "predict one row":
        X, y = X[:64], y[:64]
        packed.predict(X[:1])
        with clock(found, len(X)):
            right = [packed.predict(X[i : i + 1])[0] == y[i] for i in range(len(X))]
    else:
        packed.predict(X[:100])
        with clock(found, len(X)):
            right = packed.predict(X) == y
    return found | {"accuracy": float(np.mean(right))}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A measurement as it is printed."""
    unit, factor = ("µs", 1e6) if row["what"].startswith("predict") else ("s", 1.0)
    shown = {
        "classes": row["classes"],
        unit: factor * row["cpu_seconds"],
        "MB": row["peak_mb"] - row.get("input_mb", 0.0),
    }
    if "warnings" in row:
        shown["warnings"] = len(row["warnings"])
    return shown


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Time and memory over the number of classes, one line per operation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for what in WHAT:
        points = sorted(
            (row["classes"], row["cpu_seconds"], row["peak_mb"] - row.get("input_mb", 0.0))
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
    parser.add_argument("--folder", type=Path, default=BUILD / "cost")
    parser.add_argument("--again", action="store_true", help="measure what is there already")
    parser.add_argument("--plot", action="store_true", help="draw the results and end")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, n_classes, d, n_bits = options.one
        folder = Path(os.environ["BITCLASS_COST"])
        found = measured(what, int(n_classes), int(d), int(n_bits), folder)
        print(json.dumps(found | {"peak_mb": peak_mb()}))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "cost.json"
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    if not options.plot:
        os.environ["BITCLASS_COST"] = str(options.folder)
        for n_classes in options.classes:
            for what in options.what:
                name = f"{what}, {n_classes:,} classes x {options.features}, {options.bits} bits"
                if name in rows and not options.again:
                    continue
                sizes = [str(n) for n in (n_classes, options.features, options.bits)]
                found: Any = in_child("--one", what, *sizes)
                if "failed" in found:
                    raise SystemExit(f"{name}: {found['failed']}")
                about = {"what": what, "classes": n_classes, "features": options.features}
                rows[name] = about | found
                print(name, found)
                kept.write_text(json.dumps(rows, indent=1) + "\n")
    of_size = [row for row in rows.values() if row["features"] == options.features]
    plot(of_size, PLOT)
    write_page(
        "cost",
        "Cost over the number of classes",
        f"{options.features} features, {options.bits} bits, {N_ROWS_PER_CLASS} rows per class: "
        "`make cost`. Times are CPU time, per row for predictions; memory is the peak of the "
        "process without the rows.",
        {what: [shown(row) for row in of_size if row["what"] == what] for what in WHAT},
    )


if __name__ == "__main__":
    main()
