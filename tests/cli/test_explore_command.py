"""`bitclass explore` as a process."""

import json
import re
import signal
import socket
import subprocess
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from running import COMMAND, assert_refused, environment, succeed

pytest.importorskip("PIL", reason="images need bitclass[images]")
from PIL import Image

from small_network import small_network


def wave(kind, seed):
    """An image of 32 x 32 whose class is the direction of its waves."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:32, :32] / 32
    angle = np.pi * kind / 10
    along = np.cos(angle) * x + np.sin(angle) * y
    grey = 128 + 90 * np.sin(2 * np.pi * 4 * along + rng.uniform(0, 6))
    image = np.repeat(grey[:, :, None], 3, axis=2) + rng.normal(0, 8, (32, 32, 3))
    return np.clip(image, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of images of two classes, and a model of it."""
    folder = tmp_path_factory.mktemp("explore")
    for kind, name in enumerate(("flat", "<b>steep")):
        (folder / "own" / name).mkdir(parents=True)
        for seed in range(8):
            Image.fromarray(wave(5 * kind, seed)).save(folder / "own" / name / f"{seed}.png")
    model = folder / "model.safetensors"
    succeed(
        "fit",
        folder / "own",
        "--extractor",
        f"onnx:{small_network().file}",
        "--model",
        model,
        "--bits",
        "64",
    )
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


def test_the_page_is_served_until_an_interrupt(place):
    (place / "own" / "<b>steep" / "broken.png").write_bytes(b"no image")
    with exploring(place / "model.safetensors", place / "own") as (process, line, address):
        assert address.startswith("http://127.0.0.1:")
        assert "16 images (1 skipped), 2 classes" in line
        names = [
            image["name"]
            for image in json.loads(got(address + "api/models/model/images"))["images"]
        ]
        assert "flat/1.png" in names
        assert got(address + "api/models/model/images/5.jpg")[:2] == b"\xff\xd8"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
    assert "skipped <b>steep/broken.png: cannot be read as an image" in err
    assert err.count("\n") == 1


def test_listening_to_the_network_warns(place):
    options = ("--host", "0.0.0.0")
    with exploring(place / "model.safetensors", place / "own", *options) as (process, _, address):
        near_by = address.replace("0.0.0.0", "127.0.0.1")
        near = json.loads(got(near_by + "api/models/model/images/0"))
        assert near["label"] == near["classes"][0]["label"] == "<b>steep"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert "--host 0.0.0.0: everybody who can reach this machine can see the images" in err


def test_what_cannot_be_explored_is_one_line(place):
    model, own = place / "model.safetensors", place / "own"
    rows = place / "rows.npz"
    np.savez(rows, X=np.random.default_rng(0).normal(size=(40, 5)), y=np.arange(40) % 3)
    other = place / "other.safetensors"
    succeed("fit", rows, "--model", other)
    (place / "empty" / "broken").mkdir(parents=True)
    (place / "empty" / "broken" / "a.png").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        runs = {
            ("explore", model, place / "absent"): (1, "no such file or folder"),
            ("explore", place / "absent", own): (1, "No such file"),
            ("explore", rows, own): (1, "rows.npz"),
            ("explore", other, own): (2, "trained on feature files"),
            ("explore", model, own, "--port", port): (2, "cannot listen"),
            ("explore", model, own, "--port", "x"): (2, "--port"),
            ("explore", model, own, "--host", "256.1.1.1"): (2, "--host 256.1.1.1"),
            ("explore", model, place / "empty", "--port", 0): (1, "none of the 1 images"),
        }
        cases = {run: (run, code, [words]) for run, (code, words) in runs.items()}
        assert_refused(cases, place, imports=["bitclass.serving"])
