"""Data sets of pictures, in the files as they are published."""

from bitclass.data.picture_sets.cifar import open_cifar
from bitclass.data.picture_sets.devkit import Devkit, open_devkit
from bitclass.data.picture_sets.download import DOWNLOADS, download
from bitclass.data.picture_sets.ilsvrc2012 import open_ilsvrc2012
from bitclass.data.picture_sets.splits import Split
from bitclass.data.picture_sets.subsets import (
    draw_test,
    larger_classes,
    largest_classes,
    of_classes,
    paper_cifar10,
    paper_ilsvrc100,
    paper_sun42,
)
from bitclass.data.picture_sets.sun397 import open_sun397
from bitclass.data.picture_sets.tiny_imagenet import open_tiny_imagenet, tiny_imagenet_words

__all__ = [
    "DOWNLOADS",
    "Devkit",
    "Split",
    "download",
    "draw_test",
    "larger_classes",
    "largest_classes",
    "of_classes",
    "open_cifar",
    "open_devkit",
    "open_ilsvrc2012",
    "open_sun397",
    "open_tiny_imagenet",
    "paper_cifar10",
    "paper_ilsvrc100",
    "paper_sun42",
    "tiny_imagenet_words",
]
