"""Selection of the columns or arrays that hold features and labels.

Nothing is chosen by its name unless there is exactly one candidate. Columns that are skipped or
found by name are listed in the description of the rows.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bitclass.io.source import DataFileError, Request, listed

__all__ = ["choose_columns", "find_column"]

_LABEL_NAMES = "y|labels|label|targets|target|classes|class"
# pandas renames a second column "label" to "label.1".
_LABEL = re.compile(rf"(?i)({_LABEL_NAMES})(_train|_test)?(\.[0-9]+)?")
_FEATURE_NAMES = "x|features|feature|embeddings|embedding|vectors|data"
_FEATURES = re.compile(rf"(?i)({_FEATURE_NAMES})(_train|_test)?")
_ID = re.compile(r"(?i:(.*[_\-. ])?(id|idx|uuid)|index)|.*[a-z](Id|ID)")
# The name that pandas gives to an unnamed column, such as the index in a CSV file.
_UNNAMED = re.compile(r"Unnamed: [0-9.]+")


def find_column(path: Path, names: Sequence[str], wanted: str) -> str:
    """Find a column by name, or by position if no column has that name."""
    if wanted in names:
        return wanted
    if re.fullmatch(r"-?[0-9]{1,9}", wanted) and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    raise DataFileError(f"{path}: has no column {wanted!r}; the columns are: {listed(names)}")


def choose_columns(
    path: Path, kinds: Mapping[str, str], index: Collection[str], request: Request
) -> tuple[list[str], str | None, list[str]]:
    """Choose the feature columns and the label column of a table; also returns notes.

    `kinds` maps column names to "number", "list", "text" or another type, and `index` are the
    index columns of pandas. The matrices of an npz file are columns of lists.
    """
    names = list(kinds)
    index = {*index, *(name for name in names if _UNNAMED.fullmatch(name))}
    model_names = list(request.feature_names or ())
    if isinstance(request.labels, str):
        request = replace(request, labels=find_column(path, names, request.labels))
    wanted, excluded = _requested(path, names, index, request)
    unavailable = {*excluded, *wanted, *model_names, *request.columns}
    free = [name for name in names if name not in unavailable]
    lists = [name for name in wanted or free if kinds[name] == "list"]
    if not wanted:
        lists = [name for name in lists if name != request.labels and not _LABEL.fullmatch(name)]
        lists = [name for name in lists if _FEATURES.fullmatch(name)] or lists
        if len(lists) > 1 and request.features is not False and not model_names:
            raise DataFileError(
                f"{path}: several columns may be the features; name one with --features "
                f"(features=): {listed(lists)}"
            )
    label, notes = _label_column(path, names, free, request, lists)
    features: list[str] = []
    if request.features is False:
        pass
    elif model_names:
        if missing := [name for name in model_names if name not in kinds]:
            raise DataFileError(
                f"{path}: has no column {listed(missing)}, which the model was fitted with; "
                f"the columns are: {listed(names)}"
            )
        features = model_names
        notes.append("features matched by name")
    elif wanted:
        features = wanted
    elif lists:
        features = lists
    else:
        candidates = [name for name in free if name != label]
        skipped = {name: "an identifier" for name in candidates if _ID.fullmatch(name)}
        skipped |= {name: "the index of a data frame" for name in candidates if name in index}
        features = [name for name in candidates if name not in skipped]
        notes += [f"skipped {name!r}, {reason}" for name, reason in skipped.items()]
        if not any(kinds[name] == "number" for name in features):
            raise DataFileError(
                f"{path}: no column contains numbers; the columns are: {listed(names)}; name a "
                "column of texts with --text (text=)"
            )
    _check_numbers(path, {name: kinds[name] for name in features}, bool(model_names))
    if request.labels is False:
        label = None
    elif label in features:
        raise DataFileError(f"{path}: column {label!r} cannot be both label and feature")
    return features, label, notes


def _requested(
    path: Path, names: Sequence[str], index: Collection[str], request: Request
) -> tuple[list[str], set[str]]:
    """Columns given by name, position or pattern, in this order, and those excluded by a !."""
    label = request.labels
    chosen: list[str] = []
    excluded: set[str] = set()
    for item in request.features or ():
        excludes = item.startswith("!") and item not in names
        text = item.removeprefix("!") if excludes else item
        if text not in names and any(sign in text for sign in "*?["):
            found = [name for name in names if name not in index and fnmatch.fnmatch(name, text)]
            if not excludes:
                is_label = label.__eq__ if isinstance(label, str) else _LABEL.fullmatch
                found = [name for name in found if not is_label(name)]
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
    path: Path, names: Sequence[str], free: Sequence[str], request: Request, lists: Sequence[str]
) -> tuple[str | None, list[str]]:
    """Find the label column, even if labels are not requested, to exclude it from the features."""
    if isinstance(request.labels, str):
        return request.labels, []
    if request.only_labels and len(names) == 1:
        return names[0], []
    candidates = [name for name in free if _LABEL.fullmatch(name)]
    if len(lists) == 1:  # y_test belongs to X_test
        candidates = [name for name in candidates if _suffix(name) == _suffix(lists[0])]
    if len(candidates) == 1:
        what = "label column skipped" if request.labels is False else "label column found by name"
        return candidates[0], [f"{what}: {candidates[0]!r}"]
    if request.only_labels:
        raise DataFileError(
            f"{path}: name the label column with --labels (labels=); "
            f"the columns are: {listed(names)}"
        )
    # Ambiguity does not matter if neither the labels nor the features have to be found.
    is_needed = request.labels is None or (not request.feature_names and request.features == ())
    if candidates and is_needed:
        raise DataFileError(
            f"{path}: several columns may be the labels; name one with --labels, or exclude others "
            f"with --features '!{candidates[-1]}': {listed(candidates)}"
        )
    return None, []


def _check_numbers(path: Path, kinds: Mapping[str, str], of_model: bool) -> None:
    if len(kinds) > 1 and "list" in kinds.values():
        raise DataFileError(f"{path}: features must be one column of lists, or columns of numbers")
    wrong = [name for name, kind in kinds.items() if kind not in ("number", "list")]
    if wrong:
        pattern = ",".join(f"!{name}" for name in wrong[:5])
        pattern = re.sub(r"[\r\n]", "?", pattern)  # the message is one line
        advice = (
            f"if it is not a feature, exclude it with --features '{pattern}', or name the label "
            "column with --labels"
        )
        raise DataFileError(
            f"{path}: column {wrong[0]!r} is not numeric (its type is {kinds[wrong[0]]}); "
            + ("the model was fitted with it" if of_model else advice)
        )


def _suffix(name: str) -> str:
    """The part of the data in a name such as ``X_test``."""
    found = re.search(r"(?i)_(train|test)$", name)
    return found[0].lower() if found else ""
