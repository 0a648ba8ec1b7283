"""`bitclass predict`: labels, nearest classes and their distances, of rows or pictures."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bitclass.cli.checks import load_for_files, require_width
from bitclass.cli.errors import UsageError
from bitclass.cli.progress import rows_progress
from bitclass.data import Reader
from bitclass.data.errors import import_extra
from bitclass.model import PackedModel
from bitclass.storage import atomic_write
from bitclass.streaming import batch_rows_for

__all__ = ["run_predict"]

Columns = dict[str, Any]


class _Sink(Protocol):
    def write(self, columns: Columns) -> None:
        """Take the next rows, column by column."""
        ...


class _Csv:
    def __init__(self, file: Any) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._begun = False

    def write(self, columns: Columns) -> None:
        """Take the next rows, column by column."""
        if not self._begun:
            self._writer.writerow(columns)
            self._begun = True
        self._writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))


class _Parquet:
    def __init__(self, file: Any, path: Path) -> None:
        self._arrow = import_extra("pyarrow", "parquet", path, "Parquet")
        self._parquet = import_extra("pyarrow.parquet", "parquet", path, "Parquet")
        self._file = file
        self.writer: Any = None

    def write(self, columns: Columns) -> None:
        """Take the next rows, column by column."""
        table = self._arrow.table({name: self._arrow.array(v) for name, v in columns.items()})
        if self.writer is None:
            self.writer = self._parquet.ParquetWriter(self._file, table.schema)
        self.writer.write_table(table)


class _Numpy:
    """Labels alone, as one array."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def write(self, columns: Columns) -> None:
        """Take the next rows, column by column."""
        self.parts.append(columns["label"])


@contextmanager
def _sink(out: Path | None, as_many: bool) -> Iterator[_Sink]:
    """Where predictions go: standard output, or a file that appears when it is whole."""
    if out is None:
        yield _Csv(sys.stdout)
        return
    ending = out.suffix.lower()
    if ending not in (".csv", ".parquet", ".npy"):
        raise UsageError(f"{out}: --out must end in .csv, .parquet or .npy")
    if ending == ".npy" and as_many:
        raise UsageError(f"{out}: .npy holds labels alone; use .csv or .parquet")
    with atomic_write(out) as file:
        if ending == ".csv":
            import io

            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            yield _Csv(text)
            text.detach()
        elif ending == ".parquet":
            parquet = _Parquet(file, out)
            yield parquet
            if parquet.writer is not None:
                parquet.writer.close()
        else:
            numpy = _Numpy()
            yield numpy
            np.save(file, np.concatenate(numpy.parts), allow_pickle=False)


def _columns(model: PackedModel, X: Any, top: int, probabilities: bool) -> Columns:
    if top == 1 and not probabilities:
        return {"label": model.predict(X)}
    labels, distances = model.top_classes(X, top)
    columns: Columns = {"label": labels[:, 0], "distance": distances[:, 0]}
    if probabilities:
        columns["probability"] = model.predict_proba(X).max(axis=1)
    for rank in range(1, top):
        columns[f"label_{rank + 1}"] = labels[:, rank]
        columns[f"distance_{rank + 1}"] = distances[:, rank]
    return columns


def run_predict(
    model_path: Path,
    reader: Reader,
    *,
    names: Sequence[str] | None,
    out: Path | None,
    top: int,
    probabilities: bool,
) -> None:
    """Predict rows, batch by batch; those of pictures come with their names."""
    model = load_for_files(model_path)
    require_width(reader, model, model_path)
    if top > len(model.classes):
        raise UsageError(f"--top {top}: the model has only {len(model.classes)} classes")
    n_rows = min(batch_rows_for(reader), max(1, (1 << 24) // len(model.classes)))
    batch_rows = n_rows if probabilities else batch_rows_for(reader)
    with _sink(out, top > 1 or probabilities) as sink, rows_progress(reader.n_rows) as progress:
        for batch in reader.batches(batch_rows):
            end = batch.first_row + batch.X.shape[0]
            columns = _columns(model, batch.X, top, probabilities)
            if names is not None:
                columns = {"picture": np.array(names[batch.first_row : end])} | columns
            sink.write(columns)
            progress("predicting", end)
