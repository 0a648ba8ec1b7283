"""Tests that use the fixture `level` run once at every SIMD level of this machine."""

import pytest

from bitclass._native import _kernels, threads


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch):
    """Let tests use more threads than this machine has CPUs."""
    monkeypatch.setattr(threads, "available_cpus", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture(params=_kernels.available_levels())
def level(request):
    before = _kernels.current_level()
    _kernels._use_level(request.param)
    yield request.param
    _kernels._use_level(before)
