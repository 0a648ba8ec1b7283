"""The real datasets: where they are, and their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DATA = Path(os.environ.get("BITCLASS_DATA", Path(__file__).parents[2] / "shared" / "data"))
#: Titles of the datasets, the quickest to learn first.
NAMES = {
    "letter16": "letters",
    "caltech101_cnn1280": "Caltech-101",
    "clinc150_minilm384": "CLINC-150",
    "cifar10_gist512": "CIFAR-10 GIST",
    "tinyimagenet100_cnn1280": "Tiny-ImageNet-100",
    "omniglot1623_cnn1280": "Omniglot, 1,623 classes",
}


class Rows(NamedTuple):
    """Training and test rows: X (n, d) float32, labels (n,)."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]


def load(name: str, folder: Path = DATA) -> Rows:
    """The rows of a dataset as they are published."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        X, X_test = (arrays[key].astype(np.float32) for key in ("X_train", "X_test"))
        return Rows(X, arrays["y_train"], X_test, arrays["y_test"])


def present(names: list[str], folder: Path = DATA) -> list[str]:
    """Those of the datasets that are there; an error if none is."""
    there = [name for name in names if (folder / f"{name}.npz").exists()]
    for name in sorted(set(names) - set(there)):
        print(f"{name} is not in {folder}: skipped")
    if not there:
        raise SystemExit(f"no data in {folder}; set BITCLASS_DATA, or give --data")
    return there
