"""From pictures to feature files, models and predictions, by commands."""

import csv
import io
import json
import os
import shutil
import signal
import sys

import numpy as np
import pyarrow.parquet
import pytest
from bitclass.images.feature_store import opened_store
from PIL import Image
from running import assert_one_line, in_forks

import bitclass as library
from bitclass.cli.features import run_features
from bitclass.cli.pictures import fill_store
from bitclass.data import open_rows
from bitclass.data.pictures import open_folder
from bitclass.images import Gist, extract_features

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
    folder = tmp_path_factory.mktemp("pictures")
    draw_folder(folder / "train", 12)
    draw_folder(folder / "test", 4, first_seed=1000)
    (folder / "train" / "down" / "broken.png").write_bytes(b"no picture")
    (folder / "unsorted").mkdir()
    shutil.copy(folder / "test" / "down" / "00.png", folder / "unsorted" / "a.png")
    np.save(folder / "u.labels.npy", np.array(["of", "an", "earlier", "run"]))
    np.savez(folder / "rows.npz", X=np.eye(4, 512), y=np.array(["a", "b", "a", "b"]))
    fit = ("fit", "train", "--extractor", "gist", "--bits", 32, "--keep-statistics", "--model")
    work = {
        "npy": ("features", "train", "--extractor", "gist", "--out", "f.npy", "--json"),
        "parquet": ("features", "train", "--extractor", "gist", "--out", "f.parquet"),
        "unsorted": ("features", "unsorted", "--extractor", "gist", "--out", "u.npy"),
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


def test_a_broken_picture_is_counted_and_named(folder):
    _, done = folder
    for name in ("npy", "parquet", "model"):
        assert done[name].returncode == 0, done[name].stderr
        lines = done[name].stderr.splitlines()
        assert len(lines) == 2
        assert lines[0].startswith("bitclass: warning: left out: down/broken.png: cannot be read")
        assert lines[1] == ("bitclass: warning: left out 1 of 37 pictures that cannot be read")
    assert "train: 36 pictures, 1 left out, 512 features by gist" in done["model"].stdout


def test_features_of_a_folder(folder):
    folder, done = folder
    facts = json.loads(done["npy"].stdout)
    assert facts["files"] == ["f.npy", "f.names.txt", "f.labels.npy"]
    assert (facts["pictures"], facts["rows"], facts["left_out"]) == (37, 36, 1)
    assert facts["extractor"] == {"kind": "gist", "size": 128}
    X, labels = np.load(folder / "f.npy"), np.load(folder / "f.labels.npy")
    names = (folder / "f.names.txt").read_text().splitlines()
    assert labels.tolist() == [name.partition("/")[0] for name in names]
    pictures = open_folder(folder / "train")
    keep = [row for row, name in enumerate(pictures.names) if "broken" not in name]
    assert names == [pictures.names[row] for row in keep]
    ((_, expected),) = extract_features(pictures.select(keep), Gist())
    np.testing.assert_allclose(X, expected, rtol=0, atol=1e-6)
    assert open_rows(folder / "f.npy", labels_file=folder / "f.labels.npy").n_rows == 36
    assert not list(folder.glob("*.partial"))


def test_features_in_parquet(folder):
    folder, _ = folder
    table = pyarrow.parquet.read_table(folder / "f.parquet")
    X = np.stack(table["features"].to_numpy())
    np.testing.assert_array_equal(X, np.load(folder / "f.npy"))
    assert table["label"].to_pylist() == np.load(folder / "f.labels.npy").tolist()
    assert table["name"].to_pylist() == (folder / "f.names.txt").read_text().splitlines()
    (batch,) = open_rows(folder / "f.parquet").batches(100)
    np.testing.assert_array_equal(batch.X, X)
    assert batch.labels.tolist() == table["label"].to_pylist()


def test_pictures_without_classes_have_no_labels(folder):
    folder, done = folder
    assert done["unsorted"].stderr == ""
    assert np.load(folder / "u.npy").shape == (1, 512)
    assert not (folder / "u.labels.npy").exists()


def test_labels_that_are_in_place_already_stay_when_a_killed_run_goes_on(folder, tmp_path):
    folder, _ = folder
    pictures, out = open_folder(folder / "test"), tmp_path / "f.npy"
    with opened_store(tmp_path / "f.npy.partial", pictures, Gist()) as store:
        fill_store(store, pictures, Gist(), 1)
        os.replace(store.labels, tmp_path / "f.labels.npy")  # as far as it came
    run_features(pictures, Gist(), out, jobs=1, as_json=True)
    assert np.load(tmp_path / "f.labels.npy").tolist() == pictures.labels.tolist()
    assert len(np.load(out)) == len(pictures)


def test_the_model_is_that_of_the_feature_file_and_knows_its_extractor(folder):
    folder, _ = folder
    pictures, rows = (library.load(folder / f"{name}.safetensors") for name in "mn")
    np.testing.assert_array_equal(pictures.projection, rows.projection)
    np.testing.assert_array_equal(pictures.weights, rows.weights)
    assert pictures.summary.pop("statistics")  # it was fitted with --keep-statistics
    assert pictures.summary.pop("extractor") == {"kind": "gist", "size": 128}
    assert pictures.summary == rows.summary
    # The estimator keeps what it was read with.
    library.BinaryCodeClassifier.load(folder / "m.safetensors").save(folder / "again.safetensors")
    assert library.load(folder / "again.safetensors").summary["extractor"]["kind"] == "gist"


def test_predicting_pictures(folder):
    _, done = folder
    assert done["predict files"].stderr == done["predict folder"].stderr == ""
    lines = list(csv.DictReader(io.StringIO(done["predict files"].stdout)))
    assert [line["picture"] for line in lines] == TEST_PATHS
    own = [path.split("/")[1] for path in TEST_PATHS]
    assert np.mean([line["label"] == name for line, name in zip(lines, own, strict=True)]) > 0.9
    whole = list(csv.DictReader(io.StringIO(done["predict folder"].stdout)))
    assert [line | {"picture": "test/" + line["picture"]} for line in whole] == lines


def test_evaluate_update_and_inspect_take_pictures(folder):
    folder, done = folder
    facts = json.loads(done["evaluate"].stdout)
    assert facts["rows"] == 12
    assert facts["accuracy"] > 0.9
    assert json.loads(done["update"].stdout)["rows"] == 36 + 12
    assert library.load(folder / "o.safetensors").summary["extractor"]["kind"] == "gist"
    assert "pictures   gist, size=128" in done["inspect"].stdout


BAD = {
    "no such folder": (("features", "absent", "--out", "x.npy"), ["absent", "no such"]),
    "no pictures": (("features", "empty", "--out", "x.npy"), ["empty", "no pictures"]),
    "another ending": (("features", "test", "--out", "x.csv"), ["x.csv", ".npy or .parquet"]),
    "no folder to write to": (("features", "test", "--out", "no/x.npy"), ["no such folder"]),
    "unknown extractor": (
        ("features", "test", "--out", "x.npy", "--extractor", "sift"), ["'sift'", "gist, cnn"],
    ),
    "unknown option": (
        ("fit", "test", "--model", "x.safetensors", "--extractor", "gist,bits=3"), ["'bits'"],
    ),
    "a network that is not there": (
        ("fit", "test", "--model", "x.safetensors", "--extractor", "onnx:no.onnx"), ["no.onnx"],
    ),
    "no classes": (
        ("fit", "unsorted", "--model", "x.safetensors", "--extractor", "gist"),
        ["unsorted", "no classes"],
    ),
    "an option for rows": (
        ("fit", "test", "--model", "x.safetensors", "--extractor", "gist", "--labels", "y"),
        ["--labels is for feature files"],
    ),
    "a model of rows": (
        ("predict", "rows.safetensors", "test"), ["rows.safetensors", "learned from feature files"],
    ),
    "only broken pictures": (
        ("predict", "m.safetensors", "broken/a.png", "broken/b.png"), ["none of the 2 pictures"],
    ),
    "rows and pictures": (
        ("predict", "m.safetensors", "unsorted/a.png", "rows.npz"), ["rows.npz", "no pictures"],
    ),
    "a bad loss, before any work": (
        ("fit", "broken", "--model", "x.safetensors", "--loss", "none"), ["loss"],
    ),
    "an extractor nobody knows": (("predict", "odd.safetensors", "test"), ["odd", "'nose'"]),
    "an extractor of another width": (
        ("predict", "wide.safetensors", "test"), ["wide", "512", "1280"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(folder):
    folder, _ = folder
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    for name in "ab":
        (folder / "broken" / f"{name}.png").write_bytes(b"?")
    model = library.load(folder / "m.safetensors")
    for name, record in {"odd": {"kind": "nose"}, "wide": {"kind": "cnn", "size": 64}}.items():
        model.summary["extractor"] = record
        library.storage.save(folder / f"{name}.safetensors", model)
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    done = in_forks([arguments for arguments, _ in BAD.values()], folder)
    after = {path.relative_to(folder) for path in folder.rglob("*")}
    return dict(zip(BAD, done, strict=True)), before, after


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(outcomes, case):
    done = outcomes[0][case]
    lines = [line for line in done.stderr.splitlines() if "warning: left out" not in line]
    done.stderr = "\n".join(lines) + "\n"
    assert_one_line(done, *BAD[case][1])


def test_bad_input_leaves_nothing_behind(outcomes):
    _, before, after = outcomes
    assert after == before


# The command in batches of four pictures, which kills itself at one moment: while its n-th write
# to the store is half done, or just after it.
KILLED = """
import signal
from bitclass.cli import pictures
from bitclass.images import feature_store
pictures._BATCH_PICTURES = 4
append, undisturbed, n_writes = feature_store._append, main, 0

def main():
    if sys.argv[1] == "killed":
        moment, half = int(sys.argv[2]), sys.argv[3] == "half"
        del sys.argv[1:4]

        def append_and_die(path, values):
            global n_writes
            n_writes += 1
            if n_writes == moment and half:
                raw = values.tobytes()
                with path.open("ab") as file:
                    file.write(raw[: len(raw) // 2 + 1])
            else:
                append(path, values)
            if n_writes == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        feature_store._append = append_and_die
    undisturbed()
"""
# Three writes a batch: features, numbers of pictures, record.
MOMENTS = [(1, "half"), (4, "half"), (2, "after"), (6, "half"), (6, "after")]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks and signals of POSIX")


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_a_run_killed_at_any_write_ends_with_the_same_file(folder, tmp_path, ending):
    folder, _ = folder
    run = ("features", folder / "train", "--extractor", "gist", "--out", f"f{ending}")
    killed = [("killed", *moment, *run) for moment in MOMENTS]
    *deaths, done = in_forks([*killed, (*run, "--json")], tmp_path, prepare=KILLED)
    assert [death.returncode for death in deaths] == [-signal.SIGKILL] * len(MOMENTS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_after"] == 16
    assert "left out 1 of 37" in done.stderr
    assert sorted(os.listdir(tmp_path)) == (
        ["f.parquet"] if ending == ".parquet" else ["f.labels.npy", "f.names.txt", "f.npy"]
    )
    # The same features, but for what other batches do to the last bit of a float.
    (found,) = open_rows(tmp_path / f"f{ending}", labels=False).batches(100)
    np.testing.assert_allclose(found.X, np.load(folder / "f.npy"), rtol=0, atol=1e-6)


def test_a_killed_run_has_written_no_file_and_nobody_elses_goes_on(folder, tmp_path):
    folder, _ = folder
    run = ("features", folder / "train", "--extractor", "gist", "--out", "f.npy")
    other = (*run[:3], "gist,size=16", *run[4:])
    elsewhere = (run[0], folder / "test", *run[2:])
    runs = [("killed", 6, "after", *run), other, elsewhere]
    _, *refused = in_forks(runs, tmp_path, prepare=KILLED)
    assert_one_line(refused[0], "f.npy.partial", "another run", "extractor")
    assert_one_line(refused[1], "f.npy.partial", "another run", "names")
    assert os.listdir(tmp_path) == ["f.npy.partial"]
    assert len(np.fromfile(tmp_path / "f.npy.partial" / "rows", dtype="<i8")) == 8


def test_a_killed_run_does_not_go_on_with_pictures_of_the_same_names(folder, tmp_path):
    folder, _ = folder
    shutil.copytree(folder / "train", tmp_path / "copy")
    features = ("--extractor", "gist", "--out", "f.npy")
    fit = ("--extractor", "gist", "--model", "m.safetensors", "--checkpoint", "progress")
    runs = [
        ("killed", 6, "after", "features", folder / "train", *features),
        ("features", "copy", *features),
        ("killed", 6, "after", "fit", folder / "train", *fit),
        ("fit", "copy", *fit),
    ]
    _, other_features, _, other_fit = in_forks(runs, tmp_path, prepare=KILLED)
    assert_one_line(other_features, "f.npy.partial", "another run, which differs in files")
    assert_one_line(other_fit, "progress", "another run, which differs in files")


def test_a_killed_fit_goes_on(folder, tmp_path):
    folder, _ = folder
    run = ("fit", folder / "train", "--extractor", "gist", "--bits", 32, "--model",
           "m.safetensors", "--checkpoint", "progress")  # fmt: skip
    death, done = in_forks([("killed", 9, "after", *run), run], tmp_path, prepare=KILLED)
    assert death.returncode == -signal.SIGKILL
    assert done.returncode == 0, done.stderr
    # What could not be read was met before the kill or after it, and is counted once.
    assert "left out 1 of 37" in done.stderr
    assert os.listdir(tmp_path / "progress") == []
    found, expected = (library.load(f / "m.safetensors") for f in (tmp_path, folder))
    np.testing.assert_allclose(found.projection, expected.projection, atol=1e-3)
    assert found.summary["extractor"] == expected.summary["extractor"]
