"""`bitclass predict`: labels, best classes and their probabilities for rows, texts or images."""

from __future__ import annotations

import contextlib
import csv
import io
import json as json_format
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass.cli import options
from bitclass.cli.console import progress_bars
from bitclass.cli.data import (
    check_outputs,
    input_files,
    load_model,
    open_rows_of,
    takes_texts,
    text_rows,
    with_standard_input,
)
from bitclass.cli.errors import UsageError
from bitclass.storage import atomic_write

if TYPE_CHECKING:
    from bitclass.cli.data import Rows
    from bitclass.model import PackedModel

__all__ = ["command", "write_parquet"]

#: Columns of shape (n,), or (n, k) for the k best classes.
Columns = dict[str, NDArray[Any]]
#: For each batch, columns copied from the input, and columns of the best classes.
Results = Iterable[tuple[Columns, Columns]]


@options.expanded(without=["labels_file"])
def command(
    *,
    model: options.Model,
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Feature files of one format, a folder of them, images, or texts; - reads CSV, "
            "JSON lines or lines of text from standard input."
        ),
    ],
    rows: options.RowOptions,
    id: Annotated[
        list[str] | None,
        typer.Option("--id", help="Column to copy to the output; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .csv, .jsonl, .parquet or .npy. By default, or with -, standard "
            "output."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of classes per row, best first.")] = 1,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probabilities of these classes.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the n-grams that contribute most.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines, one object per row, instead of CSV.")
    ] = False,
) -> None:
    """Predict the classes of rows, texts or images.

    Columns are selected by the feature names the model was fitted with. A label column, as in
    training files, is detected and ignored; --labels names it explicitly. A text model takes texts
    as arguments, or reads them from a column of CSV or JSON lines files, or from plain lines.
    """
    out = None if out == Path("-") else out
    ending = (".jsonl" if json else ".csv") if out is None else out.suffix.lower()
    if ending not in _WRITERS:
        raise UsageError(f"{out}: --out must end in {', '.join(_WRITERS)}")
    if json and _WRITERS[ending] is not _write_json:
        raise UsageError(f"{out}: with --json, --out must end in .jsonl")
    if ending == ".npy" and (top > 1 or probabilities or id):
        raise UsageError(f"{out}: .npy holds only labels; use .csv, .jsonl or .parquet")
    packed = load_model(model)
    opened = _texts_in_arguments(data, rows, packed)
    if explain and packed.text is None:
        raise UsageError("--explain: the model was not trained on n-grams of texts")
    check_outputs({"--out": out}, [model, *([] if opened else input_files(data, rows))])
    if top > len(packed.classes):
        raise UsageError(f"--top {top}: the model has only {len(packed.classes)} classes")
    with contextlib.ExitStack() as stack:
        if opened is None:
            paths, rows = stack.enter_context(with_standard_input(data, rows))
            opened = open_rows_of(paths, rows, packed, labelled=False, columns=id or ())
        results = _results(packed, opened, top, probabilities, explain)
        file = sys.stdout if out is None else stack.enter_context(atomic_write(out))
        _WRITERS[ending](file, results)


def _texts_in_arguments(
    data: Sequence[Path], rows: options.RowOptions, model: PackedModel
) -> Rows | None:
    """Rows of the texts given as arguments; None if the arguments are files."""
    from bitclass.io import DataFileError
    from bitclass.io.opening import format_of

    def exists(path: Path) -> bool:
        with contextlib.suppress(OSError):  # too long for a file name
            return path == Path("-") or path.exists()
        return False

    missing = [path for path in data if not exists(path)]
    unknown = [path for path in missing if format_of(path) is None]
    if not takes_texts(model):
        if unknown:
            takes = "images" if "extractor" in model.summary else f"{model.n_features} features"
            raise DataFileError(
                f"{unknown[0]}: no such file or folder; the model takes {takes}, not texts"
            )
        return None
    if Path() in data:  # an empty argument, perhaps from an unset variable
        raise UsageError("an argument is empty; expected texts, files, or - for standard input")
    if not missing or len(unknown) < len(missing) or rows.text or rows.format:
        return None
    if len(missing) < len(data):
        raise UsageError(f"{missing[0]}: no such file; texts and files cannot be combined")
    from bitclass.text import Texts

    return text_rows(Texts.of([str(path) for path in data]), model)


def _results(
    model: PackedModel, rows: Rows, top: int, probabilities: bool, explain: bool
) -> Iterator[tuple[Columns, Columns]]:
    names = getattr(rows, "names", None)
    with progress_bars() as progress:
        for batch in progress.batches("predicting", rows):
            copied = dict(batch.columns)
            if names is not None:
                copied["image"] = np.array(names[batch.first_row : batch.first_row + len(batch)])
            if top == 1 and not probabilities:
                best = {"label": model.predict(batch.X)[:, None]}
            else:
                found = model.top_classes(batch.X, top, probabilities=probabilities)
                best = {"label": found.labels, "distance": found.distances}
                if found.probabilities is not None:
                    best["probability"] = found.probabilities
            if explain:
                copied["ngrams"] = _explanations(model, batch.texts, best["label"][:, 0])
            if clash := set(copied) & set(_flat(best)):
                raise UsageError(f"--id {min(clash)}: the output already has a column of that name")
            yield copied, best


def _explanations(model: PackedModel, texts: Sequence[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Describe the n-grams that contribute most to the label of each text."""
    explanations = [
        ", ".join(f"{ngram!r} {share:.2f}" for ngram, share in model.explain(text, label, 5))
        for text, label in zip(texts, labels, strict=True)
    ]
    return np.array(explanations, dtype=object)


def _flat(best: Columns) -> Columns:
    """One column per rank: label, distance, probability, label_2 and so on."""
    return {
        name if rank == 0 else f"{name}_{rank + 1}": values[:, rank]
        for rank in range(best["label"].shape[1])
        for name, values in best.items()
    }


def _records(columns: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*(values.tolist() for values in columns.values()), strict=True)


@contextlib.contextmanager
def _as_text(file: IO[Any]) -> Iterator[IO[str]]:
    if isinstance(file, io.TextIOBase):
        yield file
        return
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    yield text
    text.detach()


def _write_csv(file: IO[Any], results: Results) -> None:
    with _as_text(file) as text:
        writer = csv.writer(text, lineterminator="\n")
        for number, (copied, best) in enumerate(results):
            columns = copied | _flat(best)
            if number == 0:
                writer.writerow(columns)
            writer.writerows(_records(columns))


def _write_json(file: IO[Any], results: Results) -> None:
    with _as_text(file) as text:
        for copied, best in results:
            columns = copied | {name: values[:, 0] for name, values in best.items()}
            for row, ranked in zip(_records(columns), _records(best), strict=True):
                record = dict(zip(columns, row, strict=True))
                if len(ranked[0]) > 1:
                    each = zip(*ranked, strict=True)
                    record["top"] = [dict(zip(best, values, strict=True)) for values in each]
                text.write(json_format.dumps(record, ensure_ascii=False, default=str) + "\n")


def _write_npy(file: IO[Any], results: Results) -> None:
    labels = [best["label"][:, 0] for _, best in results]
    np.save(file, np.concatenate(labels), allow_pickle=False)


def _write_parquet(file: IO[Any], results: Results) -> None:
    write_parquet(file, (copied | _flat(best) for copied, best in results))


def write_parquet(file: IO[Any], tables: Iterable[Columns]) -> None:
    """Write tables with the same columns to one file; (n, d) arrays become columns of lists."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "Parquet needs pyarrow; install it with: pip install 'bitclass[parquet]'"
        ) from None

    def column(values: NDArray[Any]) -> Any:
        if values.ndim == 1:
            return pyarrow.array(values)
        flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
        return pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])

    types: dict[str, Any] = {}
    waiting: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        writer: Any = None

        def write_waiting() -> None:
            nonlocal writer
            schema = pyarrow.schema(types)
            if writer is None:
                writer = stack.enter_context(pyarrow.parquet.ParquetWriter(file, schema))
            for arrays in waiting:
                writer.write_table(pyarrow.table(arrays, schema=schema))
            waiting.clear()

        for columns in tables:
            arrays = {name: column(values) for name, values in columns.items()}
            # Tables in which a column has only missing values do not tell its type.
            for name, values in arrays.items():
                if types.get(name, pyarrow.null()) == pyarrow.null():
                    types[name] = values.type
            waiting.append(arrays)
            if pyarrow.null() not in types.values():
                write_waiting()
        write_waiting()


_WRITERS = {
    ".csv": _write_csv,
    ".jsonl": _write_json,
    ".ndjson": _write_json,
    ".parquet": _write_parquet,
    ".npy": _write_npy,
}
