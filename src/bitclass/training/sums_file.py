"""Files of sums: what `partial_fit` continues from, beside the file of the model."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bitclass.arrays import compute_dtype
from bitclass.storage import (
    Content,
    Expected,
    ModelFileError,
    decode_labels,
    encode_labels,
    label_tensor,
    open_file,
    write_file,
)
from bitclass.storage.model_file import (
    ANCHOR_LAYOUT,
    anchors_from,
    saved_anchors,
    saved_text,
    text_from,
)
from bitclass.training.sums import Collected, Sample, Sums

_KIND = "sums"
_FIELDS = {
    "labels": str,
    "wide": bool,
    "n_rows": int,
    "n_summed": int,
    "seed": int,
    "sources": list,
}
_TINY = float(np.finfo(np.float64).tiny)
_LAYOUT = {
    "mass": Expected("F64", ("classes",), low=0),
    "mass_squares": Expected("F64", ("classes",), low=0),
    "shift": Expected("F64", ("features",)),
    "scale": Expected("F64", ("features",), low=_TINY),
    **ANCHOR_LAYOUT,
    "text_ngrams": Expected("U8", (4,), required=False),
    "text_columns": Expected("U32", ("text columns",), paired_with="text_ngrams"),
    "text_idf": Expected("F16", ("text columns",), paired_with="text_ngrams"),
}
_DENSE_LAYOUT = {
    "gram": Expected("F64", ("features", "features")),
    "feature_sums": Expected("F64", ("classes", "features")),
}
_WIDE_LAYOUT = {
    "squares": Expected("F64", ("features",), low=0),
    "counts": Expected("F64", ("features",), low=0),
}


def sums_path(path: str | os.PathLike[str]) -> str:
    """Path of the sums of a model: ``NAME.sums.safetensors`` beside ``NAME.safetensors``."""
    return os.fspath(path).removesuffix(".safetensors") + ".sums.safetensors"


def save_sums(path: str | os.PathLike[str], collected: Collected) -> None:
    """Write sums, the pool and the sample atomically."""
    sums, classes = collected.sums, collected.classes
    sums.add_classes(classes)  # those whose rows are all in the pool
    kind, labels = encode_labels(classes)
    arrays: dict[str, NDArray[Any]] = {
        "classes": labels,
        "mass": sums.mass,
        "mass_squares": sums.mass_squares,
        "shift": sums.shift,
        "scale": sums.scale,
        **_saved_matrix("feature_sums", sums.feature_sums),
        **saved_anchors(sums.anchors),
        **saved_text(collected.text),
    }
    if collected.text is not None and collected.text.columns is not None:
        arrays["text_columns"] = collected.text.columns
    if sums.wide:
        arrays |= {"squares": sums.squares, "counts": sums.counts}
    else:
        arrays["gram"] = sums.gram
    for name, rows in (("pool", collected.pool), ("sample", collected.sample)):
        if rows is not None and len(rows):
            X = rows.features()
            arrays |= _saved_matrix(name, X.astype(compute_dtype(X), copy=False))
            arrays[f"{name}_labels"] = np.searchsorted(classes, rows.labels).astype(np.int64)
            arrays[f"{name}_weights"], arrays[f"{name}_keys"] = rows.weights, rows.keys
    header: dict[str, Any] = {
        "labels": kind,
        "wide": sums.wide,
        "n_rows": collected.n_rows,
        "n_summed": sums.n_rows,
        "seed": collected.seed,
        "sources": list(collected.sources),
    }
    write_file(path, _KIND, Content(header, arrays))


def remove_sums(path: str | os.PathLike[str]) -> None:
    """Remove the sums of an earlier model, which `load` would take for those of its successor."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def load_sums(path: str | os.PathLike[str]) -> Collected:
    """Read a file written by `save_sums`, which need not be trusted.

    One that is damaged, of another kind, or of an unsupported version is a ModelFileError.
    """
    with open_file(path, _KIND) as content:
        fields = content.fields(**_FIELDS)
        content.lengths(_layout(content, fields))
        arrays = {name: content.read(name) for name in content.tensors}
        classes = decode_labels(fields["labels"], arrays["classes"], len(arrays["mass"]))
        if not bool(np.all(classes[:-1] < classes[1:])):
            raise ModelFileError("classes must be in ascending order")
        sums = Sums(
            arrays["shift"], arrays["scale"], anchors=anchors_from(arrays), wide=fields["wide"]
        )
        shape = len(classes), len(sums.shift)
        sums.restore(
            classes,
            arrays["mass"],
            arrays["mass_squares"],
            _matrix("feature_sums", arrays, shape),
            arrays.get("gram"),
            arrays.get("squares"),
            arrays.get("counts"),
            fields["n_summed"],
        )
        collected = Collected(sums, fields["seed"])
        collected.sources = [str(source) for source in fields["sources"]]
        collected.text = text_from(arrays, arrays.get("text_columns"), sums.n_features)
        for name, keep in (("pool", collected.keep_in_pool), ("sample", collected.keep_in_sample)):
            if f"{name}_labels" in arrays:
                keep(_rows(name, arrays, classes, sums.n_features))
        collected.n_rows = fields["n_rows"]
        if fields["n_summed"] < 0:
            raise ModelFileError("'n_summed' must not be negative")
        if fields["n_rows"] != fields["n_summed"] + len(arrays.get("pool_labels", ())):
            raise ModelFileError("the number of rows does not match the sums and the pool")
        return collected


def _layout(content: Content, fields: dict[str, Any]) -> dict[str, Expected]:
    """What a file with these fields must contain."""
    layout = {"classes": label_tensor(fields["labels"]), **_LAYOUT}
    if fields["wide"]:
        layout |= _WIDE_LAYOUT | _sparse_layout("feature_sums", "F64")
    else:
        layout |= _DENSE_LAYOUT
    for name in ("pool", "sample"):
        if f"{name}_labels" not in content.tensors:
            continue
        rows = f"{name} rows"
        layout |= {
            f"{name}_labels": Expected("I64", (rows,), low=0),
            f"{name}_weights": Expected("F64", (rows,), low=0),
            f"{name}_keys": Expected("F64", (rows,)),
        }
        stored = name if name in content.tensors else f"{name}_data"
        kind = "F64" if content.type_of(stored) == "F64" else "F32"
        if stored == name:
            layout[name] = Expected(kind, (rows, f"{name} columns"))
        else:
            layout |= _sparse_layout(name, kind)
    return layout


def _sparse_layout(name: str, kind: str) -> dict[str, Expected]:
    return {
        f"{name}_data": Expected(kind, (f"{name} entries",)),
        f"{name}_indices": Expected("I64", (f"{name} entries",), low=0),
        f"{name}_indptr": Expected("I64", (f"{name} pointers",), low=0),
    }


def _saved_matrix(name: str, matrix: Any) -> dict[str, NDArray[Any]]:
    """Arrays of a dense or sparse matrix by name."""
    if isinstance(matrix, np.ndarray):
        return {name: np.ascontiguousarray(matrix)}
    matrix = sp.csr_array(matrix)
    return {
        f"{name}_data": matrix.data,
        f"{name}_indices": matrix.indices.astype(np.int64),
        f"{name}_indptr": matrix.indptr.astype(np.int64),
    }


def _matrix(name: str, arrays: dict[str, NDArray[Any]], shape: tuple[int, int]) -> Any:
    """A checked dense or sparse matrix of this shape."""
    if name in arrays:
        if arrays[name].shape != shape:
            raise ModelFileError(
                f"tensor {name!r} must have shape {shape}, found {arrays[name].shape}"
            )
        return arrays[name]
    data, indices, indptr = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    is_valid = len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(data)
    if not is_valid or (np.diff(indptr) < 0).any() or indices.max(initial=0) >= shape[1]:
        raise ModelFileError(f"tensors of {name!r} are not a sparse matrix of shape {shape}")
    return sp.csr_array((data, indices, indptr), shape=shape)


def _rows(
    name: str, arrays: dict[str, NDArray[Any]], classes: NDArray[Any], n_features: int
) -> Sample:
    places = arrays[f"{name}_labels"]
    if places.max(initial=0) >= len(classes):
        raise ModelFileError(f"tensor '{name}_labels' must hold 0 to {len(classes) - 1}")
    X = _matrix(name, arrays, (len(places), n_features))
    return Sample(X, classes[places], arrays[f"{name}_weights"], arrays[f"{name}_keys"])
