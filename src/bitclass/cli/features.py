"""`bitclass features`: from pictures to a feature file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bitclass.cli.checks import check_room
from bitclass.cli.errors import UsageError
from bitclass.cli.pictures import fill_store
from bitclass.data.errors import import_extra
from bitclass.data.pictures import PictureSet, printable
from bitclass.images import Extractor
from bitclass.images.feature_store import FeatureStore, opened_store
from bitclass.storage import atomic_write

__all__ = ["run_features"]

_ENDINGS = (".npy", ".parquet")
_GROUP_BYTES = 64 << 20


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
    with opened_store(out.with_name(out.name + ".partial"), pictures, extractor) as store:
        n_before = store.n_done
        fill_store(store, pictures, extractor, jobs)
        written = (_write_parquet if as_parquet else _move)(store, pictures, out)
        store.remove()
    seconds = time.perf_counter() - start
    _tell(store, pictures, extractor, written, n_before, seconds, as_json)


def _move(store: FeatureStore, pictures: PictureSet, out: Path) -> list[Path]:
    """Put the array file and what is beside it in place; the features last, to complete the set.

    Labels of an earlier run, where this one has none, would be taken for those of its rows.
    """
    stem = out.name.removesuffix(out.suffix)
    places = {
        store.labels: out.with_name(f"{stem}.labels.npy"),
        store.names: out.with_name(f"{stem}.names.txt"),
        store.features: out,
    }
    written = [place for path, place in places.items() if path.exists()]
    if pictures.labels is None:
        places[store.labels].unlink(missing_ok=True)
    for path, place in places.items():
        if path.exists():
            os.replace(path, place)
    return written[::-1]


def _write_parquet(store: FeatureStore, pictures: PictureSet, out: Path) -> list[Path]:
    """Write one file with a column each for features, labels and names."""
    import numpy as np

    arrow = import_extra("pyarrow", "parquet", out, "Parquet")
    parquet = import_extra("pyarrow.parquet", "parquet", out, "Parquet")
    features = np.load(store.features, mmap_mode="r", allow_pickle=False)
    rows, width = store.rows(), features.shape[1]
    text = {"name": arrow.string()} | ({} if pictures.labels is None else {"label": arrow.string()})
    schema = arrow.schema({"features": arrow.list_(arrow.float32(), width)} | text)
    step = max(1, _GROUP_BYTES // (4 * width))
    with atomic_write(out) as file, parquet.ParquetWriter(file, schema) as writer:
        for first in range(0, len(rows), step):
            part = rows[first : first + step].tolist()
            values = arrow.array(np.array(features[first : first + step]).reshape(-1))
            columns: dict[str, Any] = {
                "features": arrow.FixedSizeListArray.from_arrays(values, width),
                "name": [printable(pictures.names[row]) for row in part],
            }
            if pictures.labels is not None:
                columns["label"] = pictures.labels[part].tolist()
            writer.write_table(arrow.table(columns, schema=schema))
    return [out]


def _tell(
    store: FeatureStore,
    pictures: PictureSet,
    extractor: Extractor,
    written: list[Path],
    n_before: int,
    seconds: float,
    as_json: bool,
) -> None:
    facts: dict[str, Any] = {
        "files": [str(path) for path in written],
        "pictures": len(pictures),
        "rows": store.n_rows,
        "left_out": len(pictures) - store.n_rows,
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
        f"took    {extractor.n_features} features by {extractor.name} of {store.n_rows:,} pictures "
        f"in {seconds:.1f} s{rate}{resumed}"
    )
    line(f"wrote   {', '.join(facts['files'])}")
