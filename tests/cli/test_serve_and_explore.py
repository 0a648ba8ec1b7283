"""`bitclass explore` as a process, and errors of it and of `bitclass serve`."""

import json
import re
import signal
import socket
import subprocess
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from running import COMMAND, assert_refused, environment, problem, succeed

pytest.importorskip("PIL", reason="images need bitclass[images]")
pytest.importorskip("starlette", reason="serving needs bitclass[serve]")
from PIL import Image

from bitclass import BinaryCodeClassifier
from small_network import small_network


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of images of two classes, and a model trained on it."""
    folder = tmp_path_factory.mktemp("explore")
    for axis, name in enumerate(("flat", "<b>steep")):
        (folder / "own" / name).mkdir(parents=True)
        for shift in range(8):
            stripes = np.uint8(255 * (np.indices((32, 32))[axis] + shift) // 8 % 2)
            Image.fromarray(stripes).save(folder / "own" / name / f"{shift}.png")
    extractor = f"onnx:{small_network().file}"
    succeed("fit", "own", "--extractor", extractor, "--model", "model.safetensors", cwd=folder)
    return folder


@contextmanager
def exploring(*arguments):
    """Run the command; yields the process, its first line and its URL."""
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
    with urllib.request.urlopen(address, timeout=300) as answer:
        return answer.read()


def test_the_page_is_served_until_an_interrupt(place):
    (place / "own" / "<b>steep" / "broken.png").write_bytes(b"no image")
    with exploring(place / "model.safetensors", place / "own") as (process, line, address):
        assert address.startswith("http://127.0.0.1:")
        assert "16 images (1 skipped), 2 classes" in line
        assert b'"flat/1.png"' in got(address + "api/models/model/images")
        assert got(address + "api/models/model/images/5.jpg")[:2] == b"\xff\xd8"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
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
        _, err = process.communicate(timeout=300)
    assert "--host 0.0.0.0: anyone who can reach this machine can see the images" in err


def test_serving_errors_are_one_line(place):
    model, own, other = (place / name for name in ("model.safetensors", "own", "a b.safetensors"))
    X, y = problem(60, 6)
    rows = place / "rows.npz"
    np.savez(rows, X=X, y=y)
    BinaryCodeClassifier(16, refine=False).fit(X, y).save(other)
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
            ("serve",): (2, "MODEL"),
            ("serve", place / "absent"): (1, "absent: No such file"),
            ("serve", rows): (1, "rows.npz"),
            ("serve", model, f"model={other}"): (2, "model: two models have this name"),
            ("serve", other): (2, "NAME=MODEL"),
            ("serve", f"/={model}"): (2, "found '/'"),
            ("serve", model, "--port", port): (2, "cannot listen"),
            ("serve", model, "--max-rows", "0"): (2, "--max-rows"),
        }
        cases = {run: (run, code, [words]) for run, (code, words) in runs.items()}
        assert_refused(cases, place, imports=["bitclass.serving"])
