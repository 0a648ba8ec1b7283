"""What a cluster learns from, cut into partitions: Dask collections, delayed values or files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.optimization import cull
from distributed import Future
from numpy.typing import NDArray

from bitclass.data import Batch, Reader, open_rows, prefetched
from bitclass.distributed.errors import PartitionError
from bitclass.rows import Features
from bitclass.streaming import batch_rows_for, labels_of

__all__ = [
    "FeatureFiles",
    "Partition",
    "collection_partitions",
    "file_partitions",
    "held_rows",
    "is_files",
    "names_of",
    "plain",
]

#: Rows of a partition on a worker, in batches: X (m, d), labels (m,), weights (m,) or None.
Rows = Iterator[tuple[Features, NDArray[Any], NDArray[Any] | None]]

_BATCHES_A_PARTITION = 4
_PARTITIONS_A_WORKER = 4


@dataclass(frozen=True)
class FeatureFiles:
    """Feature files that the workers read themselves; they must see them at the same paths.

    Parameters
    ----------
    paths : paths of files of one format, or of a folder of them
    features, labels, labels_file, format : as `bitclass.data.open_rows` takes them

    Examples
    --------
    >>> FeatureFiles(["/data/a.parquet", "/data/b.parquet"], labels="species").labels
    'species'
    """

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    features: str | int | Sequence[str | int] | None = None
    labels: str | int | bool | None = None
    labels_file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    format: str | None = None

    def described(self) -> str:
        """The paths, for people."""
        if isinstance(self.paths, str | os.PathLike):
            return str(self.paths)
        return ", ".join(map(str, self.paths))

    def open(self) -> Reader:
        """Open the files, where this is called."""
        return open_rows(
            self.paths,
            features=self.features,
            labels=self.labels,
            labels_file=self.labels_file,
            format=self.format,
        )


@dataclass(frozen=True)
class Partition:
    """Rows that one task goes through.

    Attributes
    ----------
    index : int
    rows : called on a worker with `parts`, gives the rows in batches
    parts : delayed values, futures and plain values
    n_rows : int, None where only the workers can tell
    n_bytes : int, None where only the workers can tell
    """

    index: int
    rows: Callable[..., Rows]
    parts: tuple[Any, ...]
    n_rows: int | None
    n_bytes: int | None

    def described(self) -> str:
        """Which one it is and how large, for errors."""
        known = []
        if self.n_rows is not None:
            known.append(f"{self.n_rows:,} rows")
        if self.n_bytes is not None:
            known.append(f"{self.n_bytes / 1e6:,.1f} MB")
        return f"partition {self.index} ({', '.join(known) or 'of unknown size'})"


def is_files(X: Any) -> bool:
    """Whether rows are given as files.

    Examples
    --------
    >>> is_files(["a.npy", "b.npy"]), is_files(FeatureFiles("a.npy")), is_files([[1.0]])
    (True, True, False)
    """
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(path, str | os.PathLike) for path in X)
    return isinstance(X, str | os.PathLike | FeatureFiles)


def file_partitions(reader: Reader, at_workers: Any, n_workers: int) -> list[Partition]:
    """Files in partitions of 64 to 256 MB, cut where batches on one machine would be cut.

    Parameters
    ----------
    reader : Reader
    at_workers : the same reader as a future
    n_workers : int, each of which should get several
    """
    batch_rows = batch_rows_for(reader)
    n_batches = -(-reader.n_rows // batch_rows)
    most = n_batches // (_PARTITIONS_A_WORKER * n_workers)
    step = batch_rows * min(max(most, 1), _BATCHES_A_PARTITION)
    row_bytes = reader.n_features * np.dtype(reader.dtype).itemsize
    found = []
    for index, start in enumerate(range(0, reader.n_rows, step)):
        stop = min(start + step, reader.n_rows)
        parts = (at_workers, start, stop, batch_rows)
        n_bytes = None if reader.is_sparse else (stop - start) * row_bytes
        found.append(Partition(index, file_rows, parts, stop - start, n_bytes))
    return found


def file_rows(reader: Reader, start: int, stop: int, batch_rows: int) -> Rows:
    """Rows of files, read here and now."""
    for batch in prefetched(_batches(reader, start, stop, batch_rows), depth=1):
        yield batch.X, labels_of(batch) if reader.has_labels else np.empty(0), None


def _batches(reader: Reader, start: int, stop: int, batch_rows: int) -> Iterator[Batch]:
    # Batches end at multiples of their size, and so do partitions.
    with closing(reader.batches(batch_rows, start_row=start)) as batches:
        for batch in batches:
            yield batch
            if batch.first_row + batch.X.shape[0] >= stop:
                return


def held_rows(X: Any, y: Any = None, weights: Any = None) -> Rows:
    """Rows of a partition that Dask has put into memory: one batch."""
    labels = np.empty(0) if y is None else plain(y)
    yield plain(X), labels, None if weights is None else plain(weights)


def plain(values: Any) -> Any:
    """Values of a frame or series as an array; arrays and CSR matrices as they are."""
    return values.to_numpy() if hasattr(values, "to_numpy") else values


def names_of(X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame that has only text for them, as scikit-learn sees them."""
    names = tuple(getattr(X, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def collection_partitions(X: Any, y: Any = None, sample_weight: Any = None) -> list[Partition]:
    """Partitions of Dask collections, or of lists of delayed values or futures.

    Parameters
    ----------
    X : dask array (n, d), dask frame, or list of delayed arrays or frames
    y, sample_weight : the same of (n,), or an array
    """
    blocks, lengths = _blocks("X", X)
    n_bytes: list[int | None] = [None] * len(blocks)
    if isinstance(X, da.Array) and lengths is not None:
        row_bytes = int(X.shape[1]) * X.dtype.itemsize
        n_bytes = [length * row_bytes for length in lengths]
    beside = []
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is None:
            beside.append([None] * len(blocks))
            continue
        if isinstance(values, np.ndarray | list) and lengths is not None and not _is_lazy(values):
            values = _along(name, np.asarray(values), lengths)
        found, found_lengths = _blocks(name, values)
        if len(found) != len(blocks):
            raise PartitionError(f"{name} has {len(found)} partitions, but X has {len(blocks)}")
        if lengths is not None and found_lengths is not None:
            _check_lengths(name, lengths, found_lengths)
        beside.append(found)
    return [
        Partition(
            index,
            held_rows,
            parts,
            None if lengths is None else lengths[index],
            n_bytes[index],
        )
        for index, parts in enumerate(zip(blocks, *beside, strict=True))
    ]


def _is_lazy(values: Any) -> bool:
    return isinstance(values, list | tuple) and any(
        isinstance(value, Delayed | Future) for value in values
    )


def _along(name: str, values: NDArray[Any], lengths: list[int]) -> da.Array:
    """An array in memory, cut as X is."""
    if values.ndim != 1 or len(values) != sum(lengths):
        raise ValueError(
            f"{name} must have one value for each of the {sum(lengths)} rows of X, found shape "
            f"{values.shape}"
        )
    return da.from_array(values, chunks=(tuple(lengths),))


def _blocks(name: str, values: Any) -> tuple[list[Delayed | Future], list[int] | None]:
    """Delayed values of the partitions, and how many rows each has, where that is known."""
    if isinstance(values, da.Array):
        return _array_blocks(name, values)
    if dask.is_dask_collection(values) and hasattr(values, "npartitions"):
        return _apart(values), None
    if _is_lazy(values):
        for index, value in enumerate(values):
            if not isinstance(value, Delayed | Future):
                raise TypeError(
                    f"{name} must hold delayed values or futures, found "
                    f"{type(value).__name__} at partition {index}"
                )
        return list(values), None
    raise TypeError(
        f"{name} must be a Dask array, a Dask frame, a list of delayed values or of files, found "
        f"{type(values).__name__}; BinaryCodeClassifier learns from rows in memory"
    )


def _array_blocks(name: str, values: da.Array) -> tuple[list[Delayed | Future], list[int]]:
    n_axes = 2 if name == "X" else 1
    if values.ndim != n_axes:
        raise ValueError(f"{name} must have {n_axes} axes, found {values.ndim}")
    for axis, chunks in enumerate(values.chunks):
        unknown = [index for index, chunk in enumerate(chunks) if np.isnan(chunk)]
        if unknown:
            raise ValueError(
                f"{name} has a chunk of unknown size at partition {unknown[0]} of axis {axis}: "
                f"call {name}.compute_chunk_sizes() before"
            )
    if n_axes == 2 and len(values.chunks[1]) != 1:
        raise ValueError(
            f"X must not be cut along the features, found chunks of {values.chunks[1]} features: "
            "use X.rechunk({1: -1})"
        )
    return _apart(values), [int(chunk) for chunk in values.chunks[0]]


def _apart(collection: Any) -> list[Delayed | Future]:
    """The partitions of a collection, each with its own tasks alone, so that asking is cheap."""
    blocks = np.ravel(collection.to_delayed()).tolist()
    graph = dict(blocks[0].__dask_graph__())
    if isinstance(collection, da.Array):
        # Dask leaves out of the optimised graph what is in memory, and nothing would keep it there.
        in_full = dict(collection.__dask_graph__())
        if any(isinstance(value, Future) for value in in_full.values()):
            graph = in_full
    return [
        graph[block.key]
        if isinstance(graph[block.key], Future)
        else Delayed(block.key, cull(graph, [block.key])[0])
        for block in blocks
    ]


def _check_lengths(name: str, expected: list[int], found: list[int]) -> None:
    for index, (n_rows, n_values) in enumerate(zip(expected, found, strict=True)):
        if n_rows != n_values:
            raise PartitionError(
                f"{name} has {n_values} rows in partition {index}, but X has {n_rows} there"
            )
