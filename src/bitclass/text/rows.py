"""Reading texts from files in batches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitclass.io import DataFileError, Rows, format_of, open_rows

__all__ = ["open_texts"]

PathLike = str | os.PathLike[str]


def open_texts(
    paths: PathLike | Sequence[PathLike],
    column: str | int | None = None,
    *,
    columns: Sequence[str] = (),
    labels: str | int | bool | None = None,
    labels_file: PathLike | Sequence[PathLike] | None = None,
    sample_weight: str | int | None = None,
    header: bool = True,
    format: str | None = None,
    classes: Any = None,
) -> Rows:
    r"""Open files with a text column, or with one text per line.

    Parameters
    ----------
    paths : path or sequence of paths
        CSV, TSV, JSON lines, Parquet or Arrow files, or files of lines (``.txt``, ``.txt.gz``).
    column : str or int, optional
        Name or position of the text column; files of lines have none.
    columns, labels, labels_file, sample_weight, header, format, classes
        As in `bitclass.io.open_rows`. With ``format="lines"``, each line is a text, which need not
        be valid UTF-8.

    Returns
    -------
    Rows
        Its batches have texts, and no features. `TextClassifier.fit_batches` takes its `pairs`.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "texts.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("intent,text\nhello,good morning\nbye,see you\n")
    >>> [batch.texts for batch in open_texts(path, "text", labels="intent").batches()]
    [['good morning', 'see you']]
    """
    files = [Path(paths)] if isinstance(paths, str | os.PathLike) else list(map(Path, paths))
    are_lines = format == "lines"
    if format is None:
        are_lines = all(format_of(path) == "lines" for path in files)
    if column is None and not are_lines:
        raise DataFileError(f"{files[0]}: name the text column with --text")
    if column is not None and column == labels:
        raise DataFileError(f"column {column!r} cannot be both text and label")
    rows = open_rows(
        files,
        features=False,
        text="line" if are_lines else column,
        columns=columns,
        labels=labels,
        labels_file=labels_file,
        sample_weight=sample_weight,
        header=header,
        format=format,
        classes=classes,
    )
    if not are_lines:
        rows.description += f", texts {column!r}"
    return rows
