"""One process that serves several models, for all tests that do not stop it."""

import pytest
import services

from bitclass.storage import save


@pytest.fixture(scope="session")
def models():
    """Models by the names under which they are served."""
    words = [f"wörd {i}" for i in range(40)]
    return {
        "words": services.random_model(words),
        "numbers": services.random_model(range(5, 305), n_bits=70, seed=2),
    }


@pytest.fixture(scope="session")
def paths(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        save(folder / f"{name}.safetensors", model)
    return {name: folder / f"{name}.safetensors" for name in models}


@pytest.fixture(scope="session")
def loaded(paths):
    """The models as the service reads them from their files."""
    from bitclass.storage import load

    return {name: load(path) for name, path in paths.items()}


@pytest.fixture(scope="session")
def service(paths):
    limits = ("--max-body", "0.5", "--max-rows", "1000", "--max-connections", "50")
    with services.serving(*paths.values(), *limits) as running:
        yield running
        assert running.process.poll() is None, "the service has ended"
        assert running.logged() == ""
