"""Which columns or arrays are the features and which the labels.

Nothing is guessed unless there is exactly one candidate. A column that is left out, or recognised
by its name, is noted in the description of the rows.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bitclass.io.errors import DataFileError, listed
from bitclass.io.source import Request

__all__ = ["Choice", "Column", "choose_arrays", "choose_columns", "is_label_name", "is_pattern"]

FEATURE_NAMES = ("x", "features", "feature", "embeddings", "embedding", "vectors", "fea", "data")
LABEL_NAMES = ("y", "labels", "label", "targets", "target", "classes", "class", "gnd")
_PARTS = r"(train|tr|test|te)"
_LABEL = re.compile(rf"({_PARTS}_)?({'|'.join(LABEL_NAMES)})(_{_PARTS})?", re.IGNORECASE)
_FEATURES = re.compile(rf"({_PARTS}_)?({'|'.join(FEATURE_NAMES)})(_{_PARTS})?", re.IGNORECASE)
_ID = re.compile(r"(?i:(.*[_\-. ])?(id|idx|uuid)|index)|.*[a-z](Id|ID)")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : str
        Its place, counted from 0, if it has no name.
    kind : 'integer', 'number', 'list', 'text' or 'other'
    is_index : bool
        Whether it is the index of a data frame.
    shown : str
        Its type or an example of its values, for errors.
    """

    name: str
    kind: Literal["integer", "number", "list", "text", "other"]
    is_index: bool = False
    shown: str = ""

    @property
    def is_id(self) -> bool:
        """Whether it is called like an identifier and holds integers or text."""
        return self.kind in ("integer", "text") and bool(_ID.fullmatch(self.name))


@dataclass
class Choice:
    """What is read of a file.

    Attributes
    ----------
    features : list of str
    label : str or None
    by_name : bool
        Whether features were matched with those of a model by name.
    notes : list of str
        What was guessed or left out.
    """

    features: list[str] = field(default_factory=list)
    label: str | None = None
    by_name: bool = False
    notes: list[str] = field(default_factory=list)


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
    """Features and label of a table.

    Parameters
    ----------
    path : Path
        For errors.
    columns : sequence of Column
    request : Request
    named : bool
        Whether the columns have names, and not only places.

    Returns
    -------
    Choice
    """
    names = [column.name for column in columns]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise DataFileError(f"{path}: several columns have the same name: {listed(doubled)}")
    by_name = {column.name: column for column in columns}
    choice = Choice(by_name=request.feature_names is not None and named)
    if request.only_labels:
        choice.label = _only_label(path, names, request)
        return choice

    wanted = _selected(path, columns, request) if request.features is not None else None
    taken = {*(request.features or ()), *(request.first_features or ())}
    taken |= set(request.feature_names or ()) if named else set()
    choice.label = _label_column(path, columns, request, taken, choice.notes, named)
    if choice.by_name:
        assert request.feature_names is not None
        known = set(wanted or names)
        missing = [name for name in request.feature_names if name not in known]
        if missing:
            raise DataFileError(
                f"{path}: has no column {listed(missing)}, which the model was fitted with; "
                f"there are: {listed(names)}"
            )
        choice.features = list(request.feature_names)
    elif wanted is not None:
        # A pattern such as * takes the label only if it is named without a pattern.
        choice.features = [name for name in wanted if name in taken or name != choice.label]
    else:
        choice.features = _default_features(path, columns, choice)
    if request.first_features is not None:
        _check_others(path, choice.features, names, request.first_features)
        choice.features = list(request.first_features)
    if choice.label is not None:
        _check_second_label(path, [name for name in choice.features if name not in taken], choice)
    if request.labels is False:
        choice.label = None
    elif choice.label in choice.features:
        raise DataFileError(f"{path}: column {choice.label!r} cannot be label and feature at once")
    _check_numbers(path, [by_name[name] for name in choice.features])
    return choice


def _only_label(path: Path, names: Sequence[str], request: Request) -> str:
    if isinstance(request.labels, str):
        return _find(path, names, request.labels)
    candidates = names if len(names) == 1 else [name for name in names if is_label_name(name)]
    if len(candidates) != 1:
        raise DataFileError(
            f"{path}: name the column of the labels with labels=; there are: {listed(names)}"
        )
    return candidates[0]


def _label_column(
    path: Path,
    columns: Sequence[Column],
    request: Request,
    taken: set[str],
    notes: list[str],
    named: bool,
) -> str | None:
    """The label column; also if labels are not asked for, because it is no feature then."""
    if isinstance(request.labels, str):
        return _find(path, [column.name for column in columns], request.labels)
    free = [column for column in columns if column.name not in taken and not column.is_index]
    candidates = [column.name for column in free if is_label_name(column.name)]
    if not named:
        # Without names, text beside numbers can only be the label.
        candidates = [column.name for column in free if column.kind == "text"]
        candidates = candidates if len(candidates) == 1 else []
    if len(candidates) > 1:
        if request.labels is False and taken:
            return None
        raise DataFileError(
            f"{path}: several columns may be the labels, name one with labels=: "
            f"{listed(candidates)}"
        )
    if candidates:
        what = "label column skipped" if request.labels is False else "label column recognised"
        notes.append(f"{what}: {candidates[0]!r}")
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
        if column.name != choice.label and (column.is_index or column.is_id):
            what = "the index of a data frame" if column.is_index else "an identifier"
            choice.notes.append(f"left out {column.name!r}, {what}")
    features = [
        column
        for column in columns
        if column.name != choice.label and not column.is_index and not column.is_id
    ]
    texts = [column.name for column in features if column.kind in ("text", "other")]
    if texts and len(texts) == len(features):
        raise DataFileError(f"{path}: no column holds numbers; there are: {listed(texts)}")
    if not features:
        raise DataFileError(f"{path}: has no columns of features")
    return [column.name for column in features]


def _check_others(
    path: Path, features: Sequence[str], names: Sequence[str], first: Sequence[str]
) -> None:
    """Refuse columns that differ from the features of the first file."""
    known, expected = set(names), set(first)
    if missing := [name for name in first if name not in known]:
        raise DataFileError(
            f"{path}: has no column {listed(missing)}, which the first file has; "
            f"there are: {listed(names)}"
        )
    if others := [name for name in features if name not in expected]:
        raise DataFileError(
            f"{path}: has a column {listed(others)}, which the first file has not; "
            "if it is no feature, name those that are with --features"
        )


def _check_second_label(path: Path, features: Sequence[str], choice: Choice) -> None:
    """Refuse `label.1`, which is what pandas makes of a second column `label`."""
    pattern = re.compile(rf"{re.escape(str(choice.label))}\.[1-9][0-9]*")
    found = [name for name in features if pattern.fullmatch(name)]
    if found:
        raise DataFileError(
            f"{path}: column {found[0]!r} may be a second {choice.label!r}; leave it out with "
            f"--features '!{found[0]}', or name all features with --features"
        )


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


def _selected(path: Path, columns: Sequence[Column], request: Request) -> list[str]:
    """Columns by name, place or pattern in the order of the request, less those with a !."""
    assert request.features is not None
    names = [column.name for column in columns]
    patterned = [column.name for column in columns if not column.is_index]
    known = set(names)
    left_out: set[str] = set()
    chosen: list[str] = []
    for item in request.features:
        text = item[1:] if item not in known and item.startswith("!") else item
        try:
            target = [text] if text in known else _matching(path, names, patterned, text)
        except DataFileError:
            # The first file had the column that is left out, others need not.
            if text is item or request.first_features is None:
                raise
            continue
        if text is item:
            chosen += target
        else:
            left_out.update(target)
    if not chosen:  # only exclusions: from the columns that are features by default
        chosen = [column.name for column in columns if not column.is_index and not column.is_id]
    chosen = [name for name in dict.fromkeys(chosen) if name not in left_out]
    if not chosen:
        raise DataFileError(f"{path}: features= leaves no column; there are: {listed(names)}")
    return chosen


def _matching(path: Path, names: Sequence[str], patterned: Sequence[str], text: str) -> list[str]:
    """Columns by a pattern, name or place."""
    if not is_pattern(text):
        return [_find(path, names, text)]
    found = fnmatch.filter(patterned, text)
    if not found:
        raise DataFileError(f"{path}: no column matches {text!r}; there are: {listed(names)}")
    return found


def is_pattern(text: str) -> bool:
    """Whether an item of `features` stands for any number of columns."""
    return any(sign in text for sign in "*?[")


def _find(path: Path, names: Sequence[str], wanted: str) -> str:
    """A column by its name, or by its place if no column has that name."""
    if wanted in names:
        return wanted
    if re.fullmatch(r"-?[0-9]{1,9}", wanted) and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    raise DataFileError(f"{path}: has no column {wanted!r}; there are: {listed(names)}")


def choose_arrays(
    path: Path, shapes: dict[str, tuple[int, ...]], numeric: set[str], request: Request
) -> Choice:
    """Features and labels of a file of named arrays.

    Parameters
    ----------
    path : Path
        For errors.
    shapes : dict
        Shape of each array by name.
    numeric : set of str
        The arrays that hold real numbers.
    request : Request

    Returns
    -------
    Choice
    """
    names = list(shapes)
    for wanted in (*(request.features or ()), request.labels):
        if isinstance(wanted, str) and wanted not in shapes:
            raise DataFileError(f"{path}: has no array {wanted!r}; there are: {listed(names)}")
    choice = Choice()
    if not request.only_labels:
        if request.features is not None and len(request.features) > 1:
            raise DataFileError(f"{path}: features are one array, but features= names several")
        matrices = [name for name in names if len(shapes[name]) == 2 and name in numeric]
        matrices = [name for name in matrices if name != request.labels]
        choice.features = list(request.features or [_feature_array(path, names, matrices, shapes)])
        if request.features is None and len(names) > 1:
            choice.notes.append(f"features recognised: {choice.features[0]!r}")
    if isinstance(request.labels, str):
        choice.label = request.labels
    elif request.labels is None:
        choice.label = _label_array(path, names, choice.features)
        if choice.label is not None:
            choice.notes.append(f"labels recognised: {choice.label!r}")
    return choice


def _feature_array(
    path: Path, names: Sequence[str], matrices: Sequence[str], shapes: dict[str, tuple[int, ...]]
) -> str:
    called = [name for name in matrices if _FEATURES.fullmatch(name.rsplit("/", 1)[-1])]
    # Of X_train and X_test, or X and X_test, take the training part.
    plain = [name for name in called if "test" not in name.lower() and "_te" not in name.lower()]
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
    if len(names) == 1:
        return names[0]
    raise DataFileError(f"{path}: has no matrix of features; there are: {listed(names)}")


def _label_array(path: Path, names: Sequence[str], features: Sequence[str]) -> str | None:
    others = [name for name in names if name not in features]
    candidates = [name for name in others if is_label_name(name)]
    if features:
        folder, _, base = features[0].rpartition("/")
        candidates = [name for name in candidates if name.rpartition("/")[0] == folder]
        # y_test belongs to X_test, and the labels of the test part are not those of X_train.
        twins = [name for name in candidates if _part(name) == _part(base)]
        candidates = twins
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
