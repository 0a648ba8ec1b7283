"""Prediction on one GPU with torch, compared with the kernels on two cores.

Training is on the CPU. Random models give the times, datasets (npz files with X_train, y_train,
X_test and y_test) the accuracies on both devices::

    python benchmarks/gpu.py --data tinyimagenet100_cnn1280.npz letter16.npz

Results in `results/gpu.csv` are not measured again; delete the file after changes to the library.
Peak rates are those of a plain product and a plain copy in the same run. Writes `results/gpu.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harness
from bitclass import BinaryCodeClassifier, device
from harness import RESULTS, load, random_model, sweep, threads_of_all, write_page

#: Measured values: nanoseconds per row, and accuracy as a fraction.
VALUES = (
    *("card", "bfloat16_tflops", "float32_tflops", "copy_gb_per_s"),
    *("features", "classes"),
    *("projected_ns", "nearest_ns", "short_list_ns", "predict_ns", "two_cores_ns"),
    *("accuracy", "accuracy_cpu", "same"),
)
PARTS = ("projected", "nearest", "short_list", "predict", "two_cores")
N_ROWS = 20_000
Values = dict[str, Any]


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], Any], rounds: int = 1) -> float:
    """Median time of some work, until the device is idle."""

    def work_and_wait() -> None:
        work()
        synchronize()

    work_and_wait()
    return harness.seconds_of(work_and_wait, rounds)


def limits(place: str, size: int) -> Values:
    """Measure the peak rates of the card in plain operations."""
    found: Values = {"card": torch.cuda.get_device_name() if place == "cuda" else "cpu"}
    for name, kind in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        A = torch.randn(size, size, device=place).to(kind)
        found[f"{name}_tflops"] = 2 * size**3 / seconds_of(lambda: A @ A, 5) / 1e12
    A = torch.randn(4 * size, size, device=place)
    B = torch.empty_like(A)
    found["copy_gb_per_s"] = 2 * A.nbytes / seconds_of(lambda: B.copy_(A), 5) / 1e9
    return found


def prediction(d: int, n_classes: int, n_bits: int, place: str) -> Values:
    """Nanoseconds per row in batches, end to end and for each part, and with the kernels."""
    model = random_model(np.arange(n_classes), d, n_bits, rescore=16)
    X = np.random.default_rng(0).standard_normal((N_ROWS, d), dtype=np.float32)
    rows = torch.asarray(X, device=place)
    search, m = device.DeviceModel(model, rows.device), model.n_rescored
    F = search.bit_scores(rows)
    with threads_of_all(2):
        two_cores = seconds_of(lambda: model.predict(X), 3)
    work: dict[str, Callable[[], Any]] = {
        "projected": lambda: search.bit_scores(rows),
        "nearest": lambda: search.nearest(F, m),
        "short_list": lambda: search._rescored(F, search.nearest(F, m)),
        "predict": lambda: device.predict(model, rows),
    }
    seconds = {part: seconds_of(one, 20) for part, one in work.items()} | {"two_cores": two_cores}
    found = {f"{part}_ns": 1e9 * taken / N_ROWS for part, taken in seconds.items()}
    return found | {"features": d, "classes": n_classes}


def accuracy(path: Path, n_bits: int, place: str) -> Values:
    """Test accuracy of one model on the device and on the CPU."""
    X, y, X_test, y_test = load(path)
    model = BinaryCodeClassifier(n_bits, random_state=0).fit(X, y).packed()
    here = model.predict(X_test)
    there = device.predict(model, torch.asarray(X_test, device=place)).cpu().numpy()
    return {
        "accuracy": np.mean(there == y_test),
        "accuracy_cpu": np.mean(here == y_test),
        "same": np.mean(here == there),
    }


def cells(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The cells of the sweep."""
    yield {"part": "limits", "data": "", "n_bits": 0}
    for n_bits in options.bits:
        yield {"part": "prediction", "data": "", "n_bits": n_bits}
        for path in options.data:
            yield {"part": "accuracy", "data": path.stem, "n_bits": n_bits}


def tables(rows: list[dict[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """Format the results as tables."""

    def number(row: Mapping[str, str], name: str) -> float | None:
        return float(row[name]) if row[name] else None

    timed = [row for row in rows if row["part"] == "prediction"]
    size = "{:,} features, {:,} classes".format(
        *(int(timed[0][n]) for n in ("features", "classes"))
    )
    return {
        f"Prediction, {size}": [
            {"": part.replace("_", " ")}
            | {f"ns per row, {row['n_bits']} bits": number(row, f"{part}_ns") for row in timed}
            for part in PARTS
        ],
        "Test accuracy, %": [
            {"": row["data"], "bits": row["n_bits"]}
            | {
                title: f"{100 * float(row[name]):.2f}"
                for title, name in (
                    ("GPU", "accuracy"),
                    ("CPU", "accuracy_cpu"),
                    ("same prediction", "same"),
                )
            }
            for row in rows
            if row["part"] == "accuracy"
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.csv")
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--bits", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="datasets to predict")
    options = parser.parse_args()
    place = "cuda" if torch.cuda.is_available() else "cpu"
    paths = {path.stem: path for path in options.data}

    def run(cell: Mapping[str, Any]) -> Values:
        if cell["part"] == "limits":
            return limits(place, 8192 if place == "cuda" else 512)
        if cell["part"] == "accuracy":
            return accuracy(paths[cell["data"]], cell["n_bits"], place)
        return prediction(options.features, options.classes, cell["n_bits"], place)

    rows = sweep(options.out, cells(options), VALUES, run)
    peak = next(row for row in rows if row["part"] == "limits")
    note = (
        f"Measured by `benchmarks/gpu.py`. {peak['card']}: {float(peak['bfloat16_tflops']):.0f} "
        f"TFLOP/s in bfloat16, {float(peak['float32_tflops']):.0f} TFLOP/s in float32, "
        f"{float(peak['copy_gb_per_s']):,.0f} GB/s for a copy."
    )
    keep = options.out == parser.get_default("out")
    write_page("gpu", "Prediction on one GPU", note, tables(rows), with_machine=False, keep=keep)


if __name__ == "__main__":
    main()
