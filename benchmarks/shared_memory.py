"""Memory of worker processes that predict with one model: each loads it, maps it, or is forked.

Prints the proportional set size (PSS) per worker, which counts a page that n processes share as
1/n of a page each, less that of a worker without a model. Linux only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bitclass
from bitclass.model import PackedModel
from bitclass.storage import save
from harness import markdown, pss_mb, random_model

loaded: PackedModel | None = None


def work(how: str, path: Path, d: int, ready: Any, results: Any) -> None:
    if how == "none":
        model = None
    elif how == "forked":
        model = loaded
    else:
        model = bitclass.load(path, memory_map=how == "mapped")
    if model is not None:
        model.predict(np.ones((8, d), dtype=np.float32))
    ready.wait()
    results.put(pss_mb())
    ready.wait()


def measure(how: str, path: Path, n_workers: int, d: int, start: str = "spawn") -> float:
    """Mean memory per worker in MB."""
    global loaded
    context = multiprocessing.get_context(start)
    loaded = bitclass.load(path) if how == "forked" else None
    ready, results = context.Barrier(n_workers), context.Queue()
    workers = [
        context.Process(target=work, args=(how, path, d, ready, results)) for _ in range(n_workers)
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--classes", type=int, default=1_000_000)
    arguments = parser.parse_args()
    d, rows = 2048, []
    for precision in ("int8", "float32"):
        model = random_model(np.arange(arguments.classes), d, 256, precision=precision)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            save(path, model)
            row = {"precision": precision, "file, MB": path.stat().st_size / 1e6}
            del model
            for how, start in (("loaded", "spawn"), ("mapped", "spawn"), ("forked", "fork")):
                with_model, without = (
                    measure(each, path, arguments.workers, d, start) for each in (how, "none")
                )
                row[f"{how}, MB"] = with_model - without
        rows.append(row)
    print(markdown(rows))


if __name__ == "__main__":
    main()
