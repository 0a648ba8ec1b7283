"""The model file: a `PackedModel` on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from bitclass._native import Precision, QuantisedProjection
from bitclass._native.ngrams import NgramFeatures
from bitclass.codes import packed_width
from bitclass.hash_function import (
    MAX_COLUMNS,
    MAX_DISTANCE,
    MAX_GAMMA,
    MIN_GAMMA,
    HashFunction,
    RbfAnchors,
)
from bitclass.model import PackedModel
from bitclass.storage.container import (
    Container,
    Expected,
    ModelFileError,
    Tensor,
    check_layout,
    opened,
    shown,
    tensor_of,
    write,
)
from bitclass.storage.labels import decode_labels, encode_labels, label_tensor

__all__ = [
    "ANCHOR_LAYOUT",
    "PROJECTION_TYPES",
    "ModelHeader",
    "ProjectionType",
    "anchors_from",
    "load",
    "read_header",
    "save",
    "saved_anchors",
]

ProjectionType = Literal["float32", "float16", "int8"]
#: What the projection may be saved in.
PROJECTION_TYPES: tuple[ProjectionType, ...] = get_args(ProjectionType)

_KIND = "model"
_SINCE_VERSION_2 = ("rescore", "steepness")
_PROJECTIONS: dict[str, ProjectionType] = {"F32": "float32", "F16": "float16", "I8": "int8"}

# The intercept, by what the projection is saved in. Scaled projections have their columns in units
# of `column_scale`; that of int8 has its intercept in the same units, as the kernel takes it.
_OF_PROJECTION: dict[ProjectionType, dict[str, Expected]] = {
    "float32": {
        "projection": Expected("F32", ("features", "bits")),
        "intercept": Expected("F64", ("bits",)),
    },
    "float16": {
        "projection": Expected("F16", ("features", "bits")),
        "column_scale": Expected("F64", ("bits",)),
        "intercept": Expected("F64", ("bits",)),
    },
    "int8": {
        "projection": Expected("I8", ("features", "bits")),
        "column_scale": Expected("F64", ("bits",)),
        "thresholds": Expected("F64", ("bits",)),
    },
}
#: The features of the projection are then the anchors, and the rows have the inputs.
ANCHOR_LAYOUT = {
    "anchors": Expected("F32", ("features", "inputs"), required=False),
    "anchor_centre": Expected("F32", ("inputs",), required=False),
    "anchor_scale": Expected("F32", ("inputs",), required=False),
    "anchor_gamma": Expected("F64", ("one",), required=False),
}

_OF_ALL = {
    "weights": Expected("U8", ("classes", "bytes")),
    "centre": Expected("F32", ("features",), required=False),
    "scale": Expected("F32", ("features",), required=False),
    # The features of the projection are then some of those of the rows.
    "columns": Expected("I32", ("features",), required=False),
    "n_columns": Expected("I64", ("one",), required=False),
} | ANCHOR_LAYOUT
#: The columns of hashed n-grams are the features of the rows.
_TEXT_LAYOUT = {
    "text_ngrams": Expected("U8", ("n-gram lengths",), required=False),
    "text_columns": Expected("U32", ("text columns",), required=False),
    "text_idf": Expected("F32", ("text columns",), required=False),
}
_OF_ALL |= _TEXT_LAYOUT

# A million bits, the most there can be, divided by this is still a finite number.
_MIN_POSITIVE = 1e-300
MAX_RESCORED = 1 << 40


@dataclass(frozen=True)
class ModelHeader:
    """The header of a model file."""

    version: int  # of the format
    n_classes: int
    n_features: int
    n_bits: int
    labels: str  # their type as NumPy writes it
    projection: ProjectionType  # what the projection was saved in
    precision: Precision  # what codes are computed in
    rescore: int  # how many nearest classes are rescored
    steepness: float
    temperature: float
    summary: dict[str, Any]  # how the model was trained
    tensors: dict[str, Tensor]
    size: int  # bytes of the file


def save(
    path: str | os.PathLike[str],
    model: PackedModel,
    *,
    projection: ProjectionType | None = None,
) -> None:
    """Write a model to a file, whole or not at all.

    Parameters
    ----------
    path : path of the file, by custom ``*.safetensors``; a file that is there is replaced
    model : PackedModel
    projection : {"float32", "float16", "int8"}, optional
        What to save the projection in. "float32" changes nothing at all; "float16" takes half the
        space; "int8" takes a quarter, and changes nothing for a model that predicts in int8. By
        default "int8" for such a model of wide rows, "float32" for all others.

    Raises
    ------
    ValueError
        If a file cannot hold the model; nothing is written then.
    OSError
        If the file cannot be written; what was there before is there still.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from bitclass.hash_function import HashFunction, RbfAnchors
    >>> model = PackedModel(
    ...     classes=np.array(["left", "right"]),
    ...     weights=np.array([[0], [1]], dtype=np.uint8),
    ...     hash_function=HashFunction(np.ones((1, 1), dtype=np.float32), np.zeros(1)),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(os.path.join(folder, "sides.safetensors"), model)
    ...     read = load(os.path.join(folder, "sides.safetensors"))
    >>> read.predict(np.array([[-3.0], [2.0]]))
    array(['left', 'right'], dtype='<U5')
    """
    if projection is None:
        is_small = model.hash_function.columns is None or model.hash_function.precision != "int8"
        projection = "float32" if is_small else "int8"
    if projection not in PROJECTION_TYPES:
        raise ValueError(
            f"projection must be one of {list(PROJECTION_TYPES)}, found {projection!r}"
        )
    dtype, classes = encode_labels(model.classes)
    tensors = {"weights": model.weights, "classes": classes}
    hash_function = model.hash_function
    for name in ("centre", "scale"):
        if getattr(hash_function, name) is not None:
            tensors[name] = getattr(hash_function, name)
    if hash_function.columns is not None:
        tensors["columns"] = hash_function.columns
        tensors["n_columns"] = np.array([hash_function.n_features], dtype=np.int64)
    tensors |= _saved_projection(hash_function, projection) | saved_anchors(hash_function.anchors)
    tensors |= _saved_text(model.text)
    layout = _OF_ALL | _OF_PROJECTION[projection] | {"classes": label_tensor(dtype)}
    try:
        _check_lengths(
            check_layout({name: tensor_of(values) for name, values in tensors.items()}, layout)
        )
        _check_values(tensors, model.n_bits)
        _check_positive("temperature", model.temperature)
        _check_positive("steepness", model.steepness)
        _check_rescore(model.rescore)
    except ModelFileError as error:
        raise ValueError(f"the model cannot be saved: {error}") from None
    header = {
        "precision": hash_function.precision,
        "rescore": int(model.rescore),
        "steepness": float(model.steepness),
        "temperature": float(model.temperature),
        "labels": dtype,
        "summary": model.summary,
    }
    write(path, _KIND, header, tensors)


def load(path: str | os.PathLike[str], *, memory_map: bool = False) -> PackedModel:
    """Read a model from a file.

    The file need not be trusted: nothing in it is run, and no more memory is taken than its size
    justifies. Neither scikit-learn nor SciPy is imported.

    Parameters
    ----------
    path : path of the file
    memory_map : bool, default=False
        Whether weights and projection stay in the file, so that processes that load it share their
        pages. The kernels hold copies in a layout of their own, which only processes forked after
        loading share. A file that is written to in place while it is mapped can end the process;
        `save` replaces files as a whole, which is safe.

    Returns
    -------
    PackedModel
        With `predict`, `top_classes`, `predict_proba` and `encode`.

    Raises
    ------
    ModelFileError
        If this is not a model file, or damaged, or of a version that is not understood.
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
    with opened(path, _KIND) as container:
        header = _header(container)
        tensors = {name: container.read(name, memory_map=memory_map) for name in container.tensors}
        _check_values(tensors, header.n_bits)
        return _model(header, tensors)


def read_header(path: str | os.PathLike[str]) -> ModelHeader:
    """Read the header of a model file, without its arrays.

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    ModelHeader

    Raises
    ------
    ModelFileError
        If this is not a model file, or its header damaged, or of a version not understood.
    OSError
        If the file cannot be read.
    """
    with opened(path, _KIND) as container:
        return _header(container)


# -------------------------------------------------------------------------------------------------
# The projection in fewer bits
# -------------------------------------------------------------------------------------------------


def _saved_projection(h: HashFunction, kind: ProjectionType) -> dict[str, NDArray[Any]]:
    """Arrays of the hash function."""
    if kind == "float32":
        return {"projection": h.projection, "intercept": h.intercept}
    if kind == "int8":
        quantised = h.quantised
        return {
            "projection": quantised.weights,
            "column_scale": quantised.steps,
            "thresholds": quantised.thresholds,
        }
    standardised = h.projection.astype(np.float64)
    if h.scale is not None:
        standardised *= h.scale[:, None]
    largest = np.abs(standardised).max(axis=0)
    column_scale = np.where(largest > 0, largest, 1.0)
    rounded = (standardised / column_scale).astype(np.float16)
    intercept = h.intercept
    if h.centre is not None:
        # Rounding the projection must not move the codes of the rows in the middle.
        lost = h.projection - _unscaled(rounded, column_scale, h.scale).astype(np.float64)
        intercept = intercept + h.centre.astype(np.float64) @ lost
    return {"projection": rounded, "column_scale": column_scale, "intercept": intercept}


def _unscaled(
    scaled: NDArray[Any], column_scale: NDArray[np.float64], scale: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Projection for rows as they are, from that for standardised rows in units of its columns."""
    projection = scaled.astype(np.float64) * column_scale
    if scale is not None:
        projection /= scale[:, None]
    with np.errstate(over="ignore"):
        return projection.astype(np.float32)


def _model(header: ModelHeader, tensors: dict[str, NDArray[Any]]) -> PackedModel:
    projection = tensors["projection"]
    intercept = tensors.get("intercept")
    centre, scale = tensors.get("centre"), tensors.get("scale")
    quantised = None
    if header.projection != "float32":
        projection = _unscaled(projection, tensors["column_scale"], scale)
    if header.projection == "int8":
        quantised, intercept = _quantised(tensors, projection)
        _check_intercept(intercept)
    assert intercept is not None
    try:
        hash_function = HashFunction(
            projection,
            intercept,
            centre=centre,
            scale=scale,
            precision=header.precision,
            anchors=anchors_from(tensors),
            quantised=quantised,
            columns=tensors.get("columns"),
            n_features=header.n_features if "columns" in tensors else None,
        )
        labels = decode_labels(header.labels, tensors["classes"], header.n_classes)
        return PackedModel(
            labels,
            tensors["weights"],
            hash_function,
            rescore=header.rescore,
            steepness=header.steepness,
            temperature=header.temperature,
            summary=header.summary,
            text=_text_from(tensors, header.n_features),
        )
    except ModelFileError:
        raise
    except (TypeError, ValueError) as error:
        # The limits of the kernels: they say them better than a list of ours would.
        raise ModelFileError(str(error)) from None


def _quantised(
    tensors: dict[str, NDArray[Any]], projection: NDArray[np.float32]
) -> tuple[QuantisedProjection, NDArray[np.float64]]:
    """The hash function in integers as it was saved, and its intercept for rows as they are."""
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


# -------------------------------------------------------------------------------------------------
# Kernel anchors: four arrays, or none; statistics files have them too
# -------------------------------------------------------------------------------------------------


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


def _is_complete(tensors: Mapping[str, NDArray[Any]], group: Mapping[str, Expected]) -> bool:
    """Whether a file has the tensors of a group; some of them without the others are refused."""
    there = [name for name in group if name in tensors]
    missing = [name for name in group if name not in tensors]
    if there and missing:
        raise ModelFileError(f"tensor {missing[0]!r} is missing beside {there[0]!r}")
    return bool(there)


def anchors_from(tensors: Mapping[str, NDArray[Any]]) -> RbfAnchors | None:
    """Anchors of a file whose layout has been checked, None where it has none."""
    if not _is_complete(tensors, ANCHOR_LAYOUT):
        return None
    anchors, centre, scale, gamma = (tensors[name] for name in ANCHOR_LAYOUT)
    for name, values in zip(ANCHOR_LAYOUT, (anchors, centre, scale, gamma), strict=True):
        if not np.isfinite(values).all():
            raise ModelFileError(f"tensor {name!r} must hold finite numbers only")
    if not (scale >= np.finfo(np.float32).tiny).all():
        raise ModelFileError("tensor 'anchor_scale' must hold positive numbers only")
    if gamma.shape != (1,) or not MIN_GAMMA <= gamma[0] <= MAX_GAMMA:
        raise ModelFileError("tensor 'anchor_gamma' must hold one number from 1e-30 to 1e30")
    if not (np.abs(anchors) <= MAX_DISTANCE).all():
        raise ModelFileError("tensor 'anchors' must hold numbers from -1e9 to 1e9")
    with np.errstate(over="ignore", invalid="ignore"):
        return RbfAnchors(anchors, centre, scale, float(gamma[0]))


# -------------------------------------------------------------------------------------------------
# Texts: three arrays, or none
# -------------------------------------------------------------------------------------------------


def _saved_text(text: NgramFeatures | None) -> dict[str, NDArray[Any]]:
    """Arrays by name."""
    if text is None:
        return {}
    columns, idf = text.columns, text.idf
    if columns is None or idf is None:
        columns = np.arange(text.n_columns, dtype=np.uint32)
        idf = np.ones(text.n_columns, dtype=np.float32)
    lengths = [*(text.char_ngrams or (0, 0)), *(text.word_ngrams or (0, 0))]
    return {
        "text_ngrams": np.array(lengths, dtype=np.uint8),
        "text_columns": columns,
        "text_idf": idf,
    }


def _text_from(tensors: Mapping[str, NDArray[Any]], n_features: int) -> NgramFeatures | None:
    """What turns texts into rows, of a file whose layout has been checked; None if nothing does."""
    if not _is_complete(tensors, _TEXT_LAYOUT):
        return None
    lengths = tensors["text_ngrams"].tolist()
    if len(lengths) != 4:
        raise ModelFileError(f"tensor 'text_ngrams' must hold 4 numbers, found {len(lengths)}")
    chars, words = lengths[:2], lengths[2:]
    try:
        return NgramFeatures(
            n_features,
            chars if any(chars) else None,
            words if any(words) else None,
            tensors["text_columns"],
            tensors["text_idf"],
        )
    except ValueError as error:
        raise ModelFileError(f"the n-grams of texts cannot be used: {error}") from None


# -------------------------------------------------------------------------------------------------
# Checks
# -------------------------------------------------------------------------------------------------


def _header(container: Container) -> ModelHeader:
    """Check all that can be checked before the arrays are read."""
    container.refuse_other_fields(
        "precision",
        "temperature",
        "labels",
        "summary",
        *(_SINCE_VERSION_2 if container.version >= 2 else ()),
    )
    precision = container.field("precision", str)
    if precision not in get_args(Precision):
        raise ModelFileError(f"precision must be one of {list(get_args(Precision))}")
    temperature = container.field("temperature", float)
    _check_positive("temperature", temperature)
    rescore, steepness = 0, 1.0
    if container.version >= 2:
        rescore, steepness = container.field("rescore", int), container.field("steepness", float)
        _check_rescore(rescore)
        _check_positive("steepness", steepness)
    labels = container.field("labels", str)
    summary: dict[str, Any] = container.field("summary", dict)
    names = summary.get("feature_names")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise ModelFileError("the summary's 'feature_names' must be a list of texts")
    saved = container.tensors.get("projection")
    if saved is None or saved.type not in _PROJECTIONS:
        raise ModelFileError(f"tensor 'projection' must be one of {list(_PROJECTIONS)}")
    projection = _PROJECTIONS[saved.type]
    layout = _OF_ALL | _OF_PROJECTION[projection] | {"classes": label_tensor(labels)}
    lengths = check_layout(container.tensors, layout)
    _check_lengths(lengths)
    n_features = lengths.get("inputs", lengths["features"])
    if ("columns" in container.tensors) != ("n_columns" in container.tensors):
        raise ModelFileError("tensors 'columns' and 'n_columns' must come together")
    if "columns" in container.tensors:
        found = container.read("n_columns")
        if found.shape != (1,) or not lengths["features"] <= found[0] <= MAX_COLUMNS:
            raise ModelFileError(
                f"tensor 'n_columns' must hold one number from {lengths['features']}, the number "
                f"of columns, to {MAX_COLUMNS}"
            )
        n_features = int(found[0])
    if names is not None and len(names) != n_features:
        raise ModelFileError(
            f"the summary's 'feature_names' must be {n_features}, found {len(names)}"
        )
    return ModelHeader(
        version=container.version,
        n_classes=lengths["classes"],
        n_features=n_features,
        n_bits=lengths["bits"],
        labels=labels,
        projection=projection,
        precision=cast(Precision, precision),
        rescore=rescore,
        steepness=steepness,
        temperature=temperature,
        summary=summary,
        tensors=container.tensors,
        size=container.size,
    )


def _check_lengths(lengths: dict[str, int]) -> None:
    for axis, length in lengths.items():
        if length == 0:
            raise ModelFileError(f"the number of {axis} must not be 0")
    width = packed_width(lengths["bits"])
    if lengths["bytes"] != width:
        raise ModelFileError(
            f"tensor 'weights' must have {width} bytes per class for the {lengths['bits']} bits of "
            f"the projection, found {lengths['bytes']}"
        )


def _check_positive(name: str, value: float) -> None:
    if not _MIN_POSITIVE <= value < np.inf:
        raise ModelFileError(f"{name} must be a positive number, found {value!r}")


def _check_rescore(rescore: int) -> None:
    if not 0 <= rescore <= MAX_RESCORED:
        raise ModelFileError(f"rescore must be 0 to {MAX_RESCORED}, found {shown(rescore)}")


def _check_values(tensors: dict[str, NDArray[Any]], n_bits: int) -> None:
    """Check what must hold of the numbers for a prediction to make sense."""
    if n_bits % 8 and (tensors["weights"][:, -1] >> (n_bits % 8)).any():
        raise ModelFileError(f"tensor 'weights' must be 0 in the bits past the last, {n_bits}")
    for name in ("projection", "intercept", "thresholds", "column_scale", "centre", "scale"):
        values = tensors.get(name)
        if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ModelFileError(f"tensor {name!r} must hold finite numbers only")
    for name in ("column_scale", "scale"):
        # Smaller numbers would have no finite inverse.
        values = tensors.get(name)
        if values is not None and not (values >= np.finfo(values.dtype).tiny).all():
            raise ModelFileError(f"tensor {name!r} must hold positive numbers only")
    if "intercept" in tensors:
        _check_intercept(tensors["intercept"])
    projection = tensors["projection"]
    if projection.dtype == np.int8 and (projection == -128).any():
        raise ModelFileError("tensor 'projection' must hold integers from -127 to 127")


def _check_intercept(intercept: NDArray[np.float64]) -> None:
    if not (np.abs(intercept) <= np.finfo(np.float32).max).all():
        raise ModelFileError("the intercept must hold numbers that float32 can hold")
