"""Reading texts from files, and converting them to rows, in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bitclass._native.ngrams import NgramFeatures
from bitclass.io import Batch, DataFileError, Rows, format_of, open_rows
from bitclass.text.embeddings import SentenceEmbeddings
from bitclass.text.hasher import csr_rows

__all__ = ["TextRows", "Texts", "open_texts"]

PathLike = str | os.PathLike[str]


class Texts:
    """Texts of files, or of a list, in batches; created by `open_texts` or `of`.

    Attributes
    ----------
    n_rows : int
    has_labels : bool
    paths : list of Path
    description : str
    batches : callable
        Starts a new pass over the texts; the batches have texts, and no features.
    """

    def __init__(
        self,
        batches: Callable[[], Generator[Batch, None, None]],
        n_rows: int,
        description: str,
        has_labels: bool = False,
        paths: Sequence[Path] = (),
    ) -> None:
        self.batches, self.n_rows, self.description = batches, n_rows, description
        self.has_labels, self.paths = has_labels, list(paths)

    @classmethod
    def of(cls, texts: Sequence[str | bytes]) -> Texts:
        """Texts of a list, without labels.

        Examples
        --------
        >>> Texts.of(["good morning", "see you"]).n_rows
        2
        """
        found = list(texts)
        if not found:
            raise DataFileError("no text was given")
        batch = Batch(None, None, 0, texts=found)
        return cls(lambda: (each for each in [batch]), len(found), f"{len(found)} texts")


class TextRows(Rows):
    """Features of texts.

    Parameters
    ----------
    texts : Texts
    extractor : NgramFeatures or SentenceEmbeddings
    """

    dtype = np.dtype(np.float32)

    def __init__(self, texts: Texts, extractor: NgramFeatures | SentenceEmbeddings) -> None:
        self.texts, self.extractor = texts, extractor
        self.is_sparse = isinstance(extractor, NgramFeatures)
        self.n_features = (
            extractor.n_columns if isinstance(extractor, NgramFeatures) else extractor.n_features
        )
        self.n_rows, self.has_labels, self.paths = texts.n_rows, texts.has_labels, texts.paths
        self.description = texts.description

    def batches(self) -> Generator[Batch, None, None]:
        """Yield all rows in order; the batches also have the texts."""
        with closing(self.texts.batches()) as batches:
            for batch in batches:
                texts = list(batch.texts or ())
                X: Any
                if isinstance(self.extractor, NgramFeatures):
                    X = csr_rows(self.extractor, texts)
                else:
                    X = self.extractor.rows(texts)
                yield replace(batch, X=X)


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
) -> Texts:
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
    Texts

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
    described = rows.description if are_lines else f"{rows.description}, texts {column!r}"
    return Texts(rows.batches, rows.n_rows, described, rows.has_labels, rows.paths)
