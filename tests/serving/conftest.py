"""Services shared by all tests that do not stop them: a process, and a server of the page."""

import shutil
import tempfile

import pytest

from bitclass.serving import ServedModel
from bitclass.storage import load, save

from . import chromium, services


@pytest.fixture(scope="session")
def paths(tmp_path_factory):
    """Model files by the names under which they are served."""
    folder = tmp_path_factory.mktemp("models")
    models = {
        "words": services.random_model([f"wörd {i}" for i in range(40)]),
        "numbers": services.random_model(range(5, 305), n_bits=70, seed=2),
        "intents": services.text_model(),
    }
    for name, model in models.items():
        save(folder / f"{name}.safetensors", model)
    return {name: folder / f"{name}.safetensors" for name in models}


@pytest.fixture(scope="session")
def loaded(paths):
    """The models as the service reads them from their files."""
    return {name: load(path) for name, path in paths.items()}


@pytest.fixture(scope="session")
def service(paths):
    limits = ("--max-body", "0.5", "--max-rows", "1000", "--max-connections", "50")
    with services.serving(*paths.values(), *limits) as running:
        yield running
        assert running.process.poll() is None, "the service has ended"
        # Clients must not be able to fill the disk, or to inject lines into the log.
        assert running.logged() == ""


@pytest.fixture(scope="session")
def served():
    """A model of drawn images."""
    pytest.importorskip("PIL", reason="the page needs the extra images")
    return services.image_model()


@pytest.fixture(scope="session")
def server(served):
    """A service of models of images, rows and texts, in a thread."""
    rows_only = ServedModel("rows", served.model)
    texts = ServedModel("texts", services.text_model())
    with services.in_thread(served, rows_only, texts) as running:
        yield running


@pytest.fixture(scope="session")
def running():
    """A browser."""
    # Not below the folder of the test, whose path may be too long for the browser's sockets.
    profile = tempfile.mkdtemp(prefix="bitclass-")
    browser = chromium.Browser(profile)
    yield browser
    browser.close()
    shutil.rmtree(profile, ignore_errors=True)
