"""Requests and responses in the Open Inference Protocol, version 2, and in plain JSON.

A tensor of the Open Inference Protocol is a JSON object that contains its values as "data", or the
values follow the JSON as bytes. The header Inference-Header-Content-Length is the length of the
JSON.
"""

from __future__ import annotations

import base64
import math
import re
import reprlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from bitclass.model import TopClasses
from bitclass.serving.limits import Limits
from bitclass.serving.models import ServedModel
from bitclass.serving.page import label_value

_TYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
    **{f"INT{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"FP{8 * n}": np.dtype(f"<f{n}") for n in (2, 4, 8)},
}
# Python types of the JSON values of a tensor, by NumPy's kind of type.
_VALUES: dict[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}}
_OUTPUTS = ("label", "top_labels", "top_probabilities", "top_distances")
_REJECTION = ("typicality", "rejected")
_DEFAULT_TOP = 5
_JSON_NAMES = {dict: "a JSON object", list: "a list", str: "a string", bool: "true or false"}
# Objects and lists take more memory than numbers, and a valid request has few of them.
_MAX_BRACKETS = 100_000
# As objects, the best classes of a request would take far more memory than as text.
_OBJECTS_AT_ONCE = 1000
# Distance and probability of a class, as numbers and in JSON, with the names of the entries.
_BYTES_PER_CLASS = 80


def shown(value: Any) -> str:
    """A value of a request in a message; a long one is not copied for it.

    Examples
    --------
    >>> shown("x" * 10**6)
    "'xxxxxxxxxxxx...xxxxxxxxxxxxx'"
    """
    return reprlib.repr(value)[:80]


class RequestError(HTTPException):
    """An error in a request, answered with status 400 and the message."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message)


@dataclass(frozen=True)
class Query:
    """A parsed request."""

    kind: str  # "rows", "texts" or "images"
    values: Any  # (n, d), list of n str, or list of n bytes
    top: int  # number of best classes; 0 for only the label
    reject: float | None = None  # share of known rows that may be; None without typicality
    outputs: dict[str, bool] = field(default_factory=dict)  # names, and whether in binary
    id: str | None = None

    def answer_bytes(self, served: ServedModel) -> int:
        """About the size of the prediction, and of the answer that is made of it."""
        return len(self.values) * max(1, self.top) * (served.label_bytes + _BYTES_PER_CLASS)


def parse_plain(
    body: bytearray,
    content_type: str,
    top: str | None,
    reject: str | None,
    served: ServedModel,
    limits: Limits,
) -> Query:
    """Parse a request to `/predict`: an image file, or JSON."""
    n_best = 0 if top is None else _check_top(parse_number(top, "top"), served)
    share = (
        (served.model.reject or None)
        if reject is None
        else _check_reject(_parse_share(reject), served)
    )
    if content_type.startswith("image/"):
        _check_kind("images", served)
        return Query("images", [bytes(body)], n_best, share)
    given = _parse_json(body, limits)
    if len(given) != 1:
        raise RequestError(
            f"the body must have one key, {' or '.join(served.inputs)}, found "
            f"{shown(', '.join(given))}"
        )
    ((kind, data),) = given.items()
    _check_kind(kind, served)
    shape = [len(_checked(data, list, kind))]
    tensor = {"name": kind, "datatype": "BYTES", "shape": shape, "data": data}
    if kind == "rows":
        tensor |= {"datatype": "FP64", "shape": [*shape, served.model.n_features]}
    values = _values(tensor, memoryview(b""), served, limits)
    query = Query(kind, values, n_best, share)
    _check_size(query, served, limits)
    return query


def plain_answer(served: ServedModel, query: Query, prediction: TopClasses) -> bytes:
    """Labels, and what else was requested, as JSON."""
    labels, distances, probabilities, typicality = prediction
    best: list[Any] = [label_value(label) for label in labels[:, 0]]
    answer: dict[str, Any] = {"model": served.name, "labels": best}
    if typicality is not None and query.reject is not None:
        accepted = (typicality >= query.reject).tolist()
        unknown = getattr(served.model, "unknown_label", None)
        answer["labels"] = [
            label if good else unknown for label, good in zip(best, accepted, strict=True)
        ]
        answer["typicality"] = typicality.tolist()
    if distances is not None and probabilities is not None:
        parts = [orjson.dumps(answer)[:-1], b',"top":[[']
        for row in zip(labels, distances, probabilities, strict=True):
            for start in range(0, len(row[0]), _OBJECTS_AT_ONCE):
                found = (values[start : start + _OBJECTS_AT_ONCE].tolist() for values in row[1:])
                some = zip(row[0][start : start + _OBJECTS_AT_ONCE], *found, strict=True)
                best = [
                    {"label": label_value(label), "distance": distance, "probability": share}
                    for label, distance, share in some
                ]
                parts += [orjson.dumps(best)[1:-1], b","]
            parts[-1] = b"],["
        parts[-1] = b"]]}"
        return b"".join(parts)
    return orjson.dumps(answer)


def parse_infer(
    body: bytearray, json_length: str | None, served: ServedModel, limits: Limits
) -> Query:
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
    request = _parse_json(body if json_length is None else body[:end], limits)
    parameters = _checked(request.get("parameters", {}), dict, "parameters")
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        expected = " or ".join(served.inputs)
        raise RequestError(f"inputs must be a list of one tensor: {expected}")
    tensor = _checked(inputs[0], dict, "inputs[0]")
    kind = tensor.get("name")
    _check_kind(kind, served)
    if served.model.reject:
        parameters = {"reject": served.model.reject, **parameters}
    outputs = _outputs(request, parameters)
    top, share = 0, None
    if outputs.keys() & set(_OUTPUTS[1:]):
        default = min(_DEFAULT_TOP, len(served.model.classes))
        top = _check_top(parameters.get("top", default), served)
    if outputs.keys() & set(_REJECTION):
        share = _check_reject(parameters.get("reject", 0), served)
    values = _values(tensor, memoryview(body)[end:], served, limits)
    identifier = request.get("id")
    if identifier is not None:
        _checked(identifier, str, "id")
    query = Query(str(kind), values, top, share, outputs, identifier)
    _check_size(query, served, limits)
    return query


def parse_number(text: str, name: str) -> int:
    """Parse a number in a URL or header."""
    if not re.fullmatch(r"[0-9]{1,11}", text):
        raise RequestError(f"{name} must be a number, found {shown(text)}")
    return int(text)


def _parse_share(text: str) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,20}", text):
        raise RequestError(f"reject must be a number from 0 to 1, found {shown(text)}")
    return float(text)


def _parse_json(content: bytearray, limits: Limits) -> Any:
    if (
        len(content) > limits.json_bytes
        or _count(content, b",") >= limits.json_values
        or _count(content, b"[") + _count(content, b"{") > _MAX_BRACKETS
    ):
        raise HTTPException(
            413,
            f"JSON must have at most {limits.json_bytes} bytes with {limits.json_values} values in "
            f"{_MAX_BRACKETS} lists; send less at once, a binary tensor, or an image file",
        )
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body must be JSON: {error}") from None
    return _checked(value, dict, "the body")


def _count(content: bytearray, byte: bytes) -> int:
    """How often a byte occurs; several times as fast as `count` where it occurs often."""
    return int(np.count_nonzero(np.frombuffer(content, np.uint8) == byte[0]))


def _checked(value: Any, expected: type, name: str) -> Any:
    if not isinstance(value, expected):
        raise RequestError(f"{name} must be {_JSON_NAMES[expected]}, found {shown(value)}")
    return value


def _check_kind(kind: Any, served: ServedModel) -> None:
    if kind not in served.inputs:
        expected = " or ".join(served.inputs)
        raise RequestError(f"model {served.name} takes {expected}, found {shown(kind)}")


def _check_top(top: Any, served: ServedModel) -> int:
    n_classes = len(served.model.classes)
    if type(top) is not int or not 1 <= top <= n_classes:
        raise RequestError(
            f"top must be an integer from 1 to the number of classes, {n_classes}, "
            f"found {shown(top)}"
        )
    return top


def _check_reject(reject: Any, served: ServedModel) -> float:
    if type(reject) not in (int, float) or not 0 <= reject <= 1:
        raise RequestError(f"reject must be a number from 0 to 1, found {shown(reject)}")
    if served.model.typicality_table is None:
        raise RequestError(
            f"model {served.name} cannot reject rows: its file has no table of typical scores"
        )
    return float(reject)


def _check_size(query: Query, served: ServedModel, limits: Limits) -> None:
    n_rows, top = len(query.values), query.top
    most = limits.best_classes
    if top:  # labels may be long
        n_bytes = query.answer_bytes(served) // (n_rows * top or 1)
        most = min(most, limits.held_bytes // n_bytes)
    if n_rows * top > most:
        raise HTTPException(
            413, f"the number of rows times top must be at most {most}, found {n_rows} x {top}"
        )


def _max_rows(kind: str, limits: Limits) -> int:
    return min(limits.images, limits.rows) if kind == "images" else limits.rows


def _outputs(request: dict[str, Any], parameters: dict[str, Any]) -> dict[str, bool]:
    """Names of the tensors to return, and whether in binary."""
    name = "binary_data_output"
    binary = _checked(parameters.get(name, False), bool, f"parameter {name}")
    wanted = request.get("outputs")
    if wanted is None or wanted == []:
        names = _OUTPUTS if "top" in parameters else _OUTPUTS[:1]
        return dict.fromkeys(names + _REJECTION * ("reject" in parameters), binary)
    outputs = {}
    for i, each in enumerate(_checked(wanted, list, "outputs")):
        output = _checked(each, dict, f"outputs[{i}]")
        name = output.get("name")
        if not isinstance(name, str) or name not in _OUTPUTS + _REJECTION:
            expected = ", ".join(_OUTPUTS + _REJECTION)
            raise RequestError(f"outputs[{i}] must be one of {expected}, found {shown(name)}")
        about = _checked(output.get("parameters", {}), dict, f"parameters of output {name}")
        outputs[name] = _checked(about.get("binary_data", binary), bool, "parameter binary_data")
    return outputs


def _values(tensor: dict[str, Any], rest: memoryview, served: ServedModel, limits: Limits) -> Any:
    """Values of the input tensor; if it is binary, they are the `rest` of the body."""
    try:
        return _values_of(tensor, rest, served, limits)
    except RequestError as error:
        preferred = served.inputs[0]
        if tensor["name"] == preferred:
            raise
        raise RequestError(
            f"model {served.name} takes {preferred}, or rows of the features that it makes of "
            f"them, but {error.detail}"
        ) from None


def _values_of(
    tensor: dict[str, Any], rest: memoryview, served: ServedModel, limits: Limits
) -> Any:
    kind, datatype, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
    is_rows, most = kind == "rows", _max_rows(kind, limits)
    types = list(_TYPES) if is_rows else ["BYTES"]
    if datatype not in types:
        expected = ", ".join(types)
        raise RequestError(f"datatype of {kind} must be one of {expected}, found {shown(datatype)}")
    tails = [[served.model.n_features]] if is_rows else [[], [1]]
    if (
        not isinstance(shape, list)
        or not all(type(size) is int for size in shape)
        or not shape
        or shape[1:] not in tails
        or not 1 <= shape[0] <= most
    ):
        expected = ", ".join(["n", *map(str, tails[0])])
        raise RequestError(
            f"{kind} must have shape [{expected}] with n from 1 to {most}, found {shown(shape)}"
        )
    about = _checked(tensor.get("parameters", {}), dict, f"parameters of {kind}")
    size = about.get("binary_data_size")
    if size is None:
        if len(rest):
            raise RequestError(f"{len(rest)} bytes follow the JSON, but no tensor is binary")
        data = _checked(tensor.get("data"), list, f"data of {kind}")
        return _numbers(data, datatype, shape) if is_rows else _strings(data, shape, kind)
    if type(size) is not int or size != len(rest) or "data" in tensor:
        raise RequestError(
            f"binary_data_size of {kind} must be the number of bytes after the JSON, {len(rest)}, "
            f"without data, found {shown(size)}"
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


def _flat(data: list[Any], shape: list[int], kind: str) -> list[Any]:
    """The values of a JSON list that is flat or nested exactly as `shape`."""
    if len(shape) == 2 and data and isinstance(data[0], list):
        n_rows, n_columns = shape
        for i, row in enumerate(data):
            if not isinstance(row, list) or len(row) != n_columns:
                found = f"{len(row)}" if isinstance(row, list) else f"{shown(row)}"
                raise RequestError(f"{kind[:-1]} {i} must have {n_columns} values, found {found}")
        if len(data) != n_rows:
            raise RequestError(f"{kind} must have shape {shape}, found {len(data)} rows")
        return [value for row in data for value in row]
    if len(data) != math.prod(shape):
        raise RequestError(f"{kind} must have shape {shape}, found {len(data)} values")
    return data


def _numbers(data: list[Any], datatype: str, shape: list[int]) -> NDArray[Any]:
    values, dtype = _flat(data, shape, "rows"), _TYPES[datatype]
    wrong = set(map(type, values)) - _VALUES[dtype.kind]
    if wrong:
        found = ", ".join(sorted(each.__name__ for each in wrong))
        raise RequestError(f"rows must be numbers of type {datatype}, found {found}")
    try:
        with np.errstate(over="ignore"):  # infinity is an error of its own
            return np.array(values, dtype).reshape(shape)
    except OverflowError:
        raise RequestError(f"rows must be of type {datatype}: a value is out of range") from None


def _strings(data: list[Any], shape: list[int], kind: str) -> list[Any]:
    """Texts or images in a JSON list."""
    values = _flat(data, shape, kind)
    if set(map(type, values)) != {str}:
        raise RequestError(f"{kind} must be a list of strings, found {shown(values)}")
    return _decoded(kind, values)


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
            {"name": name, "datatype": kind, "shape": [-1, -1] if "top" in name else [-1]}
            for name, kind in _output_types(served).items()
            if name in _OUTPUTS or served.model.typicality_table is not None
        ],
    }


def _output_types(served: ServedModel) -> dict[str, str]:
    dtype = served.model.classes.dtype
    label = "INT64" if dtype.kind in "iu" and np.can_cast(dtype, np.int64) else "BYTES"
    types = (label, label, "FP64", "INT32", "FP64", "BOOL")
    return dict(zip(_OUTPUTS + _REJECTION, types, strict=True))


def infer_answer(
    served: ServedModel, query: Query, prediction: TopClasses
) -> tuple[bytes, dict[str, str]]:
    """Content and headers of the response to `/v2/models/NAME/infer`."""
    labels, distances, probabilities, typicality = prediction
    values: dict[str, Any] = {
        "label": labels[:, 0],
        "top_labels": labels,
        "top_distances": distances,
        "top_probabilities": probabilities,
        "typicality": typicality,
        "rejected": None if typicality is None else typicality < (query.reject or 0),
    }
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
