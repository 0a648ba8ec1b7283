"""The evaluation of the paper: its tables and figures, on real data, by one command.

A *cell* is one method on one data set at one code length with one seed. Each runs in a process of
its own, under a time limit, and its result is kept in a file, so that a run that was stopped goes
on. One function scores all methods (`measure`), and only it ever looks at test rows.
"""

from bitclass.experiments.cells import Cell, Outcome
from bitclass.experiments.datasets import DATA_SETS
from bitclass.experiments.methods import METHODS
from bitclass.experiments.plan import plan_cells
from bitclass.experiments.runner import run_cells

__all__ = [
    "DATA_SETS",
    "METHODS",
    "Cell",
    "Outcome",
    "plan_cells",
    "run_cells",
]
