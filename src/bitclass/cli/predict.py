"""`bitclass predict`: labels, best classes and their probabilities for rows, texts or images."""

from __future__ import annotations

import contextlib
import csv
import json as json_format
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass._warn import warn
from bitclass.cli import options
from bitclass.cli.console import (
    ProgressBars,
    as_text,
    format_size,
    pluralise,
    print_lines,
    progress_bars,
    show_table,
)
from bitclass.cli.data import (
    RowOptions,
    check_outputs,
    files_in,
    takes_texts,
    with_standard_input,
)
from bitclass.cli.errors import UsageError
from bitclass.storage import atomic_write, load

if TYPE_CHECKING:
    from bitclass.model import PackedModel

#: Columns of shape (n,), or (n, k) for the k best classes.
Columns = dict[str, NDArray[Any]]
#: For each batch, columns copied from the input, and columns of the best classes.
Results = Iterable[tuple[Columns, Columns]]


def command(
    model: options.Model,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA",
            help="Files of one format, a folder of them, images, or, for a model of texts, the "
            "texts themselves; - reads CSV or JSON lines from standard input.",
        ),
    ],
    text: Annotated[str | None, typer.Option(metavar="NAME", help="Text column.")] = None,
    features: options.Features = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="csv, jsonl, parquet, arrow, npy, npz, svmlight, or lines (one text per line); by "
            "default from the file extension.",
        ),
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="NAME", help="Column to copy to the output; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write: .csv or .jsonl; else standard output."),
    ] = None,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of classes per row, best first.")
    ] = 1,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probabilities of these classes.")
    ] = False,
    typicality: Annotated[
        bool,
        typer.Option(
            "--typicality",
            help="Add how well the best class fits: the share of known rows that fit no better.",
        ),
    ] = False,
    reject: options.Reject = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the n-grams that contribute most.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines, one object per row, instead of CSV.")
    ] = False,
) -> None:
    """Predict the classes of rows, texts or images.

    Feature columns are selected by name, and text columns are those of training unless --text names
    another. Files of plain lines of text (.txt, or --format lines) have one text per line.
    """
    ending = (".jsonl" if json else ".csv") if out is None else out.suffix.lower()
    if ending not in _WRITERS:
        raise UsageError(f"--out {out}: the name must end in {', '.join(_WRITERS)}")
    if json and _WRITERS[ending] is not _write_json:
        raise UsageError(f"--out {out}: with --json, the name must end in .jsonl")
    packed = load(model)
    reject = packed.reject if reject is None else reject
    if explain and packed.text is None:
        raise UsageError("--explain: the model was not trained on n-grams of texts")
    if top > len(packed.classes):
        raise UsageError(f"--top {top}: the model has only {len(packed.classes)} classes")
    row_options = RowOptions(features=features, text=text, format=format, id=id or ())
    rows: Any = _texts_in_arguments(data, row_options, packed)
    are_typed = rows is not None
    check_outputs({"--out": out}, [model, *([] if rows else files_in(data))])
    with contextlib.ExitStack() as stack:
        if rows is None:
            paths, row_options = stack.enter_context(with_standard_input(data, row_options))
            rows = row_options.open_for(packed, model, paths, labelled=False)
        progress = None if are_typed else stack.enter_context(progress_bars())
        results = _results(packed, rows, progress, top, probabilities, typicality, reject, explain)
        stack.enter_context(contextlib.closing(results))
        file = sys.stdout if out is None else stack.enter_context(atomic_write(out))
        if are_typed and ending == ".csv" and file.isatty():  # read by a person
            _show(rows.texts, results)
        else:
            _WRITERS[ending](file, results)
    if out is not None:
        size = format_size(out.stat().st_size)
        print_lines(f"wrote {out}, {size}: {pluralise(rows.n_rows, 'row')}")


def _texts_in_arguments(
    data: Sequence[Path], row_options: RowOptions, model: PackedModel
) -> Any | None:
    """Rows of the texts given as arguments; None if the arguments are files."""
    from bitclass.io import Batch, format_of

    def is_text(given: Path) -> bool:
        with contextlib.suppress(OSError):  # too long for a file name
            return given != Path("-") and not given.exists() and format_of(given) is None
        return True

    if not takes_texts(model) or row_options.text or row_options.format:
        return None
    if Path() in data:  # an empty argument, perhaps from an unset variable
        raise UsageError("an argument is empty; expected texts, files, or - for standard input")
    texts = [str(given) for given in data if is_text(given)]
    if not texts:
        return None
    if len(texts) < len(data):
        raise UsageError(f"{texts[0]}: no such file; texts and files cannot be combined")
    for text in texts:
        # One word that contains a slash or ends in a file extension.
        if re.fullmatch(r"\S*/\S*|\S+\.[a-zA-Z]\w{1,7}", text):
            warn(f"{text}: no such file; it is classified as a text")
    batch = Batch(None, None, 0, texts=texts)
    return SimpleNamespace(n_rows=len(texts), texts=texts, batches=lambda: (one for one in [batch]))


def _results(
    model: PackedModel,
    rows: Any,
    progress: ProgressBars | None,
    top: int,
    probabilities: bool,
    typicality: bool,
    reject: float,
    explain: bool,
) -> Generator[tuple[Columns, Columns], None, None]:
    names = getattr(rows, "names", None)  # of images
    each = rows.batches() if progress is None else progress.batches("predicting", rows)
    with contextlib.closing(each) as batches:
        for batch in batches:
            X, *_ = batch.pair
            copied = dict(batch.columns)
            if names is not None:
                copied["image"] = np.array(names[batch.first_row : batch.first_row + len(batch)])
            if top == 1 and not (probabilities or typicality or reject):
                best = {"label": model.predict(X, reject=0)[:, None]}
            else:
                found = model.top_classes(
                    X, top, probabilities=probabilities, typicality=typicality or reject > 0
                )
                best = {"label": found.labels, "distance": found.distances}
                if found.probabilities is not None:
                    best["probability"] = found.probabilities
                if typicality:
                    copied["typicality"] = found.typicality
            if explain:
                copied["ngrams"] = _explanations(model, batch.texts, best["label"][:, 0])
            if reject:
                assert found.typicality is not None
                answers = best["label"][:, 0].astype(object)
                answers[found.typicality < reject] = model.unknown_label
                if top == 1 and not probabilities:
                    best["label"] = answers[:, None]
                else:  # beside the best classes, which are shown as they are
                    copied["label"] = answers
            if clash := set(batch.columns) & {"label", *_flat(copied, best)}:
                raise UsageError(f"--id {min(clash)}: the output already has a column of that name")
            yield copied, best


def _explanations(model: PackedModel, texts: Sequence[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Describe the n-grams that contribute most to the label of each text."""
    explanations = [
        ", ".join(f"{ngram!r} {share:.2f}" for ngram, share in model.explain(text, label, 5))
        for text, label in zip(texts, labels, strict=True)
    ]
    return np.array(explanations, dtype=object)


def _flat(copied: Columns, best: Columns) -> Columns:
    """One column per rank: label, distance, probability, label_2 and so on.

    The best class is label_1 if there is a column of answers, which may reject it.
    """
    flat = {
        name if rank == 0 else f"{name}_{rank + 1}": values[:, rank]
        for rank in range(best["label"].shape[1])
        for name, values in best.items()
    }
    return {"label_1": flat.pop("label"), **flat} if "label" in copied else flat


def _records(columns: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*(values.tolist() for values in columns.values()), strict=True)


def _write_csv(file: IO[Any], results: Results) -> None:
    with as_text(file) as text:
        writer = csv.writer(text, lineterminator="\n")
        for number, (copied, best) in enumerate(results):
            columns = copied | _flat(copied, best)
            if number == 0:
                writer.writerow(columns)
            writer.writerows(_records(columns))


def _write_json(file: IO[Any], results: Results) -> None:
    with as_text(file) as text:
        for copied, best in results:
            first = {name: values[:, 0] for name, values in best.items() if name not in copied}
            columns = copied | first
            for row, ranked in zip(_records(columns), _records(best), strict=True):
                record = dict(zip(columns, row, strict=True))
                if len(ranked[0]) > 1 or "label" in copied:
                    each = zip(*ranked, strict=True)
                    record["top"] = [dict(zip(best, values, strict=True)) for values in each]
                text.write(json_format.dumps(record, ensure_ascii=False, default=str) + "\n")


def _show(texts: Sequence[str], results: Results) -> None:
    """Print a table with a line for each of the best classes of each text."""
    ((copied, best),) = results  # texts in arguments are one batch
    first: Columns = {"text": np.array([*texts, None], dtype=object)[:-1]}
    names = list(best)
    if "label" in copied:
        first["label"], names[0] = copied.pop("label"), "best"
    lines = []
    for i in range(len(texts)):
        for rank in range(best["label"].shape[1]):
            found = [_shown(values[i, rank]) for values in best.values()]
            before, after = (
                ["" if rank else _shown(values[i]) for values in each.values()]
                for each in (first, copied)
            )
            lines.append([*before, *found, *after])
    show_table("", [*first, *names, *copied], lines, n_names=len(first) + 1)


def _shown(value: Any) -> str:
    """A value of a table for a person, who does not read 16 digits."""
    if value is None:  # no known class
        return "-"
    is_share = isinstance(value, float) and not value.is_integer()
    return f"{value:.3g}" if is_share else str(value)


_WRITERS = {".csv": _write_csv, ".jsonl": _write_json}
