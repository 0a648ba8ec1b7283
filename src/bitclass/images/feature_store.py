"""Features on disk while they come, so that a run that was killed goes on where it was."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.data.picture_sources import fingerprint
from bitclass.data.pictures import PictureSet, printable
from bitclass.images.extractors import Extractor
from bitclass.storage import atomic_write

__all__ = ["FeatureStore", "opened_store", "run_of"]

_RECORD = np.dtype("<i8")
_FIELDS = 2  # of a record: pictures gone through, rows written


def run_of(pictures: PictureSet, extractor: Extractor) -> dict[str, Any]:
    """What tells a run from others: the pictures, their files and classes, and the extractor."""
    labels = () if pictures.labels is None else pictures.labels.tolist()
    return {
        "pictures": len(pictures),
        "names": _digest(pictures.names),
        "files": fingerprint(pictures.source, len(pictures)),
        "classes": _digest(labels),
        "extractor": extractor.specification(),
    }


def _digest(texts: Any) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


class FeatureStore:
    """A folder of features that grows batch by batch; made by `opened_store`.

    Features go to an array file, numbers of their pictures beside it, and after both a record says
    how far they are valid: whatever comes after the last record is cut off by the next run.

    Attributes
    ----------
    folder : Path
    n_done : int, pictures that have been gone through
    n_rows : int, pictures of them that could be read, each with a row of features
    """

    def __init__(self, folder: Path, pictures: PictureSet, n_features: int) -> None:
        self.folder = folder
        self._pictures, self._n_features = pictures, n_features
        self.features = folder / "features.npy"
        self.labels = folder / "labels.npy"
        self.names = folder / "names.txt"
        self._rows, self._records = folder / "rows", folder / "records"
        self.n_done, self.n_rows = self._recall()
        header = self._header(0)
        if self.n_done == 0:
            for beside in (self.names, self.labels):
                beside.unlink(missing_ok=True)
            self.features.write_bytes(header)
            self._rows.write_bytes(b"")
            self._records.write_bytes(b"")
        _cut(self._records, self._n_records * _FIELDS * _RECORD.itemsize)
        _cut(self._rows, self.n_rows * _RECORD.itemsize)
        _cut(self.features, len(header) + self.n_rows * self._row_bytes)

    @property
    def _row_bytes(self) -> int:
        return 4 * self._n_features

    def _header(self, n_rows: int) -> bytes:
        """Header of the array file, of the same length for any number of rows."""
        header = io.BytesIO()
        described = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, self._n_features)}
        np.lib.format.write_array_header_1_0(header, described)
        return header.getvalue()

    def _recall(self) -> tuple[int, int]:
        """How far the last record that the files bear out says they are valid."""
        self._n_records = 0
        if not all(path.exists() for path in (self.features, self._rows, self._records)):
            return 0, 0
        raw = self._records.read_bytes()
        whole = len(raw) // (_FIELDS * _RECORD.itemsize)
        records = np.frombuffer(raw, _RECORD, whole * _FIELDS).reshape(whole, _FIELDS)
        room = (self.features.stat().st_size - len(self._header(0))) // self._row_bytes
        room = min(room, self._rows.stat().st_size // _RECORD.itemsize)
        for at in range(whole - 1, -1, -1):
            n_done, n_rows = records[at].tolist()
            if 0 <= n_rows <= min(n_done, room) and 0 < n_done <= len(self._pictures):
                self._n_records = at + 1
                return n_done, n_rows
        return 0, 0

    def append(self, n_done: int, rows: NDArray[np.intp], features: NDArray[np.float32]) -> None:
        """Add a batch.

        Parameters
        ----------
        n_done : pictures gone through after it
        rows : (m,) numbers of the pictures that could be read
        features : (m, d) float32
        """
        n_rows = self.n_rows + len(rows)
        _append(self.features, np.ascontiguousarray(features, dtype="<f4"))
        _append(self._rows, rows.astype(_RECORD))
        # Only what is on disk for certain is recorded.
        _append(self._records, np.array([n_done, n_rows], dtype=_RECORD))
        self.n_done, self.n_rows = n_done, n_rows

    def rows(self) -> NDArray[np.int64]:
        """Numbers of the pictures that have features, (n_rows,)."""
        return np.fromfile(self._rows, dtype=_RECORD)

    def complete(self) -> None:
        """Make the array file a file of its own, with labels and names of its rows beside it."""
        if self.n_rows == 0:
            raise DataFileError(
                f"none of the {len(self._pictures)} pictures could be read, from "
                f"{self._pictures.names[0]} on"
            )
        header = self._header(self.n_rows)
        with self.features.open("r+b") as file:
            # A file that is touched again would count as another one.
            if file.read(len(header)) != header:
                file.seek(0)
                file.write(header)
                _to_disk(file)
        if self.names.exists():
            return
        rows = self.rows()
        if self._pictures.labels is not None:
            with atomic_write(self.labels) as file:
                np.save(file, self._pictures.labels[rows], allow_pickle=False)
        with atomic_write(self.names) as file:
            for row in rows.tolist():
                file.write(printable(self._pictures.names[row]).encode() + b"\n")

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder)


def _cut(path: Path, n_bytes: int) -> None:
    # Cutting nothing off would count as a change of the file.
    if path.stat().st_size != n_bytes:
        os.truncate(path, n_bytes)


def _append(path: Path, values: NDArray[Any]) -> None:
    with path.open("ab") as file:
        file.write(values.tobytes())
        _to_disk(file)


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def opened_store(
    folder: Path, pictures: PictureSet, extractor: Extractor
) -> Iterator[FeatureStore]:
    """A store in a folder, new or as an earlier run left it.

    Parameters
    ----------
    folder : made where it does not exist
    pictures : PictureSet
    extractor : Extractor

    Raises
    ------
    DataFileError
        If the folder holds a run on other pictures, on files that were written anew since, or with
        another extractor, or if another process is at it.
    """
    run = json.loads(json.dumps(run_of(pictures, extractor)))
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        described = folder / "run.json"
        if described.exists():
            _check_same(folder, described, run)
        else:
            if any(path.name != _LOCK for path in folder.iterdir()):
                raise DataFileError(f"{folder}: is in the way; it holds other files")
            with atomic_write(described) as file:
                file.write(json.dumps(run).encode())
        yield FeatureStore(folder, pictures, extractor.n_features)


def _check_same(folder: Path, described: Path, run: dict[str, Any]) -> None:
    try:
        before = json.loads(described.read_bytes())
        differing = sorted(key for key in run | before if run.get(key) != before.get(key))
    except (ValueError, TypeError):
        raise DataFileError(f"{described}: is damaged; remove {folder} to start anew") from None
    if differing:
        raise DataFileError(
            f"{folder}: features of another run, which differs in {', '.join(differing)}; remove "
            "it to start anew"
        )


_LOCK = "lock"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from the folder, where the system has locks for that."""
    with (folder / _LOCK).open("ab") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataFileError(f"{folder}: another process is at work there") from None
        yield
