"""Requests and responses in the Open Inference Protocol, version 2, and in plain JSON.

A tensor of the Open Inference Protocol is a JSON object that contains its values as "data", or the
values follow the JSON as bytes. The header Inference-Header-Content-Length is the length of the
JSON.
"""

from __future__ import annotations

import base64
import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from bitclass.serving.batching import Prediction
from bitclass.serving.served_model import ServedModel, label_value

__all__ = [
    "Query",
    "RequestError",
    "infer_answer",
    "metadata",
    "parse_infer",
    "parse_number",
    "parse_plain",
    "plain_answer",
]

_TYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
    **{f"INT{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"FP{8 * n}": np.dtype(f"<f{n}") for n in (2, 4, 8)},
}
_OUTPUTS = ("label", "top_labels", "top_probabilities", "top_distances")
_DEFAULT_TOP = 5
_JSON_NAMES = {dict: "a JSON object", list: "a list", str: "a string", bool: "true or false"}


class RequestError(HTTPException):
    """An error in a request, answered with status 400 and the message."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message)


@dataclass(frozen=True)
class Query:
    """A parsed request.

    Attributes
    ----------
    kind : {"rows", "texts", "images"}
    values : ndarray of shape (n, d), list of n str, or list of n bytes
    top : int
        Number of best classes; 0 for only the label.
    outputs : dict of str to bool
        Names of the tensors to return, and whether in binary.
    id : str or None
    """

    kind: str
    values: Any
    top: int
    outputs: dict[str, bool] = field(default_factory=dict)
    id: str | None = None


def parse_plain(
    body: bytes, content_type: str, top: str | None, served: ServedModel, max_rows: int
) -> Query:
    """Parse a request to `/predict`: an image file, or JSON."""
    n_best = 0 if top is None else _check_top(parse_number(top, "top"), served)
    if content_type.startswith("image/"):
        _check_kind("images", served)
        return Query("images", [body], n_best)
    given = _parse_json(body)
    if len(given) != 1:
        raise RequestError(
            f"the body must have one key, {' or '.join(served.inputs)}, found "
            f"{', '.join(given)!r:.80}"
        )
    ((kind, values),) = given.items()
    _check_kind(kind, served)
    if not isinstance(values, list) or not 1 <= len(values) <= max_rows:
        found = f"{len(values)}" if isinstance(values, list) else f"{values!r:.80}"
        raise RequestError(f"{kind} must be a list of 1 to {max_rows} elements, found {found}")
    if kind != "rows":
        if not all(isinstance(value, str) for value in values):
            raise RequestError(f"{kind} must be a list of strings")
        return Query(kind, _decoded(kind, values), n_best)
    try:
        X = np.asarray(values)
    except ValueError:
        raise RequestError("rows must be lists of numbers of the same length") from None
    if X.dtype.kind not in "biuf":
        raise RequestError("rows must be lists of numbers")
    n_features = served.model.n_features
    if X.shape[1:] != (n_features,):
        raise RequestError(f"rows must have shape (n, {n_features}), found {X.shape}")
    return Query(kind, X.astype(np.float64, copy=False), n_best)


def plain_answer(served: ServedModel, prediction: Prediction) -> bytes:
    """Labels, and the best classes if requested, as JSON."""
    labels, *numbers = prediction
    answer: dict[str, Any] = {
        "model": served.name,
        "labels": [label_value(label) for label in labels[:, 0]],
    }
    if numbers:
        answer["top"] = [
            [
                {"label": label_value(label), "distance": distance, "probability": probability}
                for label, distance, probability in zip(*row, strict=True)
            ]
            for row in zip(labels, *(each.tolist() for each in numbers), strict=True)
        ]
    return orjson.dumps(answer)


def parse_infer(body: bytes, json_length: str | None, served: ServedModel, max_rows: int) -> Query:
    """Parse a request to `/v2/models/NAME/infer`.

    `json_length` is the value of the header Inference-Header-Content-Length.
    """
    end = len(body)
    if json_length is not None:
        end = parse_number(json_length, "Inference-Header-Content-Length")
        if end > len(body):
            raise RequestError(
                f"Inference-Header-Content-Length must be at most the size of the body, "
                f"{len(body)}, found {end}"
            )
    request = _parse_json(memoryview(body)[:end])
    parameters = _checked(request.get("parameters", {}), dict, "parameters")
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        expected = " or ".join(served.inputs)
        raise RequestError(f"inputs must be a list of one tensor: {expected}")
    tensor = _checked(inputs[0], dict, "inputs[0]")
    kind = tensor.get("name")
    _check_kind(kind, served)
    values = _values(tensor, memoryview(body)[end:], served, max_rows)
    outputs = _outputs(request, parameters)
    top = 0
    if outputs.keys() != {"label"}:
        default = min(_DEFAULT_TOP, len(served.model.classes))
        top = _check_top(parameters.get("top", default), served)
    identifier = request.get("id")
    if identifier is not None:
        _checked(identifier, str, "id")
    return Query(str(kind), values, top, outputs, identifier)


def parse_number(text: str, name: str) -> int:
    """Parse a number in a URL or header."""
    if not re.fullmatch(r"[0-9]{1,11}", text):
        raise RequestError(f"{name} must be a number, found {text!r:.80}")
    return int(text)


def _parse_json(content: bytes | memoryview) -> Any:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body must be JSON: {error}") from None
    return _checked(value, dict, "the body")


def _checked(value: Any, expected: type, name: str) -> Any:
    if not isinstance(value, expected):
        raise RequestError(f"{name} must be {_JSON_NAMES[expected]}, found {value!r:.80}")
    return value


def _check_kind(kind: Any, served: ServedModel) -> None:
    if kind not in served.inputs:
        expected = " or ".join(served.inputs)
        raise RequestError(f"model {served.name} takes {expected}, found {kind!r:.80}")


def _check_top(top: Any, served: ServedModel) -> int:
    n_classes = len(served.model.classes)
    if type(top) is not int or not 1 <= top <= n_classes:
        raise RequestError(
            f"top must be an integer from 1 to the number of classes, {n_classes}, "
            f"found {top!r:.80}"
        )
    return top


def _outputs(request: dict[str, Any], parameters: dict[str, Any]) -> dict[str, bool]:
    """Names of the tensors to return, and whether in binary."""
    name = "binary_data_output"
    binary = _checked(parameters.get(name, False), bool, f"parameter {name}")
    wanted = request.get("outputs")
    if wanted is None or wanted == []:
        return dict.fromkeys(_OUTPUTS if "top" in parameters else _OUTPUTS[:1], binary)
    outputs = {}
    for i, each in enumerate(_checked(wanted, list, "outputs")):
        output = _checked(each, dict, f"outputs[{i}]")
        name = output.get("name")
        if not isinstance(name, str) or name not in _OUTPUTS:
            expected = ", ".join(_OUTPUTS)
            raise RequestError(f"outputs[{i}] must be one of {expected}, found {name!r:.80}")
        about = _checked(output.get("parameters", {}), dict, f"parameters of output {name}")
        outputs[name] = _checked(about.get("binary_data", binary), bool, "parameter binary_data")
    return outputs


def _values(tensor: dict[str, Any], rest: memoryview, served: ServedModel, max_rows: int) -> Any:
    """Values of the input tensor; if it is binary, they are the `rest` of the body."""
    kind, datatype, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
    is_rows = kind == "rows"
    types = list(_TYPES) if is_rows else ["BYTES"]
    if datatype not in types:
        expected = ", ".join(types)
        raise RequestError(f"datatype of {kind} must be one of {expected}, found {datatype!r:.80}")
    tails = [[served.model.n_features]] if is_rows else [[], [1]]
    if (
        not isinstance(shape, list)
        or not all(type(size) is int for size in shape)
        or not shape
        or shape[1:] not in tails
        or not 1 <= shape[0] <= max_rows
    ):
        expected = ", ".join(["n", *map(str, tails[0])])
        raise RequestError(
            f"shape of {kind} must be [{expected}] with n from 1 to {max_rows}, found {shape!r:.80}"
        )
    about = _checked(tensor.get("parameters", {}), dict, f"parameters of {kind}")
    size = about.get("binary_data_size")
    if size is None:
        if len(rest):
            raise RequestError(f"{len(rest)} bytes follow the JSON, but no tensor is binary")
        data = _checked(tensor.get("data"), list, f"data of {kind}")
        return _numbers(data, datatype, shape) if is_rows else _strings(data, shape[0], kind)
    if type(size) is not int or size != len(rest) or "data" in tensor:
        raise RequestError(
            f"binary_data_size of {kind} must be the number of bytes after the JSON, {len(rest)}, "
            f"without data, found {size!r:.80}"
        )
    if not is_rows:
        return _byte_strings(rest, shape[0], kind)
    dtype = _TYPES[datatype]
    n_bytes = math.prod(shape) * dtype.itemsize
    if size != n_bytes:
        raise RequestError(
            f"{kind} of shape {shape} and datatype {datatype} must have {n_bytes} bytes, "
            f"found {size}"
        )
    return np.frombuffer(rest, dtype).reshape(shape)


def _numbers(data: list[Any], datatype: str, shape: list[int]) -> NDArray[Any]:
    """Convert numbers from a flat or nested JSON list."""
    dtype = _TYPES[datatype]
    try:
        values = np.asarray(data)
        if values.dtype.kind not in "biuf" or (values.dtype.kind == "f" and dtype.kind != "f"):
            raise ValueError(f"found values of type {values.dtype}")
        if values.size != math.prod(shape):
            raise ValueError(f"found {values.size} values for shape {shape}")
        with np.errstate(over="ignore"):
            converted = values.astype(dtype).reshape(shape)
        if dtype.kind in "iu" and not np.array_equal(converted.ravel(), values.ravel()):
            raise ValueError("a value is out of range")
        return converted
    except ValueError as error:
        raise RequestError(f"data of rows must be numbers of type {datatype}: {error}") from None


def _strings(data: list[Any], n: int, kind: str) -> list[Any]:
    """Convert texts or images from a flat or nested JSON list."""
    if all(isinstance(each, list) for each in data):
        data = [each for part in data for each in part]
    if len(data) != n or not all(isinstance(each, str) for each in data):
        raise RequestError(f"data of {kind} must be a list of {n} strings, found {data!r:.80}")
    return _decoded(kind, data)


def _byte_strings(content: memoryview, n: int, kind: str) -> list[Any]:
    """Elements of a binary tensor of type BYTES, each preceded by its length in four bytes."""
    values: list[bytes] = []
    offset = 0
    while offset < len(content) and len(values) < n:
        length = int.from_bytes(content[offset : offset + 4], "little")
        values.append(bytes(content[offset + 4 : offset + 4 + length]))
        offset += 4 + length
    if offset != len(content) or len(values) != n:
        raise RequestError(
            f"{kind} must be {n} elements, each preceded by its length in 4 bytes; the lengths do "
            f"not add up to the {len(content)} bytes found"
        )
    return values if kind == "images" else _decoded(kind, values)


def _decoded(kind: str, values: list[Any]) -> list[Any]:
    """Decode images from base64, or texts from UTF-8 if they are bytes."""
    decoded: list[Any] = []
    for i, value in enumerate(values):
        try:
            if kind == "images":
                decoded.append(base64.b64decode(value, validate=True))
            else:
                decoded.append(value.decode() if isinstance(value, bytes) else value)
        except ValueError as error:
            expected = "base64" if kind == "images" else "UTF-8"
            raise RequestError(f"{kind[:-1]} {i} must be {expected}: {error}") from None
    return decoded


def metadata(served: ServedModel) -> dict[str, Any]:
    """Names, types and shapes of a model's tensors: the response to `/v2/models/NAME`."""
    rows = {"name": "rows", "datatype": "FP32", "shape": [-1, served.model.n_features]}
    return {
        "name": served.name,
        "platform": "bitclass",
        "inputs": [
            rows if kind == "rows" else {"name": kind, "datatype": "BYTES", "shape": [-1]}
            for kind in served.inputs
        ],
        "outputs": [
            {"name": name, "datatype": kind, "shape": [-1] if name == "label" else [-1, -1]}
            for name, kind in _output_types(served).items()
        ],
    }


def _output_types(served: ServedModel) -> dict[str, str]:
    label = "INT64" if served.model.classes.dtype.kind == "i" else "BYTES"
    return dict(zip(_OUTPUTS, (label, label, "FP64", "INT32"), strict=True))


def infer_answer(
    query: Query, served: ServedModel, prediction: Prediction
) -> tuple[bytes, dict[str, str]]:
    """Content and headers of the response to `/v2/models/NAME/infer`."""
    names = ("top_labels", "top_distances", "top_probabilities")
    values = {"label": prediction[0][:, 0]} | dict(zip(names, prediction, strict=False))
    types = _output_types(served)
    tensors, blobs = [], []
    for name, binary in query.outputs.items():
        array, datatype = values[name], types[name]
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if binary:
            blob = _to_bytes(array, datatype)
            tensor["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        elif datatype == "BYTES":
            tensor["data"] = [str(label_value(each)) for each in array.ravel()]
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    answer: dict[str, Any] = {"model_name": served.name, "outputs": tensors}
    if query.id is not None:
        answer["id"] = query.id
    head = orjson.dumps(answer)
    if not blobs:
        return head, {"content-type": "application/json"}
    return b"".join([head, *blobs]), {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(head)),
    }


def _to_bytes(array: NDArray[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        return np.ascontiguousarray(array, _TYPES[datatype]).tobytes()
    parts = []
    for label in array.ravel():
        content = str(label_value(label)).encode()
        parts += [len(content).to_bytes(4, "little"), content]
    return b"".join(parts)
