"""Which arrays or columns are the features and which the labels, where nobody said so."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bitclass.data.errors import DataFileError, listed
from bitclass.data.rowfile import Choice, Request

if TYPE_CHECKING:
    from bitclass.data.arrays import ArrayFile

__all__ = [
    "FEATURE_NAMES",
    "LABEL_NAMES",
    "choose_arrays",
    "choose_columns",
    "find_column",
    "guess_label",
]

# Looked for in this order, upper or lower case, alone or with a part such as `_train` about them.
FEATURE_NAMES = ("x", "features", "feature", "embeddings", "embedding", "vectors", "fea", "data")
LABEL_NAMES = ("y", "labels", "label", "targets", "target", "classes", "class", "gnd")
_PARTS = ("", "_train", "_tr", "train_", "_test", "_te", "test_")


def guess_label(names: Sequence[str]) -> str | None:
    """The column that is called like a label, None where there is none.

    Examples
    --------
    >>> guess_label(["id", "Label", "f0"])
    'Label'
    """
    return next((name for name in _by_priority(names, LABEL_NAMES)), None)


def _by_priority(names: Sequence[str], known: Sequence[str]) -> list[str]:
    wanted = {
        (part + word if part.endswith("_") else word + part): place
        for place, (part, word) in enumerate((part, word) for part in _PARTS for word in known)
    }
    called = [(wanted[base], name) for name in names if (base := _base(name)) in wanted]
    return [name for _, name in sorted(called)]


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower()


def choose_arrays(file: ArrayFile, request: Request) -> Choice:
    """The features array and the labels array of a file of named arrays."""
    names = file.names()
    if not names:
        raise DataFileError(f"{file.path}: is empty: there are no arrays in it")
    if request.only_labels:
        return Choice((), _label_array(file, names, request, None))
    if request.features is None:
        features = _guess_features(file, names, request)
    elif len(request.features) == 1:
        features = _known(file.path, names, request.features[0])
    else:
        raise DataFileError(
            f"{file.path}: features are one array of this format, "
            f"but {len(request.features)} are named: {listed(request.features)}"
        )
    return Choice((features,), _label_array(file, names, request, features))


def _known(path: Path, names: Sequence[str], wanted: object) -> str:
    name = str(wanted)
    if name not in names:
        raise DataFileError(f"{path}: there is no array {name!r}; there are: {listed(names)}")
    return name


def _guess_features(file: ArrayFile, names: Sequence[str], request: Request) -> str:
    shapes: dict[str, tuple[int, ...]] = {}
    first_error: DataFileError | None = None
    for name in names:
        try:
            source = file.source(name)
        except DataFileError as error:
            first_error = first_error or error
            continue
        if len(source.shape) == 2 and source.dtype.kind in "biuf" and name != request.labels:
            shapes[name] = source.shape
    named = _by_priority(list(shapes), FEATURE_NAMES)
    if named:
        return named[0]
    # A single row or column is a vector, in MATLAB at least; unless nothing else is there.
    matrices = [name for name, shape in shapes.items() if 1 not in shape] or list(shapes)
    if len(matrices) == 1:
        return matrices[0]
    if not matrices:
        if first_error is not None:
            raise first_error
        if len(names) == 1:
            return names[0]
        raise DataFileError(
            f"{file.path}: there is no matrix of features in it; there are: {listed(names)}"
        )
    raise DataFileError(
        f"{file.path}: several arrays may be the features, name one with features=: "
        f"{listed(matrices)}"
    )


def _label_array(
    file: ArrayFile, names: Sequence[str], request: Request, features: str | None
) -> str | None:
    if request.labels is False:
        return None
    if request.labels is not None and request.labels is not True:
        return _known(file.path, names, request.labels)
    others = [name for name in names if name != features]
    if features is not None:
        folder = features.rpartition("/")[0]
        others = [name for name in others if name.rpartition("/")[0] == folder]
        twins = _twins(_base(features))
        twin = next((name for name in others if _base(name) in twins), None)
        if twin is not None:
            return twin
        # The labels of another part, say the training part, are not the labels of these rows.
        others = [name for name in others if _base(name) in LABEL_NAMES]
    guess = guess_label(others)
    if guess is None and features is None:
        if len(names) == 1:
            return names[0]
        raise DataFileError(
            f"{file.path}: several arrays may be the labels, name one with labels=: {listed(names)}"
        )
    return guess


def _twins(features: str) -> set[str]:
    """What the labels may be called beside features of this name: ``y_test`` for ``x_test``."""
    return {
        re.sub(rf"(^|_){word}(_|$)", rf"\g<1>{label}\g<2>", features, count=1)
        for word in FEATURE_NAMES
        for label in LABEL_NAMES
    } - {features}


def find_column(path: Path, names: Sequence[str], wanted: object) -> str:
    """A column by its name, or by its place where no column has that name.

    Examples
    --------
    >>> find_column(Path("a.csv"), ["f0", "f1", "label"], -1)
    'label'
    """
    name = str(wanted)
    if names.count(name) > 1:
        raise DataFileError(f"{path}: {names.count(name)} columns are called {name!r}")
    if name in names:
        return name
    if re.fullmatch(r"-?[0-9]{1,9}", name) and -len(names) <= int(name) < len(names):
        return names[int(name)]
    raise DataFileError(f"{path}: there is no column {name!r}; there are: {listed(names)}")


def choose_columns(path: Path, names: Sequence[str], wanted: Sequence[object]) -> list[str]:
    """Columns by name, place, or pattern such as ``f*``, in the order in which they are asked for.

    Examples
    --------
    >>> choose_columns(Path("a.csv"), ["id", "f0", "f1"], ["f*"])
    ['f0', 'f1']
    """
    chosen: list[str] = []
    for item in wanted:
        text = str(item)
        if text not in names and any(sign in text for sign in "*?["):
            matching = fnmatch.filter(names, text)
            if not matching:
                raise DataFileError(
                    f"{path}: no column is called like {text!r}; there are: {listed(names)}"
                )
            chosen += matching
        else:
            chosen.append(find_column(path, names, text))
    return list(dict.fromkeys(chosen))
