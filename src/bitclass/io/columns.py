"""Which columns or arrays are the features and which the labels.

Nothing is guessed unless there is exactly one candidate. A column that is left out, or recognised
by its name, is noted in the description of the rows.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bitclass.io.errors import DataFileError, listed
from bitclass.io.source import Request

__all__ = ["Choice", "Column", "choose_arrays", "choose_columns", "is_label_name"]

_FEATURE_NAMES = "x|features|feature|embeddings|embedding|vectors|fea|data"
_LABEL_NAMES = "y|labels|label|targets|target|classes|class|gnd"
_PARTS = "(train|tr|test|te)"
# label.1 is what pandas makes of a second column label.
_LABEL = re.compile(rf"({_PARTS}_)?({_LABEL_NAMES})(_{_PARTS})?(\.[0-9]+)?", re.IGNORECASE)
_FEATURES = re.compile(rf"({_PARTS}_)?({_FEATURE_NAMES})(_{_PARTS})?", re.IGNORECASE)
_ID = re.compile(r"(?i:(.*[_\-. ])?(id|idx|uuid)|index)|.*[a-z](Id|ID)")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str  # its position, counted from 0, if it has no name
    kind: Literal["integer", "number", "list", "text", "other"]
    is_index: bool = False  # of a data frame
    shown: str = ""  # its type or an example of its values, for errors

    @property
    def is_id(self) -> bool:
        """Whether it is called like an identifier and holds integers or text."""
        return self.kind in ("integer", "text") and bool(_ID.fullmatch(self.name))


@dataclass
class Choice:
    """What is read of a file."""

    features: list[str] = field(default_factory=list)
    label: str | None = None
    columns: list[str] = field(default_factory=list)  # further columns
    notes: list[str] = field(default_factory=list)  # what was guessed or left out


def is_label_name(name: str) -> bool:
    """Whether a column or array is called like labels.

    Examples
    --------
    >>> is_label_name("Label"), is_label_name("y_test"), is_label_name("f0")
    (True, True, False)
    """
    return bool(_LABEL.fullmatch(name.rsplit("/", 1)[-1]))


def choose_columns(
    path: Path, columns: Sequence[Column], request: Request, *, named: bool
) -> Choice:
    """Features and label of a table; `named` tells whether columns have more than positions."""
    names = [column.name for column in columns]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise DataFileError(f"{path}: several columns have the same name: {listed(doubled)}")
    choice = Choice(columns=[_find(path, names, wanted) for wanted in request.columns])
    wanted, left_out = _requested(path, columns, request.named_features)
    model_names = (request.feature_names if named else None) or ()
    taken = {*request.named_features, *model_names, *choice.columns}
    free = [column for column in columns if column.name not in left_out | taken]
    choice.label = _label_column(path, names, free, request, choice, named)
    if request.wants_features:
        if model_names:
            _require(path, model_names, names, "which the model was fitted with")
            choice.features = list(model_names)
            choice.notes.append("features matched by name")
        elif wanted:
            # A pattern such as * takes the label only if it is named without a pattern.
            choice.features = [name for name in wanted if name in taken or name != choice.label]
        else:
            candidates = [column for column in free if column.name != choice.label]
            choice.features = _default_features(path, candidates, choice)
        _check_numbers(path, [column for column in columns if column.name in choice.features])
        _check_second_label(path, [name for name in choice.features if name not in taken], choice)
    if request.labels is False:
        choice.label = None
    elif choice.label in choice.features:
        raise DataFileError(f"{path}: column {choice.label!r} cannot be label and feature at once")
    return choice


def _check_second_label(path: Path, features: Sequence[str], choice: Choice) -> None:
    """Refuse ``species.1``, which is what pandas makes of a second label column ``species``."""
    if choice.label is None:
        return
    pattern = re.compile(rf"{re.escape(choice.label)}\.[1-9][0-9]*")
    found = [name for name in features if pattern.fullmatch(name)]
    if found:
        raise DataFileError(
            f"{path}: column {found[0]!r} may be a second {choice.label!r}; leave it out with "
            f"--features '!{found[0]}', or name all features with --features"
        )


def _require(path: Path, wanted: Sequence[str], names: Sequence[str], why: str) -> None:
    known = set(names)
    if missing := [name for name in wanted if name not in known]:
        raise DataFileError(
            f"{path}: has no column {listed(missing)}, {why}; there are: {listed(names)}"
        )


def _requested(
    path: Path, columns: Sequence[Column], items: Sequence[str]
) -> tuple[list[str], set[str]]:
    """Columns by name, position or pattern in the order of the items, and those with a !."""
    names = [column.name for column in columns]
    chosen: list[str] = []
    left_out: set[str] = set()
    for item in items:
        excludes = item.startswith("!") and item not in names
        text = item.removeprefix("!") if excludes else item
        if text not in names and any(sign in text for sign in "*?["):
            found = [c.name for c in columns if not c.is_index and fnmatch.fnmatch(c.name, text)]
            if not found:
                raise DataFileError(
                    f"{path}: no column matches {text!r}; there are: {listed(names)}"
                )
        else:
            found = [_find(path, names, text)]
        if excludes:
            left_out.update(found)
        else:
            chosen += found
    wanted = [name for name in dict.fromkeys(chosen) if name not in left_out]
    if (chosen and not wanted) or len(left_out) == len(names):
        raise DataFileError(f"{path}: features= leaves no column; there are: {listed(names)}")
    return wanted, left_out


def _find(path: Path, names: Sequence[str], wanted: str) -> str:
    """A column by its name, or by its position if no column has that name."""
    if wanted in names:
        return wanted
    if re.fullmatch(r"-?[0-9]{1,9}", wanted) and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    raise DataFileError(f"{path}: has no column {wanted!r}; there are: {listed(names)}")


def _label_column(
    path: Path,
    names: Sequence[str],
    free: Sequence[Column],
    request: Request,
    choice: Choice,
    named: bool,
) -> str | None:
    """The label column; also if labels are not asked for, because it is no feature then."""
    if isinstance(request.labels, str):
        return _find(path, names, request.labels)
    candidates = [c.name for c in free if is_label_name(c.name) and not c.is_index]
    if request.only_labels:
        candidates = list(names) if len(names) == 1 else candidates
        if len(candidates) != 1:
            raise DataFileError(
                f"{path}: name the column of the labels with labels=; there are: {listed(names)}"
            )
        return candidates[0]
    if not named:
        # Without names, text beside numbers can only be the label.
        candidates = [c.name for c in free if c.kind == "text"]
        candidates = candidates if len(candidates) == 1 else []
    if len(candidates) > 1:
        if request.labels is False and (request.feature_names or request.features is not None):
            return None
        raise DataFileError(
            f"{path}: several columns may be the labels, name one with labels=, or leave others "
            f"out with --features '!{candidates[-1]}': {listed(candidates)}"
        )
    if candidates:
        what = "label column skipped" if request.labels is False else "label column recognised"
        choice.notes.append(f"{what}: {candidates[0]!r}")
    return candidates[0] if candidates else None


def _default_features(path: Path, columns: Sequence[Column], choice: Choice) -> list[str]:
    lists = [column.name for column in columns if column.kind == "list"]
    if len(lists) > 1:
        lists = [name for name in lists if _FEATURES.fullmatch(name)] or lists
    if len(lists) > 1:
        raise DataFileError(
            f"{path}: several columns may be the features, name one with features=: {listed(lists)}"
        )
    if lists:
        return lists
    for column in columns:
        if column.is_index or column.is_id:
            what = "the index of a data frame" if column.is_index else "an identifier"
            choice.notes.append(f"left out {column.name!r}, {what}")
    features = [column for column in columns if not column.is_index and not column.is_id]
    if all(column.kind in ("text", "other") for column in features):
        there = listed(column.name for column in columns)
        raise DataFileError(f"{path}: no column holds numbers; there are: {there}")
    return [column.name for column in features]


def _check_numbers(path: Path, features: Sequence[Column]) -> None:
    if len(features) > 1 and any(column.kind == "list" for column in features):
        raise DataFileError(f"{path}: features are one column of lists, or columns of numbers")
    wrong = [column for column in features if column.kind in ("text", "other")]
    if wrong:
        pattern = ",".join(f"!{column.name}" for column in wrong[:5])
        raise DataFileError(
            f"{path}: column {wrong[0].name!r} is not a number ({wrong[0].shown}); if it is no "
            f"feature, leave it out with --features '{pattern}', or name the label with --labels"
        )


def choose_arrays(
    path: Path, shapes: Mapping[str, tuple[int, ...]], numeric: set[str], request: Request
) -> Choice:
    """Features and labels among arrays, of which `numeric` hold real numbers."""
    names, wanted = list(shapes), request.named_features
    if request.columns:
        raise DataFileError(f"{path}: has no columns, and so no column {listed(request.columns)}")
    for name in (*wanted, request.labels):
        if isinstance(name, str) and name not in shapes:
            raise DataFileError(f"{path}: has no array {name!r}; there are: {listed(names)}")
    if len(wanted) > 1:
        raise DataFileError(f"{path}: features are one array, but features= names several")
    choice = Choice()
    if request.wants_features:
        matrices = [name for name in names if len(shapes[name]) == 2 and name in numeric]
        matrices = [name for name in matrices if name != request.labels]
        choice.features = list(wanted) or [_feature_array(path, matrices, shapes)]
        if not wanted and len(names) > 1:
            choice.notes.append(f"features recognised: {choice.features[0]!r}")
    if isinstance(request.labels, str):
        choice.label = request.labels
    elif request.labels is None:
        choice.label = _label_array(path, names, choice.features)
        if choice.label:
            choice.notes.append(f"labels recognised: {choice.label!r}")
    return choice


def _feature_array(
    path: Path, matrices: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> str:
    called = [name for name in matrices if _FEATURES.fullmatch(name.rsplit("/", 1)[-1])]
    # Of X_train and X_test, or X and X_test, take the training part.
    plain = [name for name in called if _part(name) not in ("test", "te")]
    # A matrix of a single row or column is a vector in MATLAB, unless there is nothing else.
    large = [name for name in matrices if 1 not in shapes[name]]
    for candidates in (plain, called, large, matrices):
        if len(candidates) == 1:
            return candidates[0]
        if len(candidates) > 1:
            raise DataFileError(
                f"{path}: several arrays may be the features, name one with features=: "
                f"{listed(candidates)}"
            )
    if len(shapes) == 1:
        return next(iter(shapes))
    raise DataFileError(f"{path}: has no matrix of features; there are: {listed(shapes)}")


def _label_array(path: Path, names: Sequence[str], features: Sequence[str]) -> str | None:
    candidates = [name for name in names if name not in features and is_label_name(name)]
    if features:
        # y_test belongs to X_test, and train/y to train/X.
        folder, part = features[0].rpartition("/")[0], _part(features[0])
        candidates = [
            name for name in candidates if name.rpartition("/")[0] == folder and _part(name) == part
        ]
    elif len(names) == 1:
        candidates = list(names)
    if len(candidates) > 1 or (not candidates and not features):
        raise DataFileError(
            f"{path}: several arrays may be the labels, name one with labels=: "
            f"{listed(candidates or names)}"
        )
    return candidates[0] if candidates else None


def _part(name: str) -> str | None:
    """The part of the data that a name such as ``X_test`` speaks of."""
    found = re.search(rf"(?i)(^|/){_PARTS}_|_{_PARTS}$", name)
    return (found[2] or found[3]).lower() if found else None
