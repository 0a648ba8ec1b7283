"""Files with one text or label per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bitclass.io.columns import Request, choose_columns
from bitclass.io.labels import common_dtype, infer_dtype
from bitclass.io.source import Batch, DataFileError, Source, open_text, reading

_BLOCK_BYTES = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LinesSource(Source):
    """A file without a header, whose lines are its only column, "line"."""

    format_name = "lines"

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        choose_columns(self, {"line": "text"}, request)
        dtypes = []
        for piece in self.read(0):
            self.n_rows += len(piece)
            if piece.labels is not None:
                dtypes.append(infer_dtype(set(piece.labels.tolist())))
        if self.n_rows == 0:
            raise DataFileError(f"{path}: has no rows")
        self.label_dtype = common_dtype(dtypes) if dtypes else None

    def read(self, rows_per_piece: int) -> Iterator[Batch]:
        """Yield the lines; texts are bytes, which need not be valid UTF-8."""
        row = 0
        with reading(self.path, self.format_name), open_text(self.path) as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                if row == 0:
                    lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                lines = [line.rstrip(b"\r\n") for line in lines]
                labels = None if self.label is None else np.array([each.decode() for each in lines])
                texts = np.array([*lines, None], dtype=object)[:-1]
                yield Batch(None, labels, row, dict.fromkeys(self.columns, texts))
                row += len(lines)
