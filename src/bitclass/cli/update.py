"""`bitclass update`: add rows or classes to a model, or remove classes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli import options
from bitclass.cli.console import describe_training, print_lines, print_model, progress_bars
from bitclass.cli.data import RowOptions, check_outputs, files_in, takes_texts
from bitclass.cli.errors import UsageError
from bitclass.cli.saving import batches_of, model_lock, save_model, without_link
from bitclass.storage import ProjectionType, load
from bitclass.training.sums_file import sums_path

if TYPE_CHECKING:
    from bitclass.model import PackedModel


def command(
    model: options.Model,
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DATA", help="Files, or folders of images, with rows to add."),
    ] = None,
    labels: options.Labels = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="CLASS", help="Class to remove; may be repeated.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Add rows that were added before once more.")
    ] = False,
) -> None:
    """Add rows or classes to a model, or remove classes, without the original rows.

    The model must have been fitted with --keep-sums. Files are read as in training. Classes are
    removed before rows are added. A file whose rows were added before changes nothing, so that an
    update can be repeated safely.
    """
    model = without_link(model)
    sums = Path(sums_path(model))
    if model.exists() and not sums.exists():
        raise UsageError(f"{sums}: no such file; fit the model with --keep-sums to update it")
    row_options = RowOptions(labels=labels)
    read = files_in([*(data or []), row_options.labels_file])
    check_outputs({"the model": model, "the file of sums": sums}, read)
    with model_lock(model):
        _update(model, data or [], row_options, remove or [], again)


def _update(
    path: Path,
    data: list[Path],
    row_options: RowOptions,
    remove: list[str],
    again: bool,
) -> None:
    packed = load(path)
    classifier = _kind_of(packed).load(path)
    sources = classifier.sums_.sources
    modelled = packed.summary.get("sources")
    if not isinstance(modelled, list) or sources[: len(modelled)] != modelled:
        raise ValueError(
            f"{sums_path(path)}: does not belong to {path}, which was fitted later or elsewhere; "
            "fit the model again with --keep-sums"
        )
    interrupted = sources[len(modelled) :]
    removal = [f"remove:{name}" for name in remove]
    if not (interrupted or removal or data):
        raise UsageError("nothing to do: give files to add, or classes to --remove")
    batches: dict[str, list[Path]] = {}
    for identity, files in batches_of(data, row_options.labels_file) if data else ():
        if identity in batches or (identity in modelled and not again):
            print_lines(
                f"skipped {', '.join(map(str, files))}: the model has these rows already (--again "
                "adds them once more)"
            )
        else:
            batches[identity] = files
    if interrupted:
        print_lines("completing the last update, which was interrupted")
        if interrupted == removal + list(batches):
            removal, batches = [], {}
        elif not again:
            batches = {key: batches[key] for key in batches if key not in interrupted}
    if not batches and not removal and not interrupted:
        return
    if removal:
        classifier.remove_classes(_find_labels(remove, classifier.classes_))
    new = [file for files in batches.values() for file in files]
    added = _add_rows(classifier, packed, path, new, row_options) if new else None
    classifier.sums_.sources.extend([*removal, *batches])
    classifier.solve()
    kept: dict[str, Any] = {
        name: packed.summary[name] for name in ("columns", "extractor") if name in packed.summary
    }
    # Otherwise the smallest type that is exact.
    projection: ProjectionType | None = "1bit" if packed.hash_function.entry_bits == 1 else None
    model = save_model(classifier, path, kept, sums=True, projection=projection)
    if added:
        print_lines(f"added   {added}")
    print_lines(f"trained on {describe_training(model.summary)}")
    print_model(path, model)


def _add_rows(
    classifier: BinaryCodeClassifier,
    model: PackedModel,
    path: Path,
    data: list[Path],
    row_options: RowOptions,
) -> str:
    """Add rows to the sums, and return a description of them."""
    rows = row_options.completed(model).open_for(model, path, data, labelled=True)
    with progress_bars() as progress, closing(progress.batches("adding", rows)) as batches:
        for batch in batches:
            X, y, *_ = batch.pair
            classifier.partial_fit(X, y, sample_weight=batch.sample_weight)
    return rows.description


def _kind_of(model: PackedModel) -> type[BinaryCodeClassifier]:
    if not takes_texts(model):
        return BinaryCodeClassifier
    from bitclass.text import TextClassifier

    return TextClassifier


def _find_labels(names: list[str], classes: NDArray[Any]) -> NDArray[Any]:
    """Find the labels whose string forms are `names`."""
    by_name = {str(label): label for label in classes.tolist()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        examples = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
        raise UsageError(f"--remove {unknown[0]}: no such class; the classes are {examples}")
    return np.array([by_name[name] for name in names], dtype=classes.dtype)
