"""`bitclass serve` as a process, and raw requests to it."""

import functools
import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.serving import listen
from bitclass.serving.server import serve_in_thread
from bitclass.text import NgramHasher

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
    hasher = NgramHasher()
    X = hasher.fit_transform(["open the door", "play some music"] * 10)
    model = BinaryCodeClassifier(32, random_state=0, refine=False).fit(X, ["door", "music"] * 10)
    return model.packed().with_text(hasher.features_)


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
def in_thread(app):
    """Serve an application in a thread of this process."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    stop = serve_in_thread(app, listener)
    try:
        yield SimpleNamespace(port=port, url=f"http://127.0.0.1:{port}/")
    finally:
        stop()
