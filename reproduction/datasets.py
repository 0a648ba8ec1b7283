"""The datasets of the evaluation: feature files, scikit-learn's digits, and synthetic rows."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches

__all__ = ["DATASETS", "Dataset", "Split", "check_files", "fingerprint", "has_files"]

# The paper's CIFAR-10 test set: 100 of the 6,000 images of each class.
TEST_ROWS_PER_CLASS = 100
ROWS_PER_BLOCK = 4096


@dataclass(frozen=True)
class Split:
    """Training rows X (n, d) with labels y (n,), and test rows."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]


@dataclass(frozen=True)
class Dataset:
    """A dataset of the evaluation."""

    name: str  # for the command line and the results file
    title: str  # for the report
    load: Callable[[Path | None, int], Split]  # from a folder of feature files and a seed
    file: str | None = None  # .npz with X_train, y_train, X_test and y_test, without its extension
    content: str = ""  # of the file, for error messages
    optional: bool = False  # whether a full run skips it if its file is missing
    split_by_seed: bool = False  # whether the test rows depend on the seed
    synthetic: bool = False  # random rows, for which only times and sizes are measured


def standardised(X: Any, y: Any, X_test: Any, y_test: Any) -> Split:
    """Standardise features to mean 0 and variance 1 on the training rows, in float32."""
    X, X_test = np.asarray(X, dtype=np.float32), np.asarray(X_test, dtype=np.float32)
    scaler = StandardScaler(copy=False)  # in place, and in blocks: synthetic rows take gigabytes
    for rows in gen_batches(len(X), ROWS_PER_BLOCK):
        scaler.partial_fit(X[rows])
    for rows in gen_batches(len(X), ROWS_PER_BLOCK):
        scaler.transform(X[rows])
    return Split(X, y, scaler.transform(X_test), y_test)


def _read(folder: Path | None, stem: str) -> list[NDArray[Any]]:
    """X_train, y_train, X_test and y_test of a feature file."""
    assert folder is not None
    path = folder / f"{stem}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in ("X_train", "y_train", "X_test", "y_test")]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from error


def _published_split(folder: Path | None, seed: int, *, stem: str) -> Split:
    """The split in the file; the seed is used only by the methods."""
    return standardised(*_read(folder, stem))


def _paper_split(folder: Path | None, seed: int, *, stem: str, scaled: bool = True) -> Split:
    """A random split of both parts together, with 100 test rows per class."""
    X_train, y_train, X_test, y_test = _read(folder, stem)
    X, y = np.concatenate([X_train, X_test]).astype(np.float32), np.concatenate([y_train, y_test])
    rng = np.random.default_rng(seed)
    tested = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        tested[rng.choice(np.flatnonzero(y == label), TEST_ROWS_PER_CLASS, replace=False)] = True
    split = X[~tested], y[~tested], X[tested], y[tested]
    return standardised(*split) if scaled else Split(*split)


def _digits(folder: Path | None, seed: int) -> Split:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    return standardised(X, y, X_test, y_test)


def synthetic_rows(
    folder: Path | None, seed: int, *, n: int, d: int, n_classes: int, n_test: int = 10_000
) -> Split:
    """Random rows of a given shape, to measure time and memory if the real data is not available.

    Class means lie in a subspace of 64 dimensions with a decaying spectrum, like those of real
    features.
    """
    rng = np.random.default_rng(seed)
    k = min(64, d)
    basis = rng.standard_normal((k, d), dtype=np.float32)
    basis *= ((1.0 + np.arange(k, dtype=np.float32)) ** -0.5)[:, None]
    means = rng.standard_normal((n_classes, k), dtype=np.float32)
    parts = []
    for n_rows in (n, min(n_test, n)):
        y = rng.permutation(np.arange(n_rows) % n_classes)
        X = np.empty((n_rows, d), dtype=np.float32)
        for rows in gen_batches(n_rows, ROWS_PER_BLOCK):
            rng.standard_normal(dtype=np.float32, out=X[rows])
            within = rng.standard_normal((len(X[rows]), k), dtype=np.float32)
            X[rows] += (means[y[rows]] + 0.5 * within) @ basis
        parts += [X, y]
    return standardised(*parts)


def _from_file(name: str, title: str, stem: str, content: str, optional: bool = False) -> Dataset:
    load = partial(_published_split, stem=stem)
    return Dataset(name, title, load, stem, content, optional=optional)


def _of_shape(name: str, title: str, n: int, d: int, n_classes: int) -> Dataset:
    load = partial(synthetic_rows, n=n, d=d, n_classes=n_classes)
    return Dataset(name, f"synthetic, {title}", load, synthetic=True)


_CIFAR, _GIST = "cifar10_gist512", "GIST features of the CIFAR-10 images"
_CNN = "network features of"

_ALL = (
    Dataset("digits", "digits", _digits, split_by_seed=True),
    Dataset(
        "cifar10-paper",
        "CIFAR-10 (paper's split)",
        partial(_paper_split, stem=_CIFAR),
        _CIFAR,
        _GIST,
        split_by_seed=True,
    ),
    # The paper does not say whether it scales features, which matters to SVMs.
    Dataset(
        "cifar10-unscaled",
        "CIFAR-10 (paper's split, features not standardised)",
        partial(_paper_split, stem=_CIFAR, scaled=False),
        _CIFAR,
        _GIST,
        split_by_seed=True,
    ),
    _from_file("cifar10", "CIFAR-10 (standard split)", _CIFAR, _GIST),
    _from_file(
        "sun42", "SUN397 (42 largest classes)", "sun42_features", f"{_CNN} SUN397", optional=True
    ),
    _from_file(
        "imagenet100",
        "ImageNet (100 classes)",
        "imagenet100_features",
        f"{_CNN} ImageNet",
        optional=True,
    ),
    _from_file(
        "tinyimagenet100",
        "Tiny-ImageNet-100",
        "tinyimagenet100_cnn1280",
        f"{_CNN} 100 classes of Tiny ImageNet",
    ),
    _from_file("caltech101", "Caltech-101", "caltech101_cnn1280", f"{_CNN} Caltech-101"),
    _from_file("clinc150", "CLINC-150", "clinc150_minilm384", "sentence embeddings of CLINC-150"),
    _from_file("letters", "letters", "letter16", "the letter recognition dataset"),
    _of_shape("sun397-shape", "SUN397 shape, 397 classes", 104_000, 1600, 397),
    _of_shape("imagenet100-shape", "ImageNet shape, 100 classes", 128_000, 4096, 100),
    _of_shape("imagenet1000-shape", "ImageNet shape, 1,000 classes", 128_000, 4096, 1000),
    _of_shape("small-shape", "2,000 rows, 128 features, 30 classes", 2000, 128, 30),
)

#: All datasets by name, in the order of the report.
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}


def has_files(name: str, folder: Path | None) -> bool:
    """Whether the feature file of a dataset is in a folder."""
    stem = DATASETS[name].file
    return stem is None or (folder is not None and (folder / f"{stem}.npz").is_file())


def check_files(names: Iterable[str], folder: Path | None) -> None:
    """Raise FileNotFoundError if a feature file is missing, with its expected content."""
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    for name in names:
        dataset = DATASETS[name]
        if has_files(name, folder):
            continue
        if folder is None:
            raise FileNotFoundError(
                f"dataset {name} requires {dataset.file}.npz; set its folder with --data"
            )
        raise FileNotFoundError(
            f"{folder / str(dataset.file)}.npz: no such file; expected {dataset.content}, saved "
            "with numpy.savez as X_train, y_train, X_test and y_test"
        )


def fingerprint(name: str, folder: Path | None) -> str:
    """Checksum of the feature file of a dataset."""
    stem = DATASETS[name].file
    if stem is None or folder is None:
        return name
    with (folder / f"{stem}.npz").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
