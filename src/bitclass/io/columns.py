"""Selection of the columns or arrays that hold features and labels.

Nothing is chosen by its name unless there is exactly one candidate. Columns that are skipped or
found by name are listed in the description of the rows.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bitclass.io.source import DataFileError, Source, listed

_LABEL = re.compile(r"(?i)y|labels|label|targets|target|classes|class")
_ID = re.compile(r"(?i:(.*[_\-. ])?(id|idx|uuid)|index)|.*[a-z](Id|ID)")
# What pandas calls an index that has no name, in CSV and in other files.
_INDEX = re.compile(r"Unnamed: .*|__index_level_[0-9]+__")


@dataclass(frozen=True)
class Request:
    """What to read, the same for all files."""

    # Names, positions or patterns; empty to find them, False for none.
    features: tuple[str, ...] | Literal[False] = ()
    labels: str | Literal[False] | None = None
    columns: tuple[str, ...] = ()  # all that are neither features nor labels
    feature_names: tuple[str, ...] | None = None  # of a model
    n_features: int | None = None
    header: bool = True  # whether CSV files start with column names

    @property
    def only_labels(self) -> bool:
        """Whether the file holds labels and nothing else."""
        return self.features is False and not self.columns


def _find_column(path: Path, names: Sequence[str], wanted: str) -> str:
    """Find a column by name, or by position if no column has that name."""
    if wanted in names:
        return wanted
    if re.fullmatch(r"-?[0-9]{1,9}", wanted) and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    there = f"the columns are: {listed(names)}" if any(names) else "columns here have no names"
    raise DataFileError(f"{path}: has no column {wanted!r}; {there}")


def choose_columns(source: Source, kinds: Mapping[str, str], request: Request) -> None:
    """Set the `features`, `label` and `columns` of a file, and `notes` on how they were found.

    `kinds` maps column names to "number", "list", "text" or another type. The matrices of an npz
    file are columns of lists.
    """
    path, names = source.path, list(kinds)
    source.columns = [_find_column(path, names, wanted) for wanted in request.columns]
    request = replace(request, columns=tuple(source.columns))
    label, source.notes = _label_column(path, names, request)
    if request.features is not False:
        source.features, notes = _feature_columns(path, kinds, label, request)
        source.notes += notes
        _check_numbers(path, {name: kinds[name] for name in source.features}, request)
    if label in source.features:
        raise DataFileError(f"{path}: column {label!r} cannot be both label and feature")
    source.label = None if request.labels is False else label


def _label_column(
    path: Path, names: Sequence[str], request: Request
) -> tuple[str | None, list[str]]:
    """Find the label column, even if labels are not requested, to exclude it from the features."""
    if isinstance(request.labels, str):
        return _find_column(path, names, request.labels), []
    if request.only_labels and len(names) == 1:
        return names[0], []
    features = request.features or ()
    used = {*request.columns, *(request.feature_names or ()), *features}
    used |= {name.removeprefix("!") for name in features}
    candidates = [name for name in names if _LABEL.fullmatch(name) and name not in used]
    if len(candidates) == 1:
        what = "label column skipped" if request.labels is False else "label column found by name"
        return candidates[0], [f"{what}: {candidates[0]!r}"]
    # Ambiguity does not matter if neither the labels nor the features have to be found.
    is_needed = request.labels is None or (not request.feature_names and request.features == ())
    if request.only_labels or (candidates and is_needed):
        raise DataFileError(
            f"{path}: name the label column with --labels (labels=), and exclude others with "
            f"--features '!NAME' (features=); it may be one of: {listed(candidates or names)}"
        )
    return None, []


def _feature_columns(
    path: Path, kinds: Mapping[str, str], label: str | None, request: Request
) -> tuple[list[str], list[str]]:
    """Columns of the model, those requested, the only column of lists, or all that remain."""
    names = list(kinds)
    if request.feature_names:
        if missing := [name for name in request.feature_names if name not in kinds]:
            raise DataFileError(
                f"{path}: has no column {listed(missing)}, which the model was fitted with; "
                f"the columns are: {listed(names)}"
            )
        return list(request.feature_names), ["features matched by name"]
    free = [name for name in names if name != label and name not in request.columns]
    chosen, excluded = _requested(path, names, free, request.features or ())
    if chosen:
        return chosen, []
    free = [name for name in free if name not in excluded]
    if lists := [name for name in free if kinds[name] == "list"]:
        if len(lists) > 1:
            raise DataFileError(
                f"{path}: several columns may be the features; name one with --features "
                f"(features=): {listed(lists)}"
            )
        return lists, []
    skipped = {name: "an identifier" for name in free if _ID.fullmatch(name)}
    skipped |= {name: "the index of a data frame" for name in free if _INDEX.fullmatch(name)}
    features = [name for name in free if name not in skipped]
    if not any(kinds[name] == "number" for name in features):
        raise DataFileError(
            f"{path}: no column contains numbers; the columns are: {listed(names)}; name a column "
            "of texts with --text (text=)"
        )
    return features, [f"skipped {name!r}, {reason}" for name, reason in skipped.items()]


def _requested(
    path: Path, names: Sequence[str], free: Sequence[str], items: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Columns given by name, position or pattern, in this order, and those excluded by a !."""
    chosen: list[str] = []
    excluded: list[str] = []
    for item in items:
        excludes = item.startswith("!") and item not in names
        text = item.removeprefix("!") if excludes else item
        found = [text]
        if text not in names and any(sign in text for sign in "*?["):
            found = [n for n in fnmatch.filter(free, text) if not _INDEX.fullmatch(n)]
        (excluded if excludes else chosen).extend(_find_column(path, names, n) for n in found)
        if not found:
            raise DataFileError(
                f"{path}: no column matches {text!r}; the columns are: {listed(names)}"
            )
    wanted = [name for name in dict.fromkeys(chosen) if name not in excluded]
    if chosen and not wanted:
        raise DataFileError(f"{path}: features= leaves no column; the columns are: {listed(names)}")
    return wanted, excluded


def _check_numbers(path: Path, kinds: Mapping[str, str], request: Request) -> None:
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
            + ("the model was fitted with it" if request.feature_names else advice)
        )
