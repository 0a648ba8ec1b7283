"""The list of commands and the parser of the command line."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

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

#: What other programs call these commands.
_OTHER_NAMES = {"train": "fit", "test": "evaluate", "classify": "predict", "info": "inspect"}


def _without_types(parameters: list[Any]) -> list[Any]:
    """The same parameters; the help shows no type of flags, which take no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in _OTHER_NAMES:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{_OTHER_NAMES[args[0]]}'?")
        return super().resolve_command(ctx, args)


def parse_and_run(arguments: list[str]) -> Any:
    """Import the requested command, parse its arguments, and run it."""
    app = typer.Typer(
        name="bitclass",
        cls=_Group,
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
            app.command(name, cls=_Command)(import_module(f"bitclass.cli.{name}").command)
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
