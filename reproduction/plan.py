"""The cells of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reproduction.datasets import DATASETS, has_files
from reproduction.methods import (
    BITCLASS,
    HASHING,
    HASHING_RBF,
    METHODS,
    OTHER_LOSSES,
    PAPER,
    SVMS,
)

__all__ = ["CODE_LENGTHS", "TABLE_BITS", "Cell", "Plan", "full_plan", "plan_cells", "quick_plan"]

#: Code length of the tables.
TABLE_BITS = 128
#: Code lengths of the figures.
CODE_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)

# These run only at the code length of the tables.
_ONE_LENGTH = (*OTHER_LOSSES, "paper-mincut")
# Maximum number of seeds of the curves, because hashing methods with long codes are slow.
_MAX_CURVE_SEEDS = 2


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
    shapes = tuple(n for n, data in DATASETS.items() if data.synthetic and n != "small-shape")
    if folder is None:
        return Plan(("digits", *shapes), ("digits",), ("sun397-shape",), CODE_LENGTHS, 3)
    real = tuple(
        name
        for name, data in DATASETS.items()
        if data.file is not None and (not data.optional or has_files(name, folder))
    )
    return Plan(
        (*real, *shapes), ("clinc150", "tinyimagenet100"), ("sun397-shape",), CODE_LENGTHS, 3
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
        if seed < _MAX_CURVE_SEEDS:
            for data in plan.curves:
                wanted += [(m, data, bits) for bits in plan.lengths for m in (*PAPER, *BITCLASS)]
                # Every second length is enough for the slow methods.
                wanted += [(m, data, bits) for bits in plan.lengths[::2] for m in HASHING]
        wanted += [(m, data, r) for data in plan.times for r in plan.lengths for m in PAPER]
        cells |= dict.fromkeys(Cell(method, data, bits, seed) for method, data, bits in wanted)
    return [
        cell
        for cell in cells
        if (methods is None or cell.method in methods)
        and (datasets is None or cell.data in datasets)
        and (cell.seed == 0 or not DATASETS[cell.data].synthetic)
    ]


def _table_cells(data: str) -> list[tuple[str, int]]:
    """Methods and code lengths of Table 1: all at 128 bits, on real data ours also at 256."""
    dataset = DATASETS[data]
    names: Sequence[str] = list(METHODS)
    if data == "cifar10-unscaled":
        names = SVMS
    elif dataset.synthetic:
        rbf = (*HASHING_RBF, "bitclass-rbf")
        names = [name for name in METHODS if name not in (*_ONE_LENGTH, *rbf)]
    cells = [(name, TABLE_BITS if METHODS[name].has_bits else 0) for name in names]
    if not dataset.synthetic:
        ours = (name for name in names if METHODS[name].kind in ("paper", "bitclass"))
        cells += [(name, 2 * TABLE_BITS) for name in ours if name not in _ONE_LENGTH]
    return cells
