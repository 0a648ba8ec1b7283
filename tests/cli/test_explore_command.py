"""`bitclass explore` as a process, and a folder of images to a model by one command."""

import io
import json
import re
import signal
import socket
import subprocess
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from running import COMMAND, assert_one_line, bitclass, environment, in_forks, succeed

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
    """Folders of ten directions of waves, a model of them, and a small folder."""
    folder = tmp_path_factory.mktemp("explore")
    for part, n_rows in (("train", 300), ("test", 60)):
        for row in range(n_rows):
            path = folder / "waves" / part / f"wave{row % 10}" / f"{row:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(wave(row % 10, row + (1000 if part == "test" else 0))).save(path)
    for kind, name in enumerate(("flat", "<b>steep")):
        (folder / "own" / name).mkdir(parents=True)
        for seed in range(3):
            stream = io.BytesIO()
            Image.fromarray(wave(5 * kind, seed)).save(stream, "PNG")
            (folder / "own" / name / f"{seed}.png").write_bytes(stream.getvalue())
    model = folder / "model.safetensors"
    succeed(
        "fit", folder / "waves" / "train", "--extractor", "gist", "--model", model, "--bits", "64"
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


def test_a_folder_becomes_a_model_by_one_command(place):
    model = place / "model.safetensors"
    known = json.loads(succeed("evaluate", model, place / "waves" / "test", "--json"))
    assert known["rows"] == 60
    assert known["accuracy"] > 0.9


def test_the_page_is_served_until_an_interrupt(place):
    outside = place / "outside.png"
    outside.write_bytes((place / "own" / "flat" / "0.png").read_bytes())
    link = place / "own" / "flat" / "link.png"
    if not link.is_symlink():
        link.symlink_to(outside)
        (place / "own" / "flat" / "within.png").symlink_to("1.png")
        (place / "own" / "<b>steep" / "broken.png").write_bytes(b"no picture")
    with exploring(place / "model.safetensors", place / "own") as (process, line, address):
        assert address.startswith("http://127.0.0.1:")
        assert "7 pictures (1 left out), 10 classes" in line
        names = [picture["name"] for picture in json.loads(got(address + "api/facts"))["samples"]]
        assert "flat/within.png" in names
        assert "flat/link.png" not in names
        assert got(address + "pictures/6.jpg")[:2] == b"\xff\xd8"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
    assert "left out 1 links that lead out of it, such as 'flat/link.png'" in err
    assert "left out: <b>steep/broken.png: cannot be read as a picture" in err
    assert err.count("\n") == 2


def test_pictures_are_explored_from_the_network_after_a_warning(place):
    folder, options = place / "waves" / "test", ("--host", "0.0.0.0")
    with exploring(place / "model.safetensors", folder, *options) as (process, line, address):
        assert "60 pictures, 10 classes" in line
        near_by = address.replace("0.0.0.0", "127.0.0.1")
        near = json.loads(got(near_by + "api/look/30"))
        assert (near["label"], near["name"]) == ("wave5", "wave5/005.png")
        assert near["classes"][0]["label"] == "wave5"
        assert got(near_by + "pictures/30.jpg")[:2] == b"\xff\xd8"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert "--host 0.0.0.0: everybody who can reach this machine can see the pictures" in err


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
            ("explore", model, rows): "neither a picture nor a folder",
            ("explore", model, own, "--split", "test"): "pictures have no parts",
            ("explore", model, own, "--port", port): "cannot be listened on",
            ("explore", model, own, "--port", "x"): "--port",
            ("explore", model, own, "--host", "256.1.1.1"): "--host 256.1.1.1",
            ("evaluate", other, rows, "--split", "test"): "pictures have no parts",
        }
        for done, words in zip(in_forks(list(runs), place), runs.values(), strict=True):
            lines = done.stderr.splitlines(keepends=True)
            done.stderr = lines[-1]  # links that are left out are told before
            assert_one_line(done, words)
    done = bitclass("explore", model, empty)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("none of the pictures could be read")
