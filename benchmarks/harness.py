"""Shared code of the benchmarks: data, models, timing, subprocesses, and result pages."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import bitclass
from bitclass import PackedModel
from bitclass.hash_function import HashFunction

RESULTS = Path(__file__).parent / "results"
BUILD = Path(__file__).parents[1] / "build"
DATA = Path(os.environ.get("BITCLASS_DATA", Path(__file__).parents[2] / "shared" / "data"))
#: Titles of the real datasets, those with the shortest training time first.
NAMES = {
    "letter16": "letters",
    "caltech101_cnn1280": "Caltech-101",
    "clinc150_minilm384": "CLINC-150",
    "cifar10_gist512": "CIFAR-10 GIST",
    "tinyimagenet100_cnn1280": "Tiny-ImageNet-100",
    "omniglot1623_cnn1280": "Omniglot, 1,623 classes",
}

Table = Sequence[Mapping[str, Any]]


class Rows(NamedTuple):
    """Training and test rows: X (n, d) float32, labels (n,)."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]


def load(path: Path) -> Rows:
    """Load the rows of a dataset, in its published split."""
    with np.load(path, allow_pickle=False) as arrays:
        X, X_test = (arrays[key].astype(np.float32) for key in ("X_train", "X_test"))
        return Rows(X, arrays["y_train"], X_test, arrays["y_test"])


def present(names: Iterable[str], folder: Path = DATA) -> dict[str, Path]:
    """Files of the datasets that exist; an error if none does."""
    paths = {name: folder / f"{name}.npz" for name in names}
    existing = {name: path for name, path in paths.items() if path.exists()}
    for name in sorted(set(paths) - set(existing)):
        print(f"{name} is not in {folder}: skipped")
    if not existing:
        raise SystemExit(f"no data in {folder}; set BITCLASS_DATA or --data")
    return existing


def random_model(
    labels: NDArray[Any],
    n_features: int,
    n_bits: int,
    *,
    standardised: bool = False,
    rescore: int = 0,
) -> PackedModel:
    """A model with random parameters, which predicts as fast as a trained one."""
    rng = np.random.default_rng(0)
    centre = scale = None
    if standardised:
        centre = rng.standard_normal(n_features, dtype=np.float32)
        scale = rng.uniform(0.5, 2.0, n_features).astype(np.float32)
    projection = rng.standard_normal((n_features, n_bits), dtype=np.float32) / n_features**0.5
    function = HashFunction(
        projection.astype(np.float32),
        np.zeros(n_bits),
        centre=centre,
        scale=scale,
    )
    return PackedModel(labels, random_codes(len(labels), n_bits), function, rescore=rescore)


def random_codes(n: int, n_bits: int, seed: int = 0) -> NDArray[np.uint8]:
    """Packed codes (n, n_bits / 8)."""
    return np.random.default_rng(seed).integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


class Timed(NamedTuple):
    """The result of some work, its wall time, and the CPU time of all threads, in seconds."""

    result: Any
    seconds: float
    cpu: float


def timed(work: Callable[[], Any]) -> Timed:
    """Do some work once and time it."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = work()
    return Timed(result, time.perf_counter() - start, time.process_time() - cpu_start)


def seconds_of(work: Callable[[], Any], rounds: int = 1) -> float:
    """Median time of some work, in seconds."""
    return statistics.median(timed(work).seconds for _ in range(rounds))


def measure(work: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median time in seconds of each piece of work, alternating in rounds.

    Work of less than a millisecond is repeated within a round. A pause before each piece lets
    threads of the previous one go to sleep: those of OpenBLAS spin for a while after a call.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    repeats = {name: max(1, int(2e-3 / max(1e-7, seconds_of(one)))) for name, one in work.items()}
    for _ in range(rounds):
        for name, one in work.items():
            time.sleep(0.1)
            start = time.perf_counter()
            for _ in range(repeats[name]):
                one()
            seconds[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(taken) for name, taken in seconds.items()}


@contextmanager
def threads_of_all(n_threads: int) -> Iterator[None]:
    """Set the number of threads of BLAS, OpenMP and bitclass."""
    before = bitclass.set_num_threads(n_threads)
    try:
        with threadpool_limits(n_threads):
            yield
    finally:
        bitclass.set_num_threads(before)


def in_child(
    function: Callable[..., Any],
    *arguments: Any,
    threads: int | None = None,
    time_limit: float | None = None,
) -> Any:
    """Call a function of a script in a separate process and return its result.

    Arguments and result are passed as JSON. If the process fails or takes too long, the result is a
    dictionary with the reason as "failed".
    """
    module = Path(sys.modules[function.__module__].__file__ or "").stem
    program = (
        f"import json, sys, {module}; "
        f"print(json.dumps({module}.{function.__name__}(*json.loads(sys.argv[1]))))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    if threads is not None:
        libraries = ("OMP", "OPENBLAS", "MKL", "RAYON", "BITCLASS")
        environment |= {f"{name}_NUM_THREADS": str(threads) for name in libraries}
    command = [sys.executable, "-W", "ignore", "-c", program, json.dumps(arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=time_limit, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"over {time_limit:.0f} s"}
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"failed: {reason[:120]}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def checked(found: Any) -> Any:
    """Return the result of `in_child`, or exit if it failed."""
    if "failed" in found:
        raise SystemExit(found["failed"])
    return found


def peak_mb(reset: bool = False) -> float:
    """Peak memory of this process since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return _kilobytes("/proc/self/status", "VmHWM") / 1e3


def pss_mb(process: int | str = "self") -> float:
    """Proportional set size of a process: a page shared by n processes counts 1/n in each."""
    return _kilobytes(f"/proc/{process}/smaps_rollup", "Pss") / 1e3


def _kilobytes(path: str, name: str) -> float:
    lines = Path(path).read_text().splitlines()
    return 1.024 * int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def sweep(
    path: Path,
    cells: Iterable[Mapping[str, Any]],
    values: Sequence[str],
    run: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
) -> list[dict[str, str]]:
    """Run the cells that are not yet in a CSV file, append a line for each, and return all lines.

    A cell without a result is tried again by the next sweep.
    """
    done = list(csv.DictReader(path.open())) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for cell in cells:
            texts = {key: str(value) for key, value in cell.items()}
            if any(texts.items() <= row.items() for row in done):
                continue
            found = run(cell)
            print(*texts.values(), found, flush=True)
            if found is None:
                continue
            writer = writer or csv.DictWriter(file, [*cell, *values], restval="")
            if not done:
                writer.writeheader()
            row = texts | {key: str(found.get(key, "")) for key in values}
            writer.writerow(row)
            file.flush()
            done.append(row)
    return done


def parse_options(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, bool]:
    """Parse options; also whether all have their defaults, since only such runs are saved."""
    options = parser.parse_args()
    return options, options == parser.parse_args([])


def write_page(
    name: str,
    title: str,
    note: str,
    tables: Mapping[str, Table],
    *,
    with_machine: bool = True,
    keep: bool = True,
) -> None:
    """Print a page of results and write it to `results/NAME.md`.

    Parameters
    ----------
    name : str
    title : str
    note : str
        Description of the numbers, and the command that measures them.
    tables : mapping of str to sequence of mappings
        Rows of each table by its heading; a row maps columns to values.
    with_machine : bool, default=True
        Whether to describe this machine, on which the results were measured.
    keep : bool, default=True
        Whether to write the file; False for partial runs and non-default settings.
    """
    parts = [f"# {title}", f"{note} {machine()}" if with_machine else note]
    for heading, rows in tables.items():
        if rows:
            parts += [*([f"## {heading}"] if heading else []), markdown(rows)]
    text = "\n\n".join(parts) + "\n"
    if keep:
        (RESULTS / f"{name}.md").write_text(text)
    print(text)


def markdown(rows: Table) -> str:
    """Format a table in Markdown, with the columns of the first row."""
    lines = [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    lines += [f"| {' | '.join(map(_cell, row.values()))} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def machine() -> str:
    """Processor, cores and versions of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    names = ("numpy", "scipy", "scikit-learn", "faiss-cpu", "bitclass")
    return (
        f"{next(models, platform.processor())}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, {', '.join(f'{n} {_version(n)}' for n in names)}; "
        f"kernels: {bitclass.get_config()['simd']}."
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
