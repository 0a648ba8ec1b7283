"""Which cells there are to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bitclass.experiments.cells import Cell
from bitclass.experiments.datasets import DATA_SETS
from bitclass.experiments.methods import METHODS, PAPERS_OWN
from bitclass.experiments.untrained import MADE_UP

__all__ = ["CODE_LENGTHS", "TABLE_BITS", "Plan", "full_plan", "plan_cells", "quick_plan"]

#: Code length of the tables.
TABLE_BITS = 128
#: Code lengths of the figures.
CODE_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)

_OURS = (*PAPERS_OWN, "ours-exponential-default", "ours-hinge-default")
_HASHING = ("lsh", "cca-itq", "sdh")
# Run on real data at the code length of the tables alone.
_AT_ONE_LENGTH = ("ours-logistic", "ours-squared-hinge", "ours-crammer-singer", "ours-mincut")
# Rows on which only the SVMs run.
_OF_SVMS = ("cifar10-unscaled",)
# More seeds than this add little to a curve, and the long codes of the hashing methods take long.
_MOST_SEEDS_OF_CURVES = 2


@dataclass(frozen=True)
class Plan:
    """What a run is made of.

    Attributes
    ----------
    tables : data sets of Table 1, all methods
    curves : data sets of the figures of accuracy and time against code length
    times : synthetic data sets of the figure of training time
    lengths : code lengths of the figures
    n_seeds : int, seeds of each cell on real data, at most 2 in the curves; synthetic data has one
    """

    tables: tuple[str, ...]
    curves: tuple[str, ...]
    times: tuple[str, ...]
    lengths: tuple[int, ...]
    n_seeds: int


def full_plan(folder: Path | None) -> Plan:
    """Everything; without a folder of real data, the digits in its place."""
    synthetic = tuple(name for name, data in DATA_SETS.items() if data.synthetic)
    shapes = tuple(name for name in synthetic if name != "small-shape")
    if folder is None:
        return Plan(("digits", *shapes), ("digits",), ("sun397-shape",), CODE_LENGTHS, 3)
    real = tuple(name for name, data in DATA_SETS.items() if data.file is not None)
    curves = ("clinc150", "tinyimagenet100")
    return Plan((*real, *shapes), curves, ("sun397-shape",), CODE_LENGTHS, 3)


def quick_plan(folder: Path | None) -> Plan:
    """Small data, short codes, two seeds: under three minutes on two cores."""
    name = "digits" if folder is None else "letters"
    return Plan((name, "small-shape"), (name,), ("small-shape",), (16, 256), 2)


def plan_cells(
    plan: Plan, methods: Sequence[str] | None = None, datasets: Sequence[str] | None = None
) -> list[Cell]:
    """The cells of a plan, in order: all of the first seed before those of the second.

    Parameters
    ----------
    plan : Plan
    methods, datasets : names to keep to, all where None
    """
    wanted: dict[Cell, None] = {}
    for seed in range(plan.n_seeds):
        for data in plan.tables:
            wanted |= dict.fromkeys(_of_table(data, seed))
        for data in plan.curves if seed < _MOST_SEEDS_OF_CURVES else ():
            for n_bits in plan.lengths:
                wanted |= dict.fromkeys(Cell(name, data, n_bits, seed) for name in _OURS)
            # Every second length will do for those that take long.
            for n_bits in plan.lengths[::2]:
                wanted |= dict.fromkeys(Cell(name, data, n_bits, seed) for name in _HASHING)
        for data in plan.times:
            for n_bits in plan.lengths:
                wanted |= dict.fromkeys(Cell(name, data, n_bits, seed) for name in PAPERS_OWN)
    return [
        cell
        for cell in wanted
        if (methods is None or cell.method in methods)
        and (datasets is None or cell.data in datasets)
        and (cell.seed == 0 or not DATA_SETS[cell.data].synthetic)
    ]


def _of_table(data: str, seed: int) -> list[Cell]:
    """Cells of Table 1: all methods at 128 bits, and ours at 256 on real data."""
    if DATA_SETS[data].made_up:
        bits = {name: TABLE_BITS if METHODS[name].has_bits else 0 for name in MADE_UP}
        return [Cell(name, data, n_bits, seed) for name, n_bits in bits.items()]
    cells = []
    for name, method in METHODS.items():
        if DATA_SETS[data].synthetic and not _is_timed(name):
            continue
        if data in _OF_SVMS and method.kind != "svm":
            continue
        cells.append(Cell(name, data, TABLE_BITS if method.has_bits else 0, seed))
        once = name in _AT_ONE_LENGTH or DATA_SETS[data].synthetic
        if method.kind == "ours" and not once:
            cells.append(Cell(name, data, 2 * TABLE_BITS, seed))
    return cells


def _is_timed(name: str) -> bool:
    """Whether a method runs on synthetic data, which shows neither accuracy nor objective."""
    return not METHODS[name].kernelised and name not in _AT_ONE_LENGTH
