"""Search among very many class codes by exact scan, clusters and faiss: `make search`.

Short lists of 16 classes at 128 bits, for 76,000 Han characters, if their features are cached by
`make characters`, and for 1,000,000 synthetic classes. All methods run on one thread, alternating;
times are CPU time, medians of several rounds, in batches and one row at a time. Recall is by
distance: classes at the same distance as the correct one count. Writes `results/search.md`.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from bitclass import BinaryCodeClassifier
from bitclass._native import HammingIndex
from bitclass._native.prediction import cluster_codes
from bitclass.codes import hamming
from cost import class_rows
from harness import BUILD, parse_options, threads_of_all, timed, write_page

N_BITS, K = 128, 16
N_QUERIES, N_SINGLE = 1000, 100
PROBES = (64, 128, 256)
TEST_FACE = "tw-kai"

Codes = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def synthetic(n_classes: int) -> Codes:
    """Codes of class means and of rows, by a hash function fitted to 50,000 such classes."""
    labels = np.repeat(np.arange(50_000), 2)
    model = BinaryCodeClassifier(N_BITS, refine=False, random_state=0)
    model.fit(class_rows(labels, 128, seed=0), labels)
    blocks = np.array_split(np.arange(n_classes), 1 + n_classes // 50_000)
    weights = np.concatenate([model.encode(class_rows(block, 128, noise=0.0)) for block in blocks])
    y = np.random.default_rng(3).integers(n_classes, size=N_QUERIES)
    return weights, model.encode(class_rows(y, 128, seed=4))


def characters(folder: Path) -> Codes | None:
    """Codes of Han characters, and of rows of an unseen typeface."""
    faces = {
        path.parent.name: (np.load(path), np.load(path.with_name("features.npy"), mmap_mode="r"))
        for path in sorted(folder.glob("*/characters.npy"))
    }
    if TEST_FACE not in faces:
        return None
    test_labels, rows = faces.pop(TEST_FACE)
    y = np.concatenate([labels for labels, _ in faces.values()])
    X = np.concatenate([features for _, features in faces.values()])
    keep = np.isin(y, test_labels)
    model = BinaryCodeClassifier(N_BITS, refine=False, random_state=0).fit(X[keep], y[keep])
    known = np.flatnonzero(np.isin(test_labels, y))
    chosen = np.random.default_rng(0).choice(known, N_QUERIES, replace=False)
    return model.packed().weights, model.encode(np.asarray(rows[np.sort(chosen)], np.float32))


def methods(weights: NDArray[np.uint8], names: list[str]) -> dict[str, Callable[..., Any]]:
    """Search functions by name; each maps codes to distances (n, 16), nearest first."""
    found: dict[str, Callable[..., Any]] = {}
    exact = HammingIndex(weights)
    found["scan"] = lambda codes: exact.top_k(codes, K)[1]
    n_lists = 4 * math.isqrt(len(weights))
    for n_probe in PROBES if "clusters" in names else ():
        index = HammingIndex(weights, n_probe=n_probe)
        found[f"n_probe={n_probe}"] = lambda codes, index=index: index.top_k(codes, K)[1]
    if "flat" in names:
        flat = faiss.IndexBinaryFlat(N_BITS)
        flat.add(weights)
        found["faiss flat"] = lambda codes: flat.search(codes, K)[0]
    if "ivf" in names:
        quantiser = faiss.IndexBinaryFlat(N_BITS)
        inverted = faiss.IndexBinaryIVF(quantiser, N_BITS, n_lists)
        inverted.cp.max_points_per_centroid = 32
        inverted.train(weights)
        inverted.add(weights)

        def probe(codes: NDArray[np.uint8], n_probe: int) -> Any:
            inverted.nprobe = n_probe
            assert quantiser.ntotal == n_lists  # also keeps it alive
            return inverted.search(codes, K)[0]

        for n_probe in PROBES:
            found[f"faiss IVF, nprobe={n_probe}"] = lambda codes, n=n_probe: probe(codes, n)
    if "hnsw" in names:
        graph = faiss.IndexBinaryHNSW(N_BITS, 16)
        graph.add(weights)

        def walk(codes: NDArray[np.uint8], ef: int) -> Any:
            graph.hnsw.efSearch = ef
            return graph.search(codes, K)[0]

        for ef in (64, 256):
            found[f"faiss HNSW, efSearch={ef}"] = lambda codes, ef=ef: walk(codes, ef)
    return found


def measured(weights: NDArray[np.uint8], codes: NDArray[np.uint8], names: list[str], rounds: int):
    """Recall of each method, and microseconds per row in batches and one at a time."""
    searches = methods(weights, names)
    exact = searches["scan"](codes)
    rows = []
    for name, search in searches.items():
        distances = search(codes)
        rows.append(
            {
                "search": name,
                "recall of the nearest": float(np.mean(distances[:, 0] == exact[:, 0])),
                "of the short list": float(np.mean(distances <= exact[:, -1:])),
            }
        )
    batch: dict[str, list[float]] = {name: [] for name in searches}
    single: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(rounds):
        for name, search in searches.items():
            batch[name].append(timed(lambda: search(codes)).cpu / len(codes))
            ones = [codes[i : i + 1] for i in range(N_SINGLE)]
            single[name].append(timed(lambda: [search(one) for one in ones]).cpu / N_SINGLE)
    for row in rows:
        row["µs per row, batch"] = 1e6 * statistics.median(batch[row["search"]])
        row["one row"] = 1e6 * statistics.median(single[row["search"]])
    return rows


def exact_indices(weights: NDArray[np.uint8], codes: NDArray[np.uint8]) -> dict[str, float]:
    """Fraction of the classes that exact indices would have to visit for a short list.

    Clusters are visited unless the triangle inequality excludes them. Multi-index hashing visits
    the classes that differ in at most radius / 8 bits in one of 8 substrings of 16 bits.
    """
    codes = codes[:100]
    farthest = HammingIndex(weights).top_k(codes, K)[1][:, -1]
    centres, clusters = cluster_codes(weights)
    apart = hamming(weights, centres[clusters])
    radius = np.zeros(len(centres), dtype=np.int64)
    np.maximum.at(radius, clusters, apart)
    sizes = np.bincount(clusters, minlength=len(centres))
    to_centres = hamming(codes[:, None], centres[None])
    bound = np.where(to_centres - radius <= farthest[:, None], sizes, 0).sum(axis=1)
    hashed, n_keys = [], []
    parts = weights.view(np.uint16)
    for code, distance in zip(codes.view(np.uint16), farthest, strict=True):
        allowed = int(distance) // parts.shape[1]
        near = np.bitwise_count(parts ^ code) <= allowed
        hashed.append(float(np.any(near, axis=1).mean()))
        n_keys.append(parts.shape[1] * sum(math.comb(16, i) for i in range(allowed + 1)))
    return {
        "distance of the 16th class": float(np.median(farthest)),
        "clusters and triangle inequality": float(bound.mean() / len(weights)),
        "multi-index hashing": float(np.mean(hashed)),
        "its look-ups": float(np.mean(n_keys)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--classes", type=int, default=1_000_000, help="synthetic classes; 0 for none"
    )
    parser.add_argument("--characters", type=Path, default=BUILD / "characters")
    parser.add_argument("--methods", nargs="+", default=["clusters", "flat", "ivf", "hnsw"])
    parser.add_argument("--rounds", type=int, default=5)
    options, complete = parse_options(parser)
    results: dict[str, list[dict[str, Any]]] = {}
    with threads_of_all(1):
        problems = {"Han characters": lambda: characters(options.characters)}
        if options.classes:
            problems["synthetic"] = lambda: synthetic(options.classes)
        for name, make in problems.items():
            problem = make()
            if problem is None:
                print(f"{name}: no features in {options.characters}; skipped")
                complete = False
                continue
            weights, codes = problem
            title = f"{name}, {len(weights):,} classes"
            results[title] = measured(weights, codes, options.methods, options.rounds)
            results[f"{name}: classes visited by exact indices"] = [exact_indices(weights, codes)]
    note = (
        f"Short lists of {K} classes at {N_BITS} bits; CPU time on one thread. "
        "Measured by `make search`."
    )
    write_page("search", "Search among class codes", note, results, keep=complete)


if __name__ == "__main__":
    main()
