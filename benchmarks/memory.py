"""Memory of training, beyond its input, and of worker processes that predict: `make memory`.

Workers load a model, memory-map its file, or are forked after loading. Their memory is the
proportional set size, in which a page shared by n processes counts 1/n in each, minus that of a
worker without a model. Linux only. Writes `results/memory.md`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bitclass
from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.storage import save
from harness import checked, in_child, parse_options, peak_mb, pss_mb, random_model, write_page

NOTE = (
    "Training: peak memory of `fit` in addition to its input, without refinement. Workers: "
    "additional memory per worker process because of the model; 2,048 features, 256 bits. "
    "Measured by `make memory`."
)
CASES = {
    # rows, features, classes, and limit on the memory beyond the input in MB
    "1,000,000 x 512, 100 classes": (1_000_000, 512, 100, 200),
    "1,000,000 x 64, 1,000 classes": (1_000_000, 64, 1000, None),
}
N_FEATURES, N_BITS = 2048, 256

forked: PackedModel | None = None


def training(n: int, d: int, n_classes: int) -> dict[str, float]:
    """Peak memory of a fit, beyond that before the fit."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, d), dtype=np.float32)
    y = np.arange(n) % n_classes
    X = np.empty((n, d), dtype=np.float32)
    for start in range(0, n, 10_000):
        block = slice(start, start + 10_000)
        X[block] = rng.standard_normal((len(y[block]), d), dtype=np.float32)
        X[block] += centres[y[block]]
    classifier = BinaryCodeClassifier(128, random_state=0, refine=False)
    classifier.fit(X[:2000], y[:2000])  # imports everything
    before = peak_mb(reset=True)
    classifier.fit(X, y)
    found = {"input, MB": X.nbytes / 1e6, "above it, MB": peak_mb() - before}
    return found | {"training accuracy": classifier.score(X[:5000], y[:5000])}


def work(how: str, path: Path, ready: Any, results: Any) -> None:
    model = None
    if how == "forked":
        model = forked
    elif how != "none":
        model = bitclass.load(path)
    if model is not None:
        model.predict(np.ones((8, N_FEATURES), dtype=np.float32))
    ready.wait()
    results.put(pss_mb())
    ready.wait()


def memory_per_worker(how: str, path: Path, n_workers: int, start: str) -> float:
    """Mean memory per worker in MB."""
    global forked
    context = multiprocessing.get_context(start)
    forked = bitclass.load(path) if how == "forked" else None
    ready, results = context.Barrier(n_workers), context.Queue()
    workers = [
        context.Process(target=work, args=(how, path, ready, results)) for _ in range(n_workers)
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return float(np.mean(found))


def predicting(n_workers: int, n_classes: int) -> list[dict[str, Any]]:
    """Memory of workers that load or inherit their model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save(path, random_model(np.arange(n_classes), N_FEATURES, N_BITS))
        row: dict[str, Any] = {"workers": n_workers, "classes": n_classes}
        row["file, MB"] = path.stat().st_size / 1e6
        for how, start in (("loaded", "spawn"), ("forked", "fork")):
            with_model, without = (
                memory_per_worker(each, path, n_workers, start) for each in (how, "none")
            )
            row[f"{how}, MB"] = with_model - without
    return [row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="maximum number of training rows"
    )
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument(
        "--classes", type=int, default=300_000, help="classes of the workers' model"
    )
    options, complete = parse_options(parser)
    rows = []
    for name, (n, *others, limit) in CASES.items():
        found = checked(in_child(training, min(n, options.rows), *others))
        rows.append({"": name} | found | {"limit, MB": limit})
    tables = {"Training": rows, "Workers": predicting(options.workers, options.classes)}
    write_page("memory", "Memory", NOTE, tables, keep=complete)


if __name__ == "__main__":
    main()
