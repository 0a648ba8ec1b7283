"""Command line of the evaluation: ``python -m reproduction COMMAND``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reproduction.datasets import DATASETS, check_files
from reproduction.methods import METHODS
from reproduction.plan import Cell, full_plan, plan_cells, quick_plan
from reproduction.report import merge_results, save_run, write_report
from reproduction.runner import Outcome, run_cells


def main(arguments: list[str] | None = None) -> None:
    """Run a command; errors are printed in one line."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the evaluation, or its missing cells")
    run.add_argument("--data", type=Path, help="folder of feature files; digits by default")
    run.add_argument("--quick", action="store_true", help="small data, about two minutes")
    run.add_argument("--out", type=Path, default=Path("reproduction-results"))
    run.add_argument(
        "--time-limit", type=_positive(float), default=600.0, help="CPU seconds per cell"
    )
    run.add_argument("--seeds", type=_positive(int), help="number of seeds and splits")
    run.add_argument("--jobs", type=_positive(int), default=1, help="cells at a time, one per core")
    for option, names in (("--methods", METHODS), ("--datasets", DATASETS)):
        run.add_argument(
            option, nargs="+", choices=names, metavar="NAME", help=f"some of {', '.join(names)}"
        )
    run.set_defaults(command=_run)

    report = commands.add_parser("report", help="write the report again from results.csv")
    report.add_argument("folder", type=Path)
    report.add_argument(
        "--merge",
        nargs="+",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="other runs to add to it",
    )
    report.set_defaults(command=_report)
    return parser


def _positive(kind: type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"must be positive, found {text}")
        return value

    return parse


def _run(options: argparse.Namespace) -> None:
    plan = quick_plan(options.data) if options.quick else full_plan(options.data)
    # Datasets requested by name are always in the tables.
    added = tuple(name for name in options.datasets or () if name not in plan.tables)
    plan = replace(plan, tables=plan.tables + added, n_seeds=options.seeds or plan.n_seeds)
    cells = plan_cells(plan, options.methods, options.datasets)
    if not cells:
        raise ValueError("--methods and --datasets leave nothing to run")
    check_files(dict.fromkeys(cell.data for cell in cells), options.data)
    kept = options.out / "cells"
    kept.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()

    def report(cell: Cell, outcome: Outcome) -> None:
        counts[outcome["status"]] += 1
        reason = f" ({outcome['reason']})" if outcome["status"] != "done" else ""
        print(f"{counts.total()}/{len(cells)} {cell}: {outcome['status']}{reason}", flush=True)

    outcomes = run_cells(cells, options.data, kept, options.time_limit, report, options.jobs)
    settings = {
        "run": "quick" if options.quick else "full",
        "time limit": f"{options.time_limit:g} s of CPU per method, dataset, code length and seed",
        "processes": f"{options.jobs} at a time, each on one thread",
        "seeds": str(plan.n_seeds),
    }
    path = save_run(outcomes, settings, options.out)
    print(f"{', '.join(f'{n} {status}' for status, n in counts.items())}; report: {path}")


def _report(options: argparse.Namespace) -> None:
    if options.merge:
        has_results = (options.folder / "results.csv").exists()
        merge_results(options.folder, [*[options.folder] * has_results, *options.merge])
    print(write_report(options.folder))


if __name__ == "__main__":
    main()
