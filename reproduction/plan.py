"""The cells of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reproduction.datasets import DATASETS, has_files
from reproduction.methods import (
    BITCLASS,
    HASHING,
    METHODS,
    OTHER_LOSSES,
    OTHER_STARTS,
    PAPER,
    SVMS,
)

__all__ = ["CODE_LENGTHS", "TABLE_BITS", "Cell", "Plan", "full_plan", "plan_cells", "quick_plan"]

#: Code length of the tables.
TABLE_BITS = 128
#: Code lengths of the figures.
CODE_LENGTHS = (16, 32, 64, 128, 256, 512)

# These run only at the code length of the tables, and only on real data.
_ONE_LENGTH = (*OTHER_LOSSES, "paper-mincut", *(m for pair in OTHER_STARTS.values() for m in pair))
# Datasets that a full run leaves out: a small one for quick runs, and the split of CIFAR-10 that is
# not the paper's.
_NOT_IN_FULL = ("small-shape", "cifar10")


@dataclass(frozen=True)
class Cell:
    """One method on one dataset at one code length with one seed."""

    method: str  # name in `METHODS`
    data: str  # name in `DATASETS`
    n_bits: int  # 0 for methods without codes
    seed: int  # of the method, and of a random split

    def __str__(self) -> str:
        bits = f", {self.n_bits} bits" if self.n_bits else ""
        return f"{self.method} on {self.data}{bits}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """Datasets, code lengths and seeds of a run."""

    tables: tuple[str, ...]  # datasets of Table 1, with all methods
    curves: tuple[str, ...]  # datasets of the figures against code length
    times: tuple[str, ...]  # synthetic datasets of the figure of training times
    lengths: tuple[int, ...]  # code lengths of the figures
    n_seeds: int  # on real data; synthetic data has one seed


def full_plan(folder: Path | None) -> Plan:
    """All datasets; without a folder of feature files, digits instead of the real datasets."""
    datasets = {name: data for name, data in DATASETS.items() if name not in _NOT_IN_FULL}
    shapes = tuple(name for name, data in datasets.items() if data.synthetic)
    if folder is None:
        return Plan(("digits", *shapes), ("digits",), ("sun397-shape",), CODE_LENGTHS, 2)
    real = tuple(
        name
        for name, data in datasets.items()
        if data.file is not None and (not data.optional or has_files(name, folder))
    )
    return Plan(
        (*real, *shapes), ("clinc150", "tinyimagenet100"), ("sun397-shape",), CODE_LENGTHS, 2
    )


def quick_plan(folder: Path | None) -> Plan:
    """Small data, two code lengths, two seeds: about two minutes on two cores."""
    name = "digits" if folder is None else "letters"
    return Plan((name, "small-shape"), (name,), ("small-shape",), (16, 256), 2)


def plan_cells(
    plan: Plan, methods: Sequence[str] | None = None, datasets: Sequence[str] | None = None
) -> list[Cell]:
    """The cells of a plan for some methods and datasets, ordered by seed."""
    cells: dict[Cell, None] = {}
    for seed in range(plan.n_seeds):
        wanted = [(name, data, bits) for data in plan.tables for name, bits in _table_cells(data)]
        for data in plan.curves:
            wanted += [(m, data, bits) for bits in plan.lengths for m in (*PAPER, *BITCLASS)]
            if seed == 0:  # every second length and one seed are enough for the slow methods
                wanted += [(m, data, bits) for bits in plan.lengths[::2] for m in HASHING]
        wanted += [(m, data, r) for data in plan.times for r in plan.lengths for m in PAPER]
        cells |= dict.fromkeys(Cell(method, data, bits, seed) for method, data, bits in wanted)
    return [
        cell
        for cell in cells
        if (methods is None or cell.method in methods)
        and (datasets is None or cell.data in datasets)
        and (cell.seed == 0 or _depends_on_seed(cell))
    ]


def _depends_on_seed(cell: Cell) -> bool:
    """Whether more than one seed is worth its time: not for times, nor for an SVM on one split."""
    data = DATASETS[cell.data]
    return not data.synthetic and (METHODS[cell.method].kind != "svm" or data.split_by_seed)


def _table_cells(data: str) -> list[tuple[str, int]]:
    """Methods and code lengths of Table 1: all at 128 bits, on real data ours also at 256."""
    dataset = DATASETS[data]
    names: Sequence[str] = list(METHODS)
    if data == "cifar10-unscaled":
        names = SVMS
    elif data == "imagenet1000-shape":  # of which the paper has the memory only
        names = (*PAPER, *BITCLASS)
    elif dataset.synthetic:
        left_out = (*_ONE_LENGTH, "sdh-rbf")
        if data == "imagenet100-shape":  # two SVMs of 15 GB each may run at the same time
            left_out += ("svm-ova",)
        names = [name for name in METHODS if name not in left_out]
    cells = [(name, TABLE_BITS if METHODS[name].has_bits else 0) for name in names]
    if not dataset.synthetic:
        ours = (name for name in names if METHODS[name].kind in ("paper", "bitclass"))
        cells += [(name, 2 * TABLE_BITS) for name in ours if name not in _ONE_LENGTH]
    return cells
