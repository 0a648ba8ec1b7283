"""Running cells in separate processes under a limit of CPU time; results are stored in files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from reproduction.datasets import fingerprint
from reproduction.methods import METHODS, settings_text
from reproduction.plan import Cell

__all__ = ["Outcome", "run_cells", "write_whole"]

#: Outcome of a cell: `status` ("done", "timeout" or "failed"), `limit` in seconds, `reason` unless
#: done, the results of `measure`, and `learned_for`, seconds of training before a timeout.
Outcome = dict[str, Any]

ROOT = Path(__file__).parents[1]
#: LibLinear is single-threaded, so every method runs on one thread.
ONE_THREAD = dict.fromkeys(
    ("BITCLASS_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


def run_cells(
    cells: Sequence[Cell],
    folder: Path | None,
    kept: Path,
    time_limit: float,
    report: Callable[[Cell, Outcome], None] = lambda cell, outcome: None,
    n_jobs: int = 1,
) -> dict[Cell, Outcome]:
    """Run cells, `n_jobs` at a time: with more than there are cores, they compete for caches.

    A finished cell is not run again; one that timed out is run again under a larger limit; one that
    failed is always run again. If a cell times out, its other seeds are skipped. Feature files are
    in `folder`; results of cells are stored in the folder `kept`.
    """
    checksums = {name: fingerprint(name, folder) for name in {cell.data for cell in cells}}
    outcomes: dict[Cell, Outcome] = {}
    processes: set[subprocess.Popen[bytes]] = set()
    stopped = threading.Event()

    def run(cell: Cell) -> None:
        bits = f"-{cell.n_bits}" if cell.n_bits else ""
        path = kept / f"{cell.data}-{cell.method}{bits}-seed{cell.seed}.json"
        estimator = METHODS[cell.method].build(max(1, cell.n_bits), cell.seed)
        depends_on = [checksums[cell.data], settings_text(estimator)]
        outcome = _kept(path, depends_on, time_limit)
        if outcome is None and _has_timed_out(cell, dict(outcomes)):
            outcome = {"status": "timeout", "limit": time_limit, "reason": "another seed timed out"}
        elif outcome is None:
            outcome = _run(cell, folder, time_limit, processes)
            if stopped.is_set():
                return
            content = {"depends_on": depends_on, "outcome": outcome}
            write_whole(path, json.dumps(content, indent=1))
        outcomes[cell] = outcome
        report(cell, outcome)

    with ThreadPoolExecutor(n_jobs) as pool:
        running = [pool.submit(run, cell) for cell in cells]
        try:
            for future in running:
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(processes):
                process.kill()
            raise
    return {cell: outcomes[cell] for cell in cells}


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _kept(path: Path, depends_on: list[str], time_limit: float) -> Outcome | None:
    """A stored outcome that is still valid; None if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        outcome: Outcome = content["outcome"]
        is_final = outcome["status"] == "done" or (
            outcome["status"] == "timeout" and outcome["limit"] >= time_limit
        )
        return outcome if is_final and content["depends_on"] == depends_on else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _has_timed_out(cell: Cell, outcomes: dict[Cell, Outcome]) -> bool:
    return any(
        outcome["status"] == "timeout" and replace(other, seed=cell.seed) == cell
        for other, outcome in outcomes.items()
    )


def _run(
    cell: Cell,
    folder: Path | None,
    time_limit: float,
    processes: set[subprocess.Popen[bytes]],
) -> Outcome:
    """Measure a cell in a process of its own, which is among `processes` while it runs."""
    request = {
        "cell": asdict(cell),
        "folder": None if folder is None else str(folder.resolve()),
        "time_limit": time_limit,
    }
    # The process must be able to import the same packages, whatever the current folder.
    path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "reproduction.measure"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
    )
    processes.add(process)
    try:
        output, errors = process.communicate(json.dumps(request).encode() + b"\n")
    finally:
        processes.discard(process)
    if process.returncode == -signal.SIGXCPU:
        reason = f"not done within {time_limit:g} s"
        outcome = {"status": "timeout", "limit": time_limit, "reason": reason}
        return outcome | _trained_for(output, time_limit)
    if process.returncode == 0:
        with contextlib.suppress(ValueError, IndexError):
            measured: Outcome = json.loads(output.splitlines()[-1])
            return {"status": "done", "limit": time_limit, **measured}
    return {
        "status": "failed",
        "limit": time_limit,
        "reason": _reason(process.returncode, errors.decode(errors="replace")),
    }


def _trained_for(output: bytes, time_limit: float) -> dict[str, float]:
    """How long a process had been training when it was stopped, if training had started."""
    times: dict[str, float] = {}
    for line in output.decode(errors="replace").splitlines():
        event, _, seconds = line.partition(" ")
        with contextlib.suppress(ValueError):
            times[event] = float(seconds)
    if "begun" not in times:
        return {}
    return {"learned_for": max(0.0, times.get("learned", time_limit) - times["begun"])}


def _reason(code: int, errors: str) -> str:
    """Describe in one line why a process ended without a result."""
    if code < 0:
        out_of_memory = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"ended by {signal.Signals(-code).name}{out_of_memory}"
    lines = errors.strip().splitlines()
    return lines[-1][:300] if lines else f"exit code {code}"
