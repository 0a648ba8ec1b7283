"""Han characters of two unseen typefaces, 1,000 to 76,295 classes: `make characters`.

The characters are drawn from Debian's fonts (`fonts.py`, cached). Every method runs in a separate
process, all with the same number of threads. Times of training and of batches are CPU time of all
threads, which depends less on the load of the machine; one row at a time is wall time. Results in
`results/characters.csv` are not measured again, so that a run can be interrupted; delete the file,
or some of its lines, after changes to the library. Writes `results/characters.md` and the chart
`docs/figures/many-classes.svg`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fonts
from harness import RESULTS, in_child, peak_mb, seconds_of, sweep, timed, write_page
from peers import METHODS

CHART = Path(__file__).parents[1] / "docs" / "figures" / "many-classes.svg"
SIZES = (1000, 5000, len(fonts.UNIFIED), 76_295)
#: The test typefaces, not used in training, and the columns of their accuracies. LXGW WenKai is
#: close to print; TW-Kai is close to handwriting, and has all 76,295 characters.
UNSEEN = {"wenkai": "accuracy_wenkai", "tw-kai": "accuracy_tw_kai"}
MAX_TEST_ROWS = 5000  # per typeface
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
INCREMENTAL = (
    f"first {N_START:,} classes",
    f"{N_START:,} more by partial_fit, without the old rows",
    "all at once",
)


@dataclass(frozen=True)
class Problem:
    """Training rows, and test rows of the unseen typefaces.

    Attributes
    ----------
    X : ndarray of shape (n, 512), float32
    y : ndarray of shape (n,)
        Class indices.
    tests : dict
        X (m, 512) and y (m,) of each unseen typeface.
    """

    X: NDArray[np.float32]
    y: NDArray[np.intp]
    tests: dict[str, tuple[NDArray[np.float32], NDArray[np.intp]]]


def problem(n_classes: int) -> Problem:
    """Rows of all typefaces: the unseen ones for testing, the others for training.

    Up to 20,902 classes are sampled from the unified ideographs of Unicode 1.1, each size a subset
    of the next. 76,295 are the characters of TW-Kai, all of which TW-Sung and HanaMin also have;
    half of them have 2 or 3 training rows.
    """
    if n_classes <= len(fonts.UNIFIED):
        classes = np.sort(np.random.default_rng(0).permutation(fonts.UNIFIED)[:n_classes])
    else:
        classes = fonts.load_face("tw-kai")[0]
    seen = [name for name in fonts.drawn_faces() if name not in UNSEEN]
    # If some packages are missing, there may be classes without rows.
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


def run_cell(n_classes: int, method: str, seed: int) -> dict[str, Any]:
    """Fit and measure one method, in this process."""
    data = problem(n_classes)
    make, _ = METHODS[method]
    model = make(seed=seed) if method.startswith("bitclass") else make()
    before = peak_mb(reset=True)
    _, *times = timed(lambda: model.fit(data.X, data.y))
    seconds, cpu = getattr(model, "fit_times", times)
    peak = peak_mb() - before
    accuracies = {
        UNSEEN[name]: round(float(np.mean(model.predict(X) == y)), 5)
        for name, (X, y) in data.tests.items()
    }
    X_test, _ = data.tests["tw-kai"]
    rounds = []
    while len(rounds) < 5 and sum(rounds) < 30:
        rounds.append(timed(lambda: model.predict(X_test)).cpu)
    single = [seconds_of(lambda: model.predict(X_test[i : i + 1])) for i in range(100)]
    # For batches the fastest round counts; for single rows, the median.
    return accuracies | {
        "fit_seconds": round(seconds, 2),
        "fit_cpu": round(cpu, 2),
        "peak_mb": round(peak),
        "model_bytes": model.n_bytes(),
        "batch_us": round(1e6 * min(rounds) / len(X_test), 3),
        "row_us": round(1e6 * statistics.median(single), 1),
        "note": model.note,
    }


def run_incremental(refine: bool, what: str) -> dict[str, float]:
    """Accuracy with 10,000 classes, with as many added by `partial_fit`, or with all at once."""
    from bitclass import BinaryCodeClassifier

    data = problem(SIZES[2])
    order = np.random.default_rng(2).permutation(SIZES[2])
    is_old, is_new = (np.isin(np.arange(SIZES[2]), order[i * N_START :][:N_START]) for i in (0, 1))
    old, new = is_old[data.y], is_new[data.y]
    later = what == INCREMENTAL[1]
    model = BinaryCodeClassifier(256, refine=refine, keep_sums=later, random_state=0)
    first = old | new if what == INCREMENTAL[2] else old
    model.fit(data.X[first], data.y[first])
    if later:
        model.partial_fit(data.X[new], data.y[new], classes=np.flatnonzero(is_old | is_new))
    found = {}
    for face, (X, y) in data.tests.items():
        right = model.predict(X) == y
        for name, of_classes in (("first", is_old), ("second", is_new)):
            found[f"{face}, {name}"] = round(float(right[of_classes[y]].mean()), 5)
    return found


def cells(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for n_classes, method in itertools.product(chosen.classes, chosen.methods):
        if n_classes <= METHODS[method][1]:
            for seed in range(chosen.seeds if method.startswith("bitclass") else 1):
                cell = {"classes": n_classes, "method": method, "threads": chosen.threads}
                yield cell | {"seed": seed}


def means(rows: list[dict[str, str]]) -> dict[tuple[int, str], dict[str, Any]]:
    """Means over seeds, by number of classes and method."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((int(row["classes"]), row["method"]), []).append(row)
    result = {}
    for key, of_seeds in found.items():
        cell: dict[str, Any] = {"note": of_seeds[0]["note"]}
        for name in VALUES[:-1]:
            values = [float(row[name]) for row in of_seeds if row[name]]
            cell[name] = float(np.mean(values)) if values else np.nan
        for name in UNSEEN.values():
            cell[name] *= 100
        cell["model_mb"] = cell["model_bytes"] / 1e6
        result[key] = cell
    return result


def tables(
    rows: list[dict[str, str]], incremental: list[dict[str, str]]
) -> dict[str, list[dict[str, str]]]:
    """One table per number of classes, the ratios to LDA, and the table of added classes."""
    found = means(rows)
    digits = {"fit_cpu": 1, "peak_mb": 0}
    pages: dict[str, list[dict[str, str]]] = {}
    ratios: list[dict[str, str]] = []
    for size in sorted({size for size, _ in found}):
        of_size = {m: found[size, m] for m in METHODS if (size, m) in found}
        pages[f"{size:,} classes"] = [
            {"method": method}
            | {
                title: "" if np.isnan(cell[name]) else f"{cell[name]:,.{digits.get(name, 2)}f}"
                for name, title in COLUMNS.items()
            }
            | {"": cell["note"]}
            for method, cell in of_size.items()
        ]
        ours = of_size.get("bitclass, 256 bits")
        others = [cell for method, cell in of_size.items() if method.startswith("LDA")]
        if ours and others:
            gains = [ours[name] - max(o[name] for o in others) for name in UNSEEN.values()]
            smaller = others[0]["model_bytes"] / ours["model_bytes"]
            faster = min(o["batch_us"] for o in others) / ours["batch_us"]
            line = {
                "classes": f"{size:,}",
                "WenKai, points": f"{gains[0]:+.2f}",
                "TW-Kai, points": f"{gains[1]:+.2f}",
                "times smaller": f"{smaller:.1f}",
                "times faster": f"{faster:.1f}",
            }
            ratios.append({k: "" if "nan" in value else value for k, value in line.items()})
    pages["256 bits compared with LDA"] = ratios
    pages["Classes added without the rows of the others, 256 bits, %"] = [
        {"": row["what"], "refine": row["refine"]}
        | {k: f"{100 * float(v):.2f}" for k, v in row.items() if k not in ("refine", "what")}
        for row in incremental
    ]
    return pages


def chart(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw one panel per column, against the number of classes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bitclass", "font.size": 8}
    from matplotlib import pyplot as plt

    measured = means(rows)
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.4), layout="constrained")
    for axis, (name, title) in zip(axes.flat, COLUMNS.items(), strict=False):
        is_accuracy = name in UNSEEN.values()

        def shown(value: float, is_accuracy: bool = is_accuracy) -> float:
            # Errors, for the logarithmic axis; at least half an error in 5,000 rows.
            return float(np.maximum(100 - value, 0.01)) if is_accuracy else value

        for number, method in enumerate(METHODS):
            points = [
                (size, shown(cell[name])) for (size, m), cell in measured.items() if m == method
            ]
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
    """Draw the characters, measure what is missing, and write tables and chart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", nargs="+", type=int, default=list(SIZES), choices=SIZES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds of bitclass")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--time-limit", type=float, default=900, help="seconds per method")
    parser.add_argument("--skip-incremental", action="store_true")
    chosen = parser.parse_args()
    missing = fonts.missing_packages()
    if missing:
        print("fonts are missing; their typefaces are skipped:", "apt install", *missing)
    fonts.draw_all()
    if not set(UNSEEN) <= set(fonts.drawn_faces()):
        raise SystemExit(f"the test typefaces are not installed: {', '.join(UNSEEN)}")

    def run(function: Callable[..., Any], cell: Mapping[str, Any]) -> Any:
        arguments = [value for name, value in cell.items() if name != "threads"]
        limits = {"threads": chosen.threads, "time_limit": chosen.time_limit}
        found = in_child(function, *arguments, **limits)
        late = found.get("failed", "").startswith("over")
        return {"note": found["failed"]} if late else None if "failed" in found else found

    try:
        rows = sweep(
            RESULTS / "characters.csv",
            cells(chosen),
            VALUES,
            partial(run, run_cell),
        )
        added = itertools.product(() if chosen.skip_incremental else (False, True), INCREMENTAL)
        incremental = sweep(
            RESULTS / "characters_incremental.csv",
            [{"refine": refine, "what": what} for refine, what in added],
            [f"{face}, {part}" for face in UNSEEN for part in ("first", "second")],
            partial(run, run_incremental),
        )
    except KeyboardInterrupt:
        raise SystemExit("interrupted; run again to continue") from None
    threads = " or ".join(sorted({row["threads"] for row in rows}))
    note = f"All methods use {threads} threads. Measured by `make characters`."
    pages = tables(rows, incremental)
    title = "Han characters of two unseen typefaces"
    write_page("characters", title, note, pages, with_machine=False)
    chart(rows, CHART)


if __name__ == "__main__":
    main()
