"""Speed of bitclass relative to other libraries, measured in one run: `make bench`.

Writes `results/speed.md`. `--only NAME` runs one part.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import faiss
import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass._native import HammingIndex
from bitclass._native.threads import available_cpus
from bitclass.hash_function import HashFunction
from bitclass.paper import PaperClassifier
from harness import (
    DATA,
    load,
    measure,
    parse_options,
    random_codes,
    random_model,
    seconds_of,
    threads_of_all,
    write_page,
)

ALL_THREADS = available_cpus()
NOTE = (
    "Ratios of median times in one run, alternating between the peer and bitclass, with the same "
    "number of threads. Training LinearSVC takes a minute, always on one thread, and is timed "
    "once, between two sets of bitclass runs. A ratio below *floor* is marked *missed*; *aim* is "
    "the target. Measured by `make bench`."
)
#: A comparison: how many times faster ours is than a peer, and the expected ratio.
Row = dict[str, Any]


def row(
    what: str,
    peer: str,
    threads: int,
    peer_seconds: float,
    our_seconds: float,
    floor: float | None = None,
    aim: float | None = None,
) -> Row:
    ratio = peer_seconds / our_seconds
    return {
        "": what,
        "peer": peer,
        "threads": threads,
        "peer, ms": 1e3 * peer_seconds,
        "ours, ms": 1e3 * our_seconds,
        "ratio": ratio,
        "floor": floor,
        "aim": aim,
        "missed": "missed" if floor is not None and ratio < floor else None,
    }


def compare(
    what: str,
    peer: str,
    peer_work: Callable[[], Any],
    our_work: Callable[[], Any],
    threads: int,
    rounds: int,
    floor: float | None = None,
    aim: float | None = None,
) -> Row:
    """Time a peer and ours, alternating."""
    medians = measure({"peer": peer_work, "ours": our_work}, rounds)
    return row(what, peer, threads, medians["peer"], medians["ours"], floor, aim)


def search(threads: int) -> Iterator[Row]:
    """Hamming argmin compared with faiss IndexBinaryFlat."""
    for n_classes, n_bits in itertools.product((1_000, 20_000), (128, 256)):
        weights, codes = random_codes(n_classes, n_bits), random_codes(4_000, n_bits, seed=1)
        peer = faiss.IndexBinaryFlat(n_bits)
        peer.add(weights)
        index = HammingIndex(weights)
        assert np.array_equal(peer.search(codes, 1)[0][:, 0], index.nearest(codes)[1])
        yield compare(
            f"Hamming argmin, C = {n_classes:,}, {n_bits} bits",
            "faiss IndexBinaryFlat",
            lambda: peer.search(codes, 1),
            lambda: index.nearest(codes),
            threads,
            rounds=9,
            floor=3 if threads == 1 else None,
            aim=6 if threads == 1 else None,
        )


def encode(threads: int) -> Iterator[Row]:
    """Features to codes compared with NumPy's product alone."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 4096), dtype=np.float32)
    P = rng.standard_normal((4096, 128), dtype=np.float32)
    centre = rng.standard_normal(4096, dtype=np.float32)
    scale = rng.uniform(0.5, 2.0, 4096).astype(np.float32)
    t = np.zeros(128)
    int8 = HashFunction(P, t, precision="int8")
    # As in trained models: rows are standardised before they are quantised.
    standardised = HashFunction(P, t, precision="int8", centre=centre, scale=scale)
    timed_with = partial(compare, threads=threads, rounds=7)
    shape = "encode, d = 4,096, r = 128, n = 20,000"
    for kind, hash_function, floor, aim in (
        ("int8", int8, 2.0, 3.5),
        ("int8, standardised", standardised, 2.0, 3.5),
        ("float32", HashFunction(P, t, precision="float32"), 0.9, 1.0),
    ):
        ours = partial(hash_function.encode, X)
        yield timed_with(
            f"{shape}, {kind}", "NumPy X @ P", lambda: X @ P, ours, floor=floor, aim=aim
        )
    ours = partial(int8.encode, X.astype(np.float16))
    yield timed_with("the same from float16, int8", "NumPy X @ P, float32", lambda: X @ P, ours)


def rescoring(threads: int) -> Iterator[Row]:
    """Cost of rescoring a short list of 16, relative to the nearest class."""
    rng = np.random.default_rng(0)
    for d, n_classes, n_bits in itertools.product((384, 4096), (1_000, 21_841), (128, 256)):
        nearest = random_model(np.arange(n_classes), d, n_bits, standardised=True)
        listed = PackedModel(nearest.classes, nearest.weights, nearest.hash_function, rescore=16)
        X = rng.standard_normal((4_000, d), dtype=np.float32)
        yield compare(
            f"predict with a short list of 16, d = {d:,}, C = {n_classes:,}, {n_bits} bits",
            "without a short list",
            partial(nearest.predict, X),
            partial(listed.predict, X),
            threads,
            rounds=15,
            floor=1 / 1.4 if d == 384 and n_classes == 1_000 else 1 / 1.15,
        )


def predict(threads: int) -> Iterator[Row]:
    """Rows of features to labels compared with scikit-learn's LinearSVC."""
    rng = np.random.default_rng(0)
    timed_with = partial(compare, threads=threads)
    for n_classes, n_rows, floor, aim in ((1_000, 4_000, 30, 60), (21_841, 400, 250, 500)):
        svm = LinearSVC()  # with random parameters, like ours
        svm.coef_ = rng.standard_normal((n_classes, 4096))
        svm.intercept_ = rng.standard_normal(n_classes)
        svm.classes_ = np.arange(n_classes)
        svm.n_features_in_ = 4096
        ours = random_model(np.arange(n_classes), 4096, 128, standardised=True, rescore=16)
        shape = f"d = 4,096, r = 128, C = {n_classes:,}"
        for dtype in (np.float64, np.float32):
            X = rng.standard_normal((n_rows, 4096)).astype(dtype)
            what = f"predict a batch of {n_rows:,} ({X.dtype}), {shape}"
            works = partial(svm.predict, X), partial(ours.predict, X)
            yield timed_with(what, "LinearSVC.predict", *works, rounds=5, floor=floor, aim=aim)
        if n_classes == 1_000:
            coefficients = svm.coef_.astype(np.float32).T.copy()
            product = lambda: (X @ coefficients).argmax(axis=1)  # noqa: E731
            yield timed_with(what, "NumPy float32 product + argmax", product, works[1], rounds=5)
            one = X[:1].astype(np.float64)
            works = partial(svm.predict, one), partial(ours.predict, one)
            what = "predict one row, d = 4,096, C = 1,000"
            yield timed_with(what, "LinearSVC.predict", *works, rounds=31, floor=10, aim=30)


@cache  # takes a minute, always on one thread
def svm_seconds(name: str, max_iter: int) -> float:
    """Training time of LinearSVC (Crammer-Singer) on standardised rows."""
    X, y, *_ = load(DATA / f"{name}.npz")
    X = StandardScaler().fit_transform(X).astype(np.float32)
    options = {"multi_class": "crammer_singer", "random_state": 0, "dual": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        svm = LinearSVC(C=1e-3, max_iter=max_iter, **options)
        return seconds_of(lambda: svm.fit(X, y))


def fit(threads: int) -> Iterator[Row]:
    """Training compared with LinearSVC (Crammer-Singer) and RidgeClassifier, on real features."""
    for name, max_iter, targets in (
        ("cifar10_gist512", 300, ((60, 150), (20, 60), (None, None))),
        ("tinyimagenet100_cnn1280", 100, ((60, 150), (15, 40), (None, 10))),
    ):
        if not (DATA / f"{name}.npz").exists():
            print(f"{name} is not in {DATA}: skipped")
            continue
        X, y, *_ = load(DATA / f"{name}.npz")
        X = StandardScaler().fit_transform(X).astype(np.float32)
        ours: dict[str, Any] = {
            loss: PaperClassifier(128, loss=loss, random_state=0)
            for loss in ("hinge", "exponential")
        }
        ours["defaults"] = BinaryCodeClassifier(128, random_state=0)
        work = {loss: partial(classifier.fit, X, y) for loss, classifier in ours.items()}
        work["ridge"] = lambda: RidgeClassifier(solver="cholesky").fit(X, y)
        before = measure(work, rounds=3)
        svm = svm_seconds(name, max_iter)
        after = measure(work, rounds=3)
        seconds = {key: (before[key] + after[key]) / 2 for key in before}
        for loss, (floor, aim) in zip(ours, targets, strict=True):
            what, taken = f"fit {name}, 128 bits, {loss}", seconds[loss]
            peer = f"LinearSVC Crammer-Singer, {max_iter} iterations"
            yield row(what, peer, threads, svm, taken, floor, aim)
            yield row(what, "RidgeClassifier (Cholesky)", threads, seconds["ridge"], taken)


def growth() -> list[dict[str, Any]]:
    """Relative times as n, d, r and C are each doubled three times."""
    rng = np.random.default_rng(0)
    base = {"n": 16_000, "d": 512, "r": 128, "C": 100}
    found: dict[str, dict[str, Any]] = {}
    for axis, doubling in itertools.product(base, range(4)):
        n, d, r, n_classes = (base | {axis: base[axis] << doubling}).values()
        centres = rng.standard_normal((n_classes, d)).astype(np.float32)
        y = np.arange(n) % n_classes
        X = centres[y] + 2 * rng.standard_normal((n, d)).astype(np.float32)
        hinge = PaperClassifier(r, loss="hinge", random_state=0).fit(X, y)
        exponential = PaperClassifier(r, random_state=0)
        model = hinge.packed()
        codes, index = model.encode(X), HammingIndex(model.weights)
        work = {
            "fit hinge": lambda: hinge.fit(X, y),
            "fit exponential": lambda: exponential.fit(X, y),
            "encode": lambda: model.encode(X),
            "search": lambda: index.nearest(codes),
        }
        for stage, seconds in measure(work, rounds=5).items():
            title = f"{stage}, {axis} from {base[axis]:,}"
            found.setdefault(title, {"": title})[f"x{1 << doubling}"] = seconds
    for line in found.values():
        line |= {step: line[step] / line["x1"] for step in ("x8", "x4", "x2", "x1")}
    stages = list(work)
    return sorted(found.values(), key=lambda line: stages.index(line[""].split(",")[0]))


def problems(share: float) -> Iterator[tuple[str, Any, Any]]:
    """Titles, rows and labels of problems, or of a share of their rows, features and classes."""
    rng = np.random.default_rng(0)
    if (DATA / "tinyimagenet100_cnn1280.npz").exists():
        X, y, *_ = load(DATA / "tinyimagenet100_cnn1280.npz")
        some = np.sort(rng.permutation(len(y))[: int(12_000 * share)])
        yield f"Tiny-ImageNet-100, {len(some):,} x 1,280", X[some], y[some]
    for sizes in ((20_000, 4096, 1_000), (200_000, 512, 20_000)):
        n, d, n_classes = (int(size * share) for size in sizes)
        centres, y = rng.standard_normal((n_classes, d), dtype=np.float32), np.arange(n) % n_classes
        X = centres[y] + 2 * rng.standard_normal((n, d), dtype=np.float32)
        yield f"{n:,} x {d:,}, {n_classes:,} classes", X, y


@contextmanager
def busy_cpus() -> Iterator[None]:
    """Other processes that keep all CPUs busy."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(ALL_THREADS)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def cores(share: float) -> list[dict[str, Any]]:
    """Seconds with 1, 2, 4, ... threads, and with all beside as many busy processes.

    Ridge and X'X are measured in the same run.
    """
    found: list[dict[str, Any]] = []
    counts = sorted({ALL_THREADS, *(1 << i for i in range(ALL_THREADS.bit_length()))})
    for title, X, y in problems(share):
        model = BinaryCodeClassifier(128, random_state=0)
        closed = BinaryCodeClassifier(128, refine=False, random_state=0)
        work: dict[str, Callable[[], Any]] = {
            "fit": partial(model.fit, X, y),
            "predict": partial(model.predict, X),
            "closed form": partial(closed.fit, X, y),
            "X'X": lambda X=X: X.T @ X,
        }
        if len(np.unique(y)) <= 1000:  # whose targets are a dense matrix (n, C)
            work["ridge"] = partial(RidgeClassifier(solver="cholesky").fit, X, y)
        lines: dict[str, dict[str, Any]] = {name: {"": f"{name}, {title}"} for name in work}
        for name, one in work.items():
            for threads in counts:
                with threads_of_all(threads):
                    lines[name][f"{threads} threads"] = seconds_of(one)
            with threads_of_all(ALL_THREADS), busy_cpus():
                lines[name]["busy"] = seconds_of(one)
            lines[name]["busy / idle"] = lines[name]["busy"] / lines[name][f"{ALL_THREADS} threads"]
            print(lines[name], flush=True)
        found += lines.values()
    return found


PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "search": search,
    "encode": encode,
    "predict": predict,
    "rescoring": rescoring,
    "fit": fit,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*PARTS, "growth", "cores"], help="run one part")
    parser.add_argument("--threads", type=int, help="number of threads, instead of 1 and all")
    parser.add_argument("--share", type=float, default=1.0, help="of the sizes of `cores`")
    options, complete = parse_options(parser)
    rows: list[Row] = []
    counts = [options.threads] if options.threads else sorted({1, ALL_THREADS})
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        for threads in counts:
            with threads_of_all(threads):
                faiss.omp_set_num_threads(threads)
                for found in part(threads):
                    rows.append(found)
                    print(found[""], found["peer"], threads, f"{found['ratio']:.2f}", flush=True)
    grown = []
    if options.only in (None, "growth"):
        with threads_of_all(1):
            grown = growth()
    with_threads = cores(options.share) if options.only in (None, "cores") else []
    tables = {
        "": rows,
        "Time on one thread as one size is doubled": grown,
        "Seconds by number of threads, and beside as many busy processes": with_threads,
    }
    write_page("speed", "Speed", NOTE, tables, keep=complete)


if __name__ == "__main__":
    main()
