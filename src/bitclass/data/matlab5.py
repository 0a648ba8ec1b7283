"""MATLAB files of version 5, which MATLAB also calls 6 and 7.

A file is a row of elements, each a tag (type and number of bytes) and data; a variable is an
element of elements, perhaps compressed. It is parsed here, with all sizes checked, because SciPy's
parser crashes on damaged files and can load whole variables only.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.arrays import ArrayFile, ArraySource, Vector
from bitclass.data.errors import DataFileError
from bitclass.data.limits import check_expansion
from bitclass.data.matlab_arrays import CLASSES, by_rows, whole_numbers_if_possible
from bitclass.data.matlab_elements import (
    COMPRESSED,
    MATRIX,
    NUMBERS,
    TEXTS,
    Counted,
    Header,
    Inflated,
    read_element,
    read_header,
    read_tag,
)
from bitclass.data.sources import (
    ByteStream,
    Converted,
    Layout,
    LoadedArray,
    MappedArray,
    PackedArray,
    skip,
)

__all__ = ["Matlab5File"]

_MOST_VARIABLES = 10_000


@dataclass(frozen=True)
class _Variable:
    """A variable: its header, and where in the file it is; sizes without the tags before them."""

    header: Header
    offset: int
    stored_bytes: int
    n_bytes: int
    packed: bool


class Matlab5File(ArrayFile):
    """A MATLAB file of version 5."""

    format_name = "MATLAB version 5"

    def __init__(self, path: Path, order: str) -> None:
        self.path, self._order = path, order
        self._bytes = path.stat().st_size
        self._variables: dict[str, _Variable] = {}
        with path.open("rb") as stream:
            at = 128
            while at < self._bytes:
                stream.seek(at)
                variable, at = self._read_variable(stream, at)
                # MATLAB keeps objects in one without a name.
                if variable is not None and variable.header.name:
                    self._variables[variable.header.name] = variable
                if len(self._variables) > _MOST_VARIABLES:
                    raise DataFileError(f"{path}: has more than {_MOST_VARIABLES} variables")

    def _read_variable(self, stream: IO[bytes], at: int) -> tuple[_Variable | None, int]:
        """The variable at a place, and where the next one is."""
        tag = read_tag(Counted(stream), self._order)
        offset, stop = at + 8, at + 8 + tag.n_bytes
        if stop > self._bytes or tag.inside is not None:
            raise EOFError("it is cut short")
        if tag.kind not in (MATRIX, COMPRESSED):
            return None, stop
        inner: ByteStream = stream
        n_bytes = tag.n_bytes
        if tag.kind == COMPRESSED:
            inner = Inflated(stream, tag.n_bytes)
            unpacked = read_tag(Counted(inner), self._order)
            if unpacked.kind != MATRIX or unpacked.inside is not None:
                return None, stop
            n_bytes = unpacked.n_bytes
            check_expansion(self.path, "a variable", n_bytes, tag.n_bytes)
        if n_bytes == 0:
            return None, stop
        header = read_header(Counted(inner), self._order)
        packed = tag.kind == COMPRESSED
        return _Variable(header, offset, tag.n_bytes, n_bytes, packed), stop

    def names(self) -> Sequence[str]:
        """Names of the variables."""
        return list(self._variables)

    @contextmanager
    def _opened(self, variable: _Variable, start: int) -> Iterator[ByteStream]:
        """The bytes of a variable from `start` on."""
        with self.path.open("rb") as stream:
            stream.seek(variable.offset)
            inner: ByteStream = stream
            if variable.packed:
                inner = Inflated(stream, variable.stored_bytes)
                start += 8
            skip(inner, start)
            yield inner

    def source(self, name: str) -> ArraySource:
        """One of the variables, a numeric matrix."""
        variable = self._variables[name]
        header = variable.header
        if header.is_complex:
            raise DataFileError(f"{self.path}: {name!r} is complex; features are real")
        if header.kind == "sparse":
            load = partial(self._load_sparse, name, variable)
            return LoadedArray(header.shape, np.dtype("f8"), load, is_sparse=True)
        if header.kind not in CLASSES:
            raise DataFileError(
                f"{self.path}: {name!r} is a {header.kind} array; features are numeric or logical"
            )
        if 0 in header.shape:
            return LoadedArray(header.shape, CLASSES[header.kind], lambda: np.empty(header.shape))
        return self._numeric(name, variable)

    def _numeric(self, name: str, variable: _Variable) -> ArraySource:
        header = variable.header
        with self._opened(variable, header.n_bytes) as stream:
            tag = read_tag(Counted(stream), self._order)
        # Numbers are stored in as few bytes as they need, whatever their class.
        stored = self._number_type(name, tag.kind)
        layout = Layout(header.shape, stored, fortran_order=True)
        start = header.n_bytes + 8
        there = tag.n_bytes if tag.inside is not None else variable.n_bytes - start
        if layout.n_bytes > min(tag.n_bytes, there):
            raise DataFileError(
                f"{self.path}: {name!r} claims {header.shape[0]} x {math.prod(header.shape[1:])} "
                f"values but holds {min(tag.n_bytes, there)} bytes; it is cut short or damaged"
            )
        array: ArraySource
        if tag.inside is not None:
            few = np.frombuffer(tag.inside, stored, math.prod(header.shape))
            few = few.reshape(header.shape, order="F")
            array = LoadedArray(header.shape, stored, lambda: few)
        elif variable.packed:
            array = PackedArray(self.path, layout, lambda: self._opened(variable, start))
        else:
            array = MappedArray(self.path, layout, variable.offset + start)
        wanted = CLASSES[header.kind]
        return array if wanted == stored else Converted(array, wanted)

    def _number_type(self, name: str, kind: int) -> np.dtype[Any]:
        if kind not in NUMBERS:
            raise DataFileError(f"{self.path}: {name!r} has data of an unknown type; it is damaged")
        return np.dtype(self._order + NUMBERS[kind])

    def label_source(self, name: str) -> ArraySource:
        """One of the variables: numbers, a char matrix or a cell array of text."""
        variable = self._variables[name]
        kind = variable.header.kind
        if kind not in ("char", "cell"):
            return whole_numbers_if_possible(Vector(self.source(name)))
        stream = self._loaded(variable)
        if kind == "char":
            texts = self._char_rows(name, stream, variable.header, variable.n_bytes)
        else:
            texts = self._cell_texts(name, stream, variable)
        labels = np.array(texts, dtype=object)
        return LoadedArray(labels.shape, labels.dtype, lambda: labels)

    def _loaded(self, variable: _Variable) -> Counted:
        """All of a variable behind its header, in memory."""
        n_bytes = variable.n_bytes - variable.header.n_bytes
        with self._opened(variable, variable.header.n_bytes) as stream:
            content = Counted(stream).read(n_bytes)
        return Counted(io.BytesIO(content))

    def _char_rows(self, name: str, stream: Counted, header: Header, most: int) -> list[str]:
        """The rows of a char matrix, without the blanks that fill them up."""
        kind, data = read_element(stream, self._order, most)
        if kind not in TEXTS or len(header.shape) != 2:
            raise DataFileError(f"{self.path}: labels {name!r} are not text that can be read")
        codec = TEXTS[kind]
        if codec != "utf-8" and codec != "latin-1":
            codec += "-le" if self._order == "<" else "-be"
        text = data.decode(codec)
        n_rows, width = header.shape
        if n_rows == 1 or not text:
            return [text.rstrip(" ")]
        if len(text) != n_rows * width:
            raise DataFileError(
                f"{self.path}: labels {name!r} claims {n_rows} x {width} characters but holds "
                f"{len(text)}"
            )
        return [text[row::n_rows].rstrip(" ") for row in range(n_rows)]

    def _cell_texts(self, name: str, stream: Counted, variable: _Variable) -> list[str]:
        most = variable.n_bytes
        texts = []
        n_cells = math.prod(variable.header.shape)
        if n_cells * 8 > most:  # each cell has a tag
            raise DataFileError(
                f"{self.path}: labels {name!r} claims {n_cells} cells; it is damaged"
            )
        for _ in range(n_cells):
            tag = read_tag(stream, self._order)
            if tag.kind != MATRIX or tag.n_bytes > most:
                raise DataFileError(f"{self.path}: labels {name!r} has a cell that is damaged")
            cell = Counted(io.BytesIO(stream.read(tag.n_bytes)))
            if tag.n_bytes == 0:
                texts.append("")
                continue
            header = read_header(cell, self._order)
            if header.kind != "char" or header.shape[0] > 1:
                raise DataFileError(f"{self.path}: labels {name!r} has a cell that is not text")
            texts += self._char_rows(name, cell, header, tag.n_bytes)
        return texts

    def _load_sparse(self, name: str, variable: _Variable) -> NDArray[Any]:
        stream = self._loaded(variable)
        parts = []
        for _ in range(3):
            kind, data = read_element(stream, self._order, variable.n_bytes)
            dtype = self._number_type(name, kind)
            parts.append(np.frombuffer(data, dtype, len(data) // dtype.itemsize))
        rows, ends, values = parts
        numbers = values.astype(np.float64)
        matrix: NDArray[Any] = by_rows(self.path, name, numbers, rows, ends, variable.header.shape)
        return matrix
