"""Columns of Arrow record batches as features and labels, for Parquet and Arrow files alike.

Features are one column of lists of equal length, or one column of numbers a feature.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError, listed
from bitclass.data.labels import as_labels
from bitclass.data.limits import MAX_LABEL_CHARACTERS, check_width
from bitclass.data.names import FEATURE_NAMES, choose_columns, find_column, guess_label
from bitclass.data.rowfile import Choice, Piece, Request

__all__ = ["Columns"]


class Columns:
    """Which columns are read, and how they become arrays.

    Parameters
    ----------
    path : the file, for errors
    schema : pyarrow.Schema
    request : Request

    Attributes
    ----------
    choice : Choice
    names : the columns to read, features and label
    dtype : of the features
    text_labels : whether the labels are text, None where there are none
    n_features : int, None where the length of the lists must be read from the first row
    """

    def __init__(self, path: Path, schema: Any, request: Request) -> None:
        self.path = path
        self._pa = importlib.import_module("pyarrow")
        names = [str(name) for name in schema.names]
        self._types = dict(zip(names, (_storage(field.type) for field in schema), strict=True))
        label = self._label_column(names, request)
        features: list[str] = []
        if not request.only_labels:
            features = self._feature_columns(names, request, label)
        self.choice = Choice(tuple(features), label)
        self.names = features + ([label] if label is not None and label not in features else [])
        self.is_list = len(features) == 1 and self._is_list(features[0])
        self.dtype = self._feature_dtype(features)
        self.n_features: int | None = len(features)
        if self.is_list:
            kind = self._types[features[0]]
            fixed = self._pa.types.is_fixed_size_list(kind)
            self.n_features = int(kind.list_size) if fixed else None
            if self.n_features is not None:
                self.check_width(self.n_features, request)
        self.text_labels = None if label is None else self._is_text(label)

    def _label_column(self, names: Sequence[str], request: Request) -> str | None:
        if request.labels is False:
            return None
        if request.labels is not None:
            return find_column(self.path, names, request.labels)
        scalars = [name for name in names if not self._is_list(name)]
        label = guess_label(scalars)
        if label is None and request.only_labels:
            if len(names) > 1:
                find_column(self.path, names, "label")
            label = names[0]
        return label

    def _feature_columns(
        self, names: Sequence[str], request: Request, label: str | None
    ) -> list[str]:
        if request.features is not None:
            return choose_columns(self.path, names, request.features)
        lists = [name for name in names if self._is_list(name) and name != label]
        if len(lists) > 1:
            known = [name for word in FEATURE_NAMES for name in lists if name.lower() == word]
            if not known:
                raise DataFileError(
                    f"{self.path}: several columns of lists may be the features, name one with "
                    f"features=: {listed(lists)}"
                )
            return known[:1]
        if lists:
            return lists
        numbers = [name for name in names if name != label and self._is_number(self._types[name])]
        if not numbers:
            raise DataFileError(
                f"{self.path}: no column is a list of numbers or a number, beside the label "
                f"{label!r}; there are: {listed(names)}"
            )
        return numbers

    def _is_list(self, name: str) -> bool:
        types, kind = self._pa.types, self._types[name]
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return bool(is_list and self._is_number(kind.value_type))

    def _is_number(self, kind: Any) -> bool:
        types = self._pa.types
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))

    def _feature_dtype(self, features: Sequence[str]) -> np.dtype[Any]:
        kinds = []
        for name in features:
            kind = self._types[name].value_type if self.is_list else self._types[name]
            if not self._is_number(kind):
                raise DataFileError(
                    f"{self.path}: the column {name!r} is of type {self._types[name]}; features "
                    "are one column of lists of numbers, or columns of numbers"
                )
            kinds.append(np.dtype(kind.to_pandas_dtype()))
        return np.result_type(*kinds) if kinds else np.dtype(np.float64)

    def _is_text(self, label: str) -> bool:
        types, kind = self._pa.types, self._types[label]
        if types.is_dictionary(kind):
            kind = kind.value_type
        texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        views = [getattr(types, name, None) for name in ("is_string_view", "is_binary_view")]
        if any(test(kind) for test in (*texts, *filter(None, views))):
            return True
        if self._is_number(kind):
            return False
        raise DataFileError(
            f"{self.path}: labels {label!r} are of type {self._types[label]}; "
            "labels are integers, floats, booleans or text"
        )

    def check_width(self, n_features: int, request: Request) -> None:
        """Refuse lists of no or of absurd length."""
        if n_features == 0:
            raise DataFileError(
                f"{self.path}: is empty: the lists in {self.choice.features[0]!r} have no values"
            )
        check_width(self.path, n_features, request.n_features)

    def piece(self, batch: Any, first_row: int, n_features: int) -> Piece:
        """A record batch as arrays; `first_row` is for errors."""
        X = None
        if self.is_list:
            X = self._lists(batch.column(self.choice.features[0]), first_row, n_features)
        elif self.choice.features:
            X = np.empty((batch.num_rows, n_features), dtype=self.dtype)
            for j, name in enumerate(self.choice.features):
                column = _stored(batch.column(name))
                self._check_no_nulls(column, name, first_row)
                X[:, j] = column.to_numpy(zero_copy_only=False)
        labels = None
        if self.choice.labels is not None:
            labels = self._labels(batch.column(self.choice.labels), first_row)
        return Piece(X, labels)

    def first_width(self, batch: Any) -> int:
        """How long the list of the first row is."""
        column = _stored(batch.column(self.choice.features[0]))
        self._check_no_nulls(column, self.choice.features[0], 0)
        return len(column[0])

    def _lists(self, column: Any, first_row: int, n_features: int) -> NDArray[Any]:
        column = _stored(column)
        name = self.choice.features[0]
        self._check_no_nulls(column, name, first_row)
        if not self._pa.types.is_fixed_size_list(column.type):
            lengths = column.value_lengths().to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(lengths != n_features)
            if len(wrong):
                raise DataFileError(
                    f"{self.path}: row {first_row + int(wrong[0])} of this file has "
                    f"{lengths[wrong[0]]} values in {name!r}, the first row {n_features}"
                )
        values = column.flatten()
        if values.null_count:
            missing = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._missing(first_row + missing // n_features, name)
        X: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return X.reshape(len(column), n_features)

    def _labels(self, column: Any, first_row: int) -> NDArray[Any]:
        column = _stored(column)
        if self._pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        name = str(self.choice.labels)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataFileError(f"{self.path}: row {first_row + row} of this file has no label")
        if not self.text_labels:
            return as_labels(self.path, column.to_numpy(zero_copy_only=False), first_row)
        if self._longest(column) > 4 * MAX_LABEL_CHARACTERS:
            raise DataFileError(
                f"{self.path}: labels {name!r} has a text of {self._longest(column)} bytes; "
                f"at most {MAX_LABEL_CHARACTERS} characters are read"
            )
        texts = np.array(column.to_pylist(), dtype=object)
        return as_labels(self.path, texts, first_row)

    def _longest(self, column: Any) -> int:
        compute = importlib.import_module("pyarrow.compute")
        lengths = compute.binary_length(column.cast(self._pa.large_binary()))
        return int(compute.max(lengths).as_py() or 0)

    def _check_no_nulls(self, column: Any, name: object, first_row: int) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._missing(first_row + row, name)

    def _missing(self, row: int, name: object) -> DataFileError:
        return DataFileError(f"{self.path}: row {row} of this file has a missing value in {name!r}")


def _storage(kind: Any) -> Any:
    """The type under an extension type, such as a tensor of fixed shape."""
    return kind.storage_type if hasattr(kind, "storage_type") else kind


def _stored(column: Any) -> Any:
    return column.storage if hasattr(column, "storage") else column
