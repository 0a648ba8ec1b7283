"""What serves the kernels on this machine, and the environment variable that chooses it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads

__all__ = ["get_config", "show_config"]

ENVIRONMENT_VARIABLE = "BITCLASS_SIMD"


def use_level_of_environment() -> None:
    """Use the SIMD level that ``BITCLASS_SIMD`` names, where it is set.

    Raises
    ------
    ValueError
        Where the name is unknown, or this machine cannot run that level.
    """
    name = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if name:
        try:
            _kernels._use_level(name)
        except ValueError as error:
            raise ValueError(f"{ENVIRONMENT_VARIABLE}: {error}") from None


def get_config() -> dict[str, Any]:
    """Tell what serves the kernels.

    Returns
    -------
    dict
        simd : str, the SIMD level in use
        simd_available : list of str, the levels this machine can run, slowest first
        threads : int, how many threads a call uses unless it says otherwise
        compiler : str, version of the compiler that built the kernels
        numpy : str, version of NumPy

    Examples
    --------
    >>> config = get_config()
    >>> config["simd"] in config["simd_available"]
    True
    """
    return {
        "simd": _kernels.current_level(),
        "simd_available": _kernels.available_levels(),
        "threads": effective_threads(None),
        "compiler": _kernels.compiler(),
        "numpy": np.__version__,
    }


def show_config() -> None:
    """Print which SIMD level and how many threads serve the kernels, and what built them.

    Examples
    --------
    >>> show_config()  # doctest: +ELLIPSIS
    SIMD level : ...
    threads    : ...
    compiler   : ...
    NumPy      : ...
    """
    config = get_config()
    available = ", ".join(config["simd_available"])
    print(f"SIMD level : {config['simd']} (available: {available}; {ENVIRONMENT_VARIABLE} chooses)")
    print(f"threads    : {config['threads']} (BITCLASS_NUM_THREADS or set_num_threads chooses)")
    print(f"compiler   : {config['compiler']}")
    print(f"NumPy      : {config['numpy']}")
