"""Tensors of the Open Inference Protocol, version 2: JSON, and the binary extension.

Each tensor of a request is a JSON object; its values are there as "data", or follow the JSON as
bytes. The header Inference-Header-Content-Length tells where the JSON ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from bitclass.serving.batching import Prediction
from bitclass.serving.errors import RequestError
from bitclass.serving.served_model import ServedModel, label_value

__all__ = ["InferRequest", "metadata", "parse_json", "response"]

_TYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
    **{f"INT{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"FP{8 * n}": np.dtype(f"<f{n}") for n in (2, 4, 8)},
}
_OUTPUTS = ("label", "top_labels", "top_probabilities", "top_distances")
_DEFAULT_TOP = 5


def parse_json(content: bytes | memoryview) -> dict[str, Any]:
    """The JSON object of a request.

    Raises
    ------
    RequestError
        If it is none.
    """
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body must be JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(f"the body must be a JSON object, found {value!r:.80}")
    return value


@dataclass(frozen=True)
class InferRequest:
    """A request to `/v2/models/NAME/infer`.

    Attributes
    ----------
    kind : str
        Name of the input tensor.
    values : ndarray of shape (n, d), or list of n str or bytes
    outputs : dict of str to bool
        Names of the tensors to answer, and whether in binary.
    top : int
        Number of best classes; 0 where no output needs them.
    id : str or None
    """

    kind: str
    values: NDArray[Any] | list[str | bytes]
    outputs: dict[str, bool]
    top: int
    id: str | None = field(default=None)

    @classmethod
    def parse(
        cls, body: bytes, json_length: str | None, served: ServedModel, max_rows: int
    ) -> InferRequest:
        """Read a request.

        Parameters
        ----------
        body : bytes
        json_length : str or None
            Value of the header Inference-Header-Content-Length.
        served : ServedModel
        max_rows : int

        Raises
        ------
        RequestError
            Naming what is wrong.
        """
        end = len(body)
        if json_length is not None:
            if not (json_length.isascii() and json_length.isdigit() and len(json_length) < 12):
                raise RequestError(
                    f"Inference-Header-Content-Length must be a number, found {json_length!r:.80}"
                )
            end = int(json_length)
            if end > len(body):
                raise RequestError(
                    f"Inference-Header-Content-Length must be at most the {len(body)} bytes of "
                    f"the body, found {end}"
                )
        request = parse_json(memoryview(body)[:end])
        parameters = _object(request.get("parameters", {}), "parameters")
        inputs = request.get("inputs")
        if not isinstance(inputs, list) or len(inputs) != 1:
            raise RequestError(f"inputs must be a list of one tensor: {' or '.join(served.inputs)}")
        tensor = _object(inputs[0], "inputs[0]")
        kind = tensor.get("name")
        served.check_kind(kind)
        values = _values(tensor, memoryview(body)[end:], served, max_rows)
        outputs = _outputs(request, parameters)
        top = 0
        if outputs.keys() != {"label"}:
            default = min(_DEFAULT_TOP, len(served.model.classes))
            top = served.check_top(parameters.get("top", default))
        identifier = request.get("id")
        if identifier is not None and not isinstance(identifier, str):
            raise RequestError(f"id must be a string, found {identifier!r:.80}")
        return cls(str(kind), values, outputs, top, identifier)


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{name} must be a JSON object, found {value!r:.80}")
    return value


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"parameter {name} must be true or false, found {value!r:.80}")
    return value


def _outputs(request: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, bool]:
    binary = _flag(parameters, "binary_data_output", False)
    wanted = request.get("outputs")
    if wanted is None or wanted == []:
        names = _OUTPUTS if "top" in parameters else _OUTPUTS[:1]
        return dict.fromkeys(names, binary)
    if not isinstance(wanted, list):
        raise RequestError(f"outputs must be a list, found {wanted!r:.80}")
    outputs = {}
    for i, each in enumerate(wanted):
        output = _object(each, f"outputs[{i}]")
        name = output.get("name")
        if not isinstance(name, str) or name not in _OUTPUTS:
            raise RequestError(
                f"outputs[{i}] must be one of {', '.join(_OUTPUTS)}, found {name!r:.80}"
            )
        about = _object(output.get("parameters", {}), f"parameters of output {name}")
        outputs[name] = _flag(about, "binary_data", binary)
    return outputs


def _values(
    tensor: Mapping[str, Any], rest: memoryview, served: ServedModel, max_rows: int
) -> NDArray[Any] | list[str | bytes]:
    """Values of the input tensor, whose bytes, if it is binary, are the rest of the body."""
    kind, datatype, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
    if kind == "rows":
        expected: tuple[int, ...] = (served.model.n_features,)
        if not isinstance(datatype, str) or datatype not in _TYPES:
            raise RequestError(
                f"datatype of {kind} must be one of {', '.join(_TYPES)}, found {datatype!r:.80}"
            )
    else:
        expected = () if isinstance(shape, list) and len(shape) == 1 else (1,)
        if datatype != "BYTES":
            raise RequestError(f"datatype of {kind} must be BYTES, found {datatype!r:.80}")
    if (
        not isinstance(shape, list)
        or not all(type(size) is int for size in shape)
        or len(shape) != 1 + len(expected)
        or tuple(shape[1:]) != expected
        or not 1 <= shape[0] <= max_rows
    ):
        text = ", ".join(["n", *map(str, expected if kind == "rows" else ())])
        raise RequestError(
            f"shape of {kind} must be [{text}] with n from 1 to {max_rows}, found {shape!r:.80}"
        )
    about = _object(tensor.get("parameters", {}), f"parameters of {kind}")
    size = about.get("binary_data_size")
    if size is None:
        if len(rest):
            raise RequestError(f"{len(rest)} bytes follow the JSON, and no tensor claims them")
        data = tensor.get("data")
        return _strings(data, shape[0], kind) if kind != "rows" else _numbers(data, datatype, shape)
    if type(size) is not int or size != len(rest) or "data" in tensor:
        raise RequestError(
            f"binary_data_size of {kind} must be the {len(rest)} bytes after the JSON, with no "
            f"data beside them, found {size!r:.80}"
        )
    if kind != "rows":
        return _byte_strings(rest, shape[0], kind)
    dtype = _TYPES[datatype]
    if size != math.prod(shape) * dtype.itemsize:
        raise RequestError(
            f"{kind} of shape {shape} and datatype {datatype} must have "
            f"{math.prod(shape) * dtype.itemsize} bytes, found {size}"
        )
    return np.frombuffer(rest, dtype).reshape(shape)


def _numbers(data: Any, datatype: str, shape: list[int]) -> NDArray[Any]:
    """Values that JSON holds flat or nested."""
    if not isinstance(data, list):
        raise RequestError(f"data of rows must be a list, found {data!r:.80}")
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


def _strings(data: Any, n: int, kind: str) -> list[str | bytes]:
    if isinstance(data, list) and all(isinstance(each, list) for each in data):
        data = [each for part in data for each in part]
    if (
        not isinstance(data, list)
        or len(data) != n
        or not all(isinstance(each, str) for each in data)
    ):
        raise RequestError(f"data of {kind} must be a list of {n} strings, found {data!r:.80}")
    return data


def _byte_strings(content: memoryview, n: int, kind: str) -> list[str | bytes]:
    """Elements of a binary tensor of BYTES, each after its length of four bytes."""
    values: list[str | bytes] = []
    at = 0
    while at < len(content) and len(values) < n:
        length = int.from_bytes(content[at : at + 4], "little")
        values.append(bytes(content[at + 4 : at + 4 + length]))
        at += 4 + length
    if at != len(content) or len(values) != n:
        raise RequestError(
            f"{kind} must be {n} elements, each its length in 4 bytes and so many bytes; the "
            f"lengths do not fit the {len(content)} bytes"
        )
    return values


def metadata(served: ServedModel) -> dict[str, Any]:
    """Names, types and shapes of the tensors of a model.

    Returns
    -------
    dict
        The answer to `/v2/models/NAME`. A request has one of the inputs.
    """
    shapes = {"rows": [-1, served.model.n_features]}
    return {
        "name": served.name,
        "platform": "bitclass",
        "inputs": [
            {
                "name": kind,
                "datatype": "FP32" if kind == "rows" else "BYTES",
                "shape": shapes.get(kind, [-1]),
            }
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


def response(
    request: InferRequest, served: ServedModel, prediction: Prediction
) -> tuple[bytes, dict[str, str]]:
    """The answer to a request.

    Returns
    -------
    content : bytes
    headers : dict
    """
    values = {
        "label": prediction.labels[:, 0],
        "top_labels": prediction.labels,
        "top_probabilities": prediction.probabilities,
        "top_distances": prediction.distances,
    }
    types = _output_types(served)
    tensors, blobs = [], []
    for name, binary in request.outputs.items():
        array, datatype = np.asarray(values[name]), types[name]
        tensor: dict[str, Any] = {
            "name": name,
            "datatype": datatype,
            "shape": list(array.shape),
        }
        if binary:
            blob = _bytes_of(array, datatype)
            tensor["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        elif datatype == "BYTES":
            tensor["data"] = [str(label_value(each)) for each in array.ravel()]
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    answer: dict[str, Any] = {"model_name": served.name, "outputs": tensors}
    if request.id is not None:
        answer["id"] = request.id
    head = orjson.dumps(answer)
    if not blobs:
        return head, {"content-type": "application/json"}
    return b"".join([head, *blobs]), {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(head)),
    }


def _bytes_of(array: NDArray[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        return np.ascontiguousarray(array, _TYPES[datatype]).tobytes()
    parts = []
    for label in array.ravel():
        content = str(label_value(label)).encode()
        parts += [len(content).to_bytes(4, "little"), content]
    return b"".join(parts)
