"""Commands on images: features, models and predictions."""

import csv
import io
import json
import shutil
import signal
import sys

import numpy as np
import pytest
from PIL import Image
from running import Forks, assert_refused, contents, in_forks

import bitclass as library
from bitclass.images import image_rows, open_images
from bitclass.io import open_rows
from small_network import small_network

SMALL = f"onnx:{small_network().file}"
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
    draw_folder(folder / "train", 12)
    draw_folder(folder / "test", 4, first_seed=1000)
    (folder / "train" / "down" / "broken.png").write_bytes(b"no image")
    (folder / "unsorted").mkdir()
    shutil.copy(folder / "test" / "down" / "00.png", folder / "unsorted" / "a.png")
    for name in ("u.npy", "u.labels.npy"):
        np.save(folder / name, np.array(["of", "an", "earlier", "run"]))
    np.savez(folder / "rows.npz", X=np.eye(4, 512), y=np.array(["a", "b", "a", "b"]))
    fit = ("fit", "train", "--extractor", SMALL, "--bits", 32, "--keep-statistics", "--model")
    work = {
        "npy": ("features", "train", "--extractor", SMALL, "--out", "f.npy", "--json"),
        "parquet": ("features", "train", "--extractor", SMALL, "--out", "f.parquet"),
        "unsorted": ("features", "unsorted", "--extractor", SMALL, "--out", "u.npy"),
        "model": (*fit, "m.safetensors"),
        "of features": ("fit", "f.npy", "--labels-file", "f.labels.npy", "--model",
                        "n.safetensors", "--bits", 32),
        "of rows": ("fit", "rows.npz", "--model", "rows.safetensors", "--bits", 8),
        "predict files": ("predict", "m.safetensors", *TEST_PATHS, "--top", 2),
        "predict folder": ("predict", "m.safetensors", "test", "--top", 2),
        "evaluate": ("evaluate", "m.safetensors", "test", "--json"),
        "another model": (*fit, "o.safetensors"),
        "update": ("update", "o.safetensors", "test", "--json"),
        "inspect": ("inspect", "o.safetensors"),
    }  # fmt: skip
    done = in_forks(list(work.values()), folder)
    return folder, dict(zip(work, done, strict=True))


def test_a_broken_image_is_counted_and_named(folder):
    _, done = folder
    for name in ("npy", "parquet", "model"):
        assert done[name].returncode == 0, done[name].stderr
        lines = done[name].stderr.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("bitclass: warning: skipped down/broken.png: cannot be read")
    assert "train: 36 images, 1 skipped, 512 features by onnx" in done["model"].stdout


def test_features_of_a_folder(folder):
    folder, done = folder
    facts = json.loads(done["npy"].stdout)
    assert facts["files"] == ["f.npy", "f.names.txt", "f.labels.npy"]
    assert facts["rows"] == 36
    assert facts["extractor"] == small_network().specification()
    X, labels = np.load(folder / "f.npy"), np.load(folder / "f.labels.npy")
    names = (folder / "f.names.txt").read_text().splitlines()
    assert labels.tolist() == [name.partition("/")[0] for name in names]
    images = open_images(folder / "train")
    keep = [row for row, name in enumerate(images.names) if "broken" not in name]
    assert names == [images.names[row] for row in keep]
    expected, _ = image_rows(images.select(keep), small_network()).sample()
    np.testing.assert_allclose(X, expected, rtol=0, atol=1e-6)
    assert open_rows(folder / "f.npy", labels_file=folder / "f.labels.npy").n_rows == 36
    assert not list(folder.glob("*partial*"))


def test_features_in_parquet_and_without_classes(folder):
    folder, done = folder
    (batch,) = open_rows(folder / "f.parquet", columns=["name"]).batches()
    np.testing.assert_array_equal(batch.X, np.load(folder / "f.npy"))
    assert batch.labels.tolist() == np.load(folder / "f.labels.npy").tolist()
    assert batch.columns["name"].tolist() == (folder / "f.names.txt").read_text().splitlines()
    assert done["unsorted"].stderr == ""
    assert np.load(folder / "u.npy").shape == (1, 512)
    assert not (folder / "u.labels.npy").exists()


def test_the_model_is_that_of_the_feature_file_and_knows_its_extractor(folder):
    folder, _ = folder
    images, rows = (library.load(folder / f"{name}.safetensors") for name in "mn")
    np.testing.assert_array_equal(images.hash_function.projection, rows.hash_function.projection)
    np.testing.assert_array_equal(images.weights, rows.weights)
    assert images.summary.pop("statistics")  # it was fitted with --keep-statistics
    assert images.summary.pop("extractor") == small_network().specification()
    assert images.summary == rows.summary
    # The estimator keeps the extractor of the model file.
    library.BinaryCodeClassifier.load(folder / "m.safetensors").save(folder / "again.safetensors")
    assert library.load(folder / "again.safetensors").summary["extractor"]["kind"] == "onnx"


def test_predicting_images(folder):
    _, done = folder
    assert done["predict files"].stderr == done["predict folder"].stderr == ""
    lines = list(csv.DictReader(io.StringIO(done["predict files"].stdout)))
    assert [line["image"] for line in lines] == TEST_PATHS
    own = [path.split("/")[1] for path in TEST_PATHS]
    assert np.mean([line["label"] == name for line, name in zip(lines, own, strict=True)]) > 0.9
    whole = list(csv.DictReader(io.StringIO(done["predict folder"].stdout)))
    assert [line | {"image": "test/" + line["image"]} for line in whole] == lines


def test_evaluate_update_and_inspect_take_images(folder):
    folder, done = folder
    facts = json.loads(done["evaluate"].stdout)
    assert facts["rows"] == 12
    assert facts["accuracy"] > 0.9
    assert json.loads(done["update"].stdout)["rows"] == 36 + 12
    assert library.load(folder / "o.safetensors").summary["extractor"]["kind"] == "onnx"
    assert "images     onnx, file=" in done["inspect"].stdout


FIT = ("--model", "x.safetensors", "--extractor", SMALL)
BAD = {
    "no such folder": (("features", "absent", "--out", "x.npy"), 1, ["absent", "no such"]),
    "no images": (("features", "empty", "--out", "x.npy"), 1, ["empty", "no images"]),
    "another extension": (("features", "test", "--out", "x.csv"), 2, [".npy or .parquet"]),
    "unknown extractor": (
        ("features", "test", "--out", "x.npy", "--extractor", "sift"), 2, ["'sift'", "cnn"],
    ),
    "unknown option": (("fit", "test", *FIT[:-1], "cnn,bits=3"), 2, ["'bits'"]),
    "a network that is not there": (("fit", "test", *FIT[:-1], "onnx:no.onnx"), 2, ["no.onnx"]),
    "no classes": (("fit", "unsorted", *FIT), 2, ["unsorted", "no labels", "folder per class"]),
    "an option for rows": (
        ("fit", "test", *FIT, "--labels", "y"), 2, ["--labels applies to feature files"],
    ),
    "a model of rows": (("predict", "rows.safetensors", "test"), 2, ["trained on feature files"]),
    "only broken images": (
        ("predict", "m.safetensors", "broken/a.png", "broken/b.png"), 1, ["none of the 2 images"],
    ),
    "an extractor nobody knows": (("predict", "odd.safetensors", "test"), 1, ["'nose'"]),
    "an extractor that was removed": (("predict", "gist.safetensors", "test"), 1, ["removed"]),
    "an extractor of another width": (
        ("predict", "wide.safetensors", "test"), 1, ["512", "1280"],
    ),
    "features beside names of others": (
        ("features", "test", "--extractor", SMALL, "--out", "list.npy"), 2, ["list.names.txt"],
    ),
    "images in the checkpoint": (
        ("fit", "progress/.bitclass-images/test", "--checkpoint", "progress", *FIT), 2,
        ["--checkpoint"],
    ),
    "features over labels of the images": (
        ("features", "unsorted", "--extractor", SMALL, "--out", "unsorted/own.npy"), 2, ["names"],
    ),
}  # fmt: skip


RECORDS = {"odd": {"kind": "nose"}, "wide": {"kind": "cnn", "size": 64}, "gist": {"kind": "gist"}}


def test_bad_input_is_one_line(folder):
    folder, _ = folder
    (folder / "empty").mkdir()
    (folder / "unsorted" / "own.names.txt").touch()
    (folder / "list.names.txt").write_text("a list of the user\n")
    shutil.copytree(folder / "test", folder / "progress" / ".bitclass-images" / "test")
    (folder / "broken").mkdir()
    for name in "ab":
        (folder / "broken" / f"{name}.png").write_bytes(b"?")
    model = library.load(folder / "m.safetensors")
    for name, record in RECORDS.items():
        model.summary["extractor"] = record
        library.storage.save(folder / f"{name}.safetensors", model)
    assert_refused(BAD, folder)


# The command with batches of four images; it kills itself in the third batch on request.
KILLED = """
import bitclass.images.rows
from bitclass.images import OnnxNetwork
bitclass.images.rows._MAX_BATCH_IMAGES = 4
extract, undisturbed, n_batches = OnnxNetwork.extract, main, 0

def main():
    if sys.argv[1] == "killed":
        del sys.argv[1]

        def extract_or_die(self, images):
            global n_batches
            n_batches += 1
            if n_batches == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return extract(self, images)

        OnnxNetwork.extract = extract_or_die
    undisturbed()
"""


def test_a_killed_run_resumes(folder, tmp_path):
    folder, _ = folder
    features = ("features", folder / "train", "--extractor", SMALL, "--out", "f.npy")
    fit = ("fit", folder / "train", "--extractor", SMALL, "--bits", 32, "--model", "m",
           "--checkpoint", "progress")  # fmt: skip
    runs = [("killed", *features), features, ("killed", *fit), fit]
    with Forks(KILLED) as forks:
        killed, done, killed_fit, done_fit = (forks.run(*run, cwd=tmp_path) for run in runs)
    assert killed.returncode == killed_fit.returncode == -signal.SIGKILL
    assert (done.returncode, done_fit.returncode) == (0, 0), (done.stderr, done_fit.stderr)
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), np.load(folder / "f.npy"), atol=1e-6)
    found, expected = (library.load(path) for path in (tmp_path / "m", folder / "m.safetensors"))
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert not list((tmp_path / "progress").iterdir())
    assert not list(tmp_path.glob("*partial*"))


def test_folders_of_the_user_are_kept(folder, tmp_path):
    folder, _ = folder
    for name in ("images", ".bitclass-images", "f.npy.partial"):
        shutil.copytree(folder / "test", tmp_path / name)
    shutil.copy(folder / "rows.npz", tmp_path / "rows.npz")
    before = contents(tmp_path)
    work = [
        ("fit", "images", "--extractor", SMALL, "--model", "../m", "--checkpoint", "."),
        ("fit", "rows.npz", "--model", "../m", "--checkpoint", "."),
        ("features", "images", "--extractor", SMALL, "--out", "f.npy"),
    ]
    for done in in_forks(work, tmp_path):
        assert done.returncode == 0, done.stderr
    for name in ("f.npy", "f.names.txt", "f.labels.npy"):
        (tmp_path / name).unlink()
    assert contents(tmp_path) == before


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks of POSIX")
