"""Reading texts from files, and converting them to rows, in batches."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native.ngrams import NgramFeatures
from bitclass.io import Batch, DataFileError, FileRows, open_rows
from bitclass.text.embeddings import SentenceEmbeddings
from bitclass.text.hasher import csr_rows

__all__ = ["TextBatch", "TextFiles", "TextLines", "TextRows", "open_texts"]

_TEXTS_PER_BATCH = 8192
_LINE_BYTES_PER_BATCH = 16 << 20


@dataclass(frozen=True)
class TextBatch(Batch):
    """Consecutive texts and their rows.

    Attributes
    ----------
    texts : sequence of k str or bytes
    """

    texts: Sequence[str | bytes] = ()

    def __len__(self) -> int:
        return len(self.texts)


class TextFiles:
    """A text column of one or several files; created by `open_texts`.

    Parameters
    ----------
    files : FileRows
        Files opened without features, with the text column as the first of `columns`.
    column : str
        Name or position of this column.
    n_columns : int, default=0
        Number of further columns; the text column may be one of them, by name or by position.

    Attributes
    ----------
    n_rows : int
    has_labels : bool
    paths, label_paths : list of Path
    description : str
    """

    def __init__(self, files: FileRows, column: str, n_columns: int = 0) -> None:
        self._files, self._n_columns = files, n_columns
        self.column = column
        self.n_rows, self.has_labels = files.n_rows, files.has_labels
        self.paths, self.label_paths = files.paths, files.label_paths
        self.description = f"{files.description}, texts {column!r}"

    def batches(self, start_row: int = 0) -> Generator[TextBatch, None, None]:
        """Yield the texts in order. Missing texts are an error, empty texts are not.

        Parameters
        ----------
        start_row : int, default=0

        Yields
        ------
        TextBatch
            A batch without features.
        """
        for batch in self._files.batches(start_row, _TEXTS_PER_BATCH):
            columns = dict(batch.columns)
            first = next(iter(columns))  # the first requested column
            texts = columns[first].tolist()
            if len(columns) > self._n_columns:
                del columns[first]
            for i, text in enumerate(texts):
                if not isinstance(text, (str, bytes)):
                    path, row = self._files.place_of(batch.first_row + i)
                    found = "no text" if text is None else f"{text!r:.60}"
                    raise DataFileError(
                        f"{path}: column {self.column!r} must contain texts, found {found} in row "
                        f"{row}, counted from 0"
                    )
            yield TextBatch(None, batch.labels, batch.first_row, columns, texts)


class TextLines:
    """Texts without labels, with the interface of `TextFiles`.

    The texts are a list, or the lines of a file, which need not be valid UTF-8.

    Parameters
    ----------
    source : path or sequence of str
    """

    has_labels = False

    def __init__(self, source: Path | Sequence[str]) -> None:
        self._source = source
        is_file = isinstance(source, Path)
        self.paths: list[Path] = [source] if isinstance(source, Path) else []
        self.label_paths: list[Path] = []
        self.n_rows = sum(map(len, self._lists()))
        if self.n_rows == 0:
            raise DataFileError(f"{source}: no text found" if is_file else "no text was given")
        self.description = f"{source}: {self.n_rows} lines" if is_file else f"{self.n_rows} texts"

    def batches(self, start_row: int = 0) -> Generator[TextBatch, None, None]:
        """Yield the texts in order, in batches of about 16 MB."""
        row = 0
        for texts in self._lists():
            remaining = texts[max(0, start_row - row) :]
            row += len(texts)
            if remaining:
                yield TextBatch(None, None, row - len(remaining), {}, remaining)

    def _lists(self) -> Generator[list[str | bytes], None, None]:
        if not isinstance(self._source, Path):
            yield list(self._source)
            return
        with self._source.open("rb") as file:
            while lines := file.readlines(_LINE_BYTES_PER_BATCH):
                yield [line.rstrip(b"\r\n") for line in lines]


class TextRows:
    """Rows of texts, with the interface of `bitclass.io.FileRows`.

    Parameters
    ----------
    texts : TextFiles or TextLines
    extractor : NgramFeatures or SentenceEmbeddings

    Attributes
    ----------
    n_rows, n_features : int
    feature_names : None
    has_labels : bool
    dtype : dtype
    is_sparse : bool
    paths, label_paths : list of Path
    description : str
    """

    feature_names: tuple[str, ...] | None = None
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(
        self, texts: TextFiles | TextLines, extractor: NgramFeatures | SentenceEmbeddings
    ) -> None:
        self.texts, self.extractor = texts, extractor
        self.is_sparse = isinstance(extractor, NgramFeatures)
        self.n_features = (
            extractor.n_columns if isinstance(extractor, NgramFeatures) else extractor.n_features
        )
        self.n_rows, self.has_labels = texts.n_rows, texts.has_labels
        self.paths, self.label_paths = texts.paths, texts.label_paths
        self.description = texts.description

    def batches(self, start_row: int = 0) -> Generator[TextBatch, None, None]:
        """Yield the rows in order.

        Parameters
        ----------
        start_row : int, default=0

        Yields
        ------
        TextBatch
        """
        for batch in self.texts.batches(start_row):
            X = self._extract(batch.texts)
            yield TextBatch(X, batch.labels, batch.first_row, batch.columns, batch.texts)

    def sample(self, n_rows: int = 8192) -> tuple[Any, NDArray[Any] | None]:
        """Sample rows spread evenly over all files.

        Parameters
        ----------
        n_rows : int, default=8192
            Maximum number of rows.

        Returns
        -------
        X : ndarray or CSR matrix of shape (n_sampled, n_features)
        labels : ndarray of shape (n_sampled,), or None
        """
        wanted = np.linspace(0, self.n_rows - 1, min(n_rows, self.n_rows)).astype(np.intp)
        texts: list[str | bytes] = []
        labels = []
        for batch in self.texts.batches():
            here = wanted - batch.first_row
            here = here[(here >= 0) & (here < len(batch))]
            texts += [batch.texts[i] for i in here]
            if batch.labels is not None:
                labels.append(batch.labels[here])
        return self._extract(texts), np.concatenate(labels) if labels else None

    def _extract(self, texts: Sequence[str | bytes]) -> Any:
        if isinstance(self.extractor, NgramFeatures):
            return csr_rows(self.extractor, list(texts))
        return self.extractor.rows(texts)


def open_texts(
    paths: Sequence[Path] | Path,
    column: str,
    *,
    columns: Sequence[str] = (),
    labels: str | bool | None = None,
    labels_file: Path | None = None,
    header: bool | None = None,
    format: str | None = None,
    classes: Any = None,
) -> TextFiles:
    r"""Open files with a text column: CSV, TSV, JSON lines, Parquet or Arrow.

    Parameters
    ----------
    paths : path or sequence of paths
    column : str
        Name or position of the text column.
    columns, labels, labels_file, header, format, classes
        As in `bitclass.io.open_rows`.

    Returns
    -------
    TextFiles

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "texts.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("intent,text\nhello,good morning\nbye,see you\n")
    >>> [batch.texts for batch in open_texts(path, "text", labels="intent").batches()]
    [['good morning', 'see you']]
    """
    if column == labels:
        raise DataFileError(f"column {column!r} cannot be both text and label")
    files = open_rows(
        paths,
        features=False,
        columns=(column, *columns),
        labels=labels,
        labels_file=labels_file,
        header=header,
        format=format,
        classes=classes,
    )
    return TextFiles(files, column, len(set(columns)))
