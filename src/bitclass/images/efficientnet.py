"""EfficientNet-Lite0 as an ONNX graph, from its weights.

The network of M. Tan and Q. Le (*EfficientNet*, ICML 2019) in its form for small devices: no
squeeze-and-excitation, ReLU6. Each batch normalisation is folded into the convolution before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.images.pillow import import_images_extra

__all__ = ["N_FEATURES", "PIXEL_MEAN", "PIXEL_STD", "build_graph"]

N_FEATURES = 1280
#: The network takes (pixel - 127) / 128.
PIXEL_MEAN, PIXEL_STD = 127.0, 128.0

_EPSILON = 1e-3  # of the batch normalisation
_OPSET, _IR_VERSION = 13, 8
# Stages: how often a block is repeated, its kernel, stride, expansion, channels in and out.
_STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)


def build_graph(weights: Mapping[str, NDArray[Any]]) -> bytes:
    """The network up to the features that its last layer classifies.

    Parameters
    ----------
    weights : arrays by the names of the PyTorch network

    Returns
    -------
    bytes
        An ONNX model from "pixels" (n, 3, h, w) to "features" (n, 1280).
    """
    graph = _Graph(weights)
    last = graph.convolution("pixels", "_conv_stem", "_bn0", stride=2)
    last = graph.relu6(last)
    block = 0
    for repeats, kernel, stride, expansion, n_in, n_out in _STAGES:
        for repeat in range(repeats):
            first = repeat == 0
            last = graph.block(
                last,
                f"_blocks.{block}",
                kernel=kernel,
                stride=stride if first else 1,
                expand=expansion != 1,
                n_in=n_in if first else n_out,
                n_out=n_out,
            )
            block += 1
    last = graph.relu6(graph.convolution(last, "_conv_head", "_bn1"))
    return graph.finish(last)


class _Graph:
    """An ONNX graph in the making; every method gives the name of its result."""

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self._onnx = import_images_extra("onnx", "the extractor cnn")
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._add_constant("zero", np.float32(0))
        self._add_constant("six", np.float32(6))

    def _add_constant(self, name: str, values: Any) -> str:
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def _add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def convolution(self, source: str, layer: str, norm: str, stride: int = 1) -> str:
        """A convolution with the batch normalisation after it folded in."""
        kernel = self._weights[f"{layer}.weight"].astype(np.float64)
        gain, offset, mean, variance = (
            self._weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gain / np.sqrt(variance + _EPSILON)
        folded = (kernel * factor[:, None, None, None]).astype(np.float32)
        shift = (offset - mean * factor).astype(np.float32)
        # A depthwise convolution has one channel of input for each of its kernels.
        depthwise = layer.endswith("_depthwise_conv")
        return self._add(
            "Conv",
            source,
            self._add_constant(f"{layer}.kernel", folded),
            self._add_constant(f"{layer}.shift", shift),
            auto_pad="SAME_UPPER",
            strides=[stride, stride],
            group=len(kernel) if depthwise else 1,
        )

    def relu6(self, source: str) -> str:
        """Values cut off at 0 and 6."""
        return self._add("Clip", source, "zero", "six")

    def block(
        self, source: str, name: str, *, kernel: int, stride: int, expand: bool, n_in: int,
        n_out: int,
    ) -> str:  # fmt: skip
        """Widen, filter each channel, narrow; and add what came in where it fits."""
        last = source
        if expand:
            last = self.relu6(self.convolution(last, f"{name}._expand_conv", f"{name}._bn0"))
        depthwise = f"{name}._depthwise_conv"
        assert self._weights[f"{depthwise}.weight"].shape[2:] == (kernel, kernel)
        last = self.relu6(self.convolution(last, depthwise, f"{name}._bn1", stride))
        last = self.convolution(last, f"{name}._project_conv", f"{name}._bn2")
        return self._add("Add", last, source) if stride == 1 and n_in == n_out else last

    def finish(self, last: str) -> bytes:
        """The mean over places, and all of it as one model."""
        pooled = self._add("GlobalAveragePool", last)
        self._nodes.append(self._onnx.helper.make_node("Flatten", [pooled], ["features"], axis=1))
        helper, float32 = self._onnx.helper, self._onnx.TensorProto.FLOAT
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
