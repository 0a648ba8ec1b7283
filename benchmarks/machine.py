"""What was measured on: processor, cores, memory, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bitclass._native import get_config

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """Processor, cores, memory and versions of this machine.

    Examples
    --------
    >>> sorted(machine())
    ['bitclass', 'cores', 'memory_bytes', 'processor', 'python', 'versions']
    """
    return {
        "processor": _of_file("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": 1024 * int((_of_file("/proc/meminfo", "MemTotal") or "0").split()[0]),
        "python": platform.python_version(),
        "versions": {
            name: _version(name)
            for name in ("numpy", "scipy", "scikit-learn", "faiss-cpu", "bitclass")
        },
        "bitclass": get_config(),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _of_file(path: str, name: str) -> str:
    """The value of the first line of that name; empty where there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":")[1].strip() for line in lines if line.startswith(name)), "")
