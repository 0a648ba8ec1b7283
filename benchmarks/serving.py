"""Requests per second and latencies of `bitclass serve`: `make serving`.

1,000 classes, 512 features, 128 bits; 1 and 64 clients with keep-alive connections, single rows and
batches of 100, as JSON and as binary tensors. The baseline gets the same requests in JSON: a plain
Starlette application in which a scikit-learn LinearSVC predicts in Starlette's thread pool. Both
compute with one thread per request: by default the OpenBLAS threads of all pool threads, which even
single rows use, wait for each other, and LinearSVC is 10 to 300 times slower. Services alternate;
all clients are in another process. Also measures the memory of ten processes that serve a model of
138 MB (Linux). Writes `results/serving.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness import parse_options, pss_mb, random_model, write_page

N_CLASSES, N_FEATURES, N_BITS = 1000, 512, 128
LARGE_CLASSES, LARGE_BITS = 1_000_000, 1024
N_WORKERS = 10
LABELS = np.array([f"n{i:08d}" for i in range(N_CLASSES)])
NOTE = (
    f"{N_CLASSES:,} classes, {N_FEATURES} features, {N_BITS} bits. Each service is one process, "
    "all clients are another, and connections are kept alive. Services alternate; the results are "
    "medians over rounds. Both sides use one thread per prediction (`BITCLASS_NUM_THREADS=1`, "
    "`OPENBLAS_NUM_THREADS=1`; with OpenBLAS's default, LinearSVC behind a thread pool is many "
    "times slower). JSON: POST /predict. Binary: FP32 tensors of the Open Inference Protocol. "
    "Memory: sum of the proportional set sizes (PSS), in which a page shared by n processes counts "
    "1/n in each, after predictions in all processes; "
    f"{LARGE_CLASSES:,} classes, {LARGE_BITS:,} bits. Measured by `make serving`."
)


def write_model(path: Path, labels: Any, n_bits: int = N_BITS) -> None:
    from bitclass.storage import save

    save(path, random_model(labels, N_FEATURES, n_bits))


def serve_baseline() -> None:
    """Serve the baseline, as a user would write it: LinearSVC behind Starlette."""
    import orjson
    import uvicorn
    from sklearn.svm import LinearSVC
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from bitclass.serving import listen

    rng = np.random.default_rng(0)
    model = LinearSVC()  # not fitted, which takes hours with 1,000 classes and affects no time here
    model.coef_ = rng.standard_normal((N_CLASSES, N_FEATURES))
    model.intercept_ = rng.standard_normal(N_CLASSES)
    model.classes_ = LABELS

    async def predict(request: Request) -> Response:
        X = np.asarray(orjson.loads(await request.body())["rows"])
        labels = await run_in_threadpool(model.predict, X)
        return Response(orjson.dumps({"labels": labels.tolist()}))

    listener = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    app = Starlette(routes=[Route("/predict", predict, methods=["POST"])])
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


class Running(NamedTuple):
    """A running service: its process ID and port."""

    process: int
    port: int


@contextmanager
def running(*command: str) -> Iterator[Running]:
    """Run a service in a subprocess."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "BITCLASS_NUM_THREADS")
    env = os.environ | dict.fromkeys(names, "1")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found, f"{command} did not start"
        yield Running(process.pid, int(found[1]))
    finally:
        process.terminate()
        process.wait()


def request_of(X: np.ndarray[Any, Any], binary: bool) -> bytes:
    more, path = "", "/predict"
    body = json.dumps({"rows": X.tolist()}).encode()
    if binary:
        path = "/v2/models/model/infer"
        size = {"binary_data_size": X.nbytes}
        tensor = {"name": "rows", "datatype": "FP32", "shape": X.shape, "parameters": size}
        head = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        content = json.dumps(head).encode()
        more = f"Inference-Header-Content-Length: {len(content)}\r\n"
        body = content + X.tobytes()
    lines = f"Host: 127.0.0.1\r\n{more}Content-Length: {len(body)}\r\n"
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def load(
    port: int, request: bytes, n_clients: int, seconds: float
) -> tuple[list[float], int]:
    """Latencies of all answers, and the number of refusals.

    Each client waits for the answer before its next request. If the service is too busy (503), it
    tries again when the service says, which counts as part of the latency.
    """
    end = time.perf_counter() + seconds
    latencies: list[float] = []
    n_refused = 0

    async def client() -> None:
        nonlocal n_refused
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        start = time.perf_counter()
        while start < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(field(head, "content-length")))
            if head.startswith(b"HTTP/1.1 503"):
                n_refused += 1
                writer.close()
                await asyncio.sleep(float(field(head, "retry-after")))
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                continue
            assert head.startswith(b"HTTP/1.1 200"), head
            now = time.perf_counter()
            latencies.append(now - start)
            start = now
        writer.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))
    return latencies, n_refused


def field(head: bytes, name: str) -> bytes:
    """A header of an answer."""
    found = re.search(rb"\n%s: ([^\r]*)" % name.encode(), head, re.IGNORECASE)
    assert found is not None, head
    return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="per service and round")
    parser.add_argument("--baseline", action="store_true", help=argparse.SUPPRESS)
    options, complete = parse_options(parser)
    if options.baseline:
        return serve_baseline()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        write_model(path, LABELS)
        rates = measure_rates(path, options.rounds, options.seconds)
        memory: list[dict[str, Any]] = []
        if sys.platform == "linux":
            write_model(path, np.arange(LARGE_CLASSES), LARGE_BITS)
            memory = measure_memory(path)
    tables = {"Requests": rates, "Memory": memory}
    write_page("serving", "HTTP service", NOTE, tables, keep=complete)
    return None


def measure_rates(path: Path, rounds: int, seconds: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = []
    with serving(path) as ours, running(sys.executable, __file__, "--baseline") as baseline:
        for n_clients in (1, 64):
            for n_rows in (1, 100):
                X = rng.standard_normal((n_rows, N_FEATURES)).astype(np.float32)
                cases = {
                    "LinearSVC, Starlette, JSON": (baseline.port, request_of(X, False)),
                    "bitclass serve, JSON": (ours.port, request_of(X, False)),
                    "bitclass serve, binary": (ours.port, request_of(X, True)),
                }
                rows += measure(cases, n_clients, n_rows, rounds, seconds)
    return rows


def serving(path: Path, *options: str) -> AbstractContextManager[Running]:
    command = str(Path(sys.executable).with_name("bitclass"))
    return running(command, "serve", str(path), "--port", "0", *options)


def measure_memory(path: Path) -> list[dict[str, Any]]:
    """Memory of services in MB, including parents and workers."""
    cases = {
        "1 process": (1, ()),
        f"{N_WORKERS} processes, each loads the model": (N_WORKERS, ()),
        f"serve --workers {N_WORKERS}": (1, ("--workers", str(N_WORKERS))),
    }
    size = path.stat().st_size / 1e6
    rows = []
    X = np.ones((1, N_FEATURES), dtype=np.float32)
    for name, (n_services, options) in cases.items():
        with ExitStack() as stack:
            started = [stack.enter_context(serving(path, *options)) for _ in range(n_services)]
            for service in started:
                asyncio.run(load(service.port, request_of(X, True), 8 * N_WORKERS, 2.0))
            total = sum(map(pss, started))
        rows.append({"service": name, "model file, MB": size, "memory, MB": total})
    return rows


def pss(service: Running) -> float:
    """Proportional set size of a process and its children, in MB."""
    children = Path(f"/proc/{service.process}/task/{service.process}/children").read_text()
    return sum(map(pss_mb, (service.process, *children.split())))


def measure(
    cases: dict[str, tuple[int, bytes]], n_clients: int, n_rows: int, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in cases}
    for i in range(rounds + 1):
        for name, (port, request) in cases.items():
            start = time.perf_counter()
            latencies, refused = asyncio.run(load(port, request, n_clients, seconds))
            elapsed = time.perf_counter() - start  # the last answers arrive after the end
            if i:  # the first round warms up
                percentiles = np.percentile(latencies, [50, 99]) * 1e3
                found[name].append((len(latencies) / elapsed, *percentiles, refused))
    table = []
    for name, results in found.items():
        medians = (float(statistics.median(values)) for values in zip(*results, strict=True))
        rate, p50, p99, refused = medians
        table.append(
            {
                "clients": n_clients,
                "rows per request": n_rows,
                "service": name,
                "requests per second": rate,
                "p50, ms": p50,
                "p99, ms": p99,
                "refused": int(refused),
            }
        )
    return table


if __name__ == "__main__":
    main()
