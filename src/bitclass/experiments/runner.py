"""Running cells: each in a process of its own, under a time limit, its result kept in a file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bitclass.experiments.cells import Cell, Outcome, cell_key, read_outcome, write_outcome
from bitclass.experiments.datasets import fingerprint

__all__ = ["THREADS", "run_cells"]

#: LibLinear has one thread, so every method has: times are of equal means.
THREADS = dict.fromkeys(
    ("BITCLASS_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)

Report = Callable[[Cell, Outcome | None], None]


def run_cells(
    cells: Sequence[Cell],
    folder: Path | None,
    kept: Path,
    time_limit: float,
    report: Report = lambda cell, outcome: None,
) -> dict[Cell, Outcome]:
    """Run cells one after the other, so that none takes time from another.

    A cell that is done is not run again. One that passed a limit is, where the limit is larger now;
    one that failed always is. Where a cell passed the limit, those of other seeds are not tried.

    Parameters
    ----------
    cells : Cells
    folder : of the data files
    kept : folder of the results, which must exist
    time_limit : seconds a cell
    report : called with a cell before it runs, and with its outcome after

    Returns
    -------
    outcomes by cell
    """
    fingerprints = {name: fingerprint(name, folder) for name in {cell.data for cell in cells}}
    outcomes: dict[Cell, Outcome] = {}
    for cell in cells:
        report(cell, None)
        path = kept / f"{cell_key(cell, fingerprints[cell.data])}.json"
        outcome = read_outcome(path, cell)
        if outcome is None or not _stands(outcome, time_limit):
            outcome = _foreseen(cell, outcomes, time_limit)
            if outcome is None:
                outcome = _run(cell, folder, time_limit)
                write_outcome(path, cell, outcome)
        outcomes[cell] = outcome
        report(cell, outcome)
    return outcomes


def _stands(outcome: Outcome, time_limit: float) -> bool:
    """Whether an outcome of before need not be found again."""
    if outcome.status == "timeout":
        return outcome.limit >= time_limit
    return outcome.status == "done"


def _foreseen(cell: Cell, outcomes: dict[Cell, Outcome], time_limit: float) -> Outcome | None:
    """A timeout where the same with another seed has passed the limit."""
    for other, outcome in outcomes.items():
        if outcome.status == "timeout" and replace(other, seed=cell.seed) == cell:
            return Outcome("timeout", time_limit, {}, f"not tried: {other} passed the limit")
    return None


def _run(cell: Cell, folder: Path | None, time_limit: float) -> Outcome:
    """Run a cell in a process of its own."""
    # It must find this package where this process did, and nothing in the present folder.
    environment = os.environ | THREADS | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bitclass.experiments.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # so that all it may have started ends with it
    )
    assert process.stdin is not None
    request = {"cell": asdict(cell), "folder": None if folder is None else str(folder.resolve())}
    try:
        # Its input stays open: it ends when this process does.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        return _await(process, time_limit)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _await(process: subprocess.Popen[bytes], time_limit: float) -> Outcome:
    stdin, process.stdin = process.stdin, None  # `communicate` would close it
    try:
        answer, complaints = process.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired as late:
        values = _moments(late.output or b"")
        return Outcome("timeout", time_limit, values, f"not done within {time_limit:g} seconds")
    finally:
        process.stdin = stdin
    if process.returncode == 0:
        with contextlib.suppress(ValueError):
            return Outcome("done", time_limit, json.loads(answer.splitlines()[-1]))
    return Outcome("failed", time_limit, {}, _why(process.returncode, complaints))


def _moments(told: bytes) -> dict[str, float]:
    """How long a process that was stopped had been learning, if it had begun."""
    moments = {}
    for line in told.splitlines():
        moment, _, at = line.decode(errors="replace").partition(" ")
        with contextlib.suppress(ValueError):
            moments[moment] = float(at)
    if "begun" not in moments:
        return {}
    return {"learned_for": max(0.0, moments.get("learned", time.time()) - moments["begun"])}


def _why(code: int, complaints: bytes) -> str:
    """One line on why a process ended without an answer."""
    if code < 0:
        name = signal.Signals(-code).name
        killed = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"ended by {name}{killed}"
    lines = complaints.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else f"exit code {code}"
