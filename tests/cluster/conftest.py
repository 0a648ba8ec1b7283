"""One cluster for all tests that do not change it."""

import pytest

from . import clusters


@pytest.fixture(scope="session")
def shared_cluster():
    with clusters.cluster() as client:
        yield client


@pytest.fixture
def client(shared_cluster):
    with shared_cluster.as_current():
        yield shared_cluster
