"""Commands on images: features, models and predictions."""

import csv
import io
import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

import bitclass as library
from bitclass.images import ImageWarning, extractor_named, open_images

from ..small_network import small_network
from .running import assert_refused, in_forks

SMALL = "onnx:small.onnx"
CLASSES = ("across", "chequers", "down")
TEST_PATHS = [f"test/{name}/{number:02d}.png" for name in CLASSES for number in range(4)]


def draw(name, seed):
    """Noisy stripes or squares."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:32, :32] + rng.integers(0, 9)
    step = rng.integers(3, 5)
    bars = {"across": y // step % 2, "down": x // step % 2, "chequers": (x // step + y // step) % 2}
    grey = 60 + 120 * bars[name] + rng.integers(0, 40, (32, 32))
    return Image.fromarray(grey.astype(np.uint8))


def draw_folder(folder, n_each, first_seed=0):
    for at, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(n_each):
            draw(name, first_seed + 100 * at + number).save(folder / name / f"{number:02d}.png")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    shutil.copy(small_network().file, folder / "small.onnx")
    draw_folder(folder / "train", 12)
    draw_folder(folder / "test", 4, first_seed=1000)
    (folder / "train" / "down" / "broken.png").write_bytes(b"no image")
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    (folder / "unsorted").mkdir()
    shutil.copy(folder / "test" / "down" / "00.png", folder / "unsorted" / "a.png")
    np.savez(folder / "rows.npz", X=np.eye(4, 512), y=np.array(["a", "b", "a", "b"]))
    fit = ("fit", "train", "--extractor", SMALL, "--bits", 32, "--keep-sums", "--model")
    work = {
        "model": (*fit, "m.safetensors"),
        "of rows": ("fit", "rows.npz", "--model", "rows.safetensors", "--bits", 8),
        "predict files": ("predict", "m.safetensors", *TEST_PATHS, "--top", 2),
        "predict folder": ("predict", "m.safetensors", "test", "--top", 2),
        "reject": ("predict", "m.safetensors", *TEST_PATHS, "noise.png", "--typicality",
                   "--reject", 0.05),
        "evaluate": ("evaluate", "m.safetensors", "test", "--json"),
        "another model": (*fit, "o.safetensors"),
        "update": ("update", "o.safetensors", "test"),
        "unsorted": ("predict", "m.safetensors", "unsorted"),
        "export": ("export", "m.safetensors"),
        "inspect": ("inspect", "o.safetensors"),
    }  # fmt: skip
    done = in_forks(list(work.values()), folder)
    return folder, dict(zip(work, done, strict=True))


def test_a_broken_image_is_counted_and_named(folder):
    _, done = folder
    assert done["model"].returncode == 0, done["model"].stderr
    lines = [line for line in done["model"].stderr.splitlines() if "refining" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("bitclass: warning: skipped down/broken.png: cannot be read")
    assert "train: 36 images, 1 skipped, 512 features by onnx" in done["model"].stdout


def test_the_model_is_that_of_the_features_and_knows_its_extractor(folder):
    folder, _ = folder
    model = library.load(folder / "m.safetensors")
    with pytest.warns(ImageWarning, match="broken"):
        rows = open_images(folder / "train", small_network())
    fitted = library.BinaryCodeClassifier(32, random_state=0).fit(rows.X, rows.labels)
    np.testing.assert_array_equal(model.weights, fitted.packed().weights)
    network = extractor_named(f"onnx:{folder / 'small.onnx'}")
    assert model.summary["extractor"] == network.specification()


def test_export_says_that_the_network_is_not_part_of_the_graph(folder):
    _, done = folder
    assert "extractor 'onnx'" in done["export"].stderr


def test_predicting_images(folder):
    _, done = folder
    assert done["predict files"].stderr == done["predict folder"].stderr == ""
    lines = list(csv.DictReader(io.StringIO(done["predict files"].stdout)))
    assert [line["image"] for line in lines] == TEST_PATHS
    own = [path.split("/")[1] for path in TEST_PATHS]
    assert np.mean([line["label"] == name for line, name in zip(lines, own, strict=True)]) > 0.9
    whole = list(csv.DictReader(io.StringIO(done["predict folder"].stdout)))
    assert [line | {"image": "test/" + line["image"]} for line in whole] == lines
    *answered, noise = csv.DictReader(io.StringIO(done["reject"].stdout))
    assert [found["label"] for found in answered] == [line["label"] for line in lines]
    assert all(float(found["typicality"]) >= 0.05 for found in answered)
    assert noise["label"] == ""
    assert float(noise["typicality"]) < 0.05


def test_evaluate_update_and_inspect_take_images(folder):
    folder, done = folder
    facts = json.loads(done["evaluate"].stdout)
    assert facts["rows"] == 12
    assert facts["accuracy"] > 0.9
    assert "added   test: 12 images" in done["update"].stdout
    assert library.load(folder / "o.safetensors").summary["extractor"]["kind"] == "onnx"
    assert "extractor  onnx, " in done["inspect"].stdout


FIT = ("--model", "x.safetensors", "--extractor", SMALL)
BAD = {
    "no such folder": (("fit", "absent", *FIT), 1, ["absent", "no such"]),
    "no images": (("fit", "empty", *FIT), 1, ["empty", "no images"]),
    "unknown extractor": (("fit", "test", *FIT[:-1], "sift"), 2, ["--extractor", "'sift'", "cnn"]),
    "unknown option": (("fit", "test", *FIT[:-1], "cnn:big"), 2, ["'cnn:big'"]),
    "a network that is not there": (("fit", "test", *FIT[:-1], "onnx:no.onnx"), 2, ["no.onnx"]),
    "no classes": (("fit", "unsorted", *FIT), 2, ["unsorted", "no labels", "folder per class"]),
    "an option for rows": (("fit", "test", *FIT, "--labels", "y"), 2, ["--labels applies to"]),
    "a model of rows": (("predict", "rows.safetensors", "test"), 2, ["test: has images", "512"]),
    "only broken images": (
        ("predict", "m.safetensors", "broken/a.png", "broken/b.png"), 1, ["none of the 2 images"],
    ),
    "an extractor of another width": (
        ("predict", "wide.safetensors", "test"), 1, ["512", "1280"],
    ),
}  # fmt: skip


def test_bad_input_is_one_line(folder):
    folder, _ = folder
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    for name in "ab":
        (folder / "broken" / f"{name}.png").write_bytes(b"?")
    model = library.load(folder / "m.safetensors")
    model.summary["extractor"] = {"kind": "cnn", "size": 64}
    library.storage.save(folder / "wide.safetensors", model)
    assert_refused(BAD, folder)


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks of POSIX")
