"""Settings of all tests: threads, examples of Hypothesis, interrupts, short refinement."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from bitclass._native.threads import available_cpus
from bitclass.training import refine

# Workers of pytest-xdist share the CPUs.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    share = available_cpus() // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))

# Nothing depends on the speed of the machine, and the same examples are tried every time.
# Many more, and others: pytest --hypothesis-profile thorough
quiet = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
settings.register_profile("tests", max_examples=50, derandomize=True, **quiet)
settings.register_profile("thorough", max_examples=2000, derandomize=False, **quiet)
settings.load_profile("tests")

# A shell that runs the tests in the background has its children ignore the interrupts that some
# of them send to commands.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def short_refinement():
    """Refine small problems by a tenth of the steps, to save time; yields the usual number."""
    usual, refine._MIN_VISITS = refine._MIN_VISITS, 4000
    yield usual
    refine._MIN_VISITS = usual
