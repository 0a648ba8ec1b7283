"""`bitclass.serving.explore`: the page below a cell of a notebook."""

import functools
import http.server
import threading
import urllib.error
import urllib.request

import chromium
import numpy as np
import pytest

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.serving import explore


@pytest.fixture
def model(served):
    """The model, as `bitclass fit` saves it."""
    summary = {"extractor": served.extractor.specification()}
    made = served.model
    return PackedModel(made.classes, made.weights, made.hash_function, summary=summary)


@pytest.fixture
def page(model, served):
    with explore(model, served.gallery.images) as page:
        yield page


def test_a_page_is_served_until_it_is_stopped(model, served):
    page = explore(model, served.gallery.images)
    with urllib.request.urlopen(page.url + "api/models") as answer:
        assert b'"images":48' in answer.read()
    assert page.url in repr(page)
    page.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.url, timeout=5)


def test_models_come_as_estimators_and_files(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 4))
    classifier = BinaryCodeClassifier(16, random_state=0).fit(X, X[:, 0] > 0)
    classifier.save(tmp_path / "m.safetensors")
    for model in (classifier, classifier.packed(), tmp_path / "m.safetensors"):
        with explore(model) as page, urllib.request.urlopen(page.url + "api/models") as answer:
            assert b'"images":0' in answer.read()


def test_images_need_a_model_of_images(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 4))
    classifier = BinaryCodeClassifier(16, random_state=0).fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="images: the model was not trained on images"):
        explore(classifier, tmp_path)


@chromium.needed
def test_a_notebook_of_this_machine_shows_it_and_other_sites_cannot(running, page, tmp_path):
    (tmp_path / "index.html").write_text(f"<!doctype html>{page._repr_html_()}")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            running.screen(1280)
            running.go(f"http://127.0.0.1:{server.server_port}/")
            frames = running.call("Page.getFrameTree")["frameTree"].get("childFrames", [])
            assert [frame["frame"]["url"] for frame in frames] == [page.url]
        finally:
            server.shutdown()
    with urllib.request.urlopen(page.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert policy.endswith("frame-ancestors http://localhost:* http://127.0.0.1:* "
                           "https://localhost:* vscode-webview:")  # fmt: skip
