"""How fast bitclass is beside its peers, as ratios in one run: `make bench`.

Writes `results/speed.md`. `--only NAME` runs one part.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass._native import HammingIndex
from bitclass.hash_function import HashFunction
from tables import write_page
from timing import Row, compare, measure, threads_of_all

HERE = Path(__file__).parent
DATA = Path(os.environ.get("BITCLASS_DATA", HERE.parents[1] / "shared" / "data"))
ALL_THREADS = len(os.sched_getaffinity(0))

# The paper's method without what is added to it.
PLAIN: dict[str, Any] = {"initial_codes": "projection"}


def random_codes(rng: np.random.Generator, n: int, n_bits: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


def search(threads: int) -> Iterator[Row]:
    """Hamming argmin beside faiss IndexBinaryFlat."""
    rng = np.random.default_rng(0)
    for n_classes in (1_000, 20_000):
        for n_bits in (128, 256):
            weights = random_codes(rng, n_classes, n_bits)
            codes = random_codes(rng, 4_000, n_bits)
            peer = faiss.IndexBinaryFlat(n_bits)
            peer.add(weights)
            index = HammingIndex(weights)
            assert np.array_equal(peer.search(codes, 1)[0][:, 0], index.nearest(codes)[1])
            yield compare(
                f"Hamming argmin, C = {n_classes:,}, {n_bits} bits",
                "faiss IndexBinaryFlat",
                lambda peer=peer, codes=codes: peer.search(codes, 1),
                lambda index=index, codes=codes: index.nearest(codes),
                threads,
                rounds=9,
                floor=3 if threads == 1 else None,
                aim=6 if threads == 1 else None,
            )


def encode(threads: int) -> Iterator[Row]:
    """Features to codes beside NumPy's product alone."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 4096), dtype=np.float32)
    P = rng.standard_normal((4096, 128), dtype=np.float32)
    centre = rng.standard_normal(4096, dtype=np.float32)
    scale = rng.uniform(0.5, 2.0, 4096).astype(np.float32)
    t = np.zeros(128)
    kinds = {
        "int8": (HashFunction(P, t, precision="int8"), 2.0, 3.5),
        # As learned models do it: rows are standardised before they are quantised.
        "int8, standardised": (
            HashFunction(P, t, precision="int8", centre=centre, scale=scale),
            2.0,
            3.5,
        ),
        "float32": (HashFunction(P, t, precision="float32"), 0.9, 1.0),
    }
    for kind, (hash_function, floor, aim) in kinds.items():
        yield compare(
            f"encode, d = 4,096, r = 128, n = 20,000, {kind}",
            "NumPy X @ P",
            lambda: X @ P,
            lambda hash_function=hash_function: hash_function.encode(X),
            threads,
            rounds=7,
            floor=floor,
            aim=aim,
        )
    half = X.astype(np.float16)
    hash_function = HashFunction(P, np.zeros(128), precision="int8")
    yield compare(
        "the same from float16, int8",
        "NumPy X @ P, float32",
        lambda: X @ P,
        lambda: hash_function.encode(half),
        threads,
        rounds=5,
    )


def made_models(n_classes: int) -> tuple[LinearSVC, PackedModel]:
    """Models of d = 4,096 features and 128 bits with random parameters."""
    rng = np.random.default_rng(0)
    svm = LinearSVC()
    svm.coef_ = rng.standard_normal((n_classes, 4096))
    svm.intercept_ = rng.standard_normal(n_classes)
    svm.classes_ = np.arange(n_classes)
    svm.n_features_in_ = 4096
    ours = PackedModel(
        np.arange(n_classes),
        random_codes(rng, n_classes, 128),
        HashFunction(
            rng.standard_normal((4096, 128), dtype=np.float32) / 64,
            rng.standard_normal(128),
            centre=rng.standard_normal(4096, dtype=np.float32),
            scale=rng.uniform(0.5, 2.0, 4096).astype(np.float32),
        ),
        rescore=16,
    )
    return svm, ours


def rescoring(threads: int) -> Iterator[Row]:
    """A short list of 16 beside the nearest class: how much more it costs."""
    rng = np.random.default_rng(0)
    shapes = itertools.product((384, 4096), (1_000, 21_841), (128, 256))
    for d, n_classes, n_bits in shapes:
        weights = random_codes(rng, n_classes, n_bits)
        P = rng.standard_normal((d, n_bits), dtype=np.float32) / np.float32(d**0.5)
        centre, scale = np.zeros(d, np.float32), np.ones(d, np.float32)
        hash_function = HashFunction(P, np.zeros(n_bits), centre=centre, scale=scale)
        nearest = PackedModel(np.arange(n_classes), weights, hash_function)
        listed = PackedModel(np.arange(n_classes), weights, hash_function, rescore=16)
        X = rng.standard_normal((4_000, d), dtype=np.float32)
        yield compare(
            f"predict with a short list of 16, d = {d:,}, C = {n_classes:,}, {n_bits} bits",
            "without a short list",
            lambda nearest=nearest, X=X: nearest.predict(X),
            lambda listed=listed, X=X: listed.predict(X),
            threads,
            rounds=15,
            floor=1 / 1.4 if d == 384 and n_classes == 1_000 else 1 / 1.15,
        )


def predict(threads: int) -> Iterator[Row]:
    """Rows of features to labels beside scikit-learn's LinearSVC."""
    rng = np.random.default_rng(0)
    for n_classes, n_rows, floor, aim in ((1_000, 4_000, 30, 60), (21_841, 400, 250, 500)):
        svm, ours = made_models(n_classes)
        for dtype in (np.float64, np.float32):
            X = rng.standard_normal((n_rows, 4096)).astype(dtype)
            yield compare(
                f"predict a batch of {n_rows:,} ({X.dtype}), d = 4,096, r = 128, C = {n_classes:,}",
                "LinearSVC.predict",
                lambda svm=svm, X=X: svm.predict(X),
                lambda ours=ours, X=X: ours.predict(X),
                threads,
                rounds=5,
                floor=floor,
                aim=aim,
            )
        if n_classes == 1_000:
            coefficients = svm.coef_.astype(np.float32).T.copy()
            yield compare(
                f"predict a batch of {n_rows:,} (float32), d = 4,096, r = 128, C = {n_classes:,}",
                "NumPy float32 product + argmax",
                lambda coefficients=coefficients, X=X: (X @ coefficients).argmax(axis=1),
                lambda ours=ours, X=X: ours.predict(X),
                threads,
                rounds=5,
            )
            one = X[:1].astype(np.float64)
            yield compare(
                "predict one row, d = 4,096, C = 1,000",
                "LinearSVC.predict",
                lambda svm=svm, one=one: svm.predict(one),
                lambda ours=ours, one=one: ours.predict(one),
                threads,
                rounds=31,
                floor=10,
                aim=30,
            )


def standardised(name: str) -> tuple[NDArray[np.float32], NDArray[Any]]:
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        X, y = arrays["X_train"].astype(np.float32), arrays["y_train"]
    return StandardScaler().fit_transform(X).astype(np.float32), y


_SVM_SECONDS: dict[str, float] = {}


def fit(threads: int) -> Iterator[Row]:
    """Training beside LinearSVC (Crammer-Singer) and RidgeClassifier, on real features."""
    cases = (
        (
            "cifar10_gist512",
            300,
            {"hinge": (60, 150), "exponential": (20, 60), "defaults": (None, None)},
        ),
        (
            "tinyimagenet100_cnn1280",
            100,
            {"hinge": (60, 150), "exponential": (15, 40), "defaults": (None, 10)},
        ),
    )
    for name, max_iter, targets in cases:
        if not (DATA / f"{name}.npz").exists():
            print(f"{name} is not in {DATA}: left out")
            continue
        X, y = standardised(name)
        svm = LinearSVC(
            C=1e-3, multi_class="crammer_singer", max_iter=max_iter, random_state=0, dual=True
        )
        ours = {
            loss: BinaryCodeClassifier.paper(128, loss=loss, random_state=0, **PLAIN)
            for loss in ("hinge", "exponential")
        }
        ours["defaults"] = BinaryCodeClassifier(128, random_state=0)
        work: dict[str, Callable[[], Any]] = {
            loss: (lambda classifier=classifier: classifier.fit(X, y))
            for loss, classifier in ours.items()
        }
        work["ridge"] = lambda X=X, y=y: RidgeClassifier(solver="cholesky").fit(X, y)
        before = measure(work, rounds=3)
        # It takes a minute on one thread and knows no more, so it is timed once for both counts.
        if name not in _SVM_SECONDS:
            _SVM_SECONDS[name] = measure_once(lambda svm=svm, X=X, y=y: svm.fit(X, y))
        svm_seconds = _SVM_SECONDS[name]
        after = measure(work, rounds=3)
        seconds = {key: (before[key] + after[key]) / 2 for key in before}
        for loss, (floor, aim) in targets.items():
            peers = (
                (f"LinearSVC Crammer-Singer, {max_iter} iterations", svm_seconds, floor, aim),
                ("RidgeClassifier (Cholesky)", seconds["ridge"], None, None),
            )
            for peer, taken, least, wanted in peers:
                yield Row(
                    f"fit {name}, 128 bits, {loss}",
                    peer,
                    threads,
                    taken,
                    seconds[loss],
                    taken / seconds[loss],
                    least,
                    wanted,
                )


def measure_once(work: Callable[[], Any]) -> float:
    """Seconds of one run; for a peer that takes a minute."""
    import time
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


def growth() -> list[dict[str, Any]]:
    """How the cost of each stage grows when n, d, r and C are each doubled three times."""
    rng = np.random.default_rng(0)
    base = {"n": 16_000, "d": 512, "r": 128, "C": 100}
    table = []
    for axis in base:
        for doubling in range(4):
            size = dict(base)
            size[axis] = base[axis] << doubling
            n, d, r, n_classes = size["n"], size["d"], size["r"], size["C"]
            centres = rng.standard_normal((n_classes, d)).astype(np.float32)
            y = np.arange(n) % n_classes
            X = centres[y] + 2 * rng.standard_normal((n, d)).astype(np.float32)
            hinge = BinaryCodeClassifier.paper(r, loss="hinge", random_state=0, **PLAIN).fit(X, y)
            exponential = BinaryCodeClassifier.paper(r, random_state=0, **PLAIN)
            model = hinge.packed()
            codes, index = model.encode(X), HammingIndex(model.weights)
            seconds = measure(
                {
                    "fit hinge": lambda: BinaryCodeClassifier.paper(
                        r, loss="hinge", random_state=0, **PLAIN
                    ).fit(X, y),
                    "fit exponential": lambda: exponential.fit(X, y),
                    "encode": lambda: model.encode(X),
                    "search": lambda: index.nearest(codes),
                },
                rounds=5,
            )
            table.append(
                {"doubled": axis, "times": 1 << doubling, "size": size, "seconds": seconds}
            )
    return table


PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "search": search,
    "encode": encode,
    "predict": predict,
    "rescoring": rescoring,
    "fit": fit,
}


NOTE = (
    "Ratios of medians in one run, peers and ours in turn, equal threads on both sides; training "
    "of LinearSVC, a minute long and always on one thread, is timed once, between two sets of "
    "ours. Measured by `make bench`."
)


def compared(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows of the table of ratios."""
    return [
        {
            "": row.what,
            "peer": row.peer,
            "threads": row.threads,
            "peer, ms": 1e3 * row.peer_seconds,
            "ours, ms": 1e3 * row.our_seconds,
            "ratio": row.ratio,
            "floor": row.floor,
            "aim": row.aim,
            "missed": "missed" if row.floor is not None and row.ratio < row.floor else None,
        }
        for row in rows
    ]


def relative(grown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Times relative to the smallest size, one row per stage and size that is doubled."""
    found = []
    for stage in grown[0]["seconds"]:
        for axis in grown[0]["size"]:
            steps = [g for g in grown if g["doubled"] == axis]
            first = steps[0]["seconds"][stage]
            times = {f"x{g['times']}": g["seconds"][stage] / first for g in steps}
            found.append({"": f"{stage}, {axis} from {grown[0]['size'][axis]:,}"} | times)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*PARTS, "growth"], help="run one part")
    parser.add_argument("--threads", type=int, help="one number of threads instead of 1 and all")
    chosen = parser.parse_args()
    rows: list[Row] = []
    counts = [chosen.threads] if chosen.threads else sorted({1, ALL_THREADS})
    for name, part in PARTS.items():
        if chosen.only not in (None, name):
            continue
        for threads in counts:
            with threads_of_all(threads):
                faiss.omp_set_num_threads(threads)
                for row in part(threads):
                    rows.append(row)
                    print(f"{row.what} | {row.peer} | {threads} | {row.ratio:.2f}", flush=True)
    grown = []
    if chosen.only in (None, "growth"):
        with threads_of_all(1):
            grown = relative(growth())
    if chosen.only is None and chosen.threads is None:
        tables = {"": compared(rows), "Time on one thread as one size is doubled": grown}
        write_page("speed", "Speed", NOTE, tables)
    elif grown:
        print(*grown, sep="\n")


if __name__ == "__main__":
    main()
