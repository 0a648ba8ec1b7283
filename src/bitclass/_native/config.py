"""SIMD level and build configuration of the kernels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bitclass._native import _kernels
from bitclass._native.threads import effective_threads

ENVIRONMENT_VARIABLE = "BITCLASS_SIMD"


def use_level_of_environment() -> None:
    """Use the SIMD level named by ``BITCLASS_SIMD``, if it is set.

    An unknown name, or a level that this machine does not support, is a ValueError.
    """
    name = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if name:
        try:
            _kernels._use_level(name)
        except ValueError as error:
            raise ValueError(f"{ENVIRONMENT_VARIABLE}: {error}") from None


def get_config() -> dict[str, Any]:
    """SIMD level, threads and build configuration of the kernels.

    Returns
    -------
    dict
        simd : str, the SIMD level in use
        simd_available : list of str, the levels that this machine supports, slowest first
        threads : int, default number of threads
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
        "threads": effective_threads(),
        "compiler": _kernels.compiler(),
        "numpy": np.__version__,
    }
