"""Time and accuracy on one GPU: a pass over many rows, prediction, and fits against two cores.

Requires torch with CUDA; datasets are npz files with X_train, y_train, X_test and y_test::

    python benchmarks/gpu.py --fit tinyimagenet100_cnn1280.npz letter16.npz

Results in `results/gpu.csv` are not measured again, and failures are tried again by the next run;
delete the file after changes to the library. Peak rates are those of a plain product and a plain
copy in the same run. Writes `results/gpu.md`.
"""

from __future__ import annotations

import argparse
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harness
from bitclass import BinaryCodeClassifier
from bitclass.arrays import add_gram, class_sums
from bitclass.device import DeviceModel
from harness import RESULTS, load, sweep, threads_of_all, write_page

RANK = 96  # of the class means, and of most of the variation within classes
N_PREDICTED = 20_000
PHASES = {"gram": "product", "class_sums": "atomic additions", "standardise": "memory"}
#: Measured values: seconds, nanoseconds per row, and accuracy as a fraction.
VALUES = (
    *("card", "bfloat16_tflops", "float32_tflops", "copy_gb_per_s"),
    *("rows", "features", "classes", "pass_s", "solve_s"),
    *("all_ns", "gram_ns", "class_sums_ns", "standardise_ns"),
    *("projected_ns", "nearest_ns", "short_list_ns", "predict_ns"),
    *("seconds", "closed_form", "accuracy"),
)
Values = dict[str, Any]


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], Any], rounds: int = 1) -> float:
    """Median time of some work, until the device is idle."""

    def work_and_wait() -> None:
        work()
        synchronize()

    synchronize()
    return harness.seconds_of(work_and_wait, rounds)


class Rows:
    """Rows on the device, with class means of low rank, which few bits can distinguish."""

    def __init__(self, n_features: int, n_classes: int, device: str) -> None:
        self._random = torch.Generator(device).manual_seed(0)
        self._options = {"device": device, "generator": self._random}
        self.means = torch.randn(n_classes, RANK, **self._options)
        self.basis = torch.randn(RANK, n_features, **self._options) / RANK**0.5

    def draw(self, n_rows: int, into: torch.Tensor | None = None) -> tuple[Any, Any]:
        """Generate rows (n, d) float32 and their labels (n,)."""
        n_classes, n_features = len(self.means), self.basis.shape[1]
        y = torch.randint(n_classes, (n_rows,), **self._options)
        low = self.means[y] + torch.randn(n_rows, RANK, **self._options)
        if into is None:
            into = torch.empty(n_rows, n_features, device=self.means.device)
        X = into[:n_rows].normal_(generator=self._random).mul_(0.5)
        return X.addmm_(low, self.basis), y


def limits(device: str, size: int) -> Values:
    """Measure the peak rates of the card in plain operations."""
    found: Values = {"card": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    for name, kind in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        A = torch.randn(size, size, device=device).to(kind)
        A @ A
        found[f"{name}_tflops"] = 2 * size**3 / seconds_of(lambda: A @ A, 5) / 1e12
    A = torch.randn(4 * size, size, device=device)
    B = torch.empty_like(A)
    B.copy_(A)
    found["copy_gb_per_s"] = 2 * A.nbytes / seconds_of(lambda: B.copy_(A), 5) / 1e9
    return found


def closed_form(
    n_rows: int, d: int, n_classes: int, n_bits: int, batch: int, device: str
) -> Values:
    """Time the pass over the rows by partial_fit, the solution, and prediction.

    The generation of rows is not timed.
    """
    rows = Rows(d, n_classes, device)
    space = torch.empty(batch, d, device=device)
    classifier = BinaryCodeClassifier(n_bits, refine=False, random_state=0)
    taken = []
    for start in range(0, n_rows, batch):
        X, y = rows.draw(min(batch, n_rows - start), space)
        taken.append(seconds_of(lambda: classifier.partial_fit(X, y)))
    solve = seconds_of(classifier.solve)
    found: Values = {"rows": n_rows, "features": d, "classes": n_classes}
    found |= {"pass_s": sum(taken), "solve_s": solve}
    X, y = rows.draw(batch, space)
    Z = X[: max(1, (1 << 30) // (4 * d))]
    labels = y[: len(Z)]
    gram = torch.zeros(d, d, device=device, dtype=torch.float64)
    sums = torch.zeros(n_classes, d, device=device)
    shift = torch.zeros(d, device=device)
    per_row = 1e9 / len(Z)
    found |= {
        "all_ns": 1e9 * float(np.median(taken)) / min(batch, n_rows),
        "gram_ns": per_row * seconds_of(lambda: add_gram([Z], gram), 5),
        "class_sums_ns": per_row * seconds_of(lambda: class_sums(Z, labels, None, sums), 5),
        "standardise_ns": per_row * seconds_of(lambda: (Z - shift).mul_(shift), 5),
    }
    return found | prediction(classifier, *rows.draw(N_PREDICTED))


def prediction(classifier: BinaryCodeClassifier, X: Any, y: Any) -> Values:
    """Nanoseconds per row in batches, end to end and for each part."""
    accuracy = classifier.score(X, y)
    model = classifier.packed()
    search = DeviceModel(model, X.device)
    F = search.bit_scores(X)
    scale, m = 1e9 / len(X), model.n_rescored
    work: dict[str, Callable[[], Any]] = {
        "projected": lambda: search.bit_scores(X),
        "nearest": lambda: search.nearest(F, m),
        "short_list": lambda: search._rescored(F, search.nearest(F, m)),
        "predict": lambda: classifier.predict(X),
    }
    found = {f"{part}_ns": scale * seconds_of(one, 20) for part, one in work.items()}
    return found | {"accuracy": accuracy}


def fit(path: Path, n_bits: int, device: str, seed: int) -> Values:
    """Time and accuracy of a fit with refinement, on the device or on two cores."""
    X, y, T, u = load(path)
    if device != "cpu":
        X, y, T, u = (torch.asarray(array, device=device) for array in (X, y, T, u))
    plain, refined = (
        BinaryCodeClassifier(n_bits, refine=refine, random_state=seed) for refine in (False, True)
    )
    with threads_of_all(2):
        closed = plain.fit(X, y).score(T, u)
        if device != "cpu":
            refined.fit(X, y)  # kernels are loaded on first use
        seconds = seconds_of(lambda: refined.fit(X, y))
        return {"seconds": seconds, "closed_form": closed, "accuracy": refined.score(T, u)}


def cells(options: argparse.Namespace, device: str) -> Iterator[dict[str, Any]]:
    """The cells of the sweep."""
    cell = {"data": "", "n_bits": 0, "device": device, "seed": 0}
    yield {"part": "limits"} | cell
    for n_bits in options.bits if options.rows else ():
        yield {"part": "closed form"} | cell | {"n_bits": n_bits}
    for path in options.fit:
        each = itertools.product(options.bits, dict.fromkeys([device, "cpu"]), range(options.seeds))
        for n_bits, on, seed in each:
            yield {"part": "fit", "data": path.stem, "n_bits": n_bits, "device": on, "seed": seed}


def tables(rows: list[dict[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """Format the results as tables."""

    def number(row: Mapping[str, str], name: str) -> float:
        return float(row[name]) if row[name] else np.nan

    (peak,) = (row for row in rows if row["part"] == "limits")
    passes = [row for row in rows if row["part"] == "closed form"]
    sizes = [
        {
            "bits": row["n_bits"],
            "rows x features, classes": "{:,} x {:,}, {:,}".format(
                *(int(row[name]) for name in ("rows", "features", "classes"))
            ),
            "pass, s": number(row, "pass_s"),
            "solution, s": number(row, "solve_s"),
            "prediction, ns per row": number(row, "predict_ns"),
            "accuracy, %": f"{100 * number(row, 'accuracy'):.1f}",
        }
        for row in passes
    ]
    # Lower bounds: operations on and above the diagonal at the rate of a plain product, bytes read
    # and written at the rate of a plain copy.
    d = int(passes[0]["features"])
    per_ns = {"gram": d**2 / number(peak, "bfloat16_tflops") / 1e3}
    per_ns |= {
        phase: n_bytes * d / number(peak, "copy_gb_per_s")
        for phase, n_bytes in (("class_sums", 4), ("standardise", 16))
    }
    phases: list[dict[str, Any]] = [
        {
            "phase of the pass": phase,
            "ns per row": (ns := number(passes[0], f"{phase}_ns")),
            "share of the peak": f"{100 * per_ns[phase] / ns:.0f} %",
            "limit": limit,
        }
        for phase, limit in PHASES.items()
    ]
    phases.append(
        {"phase of the pass": "all", "ns per row": number(passes[0], "all_ns"), "": "", "limit": ""}
    )
    parts = [
        {"prediction": part}
        | {f"ns per row, {row['n_bits']} bits": number(row, f"{part}_ns") for row in passes}
        for part in ("projected", "nearest", "short_list", "predict")
    ]
    fits: dict[tuple[str, str], dict[str, list[dict[str, str]]]] = {}
    for row in rows:
        if row["part"] == "fit":
            of_data = fits.setdefault((row["data"], row["n_bits"]), {})
            of_data.setdefault("CPU" if row["device"] == "cpu" else "GPU", []).append(row)
    times, accuracies = [], []
    for (data, n_bits), by_device in fits.items():
        if len(by_device) == 2:
            first = {"fit with refinement": data, "bits": n_bits}
            gpu, cpu = (number(by_device[device][0], "seconds") for device in ("GPU", "CPU"))
            if np.isfinite(gpu / cpu):
                times.append(first | {"GPU, s": gpu, "2 cores, s": cpu, "ratio": cpu / gpu})
            line = first | {"seeds": len(by_device["GPU"])}
            for name, title in (("closed_form", "closed form"), ("accuracy", "refined")):
                on_cpu, on_gpu = (
                    100 * np.mean([number(row, name) for row in by_device[device]])
                    for device in ("CPU", "GPU")
                )
                line |= {f"{title}, CPU": f"{on_cpu:.2f}", f"{title}, GPU": f"{on_gpu:.2f}"}
            accuracies.append(line | {"difference": f"{on_gpu - on_cpu:+.2f}"})
    return {
        "Closed form": sizes,
        "Phases of the pass": phases,
        "Prediction": parts,
        "Time of fits": times,
        "Test accuracy, %": accuracies,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.csv")
    parser.add_argument("--rows", type=int, default=14_200_000)
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--batch", type=int, default=1 << 19)
    parser.add_argument("--bits", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--fit", type=Path, nargs="*", default=[], help="datasets to fit")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    paths = {path.stem: path for path in options.fit}
    shape = (options.rows, options.features, options.classes)

    def run(cell: Mapping[str, Any]) -> Values | None:
        try:
            if cell["part"] == "limits":
                return limits(device, 8192 if device == "cuda" else 512)
            if cell["part"] == "fit":
                return fit(paths[cell["data"]], cell["n_bits"], cell["device"], cell["seed"])
            small = map(min, shape, (40_000, 1024, 5000))
            closed_form(*small, cell["n_bits"], 20_000, device)  # loads the kernels
            return closed_form(*shape, cell["n_bits"], options.batch, device)
        except Exception:  # a failure must not stop the others: GPU time is expensive
            traceback.print_exc()
            return None

    rows = sweep(options.out, () if options.page else cells(options, device), VALUES, run)
    peak = next(row for row in rows if row["part"] == "limits")
    note = (
        f"Measured by `benchmarks/gpu.py`. {peak['card']}: {float(peak['bfloat16_tflops']):.0f} "
        f"TFLOP/s in bfloat16, {float(peak['float32_tflops']):.0f} TFLOP/s in float32, "
        f"{float(peak['copy_gb_per_s']):,.0f} GB/s for a copy."
    )
    keep = options.out == parser.get_default("out")
    write_page("gpu", "One GPU", note, tables(rows), with_machine=False, keep=keep)


if __name__ == "__main__":
    main()
