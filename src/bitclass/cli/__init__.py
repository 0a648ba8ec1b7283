"""The `bitclass` command."""

from __future__ import annotations

from typing import Annotated

import typer

import bitclass
from bitclass.cli.demo import run_demo

__all__ = ["app", "main"]

app = typer.Typer(
    name="bitclass",
    help="Classification with very many classes: binary codes, binary weights, Hamming argmin.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bitclass {bitclass.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    bits: Annotated[int, typer.Option(min=1, max=2048, help="Length of the codes.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds to take times over.")] = 5,
) -> None:
    """Learn the digits that ship with scikit-learn, beside LibLinear's support vector machines."""
    run_demo(bits, rounds)


def main() -> None:
    """Run the command."""
    app()
