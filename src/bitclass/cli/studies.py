"""Commands that measure: the demonstration, the times, the paper's evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitclass.cli.bench import run_bench
from bitclass.cli.demo import run_demo
from bitclass.cli.options import Json, default_of

__all__ = ["add_studies"]

# Seconds that a cell of the evaluation may take.
_TIME_LIMIT = 600.0


def demo(
    bits: Annotated[int, typer.Option(min=1, max=2048, help="Length of the codes.")] = default_of(
        "n_bits"
    ),
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds to take times over.")] = 5,
) -> None:
    """Learn the digits that ship with scikit-learn, beside LibLinear's support vector machines."""
    run_demo(bits, rounds)


def bench(
    features: Annotated[int, typer.Option(min=1, help="Features of a row.")] = 4096,
    classes: Annotated[int, typer.Option(min=2, help="Number of classes.")] = 1000,
    bits: Annotated[int, typer.Option(min=1, max=2048, help="Length of the codes.")] = default_of(
        "n_bits"
    ),
    rows: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 4000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds to take times over.")] = 7,
    json: Json = False,
) -> None:
    """Time predictions on this machine beside NumPy's float32 product."""
    run_bench(features, classes, bits, rows, rounds, as_json=json)


def reproduce(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data files; without it, scikit-learn's digits."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small data, in under three minutes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder to write to, and to go on from.")] = Path(
        "reproduction"
    ),
    time_limit: Annotated[
        float, typer.Option(min=1, help="Seconds that a method may take on a data set.")
    ] = _TIME_LIMIT,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=100, help="Seeds, and splits, of each number.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Methods to keep to: a,b,...")] = None,
    datasets: Annotated[str | None, typer.Option(help="Data sets to keep to: a,b,...")] = None,
) -> None:
    """Run the paper's evaluation, and write its tables and figures with ours beside them."""
    from bitclass.cli.reproduce import run_reproduce  # a tenth of a second that no other needs

    run_reproduce(
        data,
        out,
        quick=quick,
        time_limit=time_limit,
        n_seeds=seeds,
        methods=methods,
        datasets=datasets,
    )


def add_studies(app: typer.Typer) -> None:
    """Add these commands to the others."""
    for command in (demo, bench, reproduce):
        app.command()(command)
