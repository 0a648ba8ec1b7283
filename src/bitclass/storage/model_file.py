"""The model file: a `PackedModel` on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bitclass._native import QuantisedProjection
from bitclass._native.ngrams import NgramFeatures
from bitclass.codes import pack, unpack
from bitclass.hash_function import (
    MAX_COLUMNS,
    MAX_GAMMA,
    MAX_STANDARDISED,
    MIN_GAMMA,
    HashFunction,
    RbfAnchors,
)
from bitclass.model import PackedModel, dtype_with
from bitclass.report import Report
from bitclass.storage.container import (
    Content,
    Expected,
    ModelFileError,
    check_codes,
    open_file,
    shown,
    write_file,
)
from bitclass.storage.extractors import extractor_of
from bitclass.storage.labels import decode_labels, encode_labels, label_tensor

ProjectionType = Literal["float32", "int8", "int4", "1bit"]
#: Data types in which the projection can be saved.
PROJECTION_TYPES: tuple[ProjectionType, ...] = get_args(ProjectionType)

_KIND = "model"
_FIELDS = {
    "projection": str,
    "rescore": int,
    "temperature": float,
    "labels": str,
    "reject": float,
    "unknown_label": object,
    "summary": dict,
}
# The maximum number of bits, a million, divided by this is still finite.
_MIN_POSITIVE = 1e-300
_MAX_RESCORED = 1 << 40
# Rows of a projection that are converted at once.
_BLOCK_ROWS = 4096
# A four-bit entry is stored as 1 to 15; 0 is padding.
_FOUR_BIT_ZERO = 8

# The smallest numbers with a finite inverse.
_TINY32, _TINY64 = float(np.finfo(np.float32).tiny), float(np.finfo(np.float64).tiny)
_MAX32 = float(np.finfo(np.float32).max)
_PROJECTIONS: dict[ProjectionType, Expected] = {
    "float32": Expected("F32", ("features", "bits")),
    "int8": Expected("I8", ("features", "bits"), low=-127, high=127),
    "int4": Expected("U8", ("features", "bytes of four bits")),
    "1bit": Expected("U8", ("features", "bytes")),
}
_INTERCEPT = {"intercept": Expected("F64", ("bits",), low=-_MAX32, high=_MAX32)}
# Columns of integer projections are in units of `column_scale`; the thresholds are intercepts in
# the same units, as in the kernel.
_UNITS = {
    "column_scale": Expected("F64", ("bits",), low=_TINY64),
    "thresholds": Expected("F64", ("bits",)),
}
_ENTRY_BITS: dict[ProjectionType, int] = {"int4": 4, "1bit": 1}
#: With anchors, "features" are the similarities to anchors, and "inputs" the columns of the rows.
ANCHOR_LAYOUT = {
    "anchors": Expected(
        "F32", ("features", "inputs"), required=False, low=-MAX_STANDARDISED, high=MAX_STANDARDISED
    ),
    "anchor_centre": Expected("F32", ("inputs",), paired_with="anchors"),
    "anchor_scale": Expected("F32", ("inputs",), paired_with="anchors", low=_TINY32),
    "anchor_gamma": Expected("F64", (1,), paired_with="anchors", low=MIN_GAMMA, high=MAX_GAMMA),
}
_LAYOUT = {
    "weights": Expected("U8", ("classes", "bytes")),
    "centre": Expected("F32", ("features",), required=False),
    "scale": Expected("F32", ("features",), required=False, low=_TINY32),
    # With columns, "features" are a subset of the columns of the rows.
    "columns": Expected("I32", ("features",), required=False),
    "n_columns": Expected("I64", (1,), paired_with="columns", low=1, high=MAX_COLUMNS),
    # The columns of the rows are hashed n-grams.
    "text_ngrams": Expected("U8", (4,), required=False),
    "text_idf": Expected("F16", ("features",), paired_with="text_ngrams"),
    "bias": Expected("F32", ("classes",), required=False),
    "typicality": Expected("F32", ("quantiles",), required=False),
    **ANCHOR_LAYOUT,
}


def save(
    path: str | os.PathLike[str],
    model: PackedModel,
    *,
    projection: ProjectionType | None = None,
) -> None:
    """Write a model to a file atomically.

    `projection` is the data type of the saved projection. "float32" is exact; "int8" takes a
    quarter of the space, and is exact for a model that predicts in int8. "int4" and "1bit" are for
    wide rows and store a scale per column. By default, wide rows are stored in the smallest type
    that is exact, all others as "float32".

    A model that cannot be stored is a ValueError, a file that cannot be written an OSError; an
    existing file is then unchanged.
    """
    h = model.hash_function
    if projection is None:
        projection = "float32"
        if h.columns is not None:
            exact: dict[int, ProjectionType] = {8: "int8", 4: "int4", 1: "1bit"}
            projection = exact[h.entry_bits]
    if projection not in PROJECTION_TYPES:
        raise ValueError(
            f"projection must be one of {list(PROJECTION_TYPES)}, found {projection!r}"
        )
    if h.is_linear and h.precision == "float32":
        raise ValueError("precision: hash functions of features are saved in int8 precision only")
    bits = _ENTRY_BITS.get(projection, 8)
    if bits < h.entry_bits:
        try:
            h = h.in_few_bits(bits)
        except ValueError as error:
            raise ValueError(f"projection={projection!r}: {error}") from None
    dtype, classes = encode_labels(model.classes)
    header = {
        "projection": projection,
        "rescore": int(model.rescore),
        "temperature": float(model.temperature),
        "labels": dtype,
        "reject": float(model.reject),
        "unknown_label": np.asarray(model.unknown_label).item(),
        "summary": model.summary,
    }
    arrays = {
        "weights": model.weights,
        "classes": classes,
        "centre": h.centre,
        "scale": h.scale,
        "columns": h.columns,
        "n_columns": None if h.columns is None else np.array([h.n_features], dtype=np.int64),
        **_saved_projection(h, projection),
        **saved_anchors(h.anchors),
        **saved_text(model.text),
        "bias": model.bias,
        "typicality": model.typicality_table,
    }
    tensors = {name: values for name, values in arrays.items() if values is not None}
    content = Content(header, tensors)
    try:
        _checked(content)
    except ModelFileError as error:
        raise ValueError(f"the model cannot be saved: {error}") from None
    write_file(path, _KIND, content)


def load(path: str | os.PathLike[str]) -> PackedModel:
    """Load a model from a file.

    The file may be untrusted: no code in it is executed, and memory use is bounded by its size.
    Neither scikit-learn nor SciPy is imported.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    PackedModel
        With `predict`, `top_classes`, `predict_proba` and `encode`. A model of texts takes a list
        of texts.

    Raises
    ------
    ModelFileError
        If the file is not a model file, is damaged, or has an unsupported version.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import bitclass
    >>> X, y = np.eye(8), np.arange(8) % 4
    >>> classifier = bitclass.BinaryCodeClassifier(n_bits=16, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     classifier.save(os.path.join(folder, "model.safetensors"))
    ...     model = bitclass.load(os.path.join(folder, "model.safetensors"))
    >>> model.predict(X).tolist() == classifier.predict(X).tolist()
    True
    """
    with open_file(path, _KIND) as content:
        model = _model(*_checked(content))
        model.folder = os.path.dirname(os.path.abspath(path))
        return model


# -- Checks of header and arrays, when loading and before saving


def _checked(content: Content) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Fields of the header and arrays by name, decoded."""
    fields = content.fields(**_FIELDS)
    if not _MIN_POSITIVE <= fields["temperature"] < np.inf:
        raise ModelFileError(
            f"temperature must be a positive number, found {fields['temperature']!r}"
        )
    if not 0 <= fields["rescore"] <= _MAX_RESCORED:
        raise ModelFileError(
            f"rescore must be 0 to {_MAX_RESCORED}, found {shown(fields['rescore'])}"
        )
    projection = fields["projection"]
    if projection not in PROJECTION_TYPES:
        raise ModelFileError(
            f"projection must be one of {list(PROJECTION_TYPES)}, found {shown(projection)}"
        )
    chosen = {"projection": _PROJECTIONS[projection], "classes": label_tensor(fields["labels"])}
    units = _INTERCEPT if projection == "float32" else _UNITS
    lengths = content.lengths(_LAYOUT | chosen | units)
    for axis, length in lengths.items():
        if length == 0:
            raise ModelFileError(f"the number of {axis} must not be 0")
    arrays = {name: content.read(name) for name in content.tensors}
    n_features = lengths.get("inputs", lengths["features"])
    if "columns" in arrays:
        n_features = int(arrays["n_columns"][0])
    elif projection in _ENTRY_BITS or "text_ngrams" in arrays:
        raise ModelFileError("tensor 'columns' is missing, which models of wide rows require")
    _check_summary(fields["summary"], n_features)
    check_codes("weights", arrays["weights"], lengths["bits"])
    arrays["classes"] = decode_labels(fields["labels"], arrays["classes"], lengths["classes"])
    if not 0 <= fields["reject"] <= 1:
        raise ModelFileError(f"reject must be from 0 to 1, found {fields['reject']!r}")
    unknown_label = fields["unknown_label"]
    if isinstance(unknown_label, (dict, list)):
        raise ModelFileError(f"unknown_label must be a label, found {shown(unknown_label)}")
    try:
        dtype_with(arrays["classes"], unknown_label)
    except ValueError as error:
        raise ModelFileError(str(error)[:200]) from None
    if projection in _ENTRY_BITS:
        arrays["projection"] = _entries(arrays["projection"], projection, lengths["bits"])
    return fields, arrays


def _check_summary(summary: dict[str, Any], n_features: int) -> None:
    """Check the entries of the summary that prediction uses."""
    names = summary.get("feature_names")
    if names is not None and not (
        isinstance(names, list)
        and len(names) == n_features
        and all(isinstance(name, str) for name in names)
    ):
        raise ModelFileError(f"the summary's 'feature_names' must be {n_features} strings")
    for name in ("parameters", "refinement"):
        if not isinstance(summary.get(name, {}), dict):
            raise ModelFileError(
                f"the summary's {name!r} must be an object, found {shown(summary[name])}"
            )
    if "report" in summary:
        try:
            Report.from_dict(summary["report"])
        except ValueError as error:
            raise ModelFileError(f"the summary's 'report' is invalid: {error}") from None
    if "extractor" in summary:
        extractor_of(summary)


# -- The projection in fewer bits


def _packed_entries(entries: NDArray[np.int8], kind: ProjectionType) -> NDArray[Any]:
    """Entries (d, r) of an integer projection as they are stored."""
    if kind == "1bit":
        return pack(entries)
    if kind == "int8":
        return entries
    padded = np.zeros((len(entries), entries.shape[1] + entries.shape[1] % 2), np.uint8)
    padded[:, : entries.shape[1]] = entries + _FOUR_BIT_ZERO
    packed: NDArray[np.uint8] = padded[:, ::2] | padded[:, 1::2] << 4
    return packed


def _entries(stored: NDArray[np.uint8], kind: ProjectionType, n_bits: int) -> NDArray[np.int8]:
    """The inverse of `_packed_entries`, for checked arrays."""
    if kind == "1bit":
        check_codes("projection", stored, n_bits)
        return unpack(stored, n_bits)
    width = (n_bits + 1) // 2
    if stored.shape[1] != width:
        raise ModelFileError(
            f"tensor 'projection' must have {width} bytes per row, found {stored.shape[1]}"
        )
    halves = np.empty((len(stored), 2 * width), np.uint8)
    np.bitwise_and(stored, 15, out=halves[:, ::2])
    np.right_shift(stored, 4, out=halves[:, 1::2])
    if n_bits % 2 and halves[:, -1].any():
        raise ModelFileError("tensor 'projection' must be 0 in the unused bits")
    if not halves[:, :n_bits].all():
        raise ModelFileError("tensor 'projection' must contain numbers from -7 to 7")
    halves -= np.uint8(_FOUR_BIT_ZERO)  # wraps around below 0
    return np.ascontiguousarray(halves[:, :n_bits]).view(np.int8)


def _saved_projection(h: HashFunction, kind: ProjectionType) -> dict[str, NDArray[Any]]:
    """The arrays that store the hash function."""
    if kind == "float32":
        return {"projection": h.projection, "intercept": h.intercept}
    quantised = h.quantised()
    return {
        "projection": _packed_entries(quantised.weights, kind),
        "column_scale": quantised.steps,
        "thresholds": quantised.thresholds,
    }


def _unscaled(
    scaled: NDArray[Any], column_scale: NDArray[np.float64], scale: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Projection of raw rows, from a projection of standardised rows in units of `column_scale`."""
    projection = np.empty(scaled.shape, dtype=np.float32)
    for start in range(0, len(scaled), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        block = scaled[rows].astype(np.float64) * column_scale
        if scale is not None:
            block /= scale[rows, None]
        with np.errstate(over="ignore"):
            projection[rows] = block
    return projection


def _model(fields: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> PackedModel:
    projection, quantised = arrays["projection"], None
    centre, scale, columns = (arrays.get(name) for name in ("centre", "scale", "columns"))
    if fields["projection"] == "float32":
        intercept = arrays["intercept"]
    else:
        projection = _unscaled(projection, arrays["column_scale"], scale)
        quantised, intercept = _quantised(arrays, projection)
        if not (np.isfinite(projection).all() and (np.abs(intercept) <= _MAX32).all()):
            raise ModelFileError("projection and intercept must be in the range of float32")
    try:
        hash_function = HashFunction(
            projection,
            intercept,
            centre=centre,
            scale=scale,
            anchors=anchors_from(arrays),
            quantised=quantised,
            columns=columns,
            n_features=None if columns is None else int(arrays["n_columns"][0]),
        )
        return PackedModel(
            arrays["classes"],
            arrays["weights"],
            hash_function,
            rescore=fields["rescore"],
            temperature=fields["temperature"],
            summary=fields["summary"],
            text=text_from(arrays, columns, hash_function.n_features),
            bias=arrays.get("bias"),
            typicality=arrays.get("typicality"),
            reject=fields["reject"],
            unknown_label=fields["unknown_label"],
        )
    except ModelFileError:
        raise
    except (TypeError, ValueError) as error:
        # The model and the kernels check their own limits.
        raise ModelFileError(str(error)) from None


def _quantised(
    tensors: dict[str, NDArray[Any]], projection: NDArray[np.float32]
) -> tuple[QuantisedProjection, NDArray[np.float64]]:
    """The saved int8 projection, and the intercept for raw rows."""
    centre, scale = tensors.get("centre"), tensors.get("scale")
    thresholds, steps = tensors["thresholds"], tensors["column_scale"]
    with np.errstate(over="ignore", invalid="ignore"):
        intercept = thresholds * steps
        if centre is not None:
            intercept = intercept - centre.astype(np.float64) @ projection.astype(np.float64)
    if centre is None and scale is None:
        return QuantisedProjection(tensors["projection"], thresholds, None, None, steps), intercept
    n_features = len(projection)
    centre = np.zeros(n_features, np.float32) if centre is None else centre
    scale = np.ones(n_features, np.float32) if scale is None else scale
    inverse = (np.float32(1) / scale).astype(np.float32, copy=False)
    return QuantisedProjection(tensors["projection"], thresholds, centre, inverse, steps), intercept


# -- Kernel anchors, also in files of sums, and texts


def saved_anchors(anchors: RbfAnchors | None) -> dict[str, NDArray[Any]]:
    """Arrays of the anchors by name."""
    if anchors is None:
        return {}
    return {
        "anchors": np.ascontiguousarray(anchors.anchors),
        "anchor_centre": anchors.centre,
        "anchor_scale": anchors.scale,
        "anchor_gamma": np.array([anchors.gamma], dtype=np.float64),
    }


def anchors_from(tensors: Mapping[str, NDArray[Any]]) -> RbfAnchors | None:
    """The anchors in a file whose arrays have been checked; None if it has none."""
    if "anchors" not in tensors:
        return None
    anchors, centre, scale, gamma = (tensors[name] for name in ANCHOR_LAYOUT)
    with np.errstate(over="ignore", invalid="ignore"):
        return RbfAnchors(anchors, centre, scale, float(gamma[0]))


def saved_text(text: NgramFeatures | None) -> dict[str, NDArray[Any]]:
    """Arrays of n-gram features by name, without their columns."""
    if text is None:
        return {}
    assert text.idf is not None
    lengths = [*(text.char_ngrams or (0, 0)), *(text.word_ngrams or (0, 0))]
    return {
        "text_ngrams": np.array(lengths, dtype=np.uint8),
        "text_idf": text.idf.astype(np.float16),
    }


def text_from(
    tensors: Mapping[str, NDArray[Any]], columns: NDArray[Any] | None, n_features: int
) -> NgramFeatures | None:
    """The n-gram features in a file whose arrays have been checked; None if it has none."""
    if "text_ngrams" not in tensors or columns is None:
        return None
    lengths = tensors["text_ngrams"].tolist()
    chars, words = lengths[:2], lengths[2:]
    try:
        return NgramFeatures(
            n_features,
            chars if any(chars) else None,
            words if any(words) else None,
            columns.astype(np.uint32),
            tensors["text_idf"].astype(np.float32),
        )
    except ValueError as error:
        raise ModelFileError(f"invalid text n-grams: {error}") from None
