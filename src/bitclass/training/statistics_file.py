"""The statistics file: everything needed to continue training.

It is used for checkpoints of long runs, and to update models with more rows later. Training
continues from a loaded file exactly as it would have from the saved statistics.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.codes import MAX_BITS
from bitclass.storage import ModelFileError
from bitclass.storage.container import Content, Expected, check_codes, open_file, shown, write_file
from bitclass.storage.labels import decode_labels, encode_labels, label_tensor
from bitclass.storage.model_file import ANCHOR_LAYOUT, anchors_from, saved_anchors
from bitclass.training.starting_codes import CLASS_CODES, ProjectionCodes, StartingCodes
from bitclass.training.statistics import KeptRows, Statistics

__all__ = ["load_statistics", "save_statistics"]

_KIND = "statistics"
_FIELDS = {"starting": dict, "keep_codes": bool, "n_rows": int, "labels": str, "notes": dict}
MAX_ROWS = 1 << 53

_TINY = float(np.finfo(np.float64).tiny)
_LAYOUT = {
    "shift": Expected("F64", ("features",)),
    "scale": Expected("F64", ("features",), low=_TINY),
    "gram": Expected("F64", ("features", "features")),
    "feature_sums": Expected("F64", ("classes", "features")),
    "class_weights": Expected("F64", ("classes",), low=0),
    # Written since version 0.2.
    "class_weights_when_refined": Expected("F64", ("classes",), required=False, low=0),
    **ANCHOR_LAYOUT,
}
_CODE_SUMS = {"code_sums": Expected("F64", ("classes", "bits"))}
_KEPT_ROWS = {
    "row_labels": Expected("I32", ("rows",), low=0),
    "row_codes": Expected("U8", ("rows", "bytes")),
    "row_weights": Expected("F64", ("rows",), required=False, low=0),
}
_MAPPING = {
    "starting_mapping": Expected("F64", ("features", "bits")),
    "starting_centre": Expected("F64", ("features",)),
    "starting_scale": Expected("F64", ("features",), low=_TINY),
}
_STARTING_LAYOUTS: dict[str, dict[str, Expected]] = {
    "discriminant": {},
    "means": {},
    # Version 0.1 also saved these, although they follow from the labels.
    "random": {
        name: replace(expected, required=False)
        for name, expected in (_CODE_SUMS | _KEPT_ROWS).items()
    },
    "projection": _CODE_SUMS | _MAPPING,
    "cca_itq": _CODE_SUMS | _MAPPING,
}


def save_statistics(
    path: str | os.PathLike[str], statistics: Statistics, notes: Mapping[str, Any] | None = None
) -> None:
    """Save statistics to a file atomically.

    Parameters
    ----------
    path : path of the file; an existing file is replaced
    statistics : Statistics
    notes : mapping, optional
        JSON-serialisable metadata, such as the progress and the parameters of a run.

    Raises
    ------
    ValueError
        If the statistics cannot be saved in this format; nothing is written.
    OSError
        If the file cannot be written; an existing file is left unchanged.
    """
    if not isinstance(statistics, Statistics):
        raise TypeError(
            f"statistics must be Statistics, found {type(statistics).__name__}: models of text "
            "and other wide rows are learned without sums, so there is nothing to save"
        )
    statistics.to_host()
    if statistics.classes.dtype == object and any(
        isinstance(label, np.generic) for label in statistics.classes
    ):
        # Random codes depend on the repr of a label, so labels must not change type.
        raise ValueError("labels that are NumPy scalars inside an object array cannot be saved")
    starting, tensors = _saved_starting(statistics.starting)
    dtype, tensors["classes"] = encode_labels(statistics.classes)
    for name in [*_sums_of(statistics.starting), "class_weights_when_refined"]:
        tensors[name] = np.asarray(getattr(statistics, name), dtype=np.float64)
    tensors |= saved_anchors(statistics.anchors)
    if statistics.keep_codes:
        kept = statistics.kept_rows()
        tensors |= {"row_labels": kept.labels.astype(np.int32), "row_codes": kept.codes}
        if (kept.sample_weight != 1).any():
            tensors["row_weights"] = kept.sample_weight
    header = {
        "starting": starting,
        "keep_codes": statistics.keep_codes,
        "n_rows": statistics.n_rows,
        "labels": dtype,
        "notes": dict(notes or {}),
    }
    content = Content(header, tensors)
    try:
        _checked(content)
    except ModelFileError as error:
        raise ValueError(f"the statistics cannot be saved: {error}") from None
    write_file(path, _KIND, content)


def load_statistics(path: str | os.PathLike[str]) -> tuple[Statistics, dict[str, Any]]:
    """Load statistics from a file.

    Like a model file, it need not be trusted.

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
        If the file is not a statistics file, is damaged, or has an unsupported version.
    OSError
        If the file cannot be read.
    """
    with open_file(path, _KIND) as container:
        fields, tensors, n_bits = _checked(container)
        n_classes = len(tensors["class_weights"])
        classes = decode_labels(fields["labels"], tensors["classes"], n_classes)
        _check_order(classes)
        statistics = Statistics(
            _starting(fields["starting"], tensors, n_bits),
            tensors["shift"],
            tensors["scale"],
            keep_codes=fields["keep_codes"],
            anchors=anchors_from(tensors),
        )
        statistics.classes = classes
        statistics.code_sums = np.zeros((n_classes, 0))
        for name in _sums_of(statistics.starting):
            setattr(statistics, name, tensors[name])
        statistics.class_weights_when_refined = tensors.get(
            "class_weights_when_refined", np.zeros(n_classes)
        )
        statistics.n_rows = fields["n_rows"]
        if statistics.keep_codes:
            labels = tensors["row_labels"].astype(np.intp)
            sample_weight = tensors.get("row_weights", np.ones(len(labels)))
            statistics.keep_rows(KeptRows(labels, tensors["row_codes"], sample_weight))
        return statistics, fields["notes"]


def _sums_of(starting: StartingCodes) -> list[str]:
    """Names of the sums to store."""
    sums = ["shift", "scale", "gram", "feature_sums", "class_weights"]
    return [*sums, "code_sums"] if starting.per_row else sums


def _checked(container: Content) -> tuple[dict[str, Any], dict[str, NDArray[Any]], int]:
    """Validated header, arrays and number of bits of a file that is read or about to be written."""
    fields = container.fields(**_FIELDS)
    starting, keep_codes = fields["starting"], fields["keep_codes"]
    kind = starting.get("kind")
    if not isinstance(kind, str) or kind not in _STARTING_LAYOUTS:
        raise ModelFileError(f"starting codes must be one of {list(_STARTING_LAYOUTS)}")
    layout = _LAYOUT | _STARTING_LAYOUTS[kind] | (_KEPT_ROWS if keep_codes else {})
    layout["classes"] = label_tensor(fields["labels"])
    lengths = container.lengths(layout)
    n_bits = starting.get("bits", lengths.get("bits")) if kind in CLASS_CODES else lengths["bits"]
    if type(n_bits) is not int:
        raise ModelFileError("starting codes per class must have 'bits'")
    if not 1 <= n_bits <= MAX_BITS:
        raise ModelFileError(f"bits must be 1 to {MAX_BITS}, found {shown(n_bits)}")
    if lengths["features"] == 0:
        raise ModelFileError("the number of features must not be 0")
    # A kept row may represent several identical ones.
    n_kept = lengths.get("rows", 0)
    if not n_kept <= fields["n_rows"] <= MAX_ROWS:
        raise ModelFileError(
            f"n_rows must be {n_kept} to {MAX_ROWS}, found {shown(fields['n_rows'])}"
        )
    tensors = {name: container.read(name) for name in container.tensors}
    if keep_codes:
        check_codes("row_codes", tensors["row_codes"], n_bits)
        if (tensors["row_labels"] >= lengths["classes"]).any():
            raise ModelFileError(f"tensor 'row_labels' must hold 0 to {lengths['classes'] - 1}")
    return fields, tensors, n_bits


def _saved_starting(starting: StartingCodes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if starting.kind in CLASS_CODES:
        return {"kind": starting.kind, "seed": starting.seed, "bits": starting.n_bits}, {}
    if isinstance(starting, ProjectionCodes):
        return {"kind": starting.kind}, {
            "starting_mapping": starting.mapping,
            "starting_centre": starting.centre,
            "starting_scale": starting.scale,
        }
    raise ValueError(
        "statistics with starting codes given as an array cannot be saved, because further rows "
        "would have no codes; set initial_codes to a name"
    )


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
        raise ModelFileError("starting codes must have a seed, a non-negative integer")
    return CLASS_CODES[header["kind"]](n_bits, seed)


def _check_order(classes: NDArray[Any]) -> None:
    try:
        ascending = bool(np.all(classes[:-1] < classes[1:]))
    except TypeError:  # text among numbers
        ascending = False
    if not ascending:
        raise ModelFileError("classes must be in ascending order")
