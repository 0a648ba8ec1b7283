"""`bitclass fit`: train a model on feature files, texts or images."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bitclass._warn import warn
from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli import options
from bitclass.cli.console import (
    ProgressBars,
    describe_training,
    print_lines,
    print_model,
    progress_bars,
)
from bitclass.cli.data import RowOptions, check_outputs, files_in, open_training_rows
from bitclass.cli.errors import UsageError
from bitclass.cli.saving import batches_of, digest_of, model_lock, save_model, without_link
from bitclass.codes import MAX_BITS
from bitclass.training.sums_file import sums_path

if TYPE_CHECKING:
    from bitclass.io import Rows

_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(BinaryCodeClassifier).parameters.items()
}
# Share of the rows with different labels from which on these are hardly labels.
_MOST_DIFFERENT = 0.9
_training = partial(typer.Option, rich_help_panel="Training", show_default=True)


def command(
    data: options.Data,
    model: Annotated[Path, typer.Option(metavar="FILE", help="Model file to write.")],
    labels: options.Labels = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Text column, to train on texts; line for the lines of .txt files."
        ),
    ] = None,
    features: options.Features = None,
    weights: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of row weights.")
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column of groups to hold out together; all rows are read into memory.",
        ),
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="CSV files have no line of column names.")
    ] = False,
    extractor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Images: cnn (the default), cnn:SIZE or onnx:FILE. Texts, instead of n-grams: "
            "model2vec:MODEL or sentence-transformers:MODEL.",
        ),
    ] = None,
    bits: Annotated[
        int | None,
        _training(
            metavar="N",
            min=1,
            max=MAX_BITS,
            help=f"Bits per code; by default {_DEFAULTS['n_bits']}, of texts 256.",
        ),
    ] = None,
    refine: Annotated[
        bool | None,
        _training(help="Refine by gradient descent; by default if there are enough rows."),
    ] = None,
    class_weight: Annotated[
        Literal["balanced"] | None,
        _training(
            metavar="balanced",
            help="Give all classes the same total weight; all rows are read into memory.",
        ),
    ] = _DEFAULTS["class_weight"],
    prior: Annotated[
        Literal["train", "uniform"],
        _training(metavar="NAME", help="Class frequencies to expect: train or uniform."),
    ] = _DEFAULTS["prior"],
    keep_sums: Annotated[
        bool, _training("--keep-sums", help="Also write the sums that bitclass update needs.")
    ] = _DEFAULTS["keep_sums"],
) -> None:
    """Train a model on feature files, texts or images, and write it to a file.

    Files may be larger than memory. The label column is found by its name (label, class, target,
    y) or named with --labels; all other columns are features unless --features or --text say
    otherwise. The model remembers its columns.
    """
    model = without_link(model)
    if model.name.endswith(".sums.safetensors"):
        raise UsageError(f"--model {model}: names ending in .sums.safetensors are for sums")
    network = None
    if extractor is not None and extractor.startswith("onnx:"):
        network = Path(extractor.removeprefix("onnx:"))
    others = () if groups is None else (groups,)
    row_options = RowOptions(features, labels, text, weights, others, header=not no_header)
    read = files_in([*data, row_options.labels_file])
    sums = Path(sums_path(model)) if keep_sums else None
    check_outputs({"--model": model, "--keep-sums": sums}, [*read, *files_in([network])])
    parameters: dict[str, Any] = {
        "refine": _DEFAULTS["refine"] if refine is None else refine,
        "class_weight": class_weight,
        "prior": prior,
        "keep_sums": keep_sums,
        "random_state": 0,
    }
    if bits is not None:  # those of texts have another default
        parameters["n_bits"] = bits
    if text is None:
        classifier = BinaryCodeClassifier(**parameters)
    else:
        classifier = _text_classifier(extractor, parameters)
    start = time.perf_counter()
    rows, used = open_training_rows(data, row_options, extractor)
    with progress_bars() as progress:
        try:
            _fit(classifier, rows, progress, groups)
        except ValueError as error:
            if not str(error).startswith("X must contain texts"):
                raise
            raise UsageError(f"{data[0]}: {str(error).removeprefix('X ')}") from error
    record: dict[str, Any] = {"columns": row_options.remembered()}
    if rows.feature_names is not None:
        record["feature_names"] = list(rows.feature_names)
    if used is not None:
        record["extractor"] = used.specification()
    if keep_sums:
        settings = json.dumps(classifier.get_params(deep=False), sort_keys=True, default=str)
        classifier.sums_.sources.append(f"fit:{digest_of(read)}, {settings}")
        batches = batches_of(data, row_options.labels_file)
        classifier.sums_.sources.extend(identity for identity, _ in batches)
    with model_lock(model):
        written = save_model(classifier, model, record, sums=keep_sums)
    seconds = time.perf_counter() - start
    n_classes, n_rows = len(classifier.classes_), classifier.report_.n_rows
    if n_classes > _MOST_DIFFERENT * n_rows:
        warn(
            f"{n_classes} different labels in {n_rows} rows: nearly every row is a class of its "
            "own; is that the column of the labels (--labels)?"
        )
    print_lines(f"read    {rows.description}")
    print_lines(f"trained in {seconds:.1f} s on {describe_training(written.summary)}")
    print_model(model, written)
    if network is not None and network.absolute().parent != model.absolute().parent:
        print_lines(f"note: copy {network} to the folder of the model, where predict looks for it")


def _text_classifier(extractor: str | None, parameters: dict[str, Any]) -> BinaryCodeClassifier:
    from bitclass.text import SentenceEmbeddings, TextClassifier

    try:
        if extractor is not None:
            SentenceEmbeddings(extractor)
    except ValueError as error:
        raise UsageError(f"--extractor: {error}") from error
    return TextClassifier(embedding=extractor, **parameters)


def _fit(
    classifier: BinaryCodeClassifier, rows: Rows, progress: ProgressBars, groups: str | None
) -> None:
    """Fit to batches, or, where groups or balanced classes need them, to all rows at once."""
    if groups is not None or classifier.class_weight is not None:
        whole = rows.load()
        X, y, *_ = whole.pair
        of_rows = None if groups is None else whole.columns[groups]
        classifier.fit(X, y, whole.sample_weight, of_rows, callback=progress.epoch)
        return
    n_passes = 0

    def batches() -> Iterator[tuple[Any, ...]]:
        nonlocal n_passes
        n_passes += 1
        with closing(progress.batches(f"pass {n_passes}", rows)) as found:
            yield from (batch.pair for batch in found)

    classifier.fit_batches(batches, feature_names=rows.feature_names, callback=progress.epoch)
