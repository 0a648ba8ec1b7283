"""Services shared by all tests that do not stop them: a process, and a server of the page."""

import shutil
import tempfile

import chromium
import pytest
import services

from bitclass.serving import ServedModel, Service
from bitclass.serving.explorer import Explorer
from bitclass.storage import load, save


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
def served(tmp_path_factory):
    """Model and gallery of a folder of drawn images."""
    pytest.importorskip("PIL", reason="the page needs bitclass[images]")
    import explore_images

    folder = tmp_path_factory.mktemp("drawn") / "images"
    explore_images.draw_folder(folder)
    return explore_images.served_folder(folder)


@pytest.fixture(scope="session")
def explorer(served):
    return Explorer(served)


@pytest.fixture(scope="session")
def texts_explorer():
    return Explorer(ServedModel("texts", services.text_model()))


@pytest.fixture(scope="session")
def server(served):
    """A server of the page, with additional models of rows and of texts."""
    rows_only = ServedModel("rows", served.model)
    texts = ServedModel("texts", services.text_model())
    with services.in_thread(Service([served, rows_only, texts])) as running:
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
