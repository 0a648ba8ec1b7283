"""The statistics file: all that training needs to continue, on disk.

It serves checkpoints of a long run and models that learn from more rows later. Training continues
from what is read exactly as it would have from what was written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.codes import MAX_BITS, packed_width
from bitclass.storage import (
    ANCHOR_LAYOUT,
    Container,
    Expected,
    ModelFileError,
    anchors_from,
    check_layout,
    decode_labels,
    encode_labels,
    label_tensor,
    opened,
    saved_anchors,
    shown,
    write,
)
from bitclass.training.starting_codes import (
    CLASS_CODES,
    GivenCodes,
    ProjectionCodes,
    StartingCodes,
)
from bitclass.training.statistics import KeptRows, Statistics

__all__ = ["load_statistics", "save_statistics"]

_KIND = "statistics"
MAX_ROWS = 1 << 53

_SUMS = {
    "shift": Expected("F64", ("features",)),
    "scale": Expected("F64", ("features",)),
    "gram": Expected("F64", ("features", "features")),
    "feature_sums": Expected("F64", ("classes", "features")),
    "class_weights": Expected("F64", ("classes",)),
}
# Written since version 0.2.
_REFINED = {"class_weights_when_refined": Expected("F64", ("classes",), required=False)}
_OF_ROW_CODES = {"code_sums": Expected("F64", ("classes", "bits"))}
_KEPT_ROWS = {
    "row_labels": Expected("I32", ("rows",)),
    "row_codes": Expected("U8", ("rows", "bytes")),
    "row_weights": Expected("F64", ("rows",), required=False),
}
_MAPPING = {
    "starting_mapping": Expected("F64", ("features", "bits")),
    "starting_centre": Expected("F64", ("features",)),
    "starting_scale": Expected("F64", ("features",)),
}
_STARTING: dict[str, dict[str, Expected]] = {
    "discriminant": {},
    "means": {},
    # Version 0.1 wrote the sums of codes that follow from the labels.
    "random": {"code_sums": Expected("F64", ("classes", "bits"), required=False)}
    | {name: replace(tensor, required=False) for name, tensor in _KEPT_ROWS.items()},
    "projection": _OF_ROW_CODES | _MAPPING,
    "cca_itq": _OF_ROW_CODES | _MAPPING,
}


def save_statistics(
    path: str | os.PathLike[str], statistics: Statistics, notes: Mapping[str, Any] | None = None
) -> None:
    """Write statistics to a file, whole or not at all.

    Parameters
    ----------
    path : path of the file; a file that is there is replaced
    statistics : Statistics
    notes : mapping, optional
        What else to remember, in values that JSON can hold: how far a run has come, its parameters.

    Raises
    ------
    ValueError
        If a file cannot hold the statistics; nothing is written then.
    OSError
        If the file cannot be written; what was there before is there still.
    """
    if not isinstance(statistics, Statistics):
        raise TypeError(
            f"statistics must be Statistics, found {type(statistics).__name__}: text and other "
            "wide rows are learned without sums, and there is nothing to save"
        )
    starting, tensors = _saved_starting(statistics.starting)
    dtype, tensors["classes"] = encode_labels(statistics.classes)
    if statistics.classes.dtype == object and any(
        isinstance(label, np.generic) for label in statistics.classes
    ):
        # Random codes are drawn from the label as Python writes it, so these must not change.
        raise ValueError("labels that are NumPy scalars inside an array of objects cannot be saved")
    for name in [*_sums_of(statistics), *_REFINED]:
        tensors[name] = np.asarray(getattr(statistics, name), dtype=np.float64)
    tensors |= saved_anchors(statistics.anchors)
    if statistics.keep_codes:
        kept = statistics.kept_rows()
        tensors |= {"row_labels": kept.labels.astype(np.int32), "row_codes": kept.codes}
        if (kept.sample_weight != 1).any():
            tensors["row_weights"] = kept.sample_weight
    try:
        lengths = {"classes": len(statistics.classes), "bits": statistics.starting.n_bits}
        _check_values(tensors, lengths)
    except ModelFileError as error:  # a file that cannot be read back is never written
        raise ValueError(f"the statistics cannot be saved: {error}") from None
    header = {
        "starting": starting,
        "keep_codes": statistics.keep_codes,
        "n_rows": statistics.n_rows,
        "labels": dtype,
        "notes": dict(notes or {}),
    }
    write(path, _KIND, header, tensors)


def load_statistics(path: str | os.PathLike[str]) -> tuple[Statistics, dict[str, Any]]:
    """Read statistics from a file.

    The file need not be trusted, as that of a model need not.

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    statistics : Statistics
    notes : dict

    Raises
    ------
    ModelFileError
        If this is not a statistics file, or damaged, or of a version that is not understood.
    OSError
        If the file cannot be read.
    """
    with opened(path, _KIND) as container:
        starting = container.field("starting", dict)
        kind = starting.get("kind")
        if not isinstance(kind, str) or kind not in _STARTING:
            raise ModelFileError(f"starting codes must be one of {list(_STARTING)}")
        lengths = _check_header(container, starting)
        tensors = {name: container.read(name) for name in container.tensors}
        _check_values(tensors, lengths)
        classes = decode_labels(
            container.field("labels", str), tensors["classes"], lengths["classes"]
        )
        _check_order(classes)
        statistics = Statistics(
            _starting(starting, tensors, lengths["bits"]),
            tensors["shift"],
            tensors["scale"],
            keep_codes=container.field("keep_codes", bool),
            anchors=anchors_from(tensors),
        )
        statistics.classes = classes
        for name in _sums_of(statistics):
            setattr(statistics, name, tensors[name])
        if not statistics.starting.per_row:
            statistics.code_sums = np.zeros((len(classes), 0))
        statistics.class_weights_when_refined = tensors.get(
            "class_weights_when_refined", np.zeros(len(classes))
        )
        statistics.n_rows = container.field("n_rows", int)
        if statistics.keep_codes:
            labels = tensors["row_labels"].astype(np.intp)
            sample_weight = tensors.get("row_weights", np.ones(len(labels)))
            statistics.keep_rows(KeptRows(labels, tensors["row_codes"], sample_weight))
        notes: dict[str, Any] = container.field("notes", dict)
        return statistics, notes


def _sums_of(statistics: Statistics) -> list[str]:
    """Names of the sums that there are."""
    return [*_SUMS, *(_OF_ROW_CODES if statistics.starting.per_row else ())]


def _saved_starting(starting: StartingCodes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if starting.kind in CLASS_CODES:
        return {"kind": starting.kind, "seed": starting.seed, "bits": starting.n_bits}, {}
    if isinstance(starting, ProjectionCodes):
        return {"kind": starting.kind}, {
            "starting_mapping": starting.mapping,
            "starting_centre": starting.centre,
            "starting_scale": starting.scale,
        }
    if isinstance(starting, GivenCodes):
        raise ValueError(
            "statistics that began from codes given as an array cannot be saved: rows to come "
            "would have no codes; begin from codes by name"
        )
    raise ValueError(f"statistics that began from {type(starting).__name__} cannot be saved")


def _starting(
    header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], n_bits: int
) -> StartingCodes:
    if header["kind"] not in CLASS_CODES:
        try:
            with np.errstate(all="ignore"):
                return ProjectionCodes(
                    tensors["starting_mapping"],
                    tensors["starting_centre"],
                    tensors["starting_scale"],
                    header["kind"],
                )
        except ValueError as error:
            raise ModelFileError(f"the starting codes cannot be computed: {error}") from None
    seed = header.get("seed")
    if type(seed) is not int or seed < 0:
        raise ModelFileError("starting codes must have a seed, an integer of at least 0")
    return CLASS_CODES[header["kind"]](n_bits, seed)


def _check_header(container: Container, starting: Mapping[str, Any]) -> dict[str, int]:
    """Check all that can be checked before the arrays are read; lengths of the axes by name."""
    kind = starting["kind"]
    container.refuse_other_fields("starting", "keep_codes", "n_rows", "labels", "notes")
    keep_codes = container.field("keep_codes", bool)
    n_rows = container.field("n_rows", int)
    layout = _SUMS | _REFINED | _STARTING[kind] | ANCHOR_LAYOUT
    layout |= {"classes": label_tensor(container.field("labels", str))}
    if keep_codes:
        layout |= _KEPT_ROWS
    lengths = check_layout(container.tensors, layout)
    if kind in CLASS_CODES:
        lengths["bits"] = starting.get("bits", lengths.get("bits"))
        if type(lengths["bits"]) is not int:
            raise ModelFileError("starting codes of classes must have 'bits'")
    if not 1 <= lengths["bits"] <= MAX_BITS:
        raise ModelFileError(f"bits must be 1 to {MAX_BITS}, found {lengths['bits']}")
    if lengths["features"] == 0:
        raise ModelFileError("the number of features must not be 0")
    # A kept row may stand for several that were equal.
    if not lengths.get("rows", 0) <= n_rows <= MAX_ROWS:
        raise ModelFileError(
            f"n_rows must be {lengths.get('rows', 0)} to {MAX_ROWS}, found {shown(n_rows)}"
        )
    if keep_codes and "bytes" in lengths and lengths["bytes"] != packed_width(lengths["bits"]):
        raise ModelFileError(
            f"tensor 'row_codes' must have {packed_width(lengths['bits'])} bytes per row for "
            f"{lengths['bits']} bits, found {lengths['bytes']}"
        )
    return lengths


def _check_values(tensors: Mapping[str, NDArray[Any]], lengths: Mapping[str, int]) -> None:
    for name, values in tensors.items():
        if name != "classes" and values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ModelFileError(f"tensor {name!r} must hold finite numbers only")
    for name in ("class_weights", "class_weights_when_refined", "row_weights"):
        if name in tensors and (tensors[name] < 0).any():
            raise ModelFileError(f"tensor {name!r} must not hold negative numbers")
    for name in ("scale", "starting_scale"):
        if name in tensors and not (tensors[name] > 0).all():
            raise ModelFileError(f"tensor {name!r} must hold positive numbers only")
    labels, codes = tensors.get("row_labels"), tensors.get("row_codes")
    if labels is not None and ((labels < 0) | (labels >= lengths["classes"])).any():
        raise ModelFileError(f"tensor 'row_labels' must hold 0 to {lengths['classes'] - 1}")
    past = lengths["bits"] % 8
    if codes is not None and past and (codes[:, -1] >> past).any():
        raise ModelFileError("tensor 'row_codes' must be 0 in the bits past the last")


def _check_order(classes: NDArray[Any]) -> None:
    try:
        ascending = bool(np.all(classes[:-1] < classes[1:]))
    except TypeError:  # text among numbers
        ascending = False
    if not ascending:
        raise ModelFileError("classes must be in ascending order")
