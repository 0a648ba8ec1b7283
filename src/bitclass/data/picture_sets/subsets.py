"""The parts of the data sets that the paper measures on."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.data.picture_sets.cifar import open_cifar
from bitclass.data.picture_sets.ilsvrc2012 import open_ilsvrc2012
from bitclass.data.picture_sets.sun397 import open_sun397
from bitclass.data.pictures import PictureSet

__all__ = [
    "draw_test",
    "larger_classes",
    "largest_classes",
    "of_classes",
    "paper_cifar10",
    "paper_ilsvrc100",
    "paper_sun42",
]


def draw_test(pictures: PictureSet, per_class: int, seed: int = 0) -> tuple[PictureSet, PictureSet]:
    """Draw the same number of test pictures from each class; all others are for training.

    Parameters
    ----------
    pictures : PictureSet, with labels
    per_class : int
    seed : int

    Returns
    -------
    train, test : PictureSet
        In the order of `pictures`.
    """
    labels = _labels_of(pictures)
    classes, counts = np.unique(labels, return_counts=True)
    if counts.min() <= per_class:
        few = int(counts.argmin())
        raise DataFileError(
            f"per_class={per_class}: the class {str(classes[few])!r} has {counts[few]} pictures; "
            "each needs more than are drawn"
        )
    rng = np.random.default_rng(seed)
    drawn = [
        rng.choice(np.flatnonzero(labels == each), per_class, replace=False) for each in classes
    ]
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[np.concatenate(drawn)] = True
    return pictures.select(np.flatnonzero(~is_test)), pictures.select(np.flatnonzero(is_test))


def larger_classes(pictures: PictureSet, more_than: int) -> PictureSet:
    """The classes that have more pictures than so many."""
    classes, counts = np.unique(_labels_of(pictures), return_counts=True)
    return of_classes(pictures, classes[counts > more_than])


def largest_classes(pictures: PictureSet, n_classes: int) -> PictureSet:
    """The so many largest classes; of classes of the same size those whose name comes first."""
    classes, counts = np.unique(_labels_of(pictures), return_counts=True)
    if len(classes) < n_classes:
        raise DataFileError(f"n_classes={n_classes}: there are only {len(classes)} classes")
    return of_classes(pictures, classes[np.argsort(-counts, kind="stable")[:n_classes]])


def of_classes(pictures: PictureSet, classes: NDArray[np.str_]) -> PictureSet:
    """The pictures of some classes, in their order."""
    return pictures.select(np.flatnonzero(np.isin(_labels_of(pictures), classes)))


def paper_cifar10(path: str | os.PathLike[str], seed: int = 0) -> tuple[PictureSet, PictureSet]:
    """CIFAR-10 as the paper splits it: 1,000 of all 60,000 pictures for testing, 100 a class.

    One draw is uncertain by 1.5 points of accuracy: report the mean over several seeds.

    Parameters
    ----------
    path : see `open_cifar`
    seed : int, of the draw

    Returns
    -------
    train, test : PictureSet
    """
    return draw_test(open_cifar(path, "all"), 100, seed)


def paper_sun42(path: str | os.PathLike[str], seed: int = 0) -> tuple[PictureSet, PictureSet]:
    """The classes of SUN397 with more than 500 pictures, 42 in all; 100 of each for testing.

    Parameters
    ----------
    path : see `open_sun397`
    seed : int, of the draw

    Returns
    -------
    train, test : PictureSet
    """
    return draw_test(larger_classes(open_sun397(path, "all"), 500), 100, seed)


def paper_ilsvrc100(path: str | os.PathLike[str]) -> tuple[PictureSet, PictureSet]:
    """The 100 largest classes of ILSVRC 2012, and their validation pictures for testing.

    The paper speaks of all 50,000 validation pictures; 45,000 of them are of classes that were not
    learned, and cannot be predicted.

    Parameters
    ----------
    path : see `open_ilsvrc2012`

    Returns
    -------
    train, test : PictureSet
    """
    train = largest_classes(open_ilsvrc2012(path, "train"), 100)
    return train, of_classes(open_ilsvrc2012(path, "test"), np.unique(_labels_of(train)))


def _labels_of(pictures: PictureSet) -> NDArray[np.str_]:
    if pictures.labels is None:
        raise DataFileError("pictures: have no classes; expected labelled ones")
    return pictures.labels
