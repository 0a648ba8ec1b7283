"""`bitclass reproduce`: the paper's evaluation, and a report to hold beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bitclass.cli.errors import UsageError
from bitclass.cli.progress import cells_progress
from bitclass.experiments import (
    DATA_SETS,
    METHODS,
    Cell,
    Outcome,
    check_files,
    full_plan,
    plan_cells,
    quick_plan,
    require_matplotlib,
    run_cells,
    write_report,
)

__all__ = ["run_reproduce"]


def run_reproduce(
    data: Path | None,
    out: Path,
    *,
    quick: bool,
    time_limit: float,
    n_seeds: int | None,
    methods: str | None,
    datasets: str | None,
) -> None:
    """Run all cells that are not done yet, then write the report.

    Parameters
    ----------
    data : folder of the data files
    out : folder to write to; results of cells are kept in its folder ``cells``
    quick : whether to take small data
    time_limit : seconds a cell
    n_seeds : how many seeds, as planned where None
    methods, datasets : names to keep to, with commas between them
    """
    require_matplotlib()
    wanted_methods = _names(methods, METHODS, "--methods")
    wanted_data = _names(datasets, DATA_SETS, "--datasets")
    plan = quick_plan(data) if quick else full_plan(data)
    if wanted_data is not None:
        # A data set that is asked for by name is in the tables, whatever the plan.
        added = tuple(name for name in wanted_data if name not in plan.tables)
        plan = replace(plan, tables=plan.tables + added)
    if n_seeds is not None:
        plan = replace(plan, n_seeds=n_seeds)
    cells = plan_cells(plan, wanted_methods, wanted_data)
    if not cells:
        raise UsageError("--methods and --datasets leave nothing to run")
    check_files(dict.fromkeys(cell.data for cell in cells), data)
    kept = out / "cells"
    kept.mkdir(parents=True, exist_ok=True)

    done: Counter[str] = Counter()
    with cells_progress(len(cells)) as tell:

        def report(cell: Cell, outcome: Outcome | None) -> None:
            if outcome is not None:
                done[outcome.status] += 1
            tell(str(cell), done.total())

        outcomes = run_cells(cells, data, kept, time_limit, report)
        tell("", len(cells))
    settings = {
        "data": "the digits of scikit-learn" if data is None else "files and synthetic",
        "run": "quick" if quick else "full",
        "time limit": f"{time_limit:g} s for each method on each data set",
        "seeds": str(plan.n_seeds),
    }
    path = write_report(outcomes, out, settings)
    _tell(path, outcomes, done)


def _names(text: str | None, known: Mapping[str, Any], option: str) -> list[str] | None:
    """The names in a list with commas; an unknown one is answered with those that there are."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: {name!r} is not known; there are {_list(known)}")
    if not names:
        raise UsageError(f"{option}: names nothing; there are {_list(known)}")
    return names


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _tell(path: Path, outcomes: Mapping[Cell, Outcome], done: Counter[str]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for cell, outcome in outcomes.items():
        if outcome.status == "failed":
            console.print(f"failed: {cell}: {outcome.reason}", markup=False)
    parts = [f"{done['done']} of {len(outcomes)} cells done"]
    if done["timeout"]:
        parts.append(f"{done['timeout']} passed the time limit")
    if done["failed"]:
        parts.append(f"{done['failed']} failed")
    console.print(f"{', '.join(parts)}; report: {path}", markup=False)
