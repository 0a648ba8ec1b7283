"""The data sets of the evaluation, by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bitclass.data import DataFileError, open_rows
from bitclass.experiments.synthetic import draw

__all__ = ["DATA_SETS", "DataSet", "Split", "check_files", "fingerprint", "title_of"]

# The paper's CIFAR-10 test set: 1,000 of all 60,000 images.
_TEST_ROWS_A_CLASS = 100
_ROWS_A_BLOCK = 4096


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to score on.

    Features are standardised by the former, but for those of `cifar10-unscaled`.

    Attributes
    ----------
    X : (n, d) float32
    y : (n,)
    X_test : (m, d) float32
    y_test : (m,)
    """

    X: NDArray[np.float32]
    y: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]


@dataclass(frozen=True)
class DataSet:
    """A data set of the evaluation.

    Attributes
    ----------
    name : str, for the command line
    title : str, for the report
    load : gives the split of a seed, from the folder of the data files
    file : name of the file that it takes, None for none
    content : what is in that file, for whoever has to make it
    synthetic : whether rows are drawn; no accuracy is then read off them
    n_classes : of synthetic rows
    made_up : whether there are no rows to learn from, and models are made up
    """

    name: str
    title: str
    load: Callable[[Path | None, int], Split]
    file: str | None = None
    content: str = ""
    synthetic: bool = False
    n_classes: int | None = None
    made_up: bool = False


def _standardised(
    X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], y_test: NDArray[Any]
) -> Split:
    """Features of mean 0 and variance 1 on the rows to learn from, in float32."""
    split = Split(np.array(X, dtype=np.float32), y, np.array(X_test, dtype=np.float32), y_test)
    _standardise(split)
    return split


def _standardise(split: Split) -> None:
    """The same in place, block by block: synthetic rows are gigabytes."""
    blocks = [split.X[i : i + _ROWS_A_BLOCK] for i in range(0, len(split.X), _ROWS_A_BLOCK)]
    mean = split.X.mean(axis=0, dtype=np.float64)
    squares = sum(np.square(block - mean).sum(axis=0) for block in blocks)
    deviation = np.sqrt(squares / len(split.X))
    deviation[deviation <= 1e-7 * np.abs(mean)] = 1.0
    for block in (*blocks, split.X_test):
        block -= mean.astype(np.float32)
        block /= deviation.astype(np.float32)


def _digits(folder: Path | None, seed: int) -> Split:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    return _standardised(X, y, X_test, y_test)


def _part(path: Path, part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    reader = open_rows(path, features=f"X_{part}", labels=f"y_{part}", format="npz")
    (batch,) = reader.batches(reader.n_rows)
    if batch.labels is None or not isinstance(batch.X, np.ndarray):
        raise DataFileError(f"{path}: X_{part} must be dense, with labels y_{part}")
    return batch.X, batch.labels


def _as_published(folder: Path | None, seed: int, *, file: str) -> Split:
    """The split that the file has; the seed is for the methods alone."""
    assert folder is not None
    return _standardised(*_part(folder / file, "train"), *_part(folder / file, "test"))


def _as_in_the_paper(
    folder: Path | None, seed: int, *, file: str, standardised: bool = True
) -> Split:
    """A hundred rows of each class for testing, drawn by the seed from both parts together."""
    assert folder is not None
    parts = [_part(folder / file, part) for part in ("train", "test")]
    X = np.concatenate([part[0] for part in parts]).astype(np.float32)
    y = np.concatenate([part[1] for part in parts])
    rng = np.random.default_rng(seed)
    tested = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        tested[rng.choice(np.flatnonzero(y == label), _TEST_ROWS_A_CLASS, replace=False)] = True
    split = X[~tested], y[~tested], X[tested], y[tested]
    return _standardised(*split) if standardised else Split(*split)


def _synthetic(folder: Path | None, seed: int, *, n: int, d: int, n_classes: int) -> Split:
    split = Split(*draw(n, d, n_classes, seed))
    if n:
        _standardise(split)
    return split


def _of_file(name: str, title: str, file: str, content: str) -> DataSet:
    return DataSet(name, title, partial(_as_published, file=file), file, content)


def _of_shape(name: str, title: str, n: int, d: int, n_classes: int) -> DataSet:
    load = partial(_synthetic, n=n, d=d, n_classes=n_classes)
    return DataSet(name, title, load, synthetic=True, n_classes=n_classes, made_up=n == 0)


_CIFAR = "cifar10_gist512.npz"
_CIFAR_CONTENT = "GIST-512 features of the CIFAR-10 images"
_CNN_CONTENT = "pooled features of a convolutional network for the images of"

_ALL = (
    DataSet("digits", "digits", _digits),
    DataSet(
        "cifar10-paper",
        "CIFAR-10, the paper's split",
        partial(_as_in_the_paper, file=_CIFAR),
        _CIFAR,
        _CIFAR_CONTENT,
    ),
    # The paper does not say whether it scales features, and SVMs mind.
    DataSet(
        "cifar10-unscaled",
        "CIFAR-10, the paper's split, not standardised",
        partial(_as_in_the_paper, file=_CIFAR, standardised=False),
        _CIFAR,
        _CIFAR_CONTENT,
    ),
    _of_file("cifar10", "CIFAR-10, the standard split", _CIFAR, _CIFAR_CONTENT),
    _of_file(
        "tinyimagenet100",
        "Tiny-ImageNet-100",
        "tinyimagenet100_cnn1280.npz",
        f"{_CNN_CONTENT} 100 classes of Tiny ImageNet",
    ),
    _of_file(
        "caltech101",
        "Caltech-101",
        "caltech101_cnn1280.npz",
        f"{_CNN_CONTENT} Caltech-101",
    ),
    _of_file(
        "clinc150",
        "CLINC-150",
        "clinc150_minilm384.npz",
        "sentence embeddings of the CLINC-150 questions",
    ),
    _of_file("letters", "letters", "letter16.npz", "the letter recognition data"),
    _of_shape("sun42-shape", "SUN397's shape, 42 classes", 104_000, 1600, 42),
    _of_shape("sun397-shape", "SUN397's shape, 397 classes", 104_000, 1600, 397),
    _of_shape("imagenet100-shape", "ImageNet's shape, 100 classes", 128_000, 4096, 100),
    _of_shape("imagenet1000-shape", "ImageNet's shape, 1,000 classes", 128_000, 4096, 1000),
    # No rows to learn from: a model of this size is made up, for its size and its speed.
    _of_shape("imagenet21841-model", "a model of 21,841 classes, 4,096 features", 0, 4096, 21_841),
    # Small enough for the quick run.
    _of_shape("small-shape", "2,000 rows, 128 features, 30 classes", 2000, 128, 30),
)

#: The data sets, by name.
DATA_SETS: dict[str, DataSet] = {data.name: data for data in _ALL}


def title_of(name: str) -> str:
    """Title of a data set, for the report."""
    return DATA_SETS[name].title


def check_files(names: Iterable[str], folder: Path | None) -> None:
    """Refuse to begin where a file is missing; say which, and what it has to hold."""
    for name in names:
        data = DATA_SETS[name]
        if data.file is None:
            continue
        if folder is None:
            raise DataFileError(
                f"data set {name} takes the file {data.file}; name its folder with --data"
            )
        if not folder.is_dir():
            raise DataFileError(f"{folder}: no such folder")
        if not (folder / data.file).is_file():
            raise DataFileError(
                f"{folder / data.file}: no such file; it is {data.content}, saved with numpy.savez "
                "as X_train, y_train, X_test and y_test"
            )


def fingerprint(name: str, folder: Path | None) -> str:
    """Tells one content of a data set from another."""
    data = DATA_SETS[name]
    if data.file is None or folder is None:
        return data.name
    with open(folder / data.file, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
