"""The list of commands and the parser of the command line."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

import bitclass

#: Each command, implemented by `command` in the module of the same name, and its summary.
#: Only the module of the requested command is imported, since some import scikit-learn.
COMMANDS = {
    "fit": "Train a model on feature files, texts or images, and write it to a file.",
    "update": "Add rows or classes to a model, or remove classes, without the original rows.",
    "predict": "Predict the classes of rows, texts or images.",
    "evaluate": "Measure the accuracy of a model on labelled rows, texts or images.",
    "inspect": "Show a model's size, classes and training.",
    "serve": "Serve models over HTTP: Open Inference Protocol, plain JSON, metrics and a web page.",
    "export": "Export a model to ONNX.",
    "demo": "Recognise 2,200 characters in three unseen typefaces after training on nine others.",
}


def parse_and_run(arguments: list[str]) -> Any:
    """Import the requested command, parse its arguments, and run it."""
    app = typer.Typer(
        name="bitclass",
        help="Classification with very many classes by binary codes and Hamming distances.",
        rich_markup_mode="markdown",  # reflows the lines of docstrings
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name, summary in COMMANDS.items():
        if name == arguments[0]:
            if len(arguments) == 1 and name != "demo":  # all others need arguments
                arguments = [name, "--help"]
            app.command(name)(import_module(f"bitclass.cli.{name}").command)
        else:
            app.command(name, help=summary)(_not_imported)
    return app(arguments, prog_name="bitclass", standalone_mode=False)


def _not_imported() -> None:
    """Placeholder in the list of commands for those that are not run."""


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
