"""`bitclass features`: write features of images to a file."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from bitclass._native import thread_limit
from bitclass.cli.console import print_lines
from bitclass.cli.data import check_outputs, input_files, open_image_rows
from bitclass.cli.errors import UsageError
from bitclass.cli.options import Extractor, Jobs, Json
from bitclass.cli.predict import write_parquet
from bitclass.storage import atomic_write

if TYPE_CHECKING:
    from bitclass.images import ImageRows

__all__ = ["command"]

_EXTENSIONS = (".npy", ".parquet")


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of images, or of one folder per class.")],
    out: Annotated[
        Path, typer.Option(help="File to write: .npy (labels in a second file) or .parquet.")
    ],
    extractor: Extractor = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Extract image features and write them to a file.

    An interrupted run resumes when repeated: until all features are extracted, they are kept in a
    folder next to the file.
    """
    from bitclass.images.rows import remove_cache

    if out.suffix.lower() not in _EXTENSIONS:
        raise UsageError(f"{out}: --out must end in {' or '.join(_EXTENSIONS)}")
    sidecars = {}
    if out.suffix.lower() == ".npy":
        sidecars = {name: out.with_name(out.stem + name) for name in (".labels.npy", ".names.txt")}
    check_outputs({"--out": out, **sidecars}, input_files([folder], extractor=extractor))
    cache = out.with_name(f".{out.name}.bitclass-partial")
    for path in sidecars.values():
        # A file that no earlier run, complete or interrupted, can have written.
        if path.exists() and not out.exists() and not cache.exists():
            raise UsageError(f"{path}: exists without {out.name} and would be overwritten")
    start = time.perf_counter()
    with thread_limit(jobs):
        rows = open_image_rows([folder], extractor=extractor, cache=cache, n_jobs=jobs)
        with atomic_write(out) as file:
            written = _write_npy(rows, file, sidecars) if sidecars else _write_parquet(rows, file)
    remove_cache(cache)
    seconds = time.perf_counter() - start
    facts: dict[str, Any] = {
        "files": [str(path) for path in (out, *written)],
        "rows": rows.n_rows,
        "features": rows.n_features,
        "extractor": rows.extractor.specification(),
        "seconds": round(seconds, 3),
    }
    if json:
        print(json_format.dumps(facts))
        return
    print_lines(f"read    {rows.description}, in {seconds:.1f} s")
    print_lines(f"wrote   {', '.join(facts['files'])}")


def _write_npy(rows: ImageRows, file: IO[bytes], sidecars: dict[str, Path]) -> list[Path]:
    """Write the features, and the labels and names to the sidecar files."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows.n_rows, rows.n_features)}
    np.lib.format.write_array_header_1_0(file, header)
    labels: list[Any] = []
    for batch in rows.batches():
        file.write(np.ascontiguousarray(batch.X, dtype="<f4").tobytes())
        labels += [] if batch.labels is None else [batch.labels]
    with atomic_write(sidecars[".names.txt"]) as names:
        names.write("".join(f"{name}\n" for name in rows.names).encode())
    if not labels:
        # Labels of an earlier run do not belong to these rows.
        sidecars[".labels.npy"].unlink(missing_ok=True)
        return [sidecars[".names.txt"]]
    with atomic_write(sidecars[".labels.npy"]) as label_file:
        np.save(label_file, np.concatenate(labels), allow_pickle=False)
    return [sidecars[".names.txt"], sidecars[".labels.npy"]]


def _write_parquet(rows: ImageRows, file: IO[bytes]) -> list[Path]:
    """Write features, names and labels as columns of one file."""

    def table(batch: Any) -> dict[str, Any]:
        names = np.array(rows.names[batch.first_row : batch.first_row + len(batch)])
        columns = {"features": np.asarray(batch.X, dtype=np.float32), "name": names}
        return columns if batch.labels is None else columns | {"label": batch.labels}

    write_parquet(file, map(table, rows.batches()))
    return []
