"""`bitclass serve` as a process, and raw requests to it."""

import functools
import http.client
import http.server
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import uvicorn

from bitclass import BinaryCodeClassifier, PackedModel, TextClassifier
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.serving import Limits, ServedModel, Service, listen
from bitclass.serving.server import configuration

from ..small_network import small_network

COMMAND = Path(sys.executable).with_name("bitclass")
PATIENCE = 60.0
N_FEATURES = 12


def random_model(labels, n_bits=64, n_features=N_FEATURES, seed=0):
    rng = np.random.default_rng(seed)
    function = HashFunction(
        rng.standard_normal((n_features, n_bits)).astype(np.float32), rng.standard_normal(n_bits)
    )
    weights = pack(rng.standard_normal((len(labels), n_bits)) > 0)
    return PackedModel(np.asarray(labels), weights, function, temperature=3.0)


def text_model():
    classifier = TextClassifier(32, random_state=0, refine=False)
    texts = ["open the door", "play some music"] * 10
    return classifier.fit(texts, ["door", "music"] * 10).packed()


def rows(n, seed=1, dtype=np.float32):
    return (10 * np.random.default_rng(seed).standard_normal((n, N_FEATURES))).astype(dtype)


@contextmanager
def serving(*arguments, command=(COMMAND,)):
    """Run the command on a free port."""
    with tempfile.TemporaryFile("w+") as log:  # nobody would empty a pipe
        process = subprocess.Popen(
            [*command, "serve", *map(str, arguments), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

        def logged():
            log.seek(0)
            return log.read()

        try:
            line = process.stdout.readline()
            found = re.search(r"http://(\S+):(\d+)/", line)
            assert found, (line, logged())
            yield SimpleNamespace(process=process, port=int(found[2]), logged=logged)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def ask(service, method, path, body=None, connection=None, **headers):
    """Status, headers and content of an answer."""
    own = connection or http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    if isinstance(body, dict | list):
        body = json.dumps(body).encode()
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        own.request(method, path, body, names)
        answer = own.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        if connection is None:
            own.close()


def ask_json(service, method, path, body=None, **headers):
    """Status and JSON of an answer."""
    status, found, content = ask(service, method, path, body, **headers)
    assert found.get_content_type() == "application/json", (status, content)
    return status, json.loads(content)


class Connection:
    """A connection for raw requests, kept open as long as the server keeps it."""

    def __init__(self, port):
        self.port, self.stream = port, None

    def answer(self, request, keep=True, send_end=False):
        """Status and content of the answer."""
        if self.stream is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
            self.stream = self.socket.makefile("rb")
        self.socket.sendall(request)
        if send_end:
            self.socket.shutdown(socket.SHUT_WR)
        line = self.stream.readline()
        length, close = 0, not keep
        while (header := self.stream.readline().strip().lower()) != b"":
            name, _, value = header.partition(b":")
            if name == b"content-length":
                length = int(value)
            close |= name == b"connection" and value.strip() == b"close"
        content = self.stream.read(length)
        if close:
            self.close()
        return int(line.split()[1]), content

    def close(self):
        if self.stream is not None:
            self.stream.close()
            self.socket.close()
            self.stream = None


@contextmanager
def files_served(folder):
    """Serve the files of a folder; yields the URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@contextmanager
def in_thread(*models, **limits):
    """Serve models in a thread of this process."""
    limits = Limits(**limits)
    named = {served.name: served for served in models}
    app = Service(named, limits=limits, hosts=["Models.example"])
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = uvicorn.Server(configuration(app, limits))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield SimpleNamespace(port=port, url=f"http://127.0.0.1:{port}/", app=app)
    finally:
        server.should_exit = True
        thread.join()


def wait_until(true):
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def memory(process):
    """Resident memory of a process now and at its peak, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return 1024 * int(found["VmRSS"]), 1024 * int(found["VmHWM"])


# Images of three classes, drawn for the tests, and a model trained on them. The names would be
# markup if they were not escaped.
CLASSES = ("stripes", "<b>bars", "<img src=x onerror=alert(1)>")


def drawn(kind, seed, side=48):
    """An image of one of the classes, (side, side, 3)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    kinds = (y, x, (x + y) / 1.4)
    grey = 0.5 + 0.4 * np.sin(2 * np.pi * rng.uniform(3.5, 5) * kinds[kind] + rng.uniform(0, 6))
    colours = np.array([[90, 160, 255], [255, 150, 80], [130, 220, 120]])
    image = grey[:, :, None] * colours[kind] + rng.normal(0, 6, (side, side, 1))
    return np.clip(image, 0, 255).astype(np.uint8)


def encoded(pixels, format="PNG", **options):
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format, **options)
    return stream.getvalue()


def image_model():
    network = small_network()
    images = [encoded(drawn(kind, seed)) for kind in range(3) for seed in range(12)]
    labels = [name for name in CLASSES for _ in range(12)]
    model = BinaryCodeClassifier(96, random_state=0).fit(network.rows(images), labels)
    return ServedModel("drawn", model.packed(), network, "images")
