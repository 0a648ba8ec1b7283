"""Predictions of onnxruntime compared with those of the model, on all available datasets.

Counts the rows with different predictions, and those of them that are near a tie: where relative
changes of 1e-4 in the row also change the prediction.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bitclass import BinaryCodeClassifier, PackedModel
from harness import NAMES, load, parse_options, present, write_page

NOTE = (
    "Predictions of onnxruntime compared with those of the model, on test rows. *differ* counts "
    "rows with different labels; *near a tie* counts those of them whose label also changes if "
    "the row is perturbed by a relative 1e-4. *probabilities* is the largest difference between "
    "the probabilities of the best three classes, on rows for which these classes agree. Text "
    "models cannot be exported to ONNX. Measured by `make onnx-agreement`."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--bits", type=int, default=128)
    parser.add_argument("--rows", type=int, default=20_000, help="maximum number of training rows")
    options, complete = parse_options(parser)
    rows = []
    for name, path in present(options.datasets).items():
        X, y, X_test, _ = load(path)
        chosen = np.random.default_rng(0).permutation(len(X))[: options.rows]
        for kernel in (None, "rbf"):
            classifier = BinaryCodeClassifier(options.bits, kernel=kernel, random_state=0)
            model = classifier.fit(X[chosen], y[chosen]).packed()
            compared = compare(model, X_test)
            rows.append({"dataset": NAMES[name], "kernel": kernel})
            rows[-1] |= compared
            print(*rows[-1].values(), flush=True)
    write_page("onnx", "ONNX", NOTE, {f"{options.bits} bits": rows}, keep=complete)


def compare(model: PackedModel, X: NDArray[np.float32]) -> dict[str, Any]:
    """Compare the predictions of one model on rows (n, d)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model.to_onnx(path, k=3)
        size = path.stat().st_size
        session = onnxruntime.InferenceSession(path)
    found = session.run(["label"], {"X": X})[0]
    expected = model.predict(X)
    differ = np.flatnonzero(found != expected.astype(found.dtype))
    labels, shares = session.run(["top_labels", "top_probabilities"], {"X": X})
    top_labels, _, probabilities, _ = model.top_classes(X, 3, probabilities=True)
    same = (labels == top_labels.astype(labels.dtype)).all(axis=1)
    return {
        "rows": len(X),
        "differ": len(differ),
        "near a tie": sum(near_a_tie(model, X[i]) for i in differ),
        "probabilities": f"{np.abs(shares - probabilities)[same].max():.0e}",
        "ONNX file, MB": size / 1e6,
    }


def near_a_tie(model: PackedModel, row: NDArray[np.float32]) -> bool:
    """Whether rounding errors can change the prediction."""
    rng = np.random.default_rng(0)
    noise = 1 + 1e-4 * rng.standard_normal((200, len(row))).astype(np.float32)
    return len(np.unique(model.predict(row * noise))) > 1


if __name__ == "__main__":
    main()
