"""Han characters of two unseen typefaces, 1,000 to 76,295 classes: `make characters`.

The characters are drawn from Debian's fonts (`fonts.py`, cached). Every method runs in a process of
its own, with one number of threads. Times of training and of batches are CPU time of all threads,
which depends less on what else runs; one row at a time is wall time. What is in
`results/characters.csv` is not run again, so that a run can be interrupted; delete the file, or
lines of it, after a change of the library. Tables are in `results/characters.md`, the chart is
`docs/many-classes.svg`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fonts
from peers import METHODS

HERE = Path(__file__).parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"
SIZES = (1000, 5000, len(fonts.UNIFIED), 76_295)
#: The typefaces that are read, of which training sees nothing, and the columns of their accuracy.
#: LXGW WenKai is close to print; TW-Kai is close to handwriting, and has all 76,295 characters.
UNSEEN = {"wenkai": "accuracy_wenkai", "tw-kai": "accuracy_tw_kai"}
MAX_TEST_ROWS = 5000  # of each
KEYS = ("classes", "method", "threads", "seed")
VALUES = (
    *UNSEEN.values(),
    "fit_seconds",
    "fit_cpu",
    "peak_mb",
    "model_bytes",
    "batch_us",
    "row_us",
    "note",
)
#: Columns of the chart and of the tables.
COLUMNS = {
    "accuracy_wenkai": "WenKai, %",
    "accuracy_tw_kai": "TW-Kai, %",
    "fit_cpu": "training, CPU s",
    "peak_mb": "memory of training, MB",
    "model_mb": "model, MB",
    "batch_us": "CPU µs per row, batches",
    "row_us": "µs per row, one at a time",
}
N_START = 10_000  # classes before others are added


@dataclass(frozen=True)
class Problem:
    """Rows to learn from, and rows of the unseen typefaces.

    Attributes
    ----------
    X : (n, 512) float32
    y : (n,) indices of the classes
    tests : X (m, 512) and y (m,) of each unseen typeface
    """

    X: NDArray[np.float32]
    y: NDArray[np.intp]
    tests: dict[str, tuple[NDArray[np.float32], NDArray[np.intp]]]


def problem(n_classes: int) -> Problem:
    """All typefaces but the unseen ones to learn from.

    Up to 20,902 classes are drawn at random from the unified ideographs of Unicode 1.1, each size
    a part of the next. 76,295 are the characters of TW-Kai, of which TW-Sung and HanaMin have
    all; half of them have 2 or 3 rows to learn from.
    """
    if n_classes <= len(fonts.UNIFIED):
        classes = np.sort(np.random.default_rng(0).permutation(fonts.UNIFIED)[:n_classes])
    else:
        classes = fonts.load_face("tw-kai")[0]
    seen = [name for name in fonts.drawn_faces() if name not in UNSEEN]
    # Without some of the packages there may be classes without rows.
    known = np.concatenate([fonts.load_face(name)[0] for name in seen])
    classes = classes[np.isin(classes, known)]
    chosen = {}
    for name in fonts.drawn_faces():
        characters, _ = fonts.load_face(name)
        rows = np.flatnonzero(np.isin(characters, classes))
        if name in UNSEEN and len(rows) > MAX_TEST_ROWS:
            rows = np.sort(np.random.default_rng(1).choice(rows, MAX_TEST_ROWS, replace=False))
        chosen[name] = rows

    def labelled(name: str) -> tuple[NDArray[np.float16], NDArray[np.intp]]:
        characters, features = fonts.load_face(name)
        rows = chosen[name]
        return features[rows], np.searchsorted(classes, characters[rows])

    n_rows = sum(len(chosen[name]) for name in seen)
    X, y, at = np.empty((n_rows, 512), dtype=np.float32), np.empty(n_rows, dtype=np.intp), 0
    for name in seen:
        part = slice(at, at + len(chosen[name]))
        X[part], y[part] = labelled(name)
        at = part.stop
    tests = {}
    for name in UNSEEN:
        X_test, y_test = labelled(name)
        tests[name] = X_test.astype(np.float32), y_test
    return Problem(X, y, tests)


def peak_bytes(reset: bool = False) -> int:
    """The most memory that this process has had, since it was last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def run_cell(n_classes: int, method: str, seed: int) -> dict[str, Any]:
    """Fit and measure one method, in this process."""
    data = problem(n_classes)
    make, _ = METHODS[method]
    model = make(seed=seed) if method.startswith("bitclass") else make()
    before = peak_bytes(reset=True)
    start, cpu_start = time.perf_counter(), time.process_time()
    model.fit(data.X, data.y)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    seconds, cpu = getattr(model, "fit_times", (seconds, cpu))
    peak = peak_bytes() - before
    accuracies = {
        UNSEEN[name]: round(float(np.mean(model.predict(X) == y)), 5)
        for name, (X, y) in data.tests.items()
    }
    X_test, _ = data.tests["tw-kai"]
    rounds = []
    for _ in range(5):
        start = time.process_time()
        model.predict(X_test)
        rounds.append((time.process_time() - start) / len(X_test))
        if sum(rounds) * len(X_test) > 30:
            break
    single = []
    for i in range(100):
        start = time.perf_counter()
        model.predict(X_test[i : i + 1])
        single.append(time.perf_counter() - start)
    # A batch is as fast as the fastest of its rounds; a single row, as the median of many.
    return accuracies | {
        "fit_seconds": round(seconds, 2),
        "fit_cpu": round(cpu, 2),
        "peak_mb": round(peak / 1e6),
        "model_bytes": model.n_bytes(),
        "batch_us": round(1e6 * min(rounds), 3),
        "row_us": round(1e6 * statistics.median(single), 1),
        "note": model.note,
    }


def run_incremental(refine: bool) -> list[dict[str, Any]]:
    """Accuracy with 10,000 classes, with as many added by `partial_fit`, and with all at once."""
    from bitclass import BinaryCodeClassifier

    data = problem(SIZES[2])
    order = np.random.default_rng(2).permutation(SIZES[2])
    is_old, is_new = (np.isin(np.arange(SIZES[2]), order[i * N_START :][:N_START]) for i in (0, 1))
    old, new = is_old[data.y], is_new[data.y]
    both = old | new

    def accuracies(what: str, model: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"refine": refine, "what": what}
        for face, (X, y) in data.tests.items():
            right = model.predict(X) == y
            for name, of_classes in (("first", is_old), ("second", is_new)):
                found[f"{face}, {name}"] = round(float(right[of_classes[y]].mean()), 5)
        return found

    def classifier() -> BinaryCodeClassifier:
        return BinaryCodeClassifier(256, refine=refine, random_state=0)

    growing = classifier().fit(data.X[old], data.y[old])
    rows = [accuracies(f"first {N_START:,} classes", growing)]
    growing.partial_fit(data.X[new], data.y[new], classes=np.flatnonzero(is_old | is_new))
    rows.append(accuracies(f"{N_START:,} more by partial_fit, without the old rows", growing))
    rows.append(accuracies("all at once", classifier().fit(data.X[both], data.y[both])))
    return rows


def in_child(arguments: list[str], threads: int, time_limit: float) -> Any:
    """What a child of this script prints as JSON, or why there is nothing."""
    names = ("OMP", "OPENBLAS", "MKL", "RAYON", "BITCLASS")
    environment = os.environ | {f"{name}_NUM_THREADS": str(threads) for name in names}
    command = [sys.executable, "-W", "ignore", __file__, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=time_limit, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"note": f"over {time_limit:.0f} s"}
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"note": f"failed: {reason[:120]}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def sweep(chosen: argparse.Namespace, path: Path) -> list[dict[str, Any]]:
    """Run what is asked for and not in the file yet; all lines of the file."""
    done = list(csv.DictReader(path.open())) if path.exists() else []
    known = {tuple(row[key] for key in KEYS) for row in done}
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*KEYS, *VALUES], restval="")
        if not done:
            writer.writeheader()
        for n_classes in chosen.classes:
            for method in chosen.methods:
                for seed in range(chosen.seeds if method.startswith("bitclass") else 1):
                    cell = (str(n_classes), method, str(chosen.threads), str(seed))
                    if cell in known or n_classes > METHODS[method][1]:
                        continue
                    arguments = ["--cell", str(n_classes), method, str(seed)]
                    found = in_child(arguments, chosen.threads, chosen.time_limit)
                    row = dict(zip(KEYS, cell, strict=True)) | found
                    if not found["note"].startswith("failed"):  # or it is tried again
                        writer.writerow(row)
                        file.flush()
                    done.append({key: str(row.get(key, "")) for key in (*KEYS, *VALUES)})
                    print(*cell, found, flush=True)
    return done


def means(rows: list[dict[str, Any]]) -> dict[tuple[int, str], dict[str, Any]]:
    """Means over seeds of what was measured, by number of classes and method."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((int(row["classes"]), row["method"]), []).append(row)
    cells = {}
    for key, of_seeds in found.items():
        cell: dict[str, Any] = {"note": of_seeds[0]["note"]}
        for name in VALUES[:-1]:
            values = [float(row[name]) for row in of_seeds if row[name]]
            cell[name] = float(np.mean(values)) if values else np.nan
        for name in UNSEEN.values():
            cell[name] *= 100
        cell["model_mb"] = cell["model_bytes"] / 1e6
        cells[key] = cell
    return cells


def markdown(rows: list[dict[str, Any]], incremental: list[dict[str, Any]]) -> str:
    """One table per number of classes, the ratios to LDA, and the table of added classes."""
    cells = means(rows)
    threads = sorted({row["threads"] for row in rows})
    lines = ["# Han characters of two unseen typefaces", ""]
    lines.append(f"Every method with {' or '.join(threads)} threads. Made by `make characters`.")
    sizes = sorted({size for size, _ in cells})
    for size in sizes:
        lines += ["", f"## {size:,} classes", ""]
        lines.append(f"| method | {' | '.join(COLUMNS.values())} | |")
        lines.append("|---" * (len(COLUMNS) + 2) + "|")
        for method in METHODS:
            if (size, method) in cells:
                cell = cells[size, method]
                digits = {"fit_cpu": 1, "peak_mb": 0}
                shown = [
                    "" if np.isnan(cell[name]) else f"{cell[name]:,.{digits.get(name, 2)}f}"
                    for name in COLUMNS
                ]
                lines.append(f"| {method} | {' | '.join(shown)} | {cell['note']} |")
    lines += ["", "## 256 bits beside LDA", ""]
    lines.append("| classes | WenKai, points | TW-Kai, points | times smaller | times faster |")
    lines.append("|---" * 5 + "|")
    for size in sizes:
        ours = cells.get((size, "bitclass, 256 bits"))
        others = [cells[size, m] for m in METHODS if m.startswith("LDA") and (size, m) in cells]
        if ours and others:
            gains = [ours[name] - max(o[name] for o in others) for name in UNSEEN.values()]
            lines.append(
                f"| {size:,} | {' | '.join(f'{gain:+.2f}' for gain in gains)} "
                f"| {others[0]['model_bytes'] / ours['model_bytes']:.1f} "
                f"| {min(o['batch_us'] for o in others) / ours['batch_us']:.1f} |".replace(
                    "nan", ""
                )
            )
    if incremental:
        faces = [name for name in incremental[0] if name not in ("refine", "what")]
        lines += ["", "## Classes added without the rows of the others, 256 bits, %", ""]
        lines += [f"| | refine | {' | '.join(faces)} |", "|---" * (2 + len(faces)) + "|"]
        for row in incremental:
            shown = [f"{100 * float(row[name]):.2f}" for name in faces]
            lines.append(f"| {row['what']} | {row['refine']} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def chart(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel per column, over the number of classes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bitclass", "font.size": 8}
    from matplotlib import pyplot as plt

    cells = means(rows)
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.4), layout="constrained")
    for axis, (name, title) in zip(axes.flat, COLUMNS.items(), strict=False):
        is_accuracy = name in UNSEEN.values()

        def shown(value: float, is_accuracy: bool = is_accuracy) -> float:
            # Errors, which a logarithmic axis can show; of 5,000 rows, half of one at least.
            return float(np.maximum(100 - value, 0.01)) if is_accuracy else value

        for number, method in enumerate(METHODS):
            points = [(size, shown(cell[name])) for (size, m), cell in cells.items() if m == method]
            points = sorted(point for point in points if not np.isnan(point[1]))
            if points:
                ours = method.startswith("bitclass")
                axis.plot(
                    *zip(*points, strict=True),
                    marker="os^vDPX*<>pdh"[number],
                    markersize=4,
                    linewidth=1.8 if ours else 0.9,
                    linestyle="--" if "refine=False" in method else "-",
                    color=plt.get_cmap("tab20")(number % 20),
                    label=method,
                )
        axis.set_xscale("log")
        axis.set_xticks(SIZES, [f"{size:,}" for size in SIZES], minor=False)
        axis.minorticks_off()
        axis.set_title(f"errors on {title}" if is_accuracy else title)
        axis.grid(alpha=0.3)
        axis.set_yscale("log")
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    axes.flat[-1].set_axis_off()
    axes.flat[-1].legend(handles.values(), handles, loc="center", frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw, run what is missing, write tables and chart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", nargs="+", type=int, default=list(SIZES), choices=SIZES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1, help="of the methods of this library")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--time-limit", type=float, default=900, help="seconds per method")
    parser.add_argument("--skip-incremental", action="store_true")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--incremental", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.cell:
        print(json.dumps(run_cell(int(chosen.cell[0]), chosen.cell[1], int(chosen.cell[2]))))
        return
    if chosen.incremental:
        print(json.dumps(run_incremental(chosen.incremental == "True")))
        return
    missing = fonts.missing_packages()
    if missing:
        print("fonts are missing; their typefaces are left out:", "apt install", *missing)
    fonts.draw_all()
    if not set(UNSEEN) <= set(fonts.drawn_faces()):
        raise SystemExit(f"the typefaces to read are not installed: {', '.join(UNSEEN)}")
    try:
        rows = sweep(chosen, RESULTS / "characters.csv")
        incremental = incremental_rows(chosen, RESULTS / "characters_incremental.csv")
    except KeyboardInterrupt:
        raise SystemExit("interrupted; run again to continue") from None
    text = markdown(rows, incremental)
    (RESULTS / "characters.md").write_text(text)
    chart(rows, DOCS / "many-classes.svg")
    print(text)


def incremental_rows(chosen: argparse.Namespace, path: Path) -> list[dict[str, Any]]:
    """The table of added classes, from its file or measured now."""
    rows: list[dict[str, Any]] = list(csv.DictReader(path.open())) if path.exists() else []
    known = {row["refine"] for row in rows}
    for refine in ("False", "True"):
        if refine not in known and not chosen.skip_incremental:
            found = in_child(["--incremental", refine], chosen.threads, chosen.time_limit)
            if isinstance(found, dict):
                print("classes added:", found["note"])
                continue
            rows += found
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    return rows


if __name__ == "__main__":
    main()
