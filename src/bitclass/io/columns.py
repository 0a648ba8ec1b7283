"""Selection of the columns or arrays that hold features and labels.

Nothing is guessed unless there is exactly one candidate. Columns that are skipped, or detected by
name, are listed in the description of the rows.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bitclass.io.errors import DataFileError, listed
from bitclass.io.source import Request

__all__ = ["choose_arrays", "choose_columns", "find_column", "is_label_name"]

_PARTS = "(train|tr|test|te)"
_LABEL_NAMES = "y|labels|label|targets|target|classes|class|gnd"
# pandas renames a second column "label" to "label.1".
_LABEL = re.compile(rf"(?i)({_PARTS}_)?({_LABEL_NAMES})(_{_PARTS})?(\.[0-9]+)?")
_FEATURE_NAMES = "x|features|feature|embeddings|embedding|vectors|fea|data"
_FEATURES = re.compile(rf"(?i)({_PARTS}_)?({_FEATURE_NAMES})(_{_PARTS})?")
_ID = re.compile(r"(?i:(.*[_\-. ])?(id|idx|uuid)|index)|.*[a-z](Id|ID)")
# The name that pandas gives to an unnamed column, such as the index in a CSV file.
_UNNAMED = re.compile(r"Unnamed: [0-9.]+")


def is_label_name(name: str) -> bool:
    """Whether the name of a column or array is typical of labels.

    Examples
    --------
    >>> is_label_name("Label"), is_label_name("y_test"), is_label_name("f0")
    (True, True, False)
    """
    return bool(_LABEL.fullmatch(name.rsplit("/", 1)[-1]))


def find_column(path: Path, names: Sequence[str], wanted: str) -> str:
    """Find a column by name, or by position if no column has that name."""
    if wanted in names:
        return wanted
    if re.fullmatch(r"-?[0-9]{1,9}", wanted) and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    raise DataFileError(f"{path}: has no column {wanted!r}; the columns are: {listed(names)}")


def choose_columns(
    path: Path,
    kinds: Mapping[str, str],
    index: Collection[str],
    request: Request,
    named: bool,
    examples: Mapping[str, str],
) -> tuple[list[str], str | None, list[str]]:
    """Choose the feature columns and the label column of a table; also returns notes.

    `kinds` maps column names to "number", "list", "text" or another type, `index` are the index
    columns of pandas, `named` is whether the file has column names, and `examples` are values of
    text columns for error messages.
    """
    names = list(kinds)
    index = {*index, *(name for name in names if _UNNAMED.fullmatch(name))}
    model_names = (request.feature_names if named else None) or ()
    wanted, excluded = _requested(path, names, index, request.features or ())
    taken = {*(request.features or ()), *model_names, *request.columns}
    free = {name: kinds[name] for name in names if name not in excluded and name not in taken}
    label, notes = _label_column(path, kinds, free, request, named)
    features: list[str] = []
    if model_names:
        if missing := [name for name in model_names if name not in kinds]:
            raise DataFileError(
                f"{path}: has no column {listed(missing)}, which the model was fitted with; "
                f"the columns are: {listed(names)}"
            )
        features = list(model_names)
        notes.append("features matched by name")
    elif request.features is not False:
        skipped = {
            name: f"a second {label!r}"
            for name in free
            if label and re.fullmatch(rf"{re.escape(label)}\.\d+", name)
        }
        if not wanted:
            skipped = {name: "an identifier" for name in free if _ID.fullmatch(name)} | skipped
            skipped |= dict.fromkeys(index & free.keys(), "the index of a data frame")
        candidates = [name for name in wanted or free if name != label or name not in free]
        features = [] if wanted else _column_of_lists(path, kinds, candidates)
        if not features:
            features = [name for name in candidates if name not in skipped]
            notes += [
                f"skipped {name!r}, {skipped[name]}" for name in candidates if name in skipped
            ]
        if not wanted and not any(kinds[name] in ("number", "list") for name in features):
            raise DataFileError(
                f"{path}: no column contains numbers; the columns are: {listed(candidates)}"
            )
    _check_numbers(path, {name: kinds[name] for name in features}, examples)
    if request.labels is False:
        label = None
    elif label in features:
        raise DataFileError(f"{path}: column {label!r} cannot be both label and feature")
    return features, label, notes


def _requested(
    path: Path, names: Sequence[str], index: Collection[str], items: Sequence[str]
) -> tuple[list[str], set[str]]:
    """Columns given by name, position or pattern, in this order, and those excluded by a !."""
    chosen: list[str] = []
    excluded: set[str] = set()
    for item in items:
        excludes = item.startswith("!") and item not in names
        text = item.removeprefix("!") if excludes else item
        if text not in names and any(sign in text for sign in "*?["):
            found = [name for name in names if name not in index and fnmatch.fnmatch(name, text)]
            if not found:
                raise DataFileError(
                    f"{path}: no column matches {text!r}; the columns are: {listed(names)}"
                )
        else:
            found = [find_column(path, names, text)]
        if excludes:
            excluded.update(found)
        else:
            chosen += found
    wanted = [name for name in dict.fromkeys(chosen) if name not in excluded]
    if (chosen and not wanted) or len(excluded) == len(names):
        raise DataFileError(f"{path}: features= leaves no column; the columns are: {listed(names)}")
    return wanted, excluded


def _label_column(
    path: Path, kinds: Mapping[str, str], free: Mapping[str, str], request: Request, named: bool
) -> tuple[str | None, list[str]]:
    """Find the label column, even if labels are not requested, to exclude it from the features."""
    if isinstance(request.labels, str):
        return find_column(path, list(kinds), request.labels), []
    if request.only_labels and len(kinds) == 1:
        return next(iter(kinds)), []
    called = [name for name in free if is_label_name(name)]
    candidates = [name for name in called if name.rpartition(".")[0] not in called]
    if not named and not request.only_labels:
        # Without names, the only text column must be the label.
        texts = [name for name, kind in free.items() if kind == "text"]
        candidates = texts if len(texts) == 1 else []
    if len(candidates) == 1:
        what = "label column skipped" if request.labels is False else "label column detected"
        return candidates[0], [f"{what}: {candidates[0]!r}"]
    if request.only_labels:
        raise DataFileError(
            f"{path}: name the label column with labels=; the columns are: {listed(kinds)}"
        )
    # Ambiguity does not matter if neither the labels nor the features have to be found.
    is_needed = request.labels is None or (not request.feature_names and request.features == ())
    if candidates and is_needed:
        raise DataFileError(
            f"{path}: several columns may be the labels; name one with labels=, or exclude others "
            f"with --features '!{candidates[-1]}': {listed(candidates)}"
        )
    return None, []


def _column_of_lists(path: Path, kinds: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """The only column of lists, or the only one with a name typical of features, if any."""
    lists = [name for name in names if kinds[name] == "list"]
    if len(lists) > 1:
        lists = [name for name in lists if _FEATURES.fullmatch(name)] or lists
    if len(lists) > 1:
        raise DataFileError(
            f"{path}: several columns may be the features; name one with features=: {listed(lists)}"
        )
    return lists


def _check_numbers(path: Path, kinds: Mapping[str, str], examples: Mapping[str, str]) -> None:
    if len(kinds) > 1 and "list" in kinds.values():
        raise DataFileError(f"{path}: features must be one column of lists, or columns of numbers")
    wrong = [name for name, kind in kinds.items() if kind not in ("number", "list")]
    if wrong:
        first, pattern = wrong[0], ",".join(f"!{name}" for name in wrong[:5])
        pattern = re.sub(r"[\r\n]", "?", pattern)  # the message is one line
        found = (
            f"contains {examples[first]!r:.60}" if first in examples else f"has type {kinds[first]}"
        )
        raise DataFileError(
            f"{path}: column {first!r} is not numeric (it {found}); if it is not a feature, "
            f"exclude it with --features '{pattern}', or name the label column with --labels"
        )


def choose_arrays(
    path: Path, shapes: Mapping[str, tuple[int, ...]], numeric: Collection[str], request: Request
) -> tuple[list[str], str | None, list[str]]:
    """Choose the feature array (one of `numeric`) and the label array; also returns notes."""
    names, features = list(shapes), list(request.features or ())
    if request.columns:
        raise DataFileError(f"{path}: has arrays, not columns such as {listed(request.columns)}")
    for name in (*features, request.labels):
        if isinstance(name, str) and name not in shapes:
            raise DataFileError(f"{path}: has no array {name!r}; the arrays are: {listed(names)}")
    if len(features) > 1:
        raise DataFileError(f"{path}: features must be one array, but features= names several")
    is_guessed = False
    if not features and request.features is not False:
        features = [_feature_array(path, shapes, numeric, request.labels, request.part)]
        is_guessed = True
    label = None if request.labels is False else request.labels
    if request.labels is None:
        label = _label_array(path, names, features)
        is_guessed = is_guessed or label is not None
    return features, label, ["detected"] if is_guessed and len(names) > 1 else []


def _feature_array(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    numeric: Collection[str],
    label: str | bool | None,
    part: str,
) -> str:
    matrices = [n for n, shape in shapes.items() if len(shape) == 2 and n in numeric and n != label]
    named = [name for name in matrices if _FEATURES.fullmatch(name.rsplit("/", 1)[-1])]
    # X_test if the labels are y_test; otherwise `part` decides between X_train (or X) and X_test.
    matching = [name for name in named if isinstance(label, str) and _place(name) == _place(label)]
    of_part = [name for name in named if (_part(name) in ("test", "te")) == (part == "test")]
    # In MATLAB, a matrix with a single row or column is usually a vector.
    large = [name for name in matrices if 1 not in shapes[name]]
    candidates = matching or of_part or named or large or matrices or list(shapes)
    if len(candidates) == 1:
        return candidates[0]
    if not matrices:
        raise DataFileError(f"{path}: has no feature matrix; the arrays are: {listed(shapes)}")
    raise DataFileError(
        f"{path}: several arrays may be the features; name one with features=: {listed(candidates)}"
    )


def _label_array(path: Path, names: Sequence[str], features: Sequence[str]) -> str | None:
    if not features and len(names) == 1:
        return names[0]
    candidates = [name for name in names if name not in features and is_label_name(name)]
    if features:
        # y_test belongs to X_test, and train/y to train/X.
        candidates = [name for name in candidates if _place(name) == _place(features[0])]
    if len(candidates) > 1 or (not candidates and not features):
        raise DataFileError(
            f"{path}: several arrays may be the labels; name one with labels=: "
            f"{listed(candidates or names)}"
        )
    return candidates[0] if candidates else None


def _place(name: str) -> tuple[str, str | None]:
    """Group and part (train or test) of an array, which features and their labels share."""
    return name.rpartition("/")[0], _part(name)


def _part(name: str) -> str | None:
    """The part of the data in a name such as ``X_test``, or None."""
    found = re.search(rf"(?i)(^|/){_PARTS}_|_{_PARTS}$", name)
    return (found[2] or found[3]).lower() if found else None
