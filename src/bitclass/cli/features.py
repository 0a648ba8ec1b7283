"""`bitclass features`: from pictures to a feature file."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bitclass.cli.checks import check_room
from bitclass.cli.errors import UsageError
from bitclass.cli.progress import rows_progress
from bitclass.data.errors import import_extra
from bitclass.data.pictures import PictureSet
from bitclass.images import Extractor, ImageRows, image_rows
from bitclass.storage import atomic_write

__all__ = ["run_features"]

_ENDINGS = (".npy", ".parquet")


def run_features(
    pictures: PictureSet, extractor: Extractor, out: Path, *, jobs: int | None, as_json: bool
) -> None:
    """Extract features, and write them with the labels and names of their pictures.

    Until all are there they are kept in a folder beside `out`, from which a run that was killed
    goes on.
    """
    if out.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{out}: --out must end in {' or '.join(_ENDINGS)}")
    check_room(out, "--out")
    as_parquet = out.suffix.lower() == ".parquet"
    if as_parquet:
        import_extra("pyarrow.parquet", "parquet", out, "Parquet")
    start = time.perf_counter()
    cache = out.with_name(out.name + ".partial")
    with rows_progress(len(pictures)) as progress:
        rows = image_rows(
            pictures,
            extractor,
            cache=cache,
            n_jobs=jobs,
            progress=lambda done: progress("extracting", done),
        )
    written = (_write_parquet if as_parquet else _write_npy)(rows, out)
    shutil.rmtree(cache)
    seconds = time.perf_counter() - start
    _tell(rows, pictures, written, seconds, as_json)


def _write_npy(rows: ImageRows, out: Path) -> list[Path]:
    """Write labels and names beside the features, which come last, to complete the set."""
    stem = out.name.removesuffix(out.suffix)
    X, labels = rows.sample(rows.n_rows)
    beside = out.with_name(f"{stem}.labels.npy")
    beside.unlink(missing_ok=True)  # of an earlier run
    if labels is not None:
        with atomic_write(beside) as file:
            np.save(file, labels)
    names = out.with_name(f"{stem}.names.txt")
    with atomic_write(names) as file:
        file.write("".join(f"{name}\n" for name in rows.names).encode())
    with atomic_write(out) as file:
        np.save(file, X)
    return [out, names, *([beside] if labels is not None else [])]


def _write_parquet(rows: ImageRows, out: Path) -> list[Path]:
    """Write one file with a column each for features, labels and names."""
    arrow = import_extra("pyarrow", "parquet", out, "Parquet")
    parquet = import_extra("pyarrow.parquet", "parquet", out, "Parquet")
    text = {"name": arrow.string()} | ({"label": arrow.string()} if rows.has_labels else {})
    schema = arrow.schema({"features": arrow.list_(arrow.float32(), rows.n_features)} | text)
    with atomic_write(out) as file, parquet.ParquetWriter(file, schema) as writer:
        for batch in rows.batches():
            values = arrow.array(batch.X.reshape(-1))
            columns: dict[str, Any] = {
                "features": arrow.FixedSizeListArray.from_arrays(values, rows.n_features),
                "name": rows.names[batch.first_row : batch.first_row + len(batch.X)],
            }
            if batch.labels is not None:
                columns["label"] = batch.labels.tolist()
            writer.write_table(arrow.table(columns, schema=schema))
    return [out]


def _tell(
    rows: ImageRows,
    pictures: PictureSet,
    written: list[Path],
    seconds: float,
    as_json: bool,
) -> None:
    extractor, n_before = rows.extractor, rows.n_cached
    facts: dict[str, Any] = {
        "files": [str(path) for path in written],
        "pictures": len(pictures),
        "rows": rows.n_rows,
        "left_out": len(pictures) - rows.n_rows,
        "features": extractor.n_features,
        "extractor": extractor.specification(),
        "resumed_after": n_before,
        "seconds": round(seconds, 3),
    }
    if as_json:
        print(json.dumps(facts))
        return
    console = Console()

    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    resumed = f" (went on after {n_before:,})" if n_before else ""
    rate = f", {(len(pictures) - n_before) / seconds:,.0f} a second" if seconds > 0 else ""
    line(
        f"took    {extractor.n_features} features by {extractor.name} of {rows.n_rows:,} pictures "
        f"in {seconds:.1f} s{rate}{resumed}"
    )
    line(f"wrote   {', '.join(facts['files'])}")
