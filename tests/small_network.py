"""A network that describes images by random filters in a grid of blocks, made in milliseconds."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bitclass.images import extractor_named


@functools.cache
def small_network():
    """512 features of images of 32 x 32, by the network in the temporary file `.file`."""
    kernel = np.random.default_rng(0).standard_normal((32, 3, 5, 5)).astype(np.float32)
    kernel -= kernel.mean(axis=(1, 2, 3), keepdims=True)
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["maps"], auto_pad="SAME_UPPER"),
        helper.make_node("Relu", ["maps"], ["positive"]),
        helper.make_node(
            "AveragePool", ["positive"], ["blocks"], kernel_shape=[8, 8], strides=[8, 8]
        ),
        helper.make_node("Flatten", ["blocks"], ["features"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 512])],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    folder = Path(tempfile.mkdtemp(prefix="small-network-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "small.onnx")
    network = extractor_named(f"onnx:{folder / 'small.onnx'}")
    network.file = str(folder / "small.onnx")
    return network
