"""The real data sets: where they are, their names, and how their rows are split."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedShuffleSplit

DATA = Path(os.environ.get("BITCLASS_DATA", Path(__file__).parents[2] / "shared" / "data"))
#: Titles of the data sets, the quickest to learn first.
NAMES = {
    "letter16": "letters",
    "caltech101_cnn1280": "Caltech-101 CNN",
    "clinc150_minilm384": "CLINC-150 MiniLM",
    "cifar10_gist512": "CIFAR-10 GIST",
    "tinyimagenet100_cnn1280": "Tiny-ImageNet-100 CNN",
}
CLASSES = {
    "letter16": 26,
    "caltech101_cnn1280": 101,
    "clinc150_minilm384": 150,
    "cifar10_gist512": 10,
    "tinyimagenet100_cnn1280": 100,
}
_HELD_OUT = 0.2
_PAPER_TEST_ROWS_A_CLASS = 100


@dataclass(frozen=True)
class Rows:
    """Rows to learn from and rows to be judged by: X (n, d) float32, labels (n,)."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]

    def held_out(self, seed: int) -> Rows:
        """A fifth of the training rows in place of the test rows, the same share of each class."""
        split = StratifiedShuffleSplit(1, test_size=_HELD_OUT, random_state=seed)
        kept, out = next(split.split(self.y[:, None], self.y))
        return Rows(self.X[kept], self.y[kept], self.X[out], self.y[out])

    def paper_draw(self, draw: int) -> Rows:
        """The paper's split: 100 test rows of each class, drawn from all rows together."""
        X = np.concatenate([self.X, self.X_test])
        y = np.concatenate([self.y, self.y_test])
        random = np.random.default_rng(draw)
        out = np.zeros(len(y), dtype=bool)
        for label in np.unique(y):
            own = np.flatnonzero(y == label)
            out[random.choice(own, _PAPER_TEST_ROWS_A_CLASS, replace=False)] = True
        return Rows(X[~out], y[~out], X[out], y[out])


def load(name: str, folder: Path = DATA) -> Rows:
    """The rows of a data set as they are published."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return Rows(
            arrays["X_train"].astype(np.float32),
            arrays["y_train"],
            arrays["X_test"].astype(np.float32),
            arrays["y_test"],
        )


def present(names: list[str], folder: Path = DATA) -> list[str]:
    """Those of the data sets that are there; an error if none is."""
    there = [name for name in names if (folder / f"{name}.npz").exists()]
    for name in sorted(set(names) - set(there)):
        print(f"{name} is not in {folder}: left out")
    if not there:
        raise SystemExit(f"no data in {folder}; set BITCLASS_DATA, or give --data")
    return there
