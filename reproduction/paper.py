"""The numbers published in the paper."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PAPER_COLUMN", "TABLE_1", "TABLE_2", "PaperRow"]


class PaperRow(NamedTuple):
    """A method on a dataset in Table 1 of the paper: percent, seconds, seconds per row."""

    accuracy: float
    train_seconds: float
    test_seconds: float


# By method name, for these datasets.
_DATASETS = ("SUN397", "ImageNet", "CIFAR-10")
_ROWS = {
    "svm-ova": ((77.39, 818.87, 1.55e-5), (79.84, 151.02, 1.15e-5), (57.1, 55.17, 4.02e-7)),
    "svm-multi": ((75.28, 380.94, 1.01e-5), (79.48, 93.12, 1.21e-5), (57.7, 35.55, 4.27e-7)),
    "lsh": ((54.11, 417.42, 7.75e-6), (58.16, 107.41, 1.32e-5), (39.0, 39.64, 2.26e-6)),
    "cca-itq": ((69.33, 452.34, 8.78e-6), (76.30, 142.95, 1.25e-5), (56.4, 47.23, 2.35e-6)),
    "sdh": ((72.56, 2522.33, 7.43e-6), (76.64, 1102.21, 1.43e-5), (55.3, 115.63, 2.32e-6)),
    "paper-exponential": (
        (75.44, 772.11, 3.67e-6),
        (79.04, 245.14, 6.54e-6),
        (59.2, 16.01, 2.01e-6),
    ),
    "paper-hinge": ((76.56, 16.45, 3.86e-6), (77.88, 35.16, 6.86e-6), (54.2, 2.31, 2.13e-6)),
}

#: Table 1, by the paper's dataset and our method name; measured on a quad-core PC of 2016.
TABLE_1: dict[str, dict[str, PaperRow]] = {
    data: {method: PaperRow(*rows[column]) for method, rows in _ROWS.items()}
    for column, data in enumerate(_DATASETS)
}

#: The paper's dataset that each of ours corresponds to.
PAPER_COLUMN = {
    "cifar10-paper": "CIFAR-10",
    "cifar10": "CIFAR-10",
    "sun42": "SUN397",
    "imagenet100": "ImageNet",
    "tinyimagenet100": "ImageNet",
    "sun397-shape": "SUN397",
    "imagenet100-shape": "ImageNet",
}

#: Table 2 in MB: training features as floats and as codes, models of the SVM and of the paper.
TABLE_2 = {
    "imagenet1000-shape": (3943.91, 24.37, 30.86, 9.92),
    "sun397-shape": (1283.83, 2.01, 4.79, 1.54),
}
