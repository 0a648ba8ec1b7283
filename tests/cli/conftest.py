"""Commands run in processes of their own."""

import pytest

from bitclass.training import refine


@pytest.fixture(scope="package", autouse=True)
def usual_refinement(short_refinement):
    """Other processes refine by the usual number of steps, so this one must."""
    shortened, refine._MIN_VISITS = refine._MIN_VISITS, short_refinement
    yield
    refine._MIN_VISITS = shortened
