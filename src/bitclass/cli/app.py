"""The list of commands, and the parser of the one that is run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

import bitclass

__all__ = ["COMMANDS", "prepare"]

#: Commands, each the function `command` of the module of its name, and the first line of its help.
#: Only the module of the command that is run is imported: some need scikit-learn, most do not.
COMMANDS = {
    "fit": "Train a model on feature files, texts or images, and write it to a file.",
    "update": "Add rows or classes to a model, or remove classes, without the earlier rows.",
    "predict": "Predict the classes of rows, texts or images.",
    "evaluate": "Measure the accuracy of a model on labelled rows or images.",
    "inspect": "Show the sizes, classes, bit balance and class distances of a model.",
    "export": "Write a model in another format: ONNX.",
    "features": "Extract features of images into a file.",
    "serve": "Serve models over HTTP: Open Inference Protocol, plain JSON, metrics and a page.",
    "explore": "Serve a page that shows codes of images, and their nearest classes and images.",
    "demo": "Read 2,200 characters in three typefaces after learning nine others.",
}


def prepare(arguments: list[str]) -> Callable[[], Any]:
    """Import what the arguments need, and give what parses them and runs the command."""
    app = typer.Typer(
        name="bitclass",
        help="Classification with very many classes: binary codes, binary weights, Hamming argmin.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name, summary in COMMANDS.items():
        if name == arguments[0]:
            app.command(name)(import_module(f"bitclass.cli.{name}").command)
        else:
            app.command(name, help=summary)(_not_imported)
    return lambda: app(arguments, prog_name="bitclass", standalone_mode=False)


def _not_imported() -> None:
    """Stands for a command that was not asked for, in the list of commands."""


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"bitclass {bitclass.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass
