"""The evaluation of the paper: its tables and figures, on real data, by one command.

A *cell* is one method on one data set at one code length with one seed. Each runs in a process of
its own, under a time limit, and its result is kept in a file, so that a run that was stopped goes
on. One function scores all methods (`measure`), and only it ever looks at test rows.
"""

from bitclass.experiments.cells import Cell, Outcome
from bitclass.experiments.datasets import DATA_SETS, check_files
from bitclass.experiments.figures import require_matplotlib
from bitclass.experiments.methods import METHODS
from bitclass.experiments.plan import full_plan, plan_cells, quick_plan
from bitclass.experiments.report import write_report
from bitclass.experiments.runner import run_cells

__all__ = [
    "DATA_SETS",
    "METHODS",
    "Cell",
    "Outcome",
    "check_files",
    "full_plan",
    "plan_cells",
    "quick_plan",
    "require_matplotlib",
    "run_cells",
    "write_report",
]
