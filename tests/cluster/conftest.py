"""One cluster for all tests that do not change it."""

import pytest

from bitclass.training import refine

from . import clusters


@pytest.fixture(scope="session")
def shared_cluster():
    with clusters.cluster() as client:
        yield client


@pytest.fixture
def client(shared_cluster):
    with shared_cluster.as_current():
        yield shared_cluster


@pytest.fixture(scope="package", autouse=True)
def usual_refinement(short_refinement):
    """Other processes refine by the usual number of steps, so this one must."""
    shortened, refine._MIN_VISITS = refine._MIN_VISITS, short_refinement
    yield
    refine._MIN_VISITS = shortened
