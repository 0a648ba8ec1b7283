"""`bitclass explore` as a process, and a data set from its archive to a model by one command."""

import gzip
import io
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from running import COMMAND, assert_one_line, bitclass, environment, in_forks, succeed

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
import picture_archives as archives

pytest.importorskip("PIL", reason="pictures need bitclass[images]")
from PIL import Image


def wave(kind, seed):
    """A picture of 32 x 32 whose class is the direction of its waves."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:32, :32] / 32
    angle = np.pi * kind / 10
    along = np.cos(angle) * x + np.sin(angle) * y
    grey = 128 + 90 * np.sin(2 * np.pi * 4 * along + rng.uniform(0, 6))
    picture = np.repeat(grey[:, :, None], 3, axis=2) + rng.normal(0, 8, (32, 32, 3))
    return np.clip(picture, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An archive of CIFAR-10 with ten directions of waves, a model of it, and a folder."""
    folder = tmp_path_factory.mktemp("explore")
    files = archives.cifar10_python()
    for batch in range(1, 7):
        labels = [row % 10 for row in range(60)]
        pixels = np.array([wave(k, 1000 * batch + row) for row, k in enumerate(labels)])
        name = f"cifar-10-batches-py/{'test_batch' if batch == 6 else f'data_batch_{batch}'}"
        planes = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).reshape(60, 3072)
        files[name] = archives.python2_pickle({b"labels": labels, b"data": planes})
    archive = folder / "cifar-10-python.tar.gz"
    archive.write_bytes(gzip.compress(archives.tar_bytes(files), 1))
    for kind, name in enumerate(("flat", "<b>steep")):
        (folder / "own" / name).mkdir(parents=True)
        for seed in range(3):
            stream = io.BytesIO()
            Image.fromarray(wave(5 * kind, seed)).save(stream, "PNG")
            (folder / "own" / name / f"{seed}.png").write_bytes(stream.getvalue())
    model = folder / "model.safetensors"
    succeed("fit", archive, "--extractor", "gist", "--model", model, "--bits", "64")
    return folder


@contextmanager
def exploring(*arguments):
    """The command while it serves, and the address that it tells."""
    process = subprocess.Popen(
        [COMMAND, "explore", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found, (line, process.stderr.read() if not line else "")
        yield process, line, found[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def got(address):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read()


def test_cifar_goes_from_its_archive_to_a_model_by_one_command(place):
    archive, model = place / "cifar-10-python.tar.gz", place / "model.safetensors"
    known = json.loads(succeed("evaluate", model, archive, "--split", "test", "--json"))
    assert known["rows"] == 60
    assert known["accuracy"] > 0.9


def test_the_page_is_served_until_an_interrupt(place):
    (place / "own" / "<b>steep" / "broken.png").write_bytes(b"no image")
    with exploring(place / "model.safetensors", place / "own") as (process, line, address):
        assert address.startswith("http://127.0.0.1:")
        assert "6 images (1 skipped), 10 classes" in line
        names = [image["name"] for image in json.loads(got(address + "api/facts"))["samples"]]
        assert "flat/1.png" in names
        assert got(address + "images/5.jpg")[:2] == b"\xff\xd8"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
    assert "skipped <b>steep/broken.png: cannot be read as an image" in err
    assert err.count("\n") == 1


def test_the_pictures_of_a_data_set_are_explored_from_the_network_after_a_warning(place):
    archive = place / "cifar-10-python.tar.gz"
    options = ("--split", "test", "--host", "0.0.0.0")
    with exploring(place / "model.safetensors", archive, *options) as (process, line, address):
        assert "60 images, 10 classes" in line
        near_by = address.replace("0.0.0.0", "127.0.0.1")
        near = json.loads(got(near_by + "api/look/30"))
        assert (near["label"], near["name"]) == ("airplane", "test_batch/30")
        assert near["classes"][0]["label"] == "airplane"
        assert got(near_by + "images/30.jpg")[:2] == b"\xff\xd8"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert "--host 0.0.0.0: everybody who can reach this machine can see the images" in err


def test_what_cannot_be_explored_is_one_line(place):
    model, own = place / "model.safetensors", place / "own"
    rows = place / "rows.npy"
    np.save(rows, np.random.default_rng(0).normal(size=(40, 5)))
    np.save(place / "labels.npy", np.arange(40) % 3)
    other = place / "other.safetensors"
    succeed("fit", rows, "--labels-file", place / "labels.npy", "--model", other)
    empty = place / "empty"
    (empty / "broken").mkdir(parents=True, exist_ok=True)
    (empty / "broken" / "a.png").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        runs = {
            ("explore", model, place / "absent"): "there is no such file or folder",
            ("explore", place / "absent", own): "No such file",
            ("explore", rows, own): "rows.npy",
            ("explore", other, own): "learned from feature files",
            ("explore", model, rows): "neither a picture nor a data set",
            ("explore", model, own, "--split", "test"): "split='test' is for data sets",
            ("explore", model, own, "--port", port): "cannot be listened on",
            ("explore", model, own, "--port", "x"): "--port",
            ("explore", model, own, "--host", "256.1.1.1"): "--host 256.1.1.1",
            ("evaluate", other, rows, "--split", "test"): "split='test' is for data sets",
            ("download", "imagenet", place): "is not known; there are 'cifar10'",
        }
        for done, words in zip(in_forks(list(runs), place), runs.values(), strict=True):
            lines = done.stderr.splitlines(keepends=True)
            done.stderr = lines[-1]
            assert_one_line(done, words)
    done = bitclass("explore", model, empty)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "none of the 1 images can be read, from broken/a.png on"
    )
