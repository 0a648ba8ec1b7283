"""Options shared by several commands."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

__all__ = ["Data", "Extractor", "Jobs", "Json", "Model", "Projection", "RowOptions", "expanded"]

Model = Annotated[Path, typer.Argument(help="Model file.")]
Data = Annotated[
    list[Path], typer.Argument(help="Feature files of one format, a folder of them, or images.")
]
Extractor = Annotated[
    str | None,
    typer.Option(
        help="Feature extractor for images: cnn (the default) or onnx:FILE, with options as in "
        "cnn,size=160; for texts: model2vec:MODEL or sentence-transformers:MODEL.",
    ),
]
Projection = Literal["float32", "float16", "int8"]
Jobs = Annotated[int | None, typer.Option(help="Number of threads; all cores by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclasses.dataclass(frozen=True)
class RowOptions:
    """Options for reading rows, named as the parameters of `bitclass.io.open_rows`."""

    features: Annotated[
        str | None, typer.Option(help="Feature array, column, or list of columns (a,b or f*).")
    ] = None
    labels: Annotated[str | None, typer.Option(help="Label array or column.")] = None
    labels_file: Annotated[Path | None, typer.Option(help="File with one label per row.")] = None
    text: Annotated[
        str | None, typer.Option(help="Text column, whose n-grams are the features.")
    ] = None
    header: Annotated[
        bool,
        typer.Option("--header/--no-header", help="Whether CSV files start with column names."),
    ] = True
    format: Annotated[
        str | None,
        typer.Option(
            help="File format: npy, npz, parquet, arrow, csv, jsonl, svmlight or lines; by default "
            "from the file extension.",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Options for feature files that the user has set."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        given.pop("text", None)
        if self.header:
            del given["header"]
        if self.features is not None:
            given["features"] = [name.strip() for name in self.features.split(",")]
        return given


def expanded(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Any]:
    """Expand each dataclass parameter of a command into one option per field.

    Parameters
    ----------
    without : collection of str
        Fields that are not options of this command and keep their defaults.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            expansion = [parameter]
            group = parameter.annotation
            if isinstance(group, type) and dataclasses.is_dataclass(group):
                fields = inspect.signature(group, eval_str=True).parameters
                expansion = [field for name, field in fields.items() if name not in without]
                groups[parameter.name] = group, [field.name for field in expansion]
            parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in expansion]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            for name, (group, fields) in groups.items():
                given[name] = group(**{field: given.pop(field) for field in fields})
            command(**given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
