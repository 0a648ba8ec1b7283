"""`bitclass serve` as a process, and raw requests to it."""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from bitclass import PackedModel
from bitclass.codes import pack
from bitclass.hash_function import HashFunction
from bitclass.serving import create_server, listen

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


def rows(n, seed=1, dtype=np.float32):
    return (10 * np.random.default_rng(seed).standard_normal((n, N_FEATURES))).astype(dtype)


@contextmanager
def serving(*arguments):
    """The command while it serves, on any free port."""
    with tempfile.TemporaryFile("w+") as log:  # nobody would empty a pipe
        process = subprocess.Popen(
            [COMMAND, "serve", *map(str, arguments), "--port", "0"],
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


@contextmanager
def in_thread(app):
    """Port of an application that is served by a thread of this process."""
    listener = listen("127.0.0.1", 0)
    started = threading.Event()
    server = create_server(app, on_start=started.set)
    thread = threading.Thread(target=server.run, args=([listener],))
    port = listener.getsockname()[1]
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield SimpleNamespace(port=port)
    finally:
        server.should_exit = True
        thread.join()
