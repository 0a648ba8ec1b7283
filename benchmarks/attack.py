"""Attacks that find what tests of known cases do not: `python benchmarks/attack.py NAME`.

requests : 10,000 damaged HTTP requests; none may get an internal error or stop the service
memory : requests that take as much memory as they can, at once; the peak is reported
reloads : 1,000 new model files under load, some of them truncated; no request may fail
kills : 200 updates killed at random moments and repeated; every row must count once
fits : 500 pairs of equivalent fits, whose predictions must be the same, or as accurate

The seed is printed; `--seed` repeats a run. `--n` sets another number.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from bitclass import BinaryCodeClassifier, load, set_num_threads  # noqa: E402
from bitclass.cli import main as main_of_commands  # noqa: E402
from bitclass.storage import save  # noqa: E402
from tests.serving import services  # noqa: E402
from tests.serving.test_malformed import send_damaged  # noqa: E402
from tests.serving.test_processes import model_of, with_limits  # noqa: E402

COMMAND = Path(sys.executable).with_name("bitclass")


def attack_requests(n: int, seed: int) -> bool:
    """Send damaged requests to a service."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.safetensors"
        save(path, model_of(1))
        with services.serving(path) as service:
            statuses = send_damaged(service, n, seed)
            alive = services.ask(service, "GET", "/v2/health/ready")[0] == 200
            log = service.logged()
    print(f"{dict(statuses)}; log: {log[:2000]!r}")
    return alive and not log and not any(status.startswith("5") for status in statuses)


def watch_health(service: Any, slowest: Any) -> None:
    """Ask for the health of a service, for ever, and keep the longest time in seconds."""
    while True:
        start = time.monotonic()
        assert services.ask(service, "GET", "/v2/health/live")[0] == 200
        slowest.value = max(slowest.value, time.monotonic() - start)
        time.sleep(0.1)


def attack_memory(n: int, seed: int) -> bool:
    """Let n clients of several kinds ask for as much as they may, and report the peak."""
    row = b"[" + b",".join([b"0.5"] * 12) + b"]"
    bodies = {
        "/predict": b'{"rows":[' + b",".join([row] * 9_999) + b"]}",
        "/predict?top=25": b'{"rows":[' + b",".join([row] * 1_999) + b"]}",
        "/predict?top=50000": b'{"rows":[' + row + b"]}",
        "/predict?top=2": b'{"rows":[' + b"0.1," * 249_000 + b"0]}",
        "/predict?top=3": b'{"rows":[' + b"{}," * 99_000 + b"0]}",
        "/predict?top=4": b'{"rows":["' + b"x" * 3_900_000 + b'\\ud83d\\ude00"]}',
        "/v2/models/m/infer": b'{"a":' * 50_000,
        "/predict/m": b" " * 9_999_999,
        "/predict/long?top=2000": b'{"rows":[' + b",".join([row] * 25) + b"]}",
    }
    kinds = [
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
        for path, body in bodies.items()
    ]
    kinds += [
        b"GET /api/models/m/classes?search=9 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        save(path, services.random_model(np.arange(100_000)))
        long = Path(folder) / "long.safetensors"
        save(long, services.random_model([f"a label of class {i}" for i in range(2000)]))
        with services.serving(path, long) as service:
            body = {"rows": services.rows(1).tolist()}
            services.ask(service, "POST", "/predict?top=5", body)
            idle, _ = services.memory(service.process.pid)

            def send(kind: bytes, reads: bool) -> None:
                with suppress(OSError), socket.socket() as connection:
                    if not reads:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                    connection.settimeout(30)
                    connection.connect(("127.0.0.1", service.port))
                    connection.sendall(kind)
                    time.sleep(0 if reads else 3)
                    while reads and connection.recv(1 << 16):
                        pass

            # In a process of its own: the threads that send would delay it.
            slowest = multiprocessing.Value("d", 0.0)
            arguments = SimpleNamespace(port=service.port), slowest
            watcher = multiprocessing.Process(target=watch_health, args=arguments, daemon=True)
            watcher.start()
            for kind in [*([each] for each in kinds), kinds]:
                threads = [
                    threading.Thread(target=send, args=(kind[i % len(kind)], i % 3 > 0))
                    for i in range(n)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert watcher.is_alive()
                _, peak = services.memory(service.process.pid)
                print(
                    f"{kind[0][:40]!r}: idle {idle / 1e6:.0f} MB, peak so far {peak / 1e6:.0f} MB, "
                    f"slowest health check {slowest.value:.2f} s",
                    flush=True,
                )
            watcher.terminate()
    return peak <= 2 * idle and slowest.value < 1.0


def attack_reloads(n: int, seed: int) -> bool:
    """Replace the model file under load; every tenth file is truncated."""
    X, failed, done, seen = services.rows(3, dtype=np.float64), [], threading.Event(), set()
    expected = [model_of(k).predict(X).tolist() for k in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        save(path, model_of(0))
        with services.serving(path, command=with_limits(reload_seconds=0.01)) as service:

            def ask() -> None:
                connection = http.client.HTTPConnection("127.0.0.1", service.port)
                while not done.is_set():
                    status, _, content = services.ask(
                        service, "POST", "/predict", {"rows": X.tolist()}, connection
                    )
                    seen.add(status)
                    if status != 200 or json.loads(content)["labels"] not in expected:
                        failed.append(content)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()

            def counted(result: str) -> int:
                text = services.ask(service, "GET", "/metrics")[2].decode()
                found = [line for line in text.splitlines() if f'result="{result}"' in line]
                return int(float(found[0].split()[-1])) if found else 0

            loaded = refused = 0
            for i in range(n):
                if i % 10 == 9:
                    whole = path.read_bytes()
                    path.write_bytes(whole[: len(whole) // 2])  # may be seen while it is empty, too
                    services.wait_until(lambda: counted("refused") > refused)
                    refused = counted("refused")
                save(path, model_of(1 + i % 4))
                loaded += 1
                services.wait_until(lambda: counted("loaded") == loaded)
            done.set()
            for thread in threads:
                thread.join()
    print(f"{loaded} files loaded, {refused} refused, {len(failed)} requests failed; {seen}")
    return not failed


def update(folder: Path, batch: str, errors: Any) -> None:
    """Run `bitclass update` in this process."""
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors.fileno(), 2)
    sys.argv = [str(COMMAND), "update", "m.safetensors", batch]
    main_of_commands()


def attack_kills(n: int, seed: int) -> bool:
    """Kill updates after random times, and repeat them until they succeed."""
    rng, killed = random.Random(seed), 0
    rows = np.random.default_rng(seed).standard_normal((4000, 20))
    labels = (rows[:, 0] > 0).astype(int) + 2 * (rows[:, 1] > 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "first.npz", X=rows[:1000], y=labels[:1000])
        fit = ["fit", "first.npz", "--model", "m.safetensors", "--keep-sums", "--no-refine"]
        errors = (folder / "errors.txt").open("w+")
        quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": errors}
        subprocess.run([COMMAND, *fit, "--bits", "64"], check=True, **quiet)
        trial = folder / "trial"
        shutil.copytree(folder, trial)
        # Forked from a process that has imported everything: kills fall into the work.
        forks = multiprocessing.get_context("fork")
        for first in (0, 10):  # the second time, it is not longer than later
            np.savez(
                trial / f"{first}.npz", X=rows[first : first + 10], y=labels[first : first + 10]
            )
            start = time.monotonic()
            process = forks.Process(target=update, args=(trial, f"{first}.npz", errors))
            process.start()
            process.join()
            assert process.exitcode == 0, Path(errors.name).read_text()[-2000:]
        duration, n_rows, i = time.monotonic() - start, 1000, 0
        while killed < n:
            size = rng.randrange(5, 50)
            first = rng.randrange(0, 3900)
            batch = folder / f"batch{i}.npz"
            X = rows[first : first + size] + 1e-9 * (i + 1)  # each batch has its own content
            np.savez(batch, X=X, y=labels[first : first + size])
            n_rows, i = n_rows + size, i + 1
            while True:
                process = forks.Process(target=update, args=(folder, batch.name, errors))
                start = time.monotonic()
                process.start()
                # More often late, when files are written.
                process.join(duration * (1.1 - rng.random() ** 2))
                process.kill()
                process.join()
                if process.exitcode != -signal.SIGKILL:
                    assert process.exitcode == 0, Path(errors.name).read_text()[-2000:]
                    # The machine may be busier than it was before, or less.
                    duration = 0.5 * (duration + time.monotonic() - start)
                    break
                killed += 1
                duration *= 1.02  # or it may be so busy that none would ever end
            batch.unlink()
            found = load(folder / "m.safetensors").summary["report"]["n_rows"]
            sums = BinaryCodeClassifier.load(folder / "m.safetensors").sums_
            if not found == sums.n_rows == n_rows == round(float(sums.masses().sum())):
                print(
                    f"after {killed} kills: {found} rows, {sums.n_rows} in the sums, not {n_rows}"
                )
                return False
        left = sorted(path.name for path in folder.iterdir())
    print(f"{killed} kills during {i} updates, {n_rows} rows, each counted once; files: {left}")
    return True


def random_rows(rng: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Rows and labels of a small problem, fresh rows and their labels, and parameters."""
    n_classes, d = int(rng.integers(2, 9)), int(rng.integers(2, 25))
    n = int(rng.integers(4 * n_classes, 300))
    y, spread = rng.permutation(np.arange(n) % n_classes), rng.choice([0.5, 1.0, 2.0])
    means, fresh_y = spread * rng.standard_normal((n_classes, d)), np.arange(1000) % n_classes
    # Exact in every type that is compared.
    X, fresh = (
        np.round(16 * (means[z] + rng.standard_normal((len(z), d)))) / 16 for z in (y, fresh_y)
    )
    parameters = {"n_bits": int(rng.choice([16, 33, 64])), "random_state": int(rng.integers(99))}
    if rng.random() < 0.6:
        parameters["refine"] = False
    return X, y, fresh, fresh_y, parameters


def attack_fits(n: int, seed: int) -> bool:
    """Fit the same rows in two ways; predictions of fresh rows must agree.

    The same numbers in another container, number of threads, or with other names of classes give
    the same model, to the last bit. With names in another order they do as well, but equal scores
    go to another class. With float32 and with another order of columns, sums differ by
    rounding, which may only decide predictions that are nearly ties: 1 of 1,000. Refinement takes
    thousands of steps in float32, which may amplify rounding: only the accuracy is the same.

    Rows that judge are chosen by their numbers, so another order of the rows is another split, as
    another `random_state` is, and so are rows that come twice, which also count as more rows than
    one of weight 2 (equal weights are no weights). What is promised is the same accuracy: the
    difference is compared with the standard error of 1,000 fresh rows.
    """
    differing: dict[str, list[tuple[int, float]]] = {}
    gains: dict[str, list[float]] = {}  # of accuracy, in standard errors
    names, backwards = np.array([f"class {i}" for i in range(10)]), np.arange(10)[::-1]
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        X, y, fresh, fresh_y, parameters = random_rows(rng)
        one = BinaryCodeClassifier(**parameters).fit(X, y)
        other = BinaryCodeClassifier(**parameters)
        order, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
        way = WAYS[i % len(WAYS)]
        rows = fresh
        if way == "float32":
            other.fit(X.astype(np.float32), y)
        elif way == "Fortran order":
            other.fit(np.asfortranarray(X), y)
        elif way == "CSR":
            other.fit(sp.csr_array(X), y)
        elif way == "list":
            other.fit(X.tolist(), y.tolist())
        elif way == "threads":
            set_num_threads(2)
            other.fit(X, y)
            set_num_threads(1)
        elif way == "names of classes":
            other.fit(X, names[y])
        elif way == "order of classes":
            other.fit(X, backwards[y])
        elif way == "batches":
            cuts = np.sort(rng.choice(np.arange(1, len(X)), 3, replace=False))
            other.fit_batches(list(zip(np.split(X, cuts), np.split(y, cuts), strict=True)))
        elif way == "partial_fit":
            for part in np.array_split(np.arange(len(X)), 3):
                other.partial_fit(X[part], y[part], classes=np.unique(y))
        elif way == "weights of one":
            other.fit(X, y, sample_weight=np.ones(len(X)))
        elif way == "equal weights":
            other.fit(X, y, sample_weight=np.full(len(X), 4.0))
        elif way == "rows of weight 0":
            more = np.concatenate([X, 100 * X]), np.concatenate([y, y[::-1]])
            other.fit(*more, sample_weight=np.repeat([1.0, 0.0], len(X)))
        elif way == "saved":
            with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
                one.save(file.name)
                other = BinaryCodeClassifier.load(file.name)
        elif way == "order of rows":
            other.fit(X[order], y[order])
        elif way == "order of columns":
            other.fit(X[:, columns], y)
            rows = fresh[:, columns]
        else:  # repetition: with weights 2, and every row twice
            one.fit(X, y, sample_weight=np.full(len(X), 2.0))
            other.fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
        found = other.predict(rows)
        expected = one.predict(fresh)
        is_refined = one.report_.refined or other.report_.refined
        if way in SAME_ACCURACY or (way in ROUNDED and is_refined):
            one_right, other_right = np.mean(expected == fresh_y), np.mean(found == fresh_y)
            mean = (one_right + other_right) / 2
            error = np.sqrt(2 * mean * (1 - mean) / len(fresh)) + 1 / len(fresh)
            gains.setdefault(way, []).append((other_right - one_right) / error)
        if way == "names of classes":
            expected = names[expected]
        elif way == "order of classes":  # equal scores go to another class
            scores = one.packed().scores(fresh)
            rows, back = np.arange(len(fresh)), backwards[found]
            tied = np.abs(scores[rows, expected] - scores[rows, back]) < 1e-6
            expected = np.where(tied, found, backwards[expected])
        share = float(np.mean(found != expected))
        if way in ROUNDED and is_refined:
            way += ", refined"
        differing.setdefault(way, []).append((i, share))
    for way, shares in differing.items():
        values = np.array([share for _, share in shares])
        worst = max(shares, key=lambda each: each[1])
        print(
            f"{way:20} {len(values):4} pairs, {np.count_nonzero(values)} differ, "
            f"mean {values.mean():.3%}, worst {worst[1]:.1%} (pair {worst[0]})"
        )
    are_good = all(share == 0 for way in EXACT for _, share in differing.get(way, []))
    are_good &= all(share <= 1e-3 for way in ROUNDED for _, share in differing.get(way, []))
    for way, values in gains.items():
        mean, error = np.mean(values), np.std(values) / np.sqrt(len(values))
        print(
            f"{way:20} accuracy differs by {mean:+.2f} standard errors on average (+-{error:.2f}), "
            f"from {min(values):+.2f} to {max(values):+.2f}"
        )
        are_good &= bool(abs(mean) <= 3 * error + 0.01 and np.abs(values).max() <= 3)
    return are_good


EXACT = (
    *("Fortran order", "CSR", "list", "threads", "names of classes", "batches", "partial_fit"),
    *("weights of one", "equal weights", "rows of weight 0", "saved", "order of classes"),
)
ROUNDED = ("float32", "order of columns")
SAME_ACCURACY = ("order of rows", "repetition")
WAYS = (*EXACT, *ROUNDED, *SAME_ACCURACY)

ATTACKS = {
    "requests": (attack_requests, 10_000),
    "memory": (attack_memory, 100),
    "reloads": (attack_reloads, 1000),
    "kills": (attack_kills, 200),
    "fits": (attack_fits, 500),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--n", type=int)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    options = parser.parse_args()
    attack, default = ATTACKS[options.attack]
    print(f"{options.attack}, seed {options.seed}", flush=True)
    set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.exit(0 if attack(options.n or default, options.seed) else 1)


if __name__ == "__main__":
    main()
