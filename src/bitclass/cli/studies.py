"""Commands that measure: the demonstration and the times."""

from __future__ import annotations

from typing import Annotated

import typer

from bitclass.cli.bench import run_bench
from bitclass.cli.demo import run_demo
from bitclass.cli.options import Json, default_of

__all__ = ["add_studies"]


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


def add_studies(app: typer.Typer) -> None:
    """Add these commands to the others."""
    for command in (demo, bench):
        app.command()(command)
