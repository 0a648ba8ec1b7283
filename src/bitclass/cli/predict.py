"""`bitclass predict`: labels, nearest classes and their distances, of rows or images."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from bitclass.cli import options
from bitclass.cli.data import Inputs, check_outputs, confidences, load_model
from bitclass.cli.errors import UsageError
from bitclass.cli.progress import progress_of_passes
from bitclass.storage import atomic_write

if TYPE_CHECKING:
    from bitclass.model import PackedModel

__all__ = ["command"]

Columns = dict[str, Any]
_ENDINGS = (".csv", ".parquet", ".npy")


def command(
    model: options.Model,
    data: options.Data,
    features: options.Features = None,
    labels: options.Labels = None,
    header: options.Header = None,
    format: options.Format = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, .csv, .parquet or .npy; CSV is printed by default."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of best classes.")] = 1,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of the best class.")
    ] = False,
) -> None:
    """Predict the classes of rows or images.

    Columns are selected by the names that the model was fitted with. A label column, as in the
    file that `bitclass fit` took, is recognised and skipped; --labels names it.
    """
    inputs = Inputs(data, features, labels, None, header, format)
    if out is not None and out.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{out}: --out must end in {', '.join(_ENDINGS)}")
    if out is not None and out.suffix.lower() == ".npy" and (top > 1 or probabilities):
        raise UsageError(f"{out}: .npy holds labels alone; use .csv or .parquet")
    check_outputs({"--out": out}, [model, *inputs.files()])
    packed = load_model(model)
    if top > len(packed.classes):
        raise UsageError(f"--top {top}: the model has only {len(packed.classes)} classes")
    rows, _ = inputs.open(packed, read_labels=False)
    names = getattr(rows, "names", None)
    with _writer(out) as write, progress_of_passes() as progress:
        for batch in rows.batches():
            end = batch.first_row + batch.X.shape[0]
            columns = _columns(packed, batch.X, top, probabilities)
            if names is not None:
                columns = {"image": np.array(names[batch.first_row : end])} | columns
            write(columns)
            progress("predicting", end, rows.n_rows)


def _columns(model: PackedModel, X: Any, top: int, probabilities: bool) -> Columns:
    if top == 1 and not probabilities:
        return {"label": model.predict(X)}
    labels, distances = model.top_classes(X, top)
    columns: Columns = {"label": labels[:, 0], "distance": distances[:, 0]}
    if probabilities:
        columns["probability"] = confidences(model, X)
    for rank in range(1, top):
        columns[f"label_{rank + 1}"] = labels[:, rank]
        columns[f"distance_{rank + 1}"] = distances[:, rank]
    return columns


@contextmanager
def _writer(out: Path | None) -> Iterator[Callable[[Columns], None]]:
    """Function that writes the next rows, to standard output or to a file that appears whole."""
    if out is None:
        yield _csv_writer(sys.stdout)
        return
    with atomic_write(out) as file:
        if out.suffix.lower() == ".csv":
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            yield _csv_writer(text)
            text.detach()
        elif out.suffix.lower() == ".parquet":
            with _parquet_writer(file, out) as write:
                yield write
        else:
            parts: list[Any] = []
            yield lambda columns: parts.append(columns["label"])
            np.save(file, np.concatenate(parts), allow_pickle=False)


def _csv_writer(file: Any) -> Callable[[Columns], None]:
    writer = csv.writer(file, lineterminator="\n")
    has_header = False

    def write(columns: Columns) -> None:
        nonlocal has_header
        if not has_header:
            writer.writerow(columns)
            has_header = True
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))

    return write


@contextmanager
def _parquet_writer(file: Any, path: Path) -> Iterator[Callable[[Columns], None]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f"{path}: Parquet needs pyarrow; install it with: pip install 'bitclass[parquet]'"
        ) from None
    writer: Any = None

    def write(columns: Columns) -> None:
        nonlocal writer
        table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)

    yield write
    if writer is not None:
        writer.close()
