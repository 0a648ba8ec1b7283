"""`bitclass predict`: labels, best classes and their probabilities, of rows or images."""

from __future__ import annotations

import csv
import dataclasses
import io
import json as json_format
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass.cli import options
from bitclass.cli.data import (
    Inputs,
    check_outputs,
    load_model,
    takes_texts,
    text_rows,
    with_standard_input,
)
from bitclass.cli.errors import UsageError
from bitclass.cli.progress import progress_of_passes
from bitclass.storage import atomic_write

if TYPE_CHECKING:
    from bitclass.model import PackedModel
    from bitclass.text import TextRows

__all__ = ["command"]

#: What a batch gives: columns of one value per row, and of the best classes (n, k).
Columns = dict[str, NDArray[Any]]
Write = Callable[[Columns, Columns], None]
_FORMATS = {
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".npy": "npy",
}


def command(
    model: options.Model,
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Feature files of one format, a folder of them, images, or texts; - reads CSV, "
            "JSON lines or lines of text from standard input."
        ),
    ],
    features: options.Features = None,
    labels: options.Labels = None,
    text: options.Text = None,
    header: options.Header = None,
    format: options.Format = None,
    first_index: options.FirstIndex = None,
    id: Annotated[
        list[str] | None,
        typer.Option("--id", help="Column to copy to the output; may be given several times."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .csv, .jsonl, .parquet or .npy. By default, or with -, standard "
            "output."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of best classes per row.")] = 1,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probabilities of these classes.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the n-grams that speak most for the class.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines, one object per row, instead of CSV.")
    ] = False,
) -> None:
    """Predict the classes of rows, texts or images.

    Columns are selected by the names that the model was fitted with. A label column, as in the
    file that `bitclass fit` took, is recognised and skipped; --labels names it. A model of texts
    takes texts as arguments, or reads them from files: a column of CSV or JSON lines, or lines.
    """
    out = None if out == Path("-") else out
    kind = _output_format(out, json)
    if kind == "npy" and (top > 1 or probabilities or id):
        raise UsageError(f"{out}: .npy holds labels alone; use .csv, .jsonl or .parquet")
    given = Inputs(
        data,
        features,
        labels,
        None,
        header,
        format,
        columns=tuple(id or ()),
        first_index=first_index,
        text=text,
    )
    packed = load_model(model)
    texts = None
    if takes_texts(packed):
        texts = _given_texts(given, packed)
    else:
        _refuse_texts(data, packed)
    if texts is not None:
        given = dataclasses.replace(given, paths=[])
    if explain and packed.text is None:
        raise UsageError("--explain: the model was not trained on the n-grams of texts")
    check_outputs({"--out": out}, [model, *given.files()])
    if top > len(packed.classes):
        raise UsageError(f"--top {top}: the model has only {len(packed.classes)} classes")
    otherwise = "lines" if text is None and takes_texts(packed) else "csv"
    with with_standard_input(given, otherwise) as inputs, progress_of_passes() as progress:
        rows = texts or inputs.open(packed, read_labels=False)[0]
        names = getattr(rows, "names", None)
        with _writer(out, kind) as write:
            for batch in rows.batches():
                end = batch.first_row + len(batch)
                passed = dict(batch.columns)
                if names is not None:
                    passed["image"] = np.array(names[batch.first_row : end])
                best = _best(packed, batch.X, top, probabilities)
                if explain:
                    passed["ngrams"] = _reasons(packed, batch, best["label"][:, 0])
                if clash := set(passed) & set(_flat(best)):
                    raise UsageError(f"--id {min(clash)}: the output has a column of that name")
                write(passed, best)
                progress("predicting", end, rows.n_rows)


def _given_texts(inputs: Inputs, model: PackedModel) -> TextRows | None:
    """Rows of the arguments as texts; None if they are files."""
    from bitclass.io.opening import format_of
    from bitclass.text import TextLines

    paths = inputs.paths
    if Path() in paths:  # which an empty argument becomes, as that of an unset variable
        raise UsageError("an argument is empty: give texts, files, or - for standard input")
    if inputs.text is not None or inputs.format is not None or Path("-") in paths:
        return None
    missing = [path for path in paths if not _exists(path)]
    if not missing or any(format_of(path) is not None for path in missing):
        return None
    if len(missing) < len(paths):
        raise UsageError(f"{missing[0]}: no such file; texts and files do not go together")
    return text_rows(TextLines([str(path) for path in paths]), model)


def _refuse_texts(paths: list[Path], model: PackedModel) -> None:
    """Tell of arguments that are no files that the model takes no texts either."""
    from bitclass.io import DataFileError
    from bitclass.io.opening import format_of

    for path in paths:
        if path != Path("-") and not _exists(path) and format_of(path) is None:
            takes = "images" if "extractor" in model.summary else f"{model.n_features} features"
            raise DataFileError(
                f"{path}: no such file or folder; the model takes {takes}, not texts"
            )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for the name of a file
        return False


def _reasons(model: PackedModel, batch: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """The n-grams that speak most for the label of each text, in words."""
    told = [
        ", ".join(f"{ngram!r} {share:.2f}" for ngram, share in model.explain(text, label, 5))
        for text, label in zip(batch.texts, labels, strict=True)
    ]
    return np.array(told, dtype=object)


def _output_format(out: Path | None, json: bool) -> str:
    if out is None:
        return "json" if json else "csv"
    kind = _FORMATS.get(out.suffix.lower())
    if kind is None:
        raise UsageError(f"{out}: --out must end in {', '.join(_FORMATS)}")
    if json and kind != "json":
        raise UsageError(f"{out}: with --json, --out must end in .jsonl")
    return kind


def _best(model: PackedModel, X: Any, top: int, probabilities: bool) -> Columns:
    """The best classes of each row, best first, in columns of shape (n, top)."""
    if top == 1 and not probabilities:
        return {"label": model.predict(X)[:, None]}
    found = model.top_classes(X, top, probabilities=probabilities)
    return dict(zip(("label", "distance", "probability"), found, strict=False))


def _flat(best: Columns) -> Columns:
    """One column per rank: label, distance, probability, label_2 and so on."""
    top = best["label"].shape[1]
    return {
        name if rank == 0 else f"{name}_{rank + 1}": values[:, rank]
        for rank in range(top)
        for name, values in best.items()
    }


@contextmanager
def _writer(out: Path | None, kind: str) -> Iterator[Write]:
    """Function that writes the next rows, to standard output or to a file that appears whole."""
    text_writer = {"csv": _csv_writer, "json": _json_writer}.get(kind)
    if out is None:
        assert text_writer is not None
        yield text_writer(sys.stdout)
        return
    with atomic_write(out) as file:
        if text_writer is not None:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            yield text_writer(text)
            text.detach()
        elif kind == "parquet":
            with _parquet_writer(file, out) as write:
                yield write
        else:
            parts: list[Any] = []
            yield lambda passed, best: parts.append(best["label"][:, 0])
            np.save(file, np.concatenate(parts), allow_pickle=False)


def _csv_writer(file: Any) -> Write:
    writer = csv.writer(file, lineterminator="\n")
    has_header = False

    def write(passed: Columns, best: Columns) -> None:
        nonlocal has_header
        columns = passed | _flat(best)
        if not has_header:
            writer.writerow(columns)
            has_header = True
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))

    return write


def _json_writer(file: Any) -> Write:
    def write(passed: Columns, best: Columns) -> None:
        first = {name: values[:, 0] for name, values in best.items()}
        columns = passed | first
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        ranked = zip(*(values.tolist() for values in best.values()), strict=True)
        for row, lists in zip(rows, ranked, strict=True):
            record = dict(zip(columns, row, strict=True))
            if len(lists[0]) > 1:
                each = zip(*lists, strict=True)
                record["top"] = [dict(zip(best, values, strict=True)) for values in each]
            file.write(json_format.dumps(record, ensure_ascii=False, default=str) + "\n")

    return write


@contextmanager
def _parquet_writer(file: Any, path: Path) -> Iterator[Write]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f"{path}: Parquet needs pyarrow; install it with: pip install 'bitclass[parquet]'"
        ) from None
    writer: Any = None

    def write(passed: Columns, best: Columns) -> None:
        nonlocal writer
        columns = passed | _flat(best)
        table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)

    yield write
    if writer is not None:
        writer.close()
