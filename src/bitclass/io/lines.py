"""Files with one text or label per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bitclass.io.labels import TEXT, infer_dtype
from bitclass.io.source import Batch, DataFileError, Request, Source, open_text, reading

__all__ = ["LinesSource"]

_BLOCK_BYTES = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LinesSource(Source):
    """A file with one text or one label per line, and no header."""

    format_name = "lines"

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(path)
        if request.features is not False:
            raise DataFileError(
                f"{path}: contains lines of text; read them with --text line (text='line'), or set "
                "format= if it has another format"
            )
        is_label = request.only_labels
        self.label, self.columns = ("line" if is_label else None), ["line"] * len(request.columns)
        if any(name not in ("line", "0") for name in request.columns) or (
            isinstance(request.labels, str) and not is_label
        ):
            raise DataFileError(f"{path}: contains lines of text, and no columns")
        dtypes = set()
        with reading(path, self.format_name):
            for piece in self.read(0):
                self.n_rows += len(piece)
                if piece.labels is not None:
                    dtypes.add(infer_dtype(set(piece.labels.tolist())))
        if self.n_rows == 0:
            raise DataFileError(f"{path}: has no rows")
        if is_label:
            self.label_dtype = TEXT if TEXT in dtypes else next(iter(dtypes))

    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the lines; texts are bytes, which need not be valid UTF-8."""
        row = 0
        with reading(self.path, self.format_name), open_text(self.path) as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                if row == 0:
                    lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                lines = [line.rstrip(b"\r\n") for line in lines]
                labels, columns = None, {}
                if self.label is not None:
                    labels = np.array([line.decode() for line in lines])
                else:
                    columns["line"] = np.array([*lines, None], dtype=object)[:-1]
                yield Batch(None, labels, row, columns)
                row += len(lines)
