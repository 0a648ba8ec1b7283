"""Times on one GPU: the pass over 14.2 million rows, the solution, refinement and prediction.

Run with torch where there is CUDA, for instance::

    python benchmarks/gpu.py --refine tinyimagenet100_cnn1280.npz --accuracy letter16.npz
    taskset -c 0,1 python benchmarks/gpu.py --cpu --refine tinyimagenet100_cnn1280.npz
    python benchmarks/gpu.py --table

Each part appends its results to `results/gpu.jsonl` when it ends, and one that fails does not stop
the others; `--table` writes them to `results/gpu.md`. Shares of the peak are those of a plain
product and a plain copy in the same run. Data sets are npz files of X_train, y_train, X_test and
y_test.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bitclass import BinaryCodeClassifier, set_num_threads
from bitclass.arrays import add_gram, class_sums
from bitclass.device import device_search

RESULTS = Path(__file__).parent / "results"
RANK = 96  # of the class means, and of most of what varies within classes


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], Any], rounds: int = 1) -> float:
    """Median seconds of some work, after which the device is idle."""
    taken = []
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter()
        work()
        synchronize()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


class Rows:
    """Rows on the device: classes of low rank, which few bits can tell apart."""

    def __init__(self, n_features: int, n_classes: int, device: str) -> None:
        self._random = torch.Generator(device).manual_seed(0)
        self._options = {"device": device, "generator": self._random}
        self.means = torch.randn(n_classes, RANK, **self._options)
        self.basis = torch.randn(RANK, n_features, **self._options) / RANK**0.5

    def draw(self, n_rows: int, into: torch.Tensor | None = None) -> tuple[Any, Any]:
        """Rows (n, d) float32 and their labels (n,)."""
        n_classes, n_features = len(self.means), self.basis.shape[1]
        y = torch.randint(n_classes, (n_rows,), **self._options)
        low = self.means[y] + torch.randn(n_rows, RANK, **self._options)
        if into is None:
            into = torch.empty(n_rows, n_features, device=self.means.device)
        X = into[:n_rows].normal_(generator=self._random).mul_(0.5)
        return X.addmm_(low, self.basis), y


def limits(device: str, size: int) -> dict[str, Any]:
    """What the card reaches in plain work."""
    found: dict[str, Any] = {"card": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    for name, kind in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        A = torch.randn(size, size, device=device).to(kind)
        A @ A
        found[f"{name}_tflops"] = 2 * size**3 / seconds_of(lambda A=A: A @ A, 5) / 1e12
    A = torch.randn(4 * size, size, device=device)
    B = torch.empty_like(A)
    B.copy_(A)
    found["copy_gb_per_s"] = 2 * A.nbytes / seconds_of(lambda: B.copy_(A), 5) / 1e9
    return found


def closed_form(
    rows: Rows, n_rows: int, n_bits: int, batch: int, peak: dict[str, Any]
) -> tuple[BinaryCodeClassifier, dict[str, Any]]:
    """The pass over the rows, by partial_fit, and the solution; generating rows does not count."""
    d, device = rows.basis.shape[1], rows.means.device
    space = torch.empty(batch, d, device=device)
    classifier = BinaryCodeClassifier(n_bits, refine=False, random_state=0)
    taken = []
    for start in range(0, n_rows, batch):
        X, y = rows.draw(min(batch, n_rows - start), space)
        taken.append(seconds_of(lambda X=X, y=y: classifier.partial_fit(X, y)))
    solve = seconds_of(classifier.solve)
    X, y = rows.draw(min(batch, 20_000), space)
    found: dict[str, Any] = {
        "n_bits": n_bits,
        "rows": n_rows,
        "features": d,
        "classes": len(rows.means),
        "pass_s": sum(taken),
        "first_batch_s": taken[0],
        "median_batch_s": float(np.median(taken)),
        "solve_s": solve,
        "accuracy": classifier.score(X, y),
    }
    # Where the time of a row goes, and what it could be: operations on and above the diagonal over
    # those of a plain product, bytes read and written over those of a plain copy.
    X, y = rows.draw(batch, space)
    Z = X[: max(1, (1 << 30) // (4 * d))]
    own = y[: len(Z)]
    gram = torch.zeros(d, d, device=device, dtype=torch.float64)
    sums = torch.zeros(len(rows.means), d, device=device)
    shift = torch.zeros(d, device=device)
    per_row = 1e9 / len(Z)
    found["ns_per_row"] = {
        "all": 1e9 * found["median_batch_s"] / min(batch, n_rows),
        "gram": per_row * seconds_of(lambda: add_gram([Z], gram), 5),
        "class_sums": per_row * seconds_of(lambda: class_sums(Z, own, None, sums), 5),
        "standardise": per_row * seconds_of(lambda: (Z - shift).mul_(shift), 5),
        "unique": 1e9 / batch * seconds_of(lambda: torch.unique(y, return_inverse=True), 5),
    }
    if peak:
        ns, product, copy = found["ns_per_row"], peak["bfloat16_tflops"], peak["copy_gb_per_s"]
        found["share_of_peak"] = {
            "gram": d**2 / ns["gram"] / 1e3 / product,
            "class_sums": 4 * d / ns["class_sums"] / copy,
            "standardise": 16 * d / ns["standardise"] / copy,
            "pass": d**2 * n_rows / found["pass_s"] / 1e12 / product,
        }
    classifier._fitted_at = -1  # solve once more
    found["phases_of_solve"] = profiled(classifier.solve)
    return classifier, found


def profiled(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds of the functions of the library, as the host sees them."""
    profile = cProfile.Profile()
    profile.enable()
    work()
    synchronize()
    profile.disable()
    parts = {}
    for (file, _, name), (_, _, _, cumulative, _) in pstats.Stats(profile).stats.items():
        if "bitclass" in file and cumulative > 0.01:
            parts[f"{Path(file).stem}.{name}"] = round(cumulative, 4)
    return dict(sorted(parts.items(), key=lambda item: -item[1])[:30])


def prediction(classifier: BinaryCodeClassifier, rows: Rows, n_rows: int) -> dict[str, Any]:
    """Nanoseconds per row of batches, end to end, and of the parts."""
    X, y = rows.draw(n_rows)
    accuracy = classifier.score(X, y)
    model = classifier.packed()
    search = device_search(model, X)
    F = search.projected(X)
    scale, m = 1e9 / n_rows, model.n_rescored
    found: dict[str, Any] = {
        "n_bits": model.n_bits,
        "classes": len(model.classes),
        "rows": n_rows,
        "rescore": model.rescore,
        "accuracy": accuracy,
        "predict_ns_per_row": scale * seconds_of(lambda: classifier.predict(X), 50),
        "projected_ns_per_row": scale * seconds_of(lambda: search.projected(X), 20),
        "nearest_ns_per_row": scale * seconds_of(lambda: search.nearest(F, m), 20),
        "short_list_ns_per_row": scale
        * seconds_of(lambda: search._rescored(F, search.nearest(F, m), 1.0), 20),
    }
    sample = X[:2000].cpu().numpy()
    same = classifier.predict(X[:2000]).cpu().numpy() == classifier.predict(sample)
    found["same_as_cpu"] = float(np.mean(same))
    return found


def load(path: Path) -> list[Any]:
    """Rows and labels of a data set."""
    with np.load(path) as data:
        X, T = (data[name].astype(np.float32) for name in ("X_train", "X_test"))
        return [X, data["y_train"].astype(np.int64), T, data["y_test"].astype(np.int64)]


def refinement(path: Path, n_bits: int, device: str) -> dict[str, Any]:
    """Fit with refinement on the device, or on two cores."""
    X, y, T, u = load(path)
    found: dict[str, Any] = {"file": path.stem, "n_bits": n_bits, "device": device, "rows": len(X)}
    if device != "cpu":
        X, y, T, u = (torch.asarray(array, device=device) for array in (X, y, T, u))
    for refine in (False, True):
        name = "refined" if refine else "closed_form"
        classifier = BinaryCodeClassifier(n_bits, refine=refine, random_state=0)
        for run in ("first_", "") if device != "cpu" else ("",):
            taken = seconds_of(lambda classifier=classifier: classifier.fit(X, y))
            found[f"{name}_{run}s"] = taken
        found[f"{name}_accuracy"] = classifier.score(T, u)
        found[f"{name}_refinement"] = classifier.refinement_
    if device != "cpu":
        found["phases"] = profiled(lambda: classifier.fit(X, y))
    return found


def accuracy(path: Path, n_bits: int, seeds: int, device: str) -> dict[str, Any]:
    """Test accuracy in % of the same seeds on the CPU and on the device."""
    X, y, T, u = load(path)
    there = [torch.asarray(array, device=device) for array in (X, y, T, u)]
    found: dict[str, Any] = {"file": path.stem, "n_bits": n_bits, "seeds": seeds}
    for refine in (False, True):
        pairs = []
        for seed in range(seeds):
            classifier = BinaryCodeClassifier(n_bits, refine=refine, random_state=seed)
            on_cpu = classifier.fit(X, y).score(T, u)
            pairs.append((on_cpu, classifier.fit(*there[:2]).score(*there[2:])))
        name = "refined" if refine else "closed_form"
        found[name] = [[round(100 * value, 3) for value in pair] for pair in pairs]
        found[f"{name}_difference"] = round(100 * float(np.mean(np.diff(pairs))), 3)
    return found


def run(given: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def part(name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            found = work()
        except Exception:
            found = {"error": traceback.format_exc()}
        line = {"part": name, "took_s": time.perf_counter() - start, **found}
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
        return {} if "error" in found else found

    if given.cpu:
        set_num_threads(2)
        for path in given.refine:
            for n_bits in given.bits:
                part("refinement", lambda p=path, b=n_bits: refinement(p, b, "cpu"))
        return
    peak = part("limits", lambda: limits(device, 8192 if device == "cuda" else 512))
    # Kernels are loaded when they are first used.
    small = Rows(1024, 5000, device)
    part("warm-up", lambda: closed_form(small, 40_000, given.bits[0], 20_000, peak)[1])
    for n_bits in given.bits if given.rows else ():
        fitted = []
        rows = Rows(given.features, given.classes, device)

        def learn(rows: Rows = rows, n_bits: int = n_bits) -> dict[str, Any]:
            classifier, found = closed_form(rows, given.rows, n_bits, given.batch, peak)
            fitted.append(classifier)
            return found

        part("closed form", learn)
        if fitted:
            part("prediction", lambda rows=rows: prediction(fitted[0], rows, 20_000))
        fitted.clear()
    for path in given.refine:
        for n_bits in given.bits:
            part("refinement", lambda p=path, b=n_bits: refinement(p, b, device))
    for path in given.accuracy:
        n_bits = given.bits[0]
        part("accuracy", lambda p=path, b=n_bits: accuracy(p, b, given.seeds, device))


def table(results: Path) -> None:
    """Write the results as tables."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]

    def found(part: str) -> list[dict[str, Any]]:
        return [line for line in lines if line["part"] == part and "error" not in line]

    peak = found("limits")[0]
    text = [
        "# One GPU\n",
        f"Written by `benchmarks/gpu.py --table`. {peak['card']}: {peak['bfloat16_tflops']:.0f} "
        f"TFLOP/s in bfloat16, {peak['float32_tflops']:.0f} in float32, a copy moves "
        f"{peak['copy_gb_per_s']:,.0f} GB/s.\n",
        "| bits | rows x features, classes | pass, s | solution, s | prediction, ns per row | "
        "accuracy, % |\n|---|---|---|---|---|---|",
    ]
    predicted = {line["n_bits"]: line for line in found("prediction")}
    for line in found("closed form"):
        there = predicted[line["n_bits"]]
        text.append(
            f"| {line['n_bits']} | {line['rows']:,} x {line['features']:,}, {line['classes']:,} | "
            f"{line['pass_s']:.2f} | {line['solve_s']:.2f} | {there['predict_ns_per_row']:.0f} | "
            f"{100 * there['accuracy']:.1f} |"
        )
    text.append(
        "\n| phase of the pass | ns per row | share of the peak | limit |\n|---|---|---|---|"
    )
    first = found("closed form")[0]
    limit = {"gram": "product", "class_sums": "atomic additions", "standardise": "memory"}
    for phase, name in limit.items():
        share = 100 * first["share_of_peak"][phase]
        text.append(f"| {phase} | {first['ns_per_row'][phase]:.0f} | {share:.0f} % | {name} |")
    text.append(f"| all | {first['ns_per_row']['all']:.0f} | | |")
    text.append("\n| prediction | ns per row, 128 bits | 256 bits |\n|---|---|---|")
    for phase in ("projected", "nearest", "short_list", "predict"):
        times = (f"{line[f'{phase}_ns_per_row']:.0f}" for line in predicted.values())
        text.append(f"| {phase} | {' | '.join(times)} |")
    text.append(
        "\n| fit with refinement | bits | GPU, s | 2 cores, s | ratio | accuracy, % | on 2 cores |"
        "\n|---|---|---|---|---|---|---|"
    )
    fits = {(line["file"], line["n_bits"], line["device"]): line for line in found("refinement")}
    for (file, n_bits, device), line in fits.items():
        other = fits.get((file, n_bits, "cpu"))
        if device != "cpu" and other is not None:
            text.append(
                f"| {file} | {n_bits} | {line['refined_s']:.2f} | {other['refined_s']:.2f} | "
                f"{other['refined_s'] / line['refined_s']:.1f} | "
                f"{100 * line['refined_accuracy']:.2f} | {100 * other['refined_accuracy']:.2f} |"
            )
    text.append(
        "\n| accuracy, %, 128 bits | seeds | closed form: CPU | GPU | refined: CPU | GPU | "
        "difference |\n|---|---|---|---|---|---|---|"
    )
    for line in found("accuracy"):
        means = [np.mean(line[name], axis=0) for name in ("closed_form", "refined")]
        cells = " | ".join(f"{value:.2f}" for pair in means for value in pair)
        change = line["refined_difference"]
        text.append(f"| {line['file']} | {line['seeds']} | {cells} | {change:+.2f} |")
    results.with_suffix(".md").write_text("\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.jsonl")
    parser.add_argument("--rows", type=int, default=14_200_000)
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--batch", type=int, default=1 << 19)
    parser.add_argument("--bits", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--refine", type=Path, nargs="*", default=[], help="data sets to time")
    parser.add_argument("--accuracy", type=Path, nargs="*", default=[], help="data sets to compare")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="time --refine on two cores instead")
    parser.add_argument("--table", action="store_true", help="write what was measured as tables")
    given = parser.parse_args()
    table(given.out) if given.table else run(given)


if __name__ == "__main__":
    main()
