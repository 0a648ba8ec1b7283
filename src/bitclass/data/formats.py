"""The formats that are known, and which of them a file is in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from bitclass.data.errors import DataFileError, reading
from bitclass.data.rowfile import Request, RowFile

__all__ = ["FORMATS", "expand", "format_of", "open_files"]


@dataclass(frozen=True)
class Format:
    """A format: the endings of its files, and where the function lives that opens them.

    `together` is whether that function takes all files at once, because only all of them tell the
    number of features or the kind of the labels.
    """

    endings: tuple[str, ...]
    module: str
    function: str
    together: bool = False
    only_labels: bool = False


# A module is imported when its format is asked for: h5py and pyarrow take their time.
FORMATS = {
    "npy": Format((".npy",), "numpy_files", "open_npy"),
    "npz": Format((".npz",), "numpy_files", "open_npz"),
    "parquet": Format((".parquet", ".pq"), "parquet", "open_parquet"),
    "arrow": Format((".arrow", ".feather", ".ipc"), "arrow_ipc", "open_arrow"),
    "svmlight": Format(
        (".svm", ".libsvm", ".svmlight", ".svm.gz", ".libsvm.gz", ".svmlight.gz"),
        "svmlight", "open_svmlight", together=True,
    ),
    "matlab": Format((".mat",), "matlab", "open_matlab"),
    "hdf5": Format((".h5", ".hdf5", ".hdf"), "hdf5", "open_hdf5"),
    "csv": Format(
        (".csv", ".tsv", ".csv.gz", ".tsv.gz"), "csv_files", "open_csv", together=True
    ),
    "lines": Format(
        (".txt", ".txt.gz"), "csv_files", "open_lines", together=True, only_labels=True
    ),
}  # fmt: skip


def _known(only_labels: bool) -> str:
    return ", ".join(
        f"{name} ({' '.join(format.endings)})"
        for name, format in FORMATS.items()
        if only_labels or not format.only_labels
    )


def format_of(path: Path, only_labels: bool = False) -> str | None:
    """The format that the ending of a file tells, None where it tells none."""
    lower = path.name.lower()
    for name, format in FORMATS.items():
        if lower.endswith(format.endings) and (only_labels or not format.only_labels):
            return name
    return None


def expand(paths: Sequence[Path], format: str | None, only_labels: bool) -> list[Path]:
    """All files, each folder replaced by the files in it whose ending is known, by name."""
    files: list[Path] = []
    for path in paths:
        with reading(path, "a file"):
            if not path.exists():
                raise DataFileError(f"{path}: there is no such file or folder")
            if not path.is_dir():
                files.append(path)
                continue
            inside = sorted(
                file
                for file in path.iterdir()
                if file.is_file()
                and not file.name.startswith((".", "_"))
                and (format is not None or format_of(file, only_labels) is not None)
            )
        if not inside:
            raise DataFileError(
                f"{path}: no file in this folder is of a known format: {_known(only_labels)}"
            )
        files += inside
    return files


def open_files(paths: Sequence[Path], format: str | None, request: Request) -> list[RowFile]:
    """Open files, all in the same format; names that were guessed in the first hold for all."""
    if format is not None and (
        format not in FORMATS or (FORMATS[format].only_labels and not request.only_labels)
    ):
        raise DataFileError(
            f"{paths[0]}: format={format!r} is not known; the formats are: "
            f"{_known(request.only_labels)}"
        )
    names = {path: format or format_of(path, request.only_labels) for path in paths}
    for path, name in names.items():
        if name is None:
            raise DataFileError(
                f"{path}: its ending is not known, say format=; the formats are: "
                f"{_known(request.only_labels)}"
            )
        if name != names[paths[0]]:
            raise DataFileError(
                f"{path}: is in the format {name}, but {paths[0]} is in {names[paths[0]]}"
            )
        with reading(path, "a file"):
            # A pipe would wait for ever for somebody to write.
            if not path.is_file():
                raise DataFileError(f"{path}: is not a file")
            if not os.access(path, os.R_OK):
                raise PermissionError
            if path.stat().st_size == 0:
                raise DataFileError(f"{path}: is empty, it has 0 bytes")
    found = FORMATS[str(names[paths[0]])]
    function = getattr(import_module(f"bitclass.data.{found.module}"), found.function)
    if found.together:
        opened: list[RowFile] = function(paths, request)
        return opened
    return _one_by_one(function, paths, request)


def _one_by_one(
    function: Callable[[Path, Request], RowFile], paths: Sequence[Path], request: Request
) -> list[RowFile]:
    files = [function(paths[0], request)]
    if len(paths) > 1 and not paths[0].name.lower().endswith(".npy"):
        choice = files[0].choice
        request = replace(
            request,
            features=choice.features or None,
            labels=False if choice.labels is None else choice.labels,
        )
    return files + [function(path, request) for path in paths[1:]]
