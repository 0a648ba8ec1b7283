"""Predictions of onnxruntime beside the model's own, on every dataset that is there.

Rows on which they differ are counted, and of these the ones that are within rounding of a tie: a
score of the other class, or a value whose sign is a bit, changes by less than 1e-4 of its size.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

from bitclass import BinaryCodeClassifier
from real_data import NAMES, load, present


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, default=128)
    parser.add_argument("--rows", type=int, default=20_000, help="training rows at most")
    arguments = parser.parse_args()
    print("| dataset | precision | rows | differ | near a tie | ONNX file | us per row, ours |")
    print("|---|---|---|---|---|---|---|")
    for name in present(list(NAMES)):
        X, y, X_test, _ = load(name)
        chosen = np.random.default_rng(0).permutation(len(X))[: arguments.rows]
        for precision, kernel in (("int8", None), ("float32", None), ("float32", "rbf")):
            classifier = BinaryCodeClassifier(
                arguments.bits, precision=precision, kernel=kernel, random_state=0
            )
            model = classifier.fit(X[chosen], y[chosen]).packed()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                model.to_onnx(path)
                size = path.stat().st_size
                session = onnxruntime.InferenceSession(path)
            start = time.perf_counter()
            found = session.run(["label"], {"X": X_test})[0]
            theirs = time.perf_counter() - start
            start = time.perf_counter()
            expected = model.predict(X_test)
            ours = time.perf_counter() - start
            differ = np.flatnonzero(found != expected.astype(found.dtype))
            near = sum(near_a_tie(model, X_test[i]) for i in differ)
            per_row = [1e6 * taken / len(X_test) for taken in (theirs, ours)]
            print(
                f"| {NAMES[name]} | {precision}{', rbf' if kernel else ''} | {len(X_test):,} "
                f"| {len(differ)} | {near} | {size / 1e6:.2f} MB "
                f"| {per_row[0]:.1f}, {per_row[1]:.1f} |",
                flush=True,
            )


def near_a_tie(model, row) -> bool:
    """Whether rounding of the row or of sums can change what is predicted."""
    rng = np.random.default_rng(0)
    noise = 1 + 1e-4 * rng.standard_normal((200, len(row))).astype(np.float32)
    return len(np.unique(model.predict(row * noise))) > 1


if __name__ == "__main__":
    main()
