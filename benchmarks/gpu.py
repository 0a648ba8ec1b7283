"""Times on one GPU: the pass over 14.2 million rows, the solution, refinement and prediction.

Run with torch where there is CUDA: ``python benchmarks/gpu.py --tiny tinyimagenet100_cnn1280.npz``.
Each part writes its results as a line of JSON when it ends, and one that fails does not stop the
others. Shares of the peak are those of a plain product and a plain copy in the same run.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bitclass import BinaryCodeClassifier, set_num_threads
from bitclass.array_api import add_by_class, add_gram, top_k

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
    """What the card reaches in plain work, and what parts of the solution take."""
    found: dict[str, Any] = {"card": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    for name, kind in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        A = torch.randn(size, size, device=device).to(kind)
        A @ A
        found[f"{name}_tflops"] = 2 * size**3 / seconds_of(lambda: A @ A, 5) / 1e12
    A = torch.randn(4 * size, size, device=device)
    B = torch.empty_like(A)
    B.copy_(A)
    found["copy_gb_per_s"] = 2 * A.nbytes / seconds_of(lambda: B.copy_(A), 5) / 1e9
    d = size // 2
    A = torch.randn(2 * d, d, device=device, dtype=torch.float64)
    A = A.T @ A / d
    torch.linalg.cholesky(A)
    found |= {
        "d": d,
        "eigh_float64_s": seconds_of(lambda: torch.linalg.eigh(A)),
        "eigh_float32_s": seconds_of(lambda: torch.linalg.eigh(A.float())),
        "cholesky_float64_s": seconds_of(lambda: torch.linalg.cholesky(A)),
        "product_float64_tflops": 2 * d**3 / seconds_of(lambda: A @ A, 3) / 1e12,
    }
    A = A[:256, :256].contiguous()
    found["svd_256_s"] = seconds_of(lambda: torch.linalg.svd(A), 3)
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
        taken.append(seconds_of(lambda: classifier.partial_fit(X, y)))
    solve = seconds_of(classifier.solve)
    pass_s = sum(taken)
    X, y = rows.draw(min(batch, 20_000), space)
    found: dict[str, Any] = {
        "n_bits": n_bits,
        "rows": n_rows,
        "features": d,
        "classes": len(rows.means),
        "pass_s": pass_s,
        "first_batch_s": taken[0],
        "median_batch_s": float(np.median(taken)),
        "solve_s": solve,
        "accuracy": classifier.score(X, y),
        "full_product_tflops": 2 * n_rows * d**2 / pass_s / 1e12,
        "read_gb_per_s": 4 * n_rows * d / pass_s / 1e9,
    }
    if peak:
        found["share_of_product"] = found["full_product_tflops"] / peak["bfloat16_tflops"]
        found["share_of_copy"] = found["read_gb_per_s"] / peak["copy_gb_per_s"]
    # Where the time of a batch goes.
    X, y = rows.draw(batch, space)
    Z = X[: max(1, (1 << 30) // (4 * d))]
    own = y[: len(Z)]
    gram = torch.zeros(d, d, device=device, dtype=torch.float64)
    sums = torch.zeros(len(rows.means), d, device=device)
    shift = torch.zeros(d, device=device)
    per_row = 1e9 / len(Z)
    found["ns_per_row"] = {
        "gram": per_row * seconds_of(lambda: add_gram(Z, gram), 5),
        "class_sums": per_row * seconds_of(lambda: add_by_class(Z, own, sums), 5),
        "standardise": per_row * seconds_of(lambda: (Z - shift).mul_(shift), 5),
        "unique": 1e9 / batch * seconds_of(lambda: torch.unique(y, return_inverse=True), 5),
    }
    found["phases_of_solve"] = phases(classifier)
    return classifier, found


def phases(classifier: BinaryCodeClassifier) -> dict[str, float]:
    """Seconds of the parts of a solution."""
    import cProfile
    import pstats

    profile = cProfile.Profile()
    classifier._fitted_at = -1  # solve once more
    profile.enable()
    classifier.solve()
    profile.disable()
    parts = {}
    for (file, _, name), (_, _, _, cumulative, _) in pstats.Stats(profile).stats.items():
        if "bitclass" in file and cumulative > 0.01:
            parts[f"{Path(file).stem}.{name}"] = round(cumulative, 4)
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def prediction(classifier: BinaryCodeClassifier, rows: Rows, n_rows: int) -> dict[str, Any]:
    """Nanoseconds per row of batches, end to end, and of the parts."""
    X, y = rows.draw(n_rows)
    accuracy = classifier.score(X, y)
    model = classifier.packed()
    classifier.predict(X)
    scale = 1e9 / n_rows
    found: dict[str, Any] = {
        "n_bits": model.n_bits,
        "classes": len(model.classes),
        "rows": n_rows,
        "rescore": model.rescore,
        "accuracy": accuracy,
        "predict_ns_per_row": scale * seconds_of(lambda: classifier.predict(X), 20),
        "encode_ns_per_row": scale * seconds_of(lambda: model.encode(X), 20),
    }
    rescore, model.rescore = model.rescore, 0
    found["nearest_ns_per_row"] = scale * seconds_of(lambda: model.predict(X), 20)
    model.rescore = rescore
    kind = torch.float16 if X.is_cuda else torch.float32
    codes = torch.randn(n_rows, model.n_bits, device=X.device).sign().to(kind)
    weights = torch.randn(len(model.classes), model.n_bits, device=X.device).sign().to(kind)
    products = codes @ weights.T
    found["product_ns_per_row"] = scale * seconds_of(lambda: codes @ weights.T, 10)
    found["top_16_ns_per_row"] = scale * seconds_of(lambda: top_k(products, 16, model.n_bits), 10)
    found["plain_topk_ns_per_row"] = scale * seconds_of(lambda: torch.topk(products, 16), 3)
    sample = X[:2000].cpu().numpy()
    same = classifier.predict(X[:2000]).cpu().numpy() == classifier.predict(sample)
    found["same_as_cpu"] = float(np.mean(same))
    return found


def refinement(path: Path, n_bits: int, device: str, with_cpu: bool) -> dict[str, Any]:
    """Fit with refinement on the device, and on two cores."""
    with np.load(path) as data:
        X, X_test = (data[name].astype(np.float32) for name in ("X_train", "X_test"))
        y, y_test = (data[name].astype(np.int64) for name in ("y_train", "y_test"))
    found: dict[str, Any] = {"file": path.name, "n_bits": n_bits, "rows": len(X)}
    X_there, y_there = (torch.asarray(array, device=device) for array in (X, y))
    T_there, u_there = (torch.asarray(array, device=device) for array in (X_test, y_test))
    for refine in (False, True):
        name = "refined" if refine else "closed_form"
        classifier = BinaryCodeClassifier(n_bits, refine=refine, random_state=0)
        for run in ("first_", ""):
            found[f"{name}_{run}s"] = seconds_of(lambda: classifier.fit(X_there, y_there))
        found[f"{name}_accuracy"] = classifier.score(T_there, u_there)
        found[f"{name}_refinement"] = classifier.refinement_
    if with_cpu:
        set_num_threads(2)
        for refine in (False, True):
            name = "cpu_refined" if refine else "cpu_closed_form"
            classifier = BinaryCodeClassifier(n_bits, refine=refine, random_state=0, n_jobs=2)
            found[f"{name}_s"] = seconds_of(lambda: classifier.fit(X, y))
            found[f"{name}_accuracy"] = classifier.score(X_test, y_test)
            found[f"{name}_refinement"] = classifier.refinement_
        found["ratio"] = found["cpu_refined_s"] / found["refined_s"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"))
    parser.add_argument("--rows", type=int, default=14_200_000)
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--batch", type=int, default=1 << 19)
    parser.add_argument("--bits", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--tiny", type=Path, help="Tiny-ImageNet-100: X_train, y_train and _test")
    parser.add_argument("--han", type=Path, help="features of Han characters, in the same form")
    parser.add_argument("--no-cpu", action="store_true", help="no fit on two cores")
    given = parser.parse_args()
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
        print(json.dumps(line, indent=1), flush=True)
        return {} if "error" in found else found

    peak = part("limits", lambda: limits(device, 8192 if device == "cuda" else 512))
    # Kernels are loaded when they are first used.
    small = Rows(1024, 5000, device)
    part("warm-up", lambda: closed_form(small, 40_000, given.bits[0], 20_000, peak)[1])
    rows = Rows(given.features, given.classes, device)
    for n_bits in given.bits:
        fitted = []

        def learn() -> dict[str, Any]:
            classifier, found = closed_form(rows, given.rows, n_bits, given.batch, peak)
            fitted.append(classifier)
            return found

        part("closed form", learn)
        if fitted:
            part("prediction", lambda: prediction(fitted[0], rows, 20_000))
        fitted.clear()
    for path in (given.tiny, given.han):
        if path is not None:
            for n_bits in given.bits:
                part("refinement", lambda: refinement(path, n_bits, device, not given.no_cpu))


if __name__ == "__main__":
    main()
