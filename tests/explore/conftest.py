"""One server for all tests of the page: it takes a second to fit what it shows."""

import shutil
import tempfile
import threading
from types import SimpleNamespace

import chromium
import pytest


@pytest.fixture(scope="session")
def running():
    """A browser."""
    # Not below the folder of the test, whose path may be too long for the browser's sockets.
    profile = tempfile.mkdtemp(prefix="bitclass-")
    browser = chromium.Browser(profile)
    yield browser
    browser.close()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Model and gallery of a folder of drawn images."""
    pytest.importorskip("PIL", reason="the page needs bitclass[images]")
    import explore_images

    folder = tmp_path_factory.mktemp("drawn") / "images"
    folder.mkdir()
    explore_images.draw_folder(folder)
    return explore_images.served_folder(folder)


@pytest.fixture(scope="session")
def explorer(served):
    from bitclass.serving.explorer import Explorer

    return Explorer(served)


@pytest.fixture(scope="session")
def texts_explorer():
    from bitclass.serving import ServedModel
    from bitclass.serving.explorer import Explorer

    return Explorer(ServedModel("texts", text_model()))


def text_model():
    from bitclass import BinaryCodeClassifier
    from bitclass.text import NgramHasher

    hasher = NgramHasher()
    X = hasher.fit_transform(["open the door", "play some music"] * 10)
    model = BinaryCodeClassifier(32, random_state=0, refine=False).fit(X, ["door", "music"] * 10)
    return model.packed().with_text(hasher.features_)


@pytest.fixture(scope="session")
def server(served):
    """A server that runs, with further models of plain rows and of texts."""
    from bitclass.serving import ServedModel, Service, create_server, listen

    rows_only, texts = ServedModel("rows", served.model), ServedModel("texts", text_model())
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    started = threading.Event()
    running = create_server(Service([served, rows_only, texts]), on_start=started.set)
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    assert started.wait(60)
    yield SimpleNamespace(url=f"http://127.0.0.1:{port}/", server_port=port)
    running.should_exit = True
    thread.join()
